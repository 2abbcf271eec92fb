# SPDX-License-Identifier: BSD-3-Clause
"""race.py -- kernels rewrite the state as early as the promises of docs/GPU.md allow, on random
streams; every word of every checkpoint must be of the epoch of its call.

First the same without fences, which must be caught: otherwise the detector is blind.
"""

import argparse
import shutil
import tempfile
import time

import place
import torch

import sidestep

LATE, EARLY = 12, 4  # tensors


class Writer(torch.optim.Optimizer):
    """Its step writes one number to all its tensors."""

    def __init__(self, tensors):
        self.number = 0
        super().__init__(tensors, {})

    def step(self, closure=None):
        for group in self.param_groups:
            for tensor in group["params"]:
                tensor.detach().fill_(self.number)


class Race:
    """The state: tensors of three optimizers, and tensors that anything may write to."""

    def __init__(self, where, rng, words, folder):
        self.where, self.rng, self.path = where, rng, f"{folder}/it"
        each = max(1, words // (LATE + EARLY))
        self.late = [where.tensor(each) for _ in range(LATE)]
        self.early = [where.tensor(each) for _ in range(EARLY)]
        self.writers = [Writer(self.late[i::3]) for i in range(3)]
        self.words = each * (LATE + EARLY)

    def stream(self):
        return self.rng.randrange(len(self.where.streams))

    def write(self, writer, number):
        writer.number = number
        self.where.delay(self.rng)
        writer.step()

    def round(self, number):
        """How many words of the checkpoint are not ``number``, or what the stand-in saw."""
        state = {f"late{i}": t.detach() for i, t in enumerate(self.late)}
        state.update({f"early{i}": t for i, t in enumerate(self.early)})
        producer, caller = self.stream(), self.stream()
        with self.where.on(producer):
            for writer in self.rng.sample(self.writers, 3):
                self.write(writer, number)
            for tensor in self.early:
                tensor.fill_(number)
        self.where.join(caller, producer)
        with self.where.on(caller):
            handle = sidestep.async_save(state, checkpoint_id=self.path, no_dist=True)
            for tensor in self.early:
                tensor.fill_(-number)
        for writer in self.rng.sample(self.writers, 3):
            with self.where.on(self.stream()):
                self.write(writer, -number)
        handle.result()
        self.where.wait()
        late = handle.progress().fenced_bytes
        assert late == 4 * len(self.late[0]) * LATE, f"{late} bytes were copied late"
        found = sidestep.read(self.path)
        wrong = sum(self.where.differing(found[name], number) for name in state)
        return wrong, self.where.problem()


def control(race, rounds):
    """Without fences."""
    fence_until = sidestep.SaveHandle._fence_until
    sidestep.SaveHandle._fence_until = lambda *_: None
    try:
        for number in range(1, rounds + 1):
            wrong, problem = race.round(number)
            if wrong or problem:
                place.say("race control", ok=True, rounds=number, wrong=wrong, problem=problem)
                return
    finally:
        sidestep.SaveHandle._fence_until = fence_until
    place.say("race control", ok=False, rounds=rounds, why="the missing fence was not seen")


def run(race, words, seconds):
    """With fences, until so many words were compared or so much time has passed."""
    ends, compared, number = time.monotonic() + seconds, 0, 0
    while compared < words and time.monotonic() < ends:
        number += 1
        wrong, problem = race.round(number)
        compared += race.words
        if wrong or problem:
            place.say("race", ok=False, round=number, wrong=wrong, problem=problem)
            return
        if number % 8 == 0:
            place.say("race so far", words=compared, rounds=number)
    place.say("race", ok=True, words=compared, rounds=number, wanted=words)


def main(arguments=None):
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", default="cuda", choices=("cuda", "standin"))
    parser.add_argument("--words", type=float, default=1e10, help="to be compared in all")
    parser.add_argument("--at-once", type=int, default=1 << 28, help="words of the state")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    rng = place.seeded(options.seed if options.seed is not None else time.time_ns() % (1 << 31))
    sidestep.fence_optimizers()
    folder = tempfile.mkdtemp(prefix="race-", dir=place.scratch(8 * options.at_once))
    try:
        race = Race(place.make(options.place), rng, options.at_once, folder)
        control(race, 20)
        run(race, options.words, options.seconds)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
