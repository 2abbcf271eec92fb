# SPDX-License-Identifier: BSD-3-Clause
"""framework_support.py -- what the measurements in training frameworks share: the model, the clock
of its steps, and the comparison of the ways to save.

A step sleeps for a while, as if an accelerator computed, and then the optimizer rewrites the whole
state on one thread. A training saves in rounds. A round begins with a few quiet steps, during which
no save runs. The next step starts a save, and more steps run during it. Between two rounds the
clock is stopped until the save has ended and the disk is idle.

The lost time of a checkpoint is the time of the steps from the save on, minus the time of as many
quiet steps before and after them. Both are within seconds of each other, so other programs disturb
both alike. The clock is that of the trainer's thread: it stops while the thread waits for a
processor. The processor time of a checkpoint is that of all threads and child processes, minus that
of quiet steps.
"""
import argparse
import ctypes
import gc
import logging
import os
import random
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch_support import report, settle

QUIET, BESIDE = 3, 5  # quiet steps of a round, and steps during a save; the first of these saves
ROUND = QUIET + BESIDE
SAVES = 4  # counted per training; the first round is not counted: it creates the optimizer's state
STEPS = (1 + SAVES) * ROUND + QUIET  # the last quiet steps end the last round
ASLEEP = 0.5  # seconds that a step sleeps
GOAL = 1 / 4
DRAWS = 2000  # bootstrap draws, for the range of a ratio
TICK = 1 / os.sysconf("SC_CLK_TCK")
PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "frameworks" / "programs"
SCHEDSTAT = Path("/proc/thread-self/schedstat")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h


def keep_freed_memory():
    """From now on, freed memory is used again without page faults, as an accelerator's caching
    allocator does. Otherwise a way to save that frees a copy of the state speeds up the steps after
    it, which allocate their gradients anew."""
    mallopt = ctypes.CDLL(None).mallopt
    if not (mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1)):
        raise RuntimeError("mallopt() refused")


def seconds():
    """Read a clock that stops while this thread waits for a processor."""
    waited = int(SCHEDSTAT.read_text().split()[1])
    return time.monotonic() - waited / 1e9


def processor_seconds():
    """The processor time of this process and of its children, which some ways to save start."""
    total = time.process_time()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        if int(words[1]) == os.getpid():
            total += (int(words[11]) + int(words[12])) * TICK
    return total


class Net(torch.nn.Module):
    """A model that has ``mib`` MiB together with the ``moments`` of its optimizer."""

    def __init__(self, mib, moments=1):
        super().__init__()
        count = max(1, mib // 4 // (1 + moments))
        self.layers = torch.nn.ParameterList(torch.ones(1024, 1024) for _ in range(count))

    def forward(self, batch):
        time.sleep(ASLEEP)
        return sum((one * 1e-6).sum() for one in self.layers) + 0 * batch.sum()


def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)


class Clock:
    """Makes a training save in each round, and times its steps: from the beginning of each step to
    that of the next one, since some frameworks save between two steps.

    save    starts a save, or asks the framework for one after this step
    finish  waits for the running save
    path    the target of all saves; it is emptied after each of them
    """

    def __init__(self, path, save, finish):
        self.path, self.save, self.finish = path, save, finish
        self.steps = []  # (seconds, processor seconds) of each step
        self.began = None

    def step_begins(self, done):
        """``done``: the number of finished steps."""
        self._stop()
        if done and done % ROUND == 0:
            self.finish()
            empty(self.path)
        worked = processor_seconds()
        self.began = seconds(), worked

    def step_ended(self, done):
        if (done - 1) % ROUND == QUIET:
            self.save()
        if done == STEPS:
            self._stop()

    def _stop(self):
        if self.began is not None:
            self.steps.append((seconds() - self.began[0], processor_seconds() - self.began[1]))

    def lost(self):
        """(lost seconds, processor seconds) of each checkpoint but the first."""
        return [tuple(self._beyond_quiet(at, kind) for kind in (0, 1))
                for at in range(ROUND, len(self.steps) - QUIET, ROUND)]

    def _beyond_quiet(self, at, kind):
        taken = [step[kind] for step in self.steps]
        quiet = taken[at:at + QUIET] + taken[at + ROUND:at + ROUND + QUIET]
        return sum(taken[at + QUIET:at + ROUND]) - BESIDE * statistics.median(quiet)


def empty(path):
    settle(path)
    if os.path.isfile(path):
        os.unlink(path)


def arguments():
    """Parse the arguments that bench/run passes. Also silence the framework's warnings, limit torch
    to one thread, keep freed memory, and, with --sharded, make a process group of one rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--sharded", action="store_true", help="FSDP2, on one rank")
    parser.add_argument("--registered", action="store_true", help="Accelerate: half of the state is in registered objects")
    parser.add_argument("--lora", action="store_true", help="Accelerate: LoRA, whose frozen base is the model")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    keep_freed_memory()
    sys.path.append(str(PROGRAMS))
    args = parser.parse_args()
    if args.sharded:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return args


def compare(what, args, ways, train):
    """Report the way "sidestep" compared with each other way of ``ways``.

    train(way, path)  runs a training of STEPS steps that saves into ``path``; returns its `Clock`
    """
    path = os.path.join(args.dir, "checkpoints")

    def lost_by(way):
        lost = train(way, path).lost()
        gc.collect()
        empty(path)
        return lost

    lost_by("sidestep")  # teaches the snapshot policy
    lost = {way: [] for way in ways}
    for _ in range(args.runs):
        for way, samples in lost.items():
            samples += lost_by(way)
    times, work = ({way: [one[kind] for one in lost[way]] for way in ways} for kind in (0, 1))
    stock = [way for way in ways if way != "sidestep"]
    best = min(stock, key=lambda way: statistics.median(times[way]))
    for way in stock:
        report(f"lost, {what}", "stall", GOAL if way == best else 0, times["sidestep"], way, times[way],
               range=range_of_ratio(times["sidestep"], times[way]))
        report(f"processor time, {what}", "cpu", 0, work["sidestep"], way, work[way])


def range_of_ratio(ours, theirs):
    """The 90 % confidence interval of the ratio of the medians, by bootstrap."""
    draw = random.Random(1).choices
    ratios = sorted(statistics.median(draw(ours, k=len(ours))) / statistics.median(draw(theirs, k=len(theirs)))
                    for _ in range(DRAWS))
    return ratios[DRAWS // 20], ratios[-DRAWS // 20]
