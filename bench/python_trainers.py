# SPDX-License-Identifier: BSD-3-Clause
"""python_trainers.py -- measures what a checkpoint costs three kinds of trainers, for every way to
save.

bench/run calls it; it needs torch in .venv. A step multiplies matrices for a while on one thread
and then rewrites the whole state, as an optimizer does. The lost time is the time of the call, plus
how much longer the steps during the save took. A row of kind "timeline" contains the steps and
phases of one save, for plots.py.
"""
import argparse
import functools
import json
import os
import statistics
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as stock
from python_bench import LEARNING, bytes_of, make_state, tensors_of
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch_support import report, settle, warm

import sidestep

# Seconds of work in a step: more than any way to save needs; less than a disk needs for the state;
# none. Trainers that write late come first: a save learns from those before it.
TRAINERS = {"computes until it is written": 2.0, "computes 200 ms first": 0.2, "rewrites at once": 0.0}
# Goals for the lost time, as a fraction of stock's best: on pages of 4 KiB and on huge pages.
GOALS = {"rewrites at once": (0, 0), "computes 200 ms first": (1 / 5, 1 / 5),
         "computes until it is written": (1 / 8, 1 / 20)}


class Trainer:
    def __init__(self, state):
        self.state = state
        self.matrix = torch.randn(512, 512)
        for _ in range(20):
            self._unit()
        began = time.monotonic()
        for _ in range(50):
            self._unit()
        self.units_a_second = 50 / (time.monotonic() - began)

    def _unit(self):
        for _ in range(4):
            self.matrix = torch.tanh(self.matrix @ self.matrix)

    def compute(self, units):
        for _ in range(units):
            self._unit()

    def step(self, units, before_rewriting=lambda: None):
        """(began, rewrote, ended)"""
        began = time.monotonic()
        self.compute(units)
        before_rewriting()
        rewrote = time.monotonic()
        for tensor in tensors_of(self.state):
            tensor.mul_(0.999)
        return began, rewrote, time.monotonic()


def staged(answer):
    """Wait for the copy of a stock save that copies after its call has returned."""
    staging = getattr(answer, "staging_completion", None)
    if staging is not None:
        staging.result()


def upload(answer):
    return getattr(answer, "upload_completion", answer)


class Bench:
    def __init__(self, args, pages):
        self.args, self.pages = args, pages
        self.state = make_state(args)
        self.bytes = bytes_of(self.state)
        self.trainer = Trainer(self.state)
        self.path = os.path.join(args.dir, "trainers")

    def ways(self):
        """{name: save(state, checkpoint_id=)} of every way to save. The engine of a process group
        reads the environment when it is opened."""
        ways = {}
        for snapshot in ("auto", "copy"):  # a second engine could not protect the same state
            os.environ["SIDESTEP_SNAPSHOT"] = snapshot
            group = dist.new_group(backend="gloo")
            ways[snapshot] = functools.partial(sidestep.async_save, process_group=group)
            ways[snapshot](self.state, checkpoint_id=self.path).result()
            settle(self.path)
        ways["stock: async_save"] = stock.async_save
        for name, is_async in (("a reused stager", False), ("async staging", True)):
            stager = DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=False,
                                                  use_async_staging=is_async, use_non_blocking_copy=False))
            ways["stock: " + name] = functools.partial(stock.async_save, async_stager=stager)
        ways["stock: save"] = stock.save
        return ways

    def beside(self, save, units):
        """(times of the save's phases, steps until the save has ended)."""
        phases = {}

        def note(name, _):
            phases[name] = time.monotonic()

        warm(tensors_of(self.state), self.bytes)
        phases["called"] = time.monotonic()
        answer = save(self.state, checkpoint_id=self.path)
        phases["returned"] = time.monotonic()
        futures = {name: getattr(answer, name) for name in ("released", "written") if hasattr(answer, name)}
        if hasattr(upload(answer), "add_done_callback"):
            futures["ended"] = upload(answer)
        for name, future in futures.items():
            future.add_done_callback(functools.partial(note, name))
        steps = []
        while not steps or ("ended" in futures and not futures["ended"].done()):
            steps.append(self.trainer.step(units, functools.partial(staged, answer)))
        if "ended" in futures:
            futures["ended"].result()
        settle(self.path)
        return phases, steps

    def measure(self, name, seconds, ways):
        units = round(seconds * self.trainer.units_a_second)
        lost = {way: [] for way in ways}
        longer = {way: [] for way in ways}
        for run in range(-(LEARNING if seconds < 1 else 1), self.args.runs):
            took = [end - began for began, _, end in (self.trainer.step(units) for _ in range(3 if seconds < 1 else 1))]
            quiet = statistics.median(took)
            for way, save in ways.items():
                phases, steps = self.beside(save, units)
                mean = statistics.mean(end - began for began, _, end in steps)
                lost[way].append(phases["returned"] - phases["called"] + len(steps) * (mean - quiet))
                longer[way].append(mean / quiet)
                if name == "computes 200 ms first" and run == self.args.runs - 1:
                    self.timeline(way, phases, steps)
        first = lost["auto"][:1]
        for values in [*lost.values(), *longer.values()]:
            del values[:-self.args.runs]  # of the saves from which sidestep learns
        best = min((way for way in ways if way.startswith("stock: ") and way != "stock: save"),
                   key=lambda way: statistics.median(lost[way]))
        for ours in ("auto", "copy"):
            report(f"lost, {ours}, {self.pages}, {name}", "stall", GOALS[name][self.args.huge] if ours == "auto" else 0, lost[ours], best, lost[best], size=0)
        report(f"lost, auto, {self.pages}, {name}", "stall", 0, lost["auto"], "stock: save", lost["stock: save"], size=0)
        report(f"lost, first save, auto, {self.pages}, {name}", "stall", 0, first, "later saves", lost["auto"], size=0)
        report(f"steps beside a save, auto, {self.pages}, {name}", "stall", 1.03 if seconds > 1 else 0,
               longer["auto"], "steps without one", [1.0], size=0)

    def timeline(self, way, phases, steps):
        zero = phases["called"]
        print(json.dumps({"what": way + ", " + self.pages, "kind": "timeline",
                          "phases": {name: at - zero for name, at in phases.items()},
                          "steps": [[at - zero for at in step] for step in steps]}), flush=True)


def start():
    """Parse the command line; return the `Bench` and every way to save its state."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--huge", action="store_true", help="the state on huge pages")
    args = parser.parse_args()
    args.tensors = 300
    pages = "huge pages" if args.huge else "4 KiB pages"
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        dist.init_process_group("gloo", init_method=f"file://{directory}/rendezvous", rank=0, world_size=1)
        bench = Bench(args, pages)
        if args.huge:
            sidestep.huge_pages(bench.state)
        return bench, bench.ways()


def main():
    bench, ways = start()
    for name, seconds in TRAINERS.items():
        bench.measure(name, seconds, ways)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
