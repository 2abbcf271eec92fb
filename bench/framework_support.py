# SPDX-License-Identifier: BSD-3-Clause
"""framework_support.py -- what the measurements in training frameworks share: the model, the clock
of its steps, and the comparison of the ways to save.

A step sleeps for a while, as if an accelerator computed, and then the optimizer rewrites the whole
state on one thread. One checkpoint is saved after an early step; the steps after it are long enough
for it to be written. The lost time is that of the steps, without the end of the training, compared
with the median of trainings that save nothing. What the training waits for a processor is left out:
else other programs on the machine would decide the figure.
"""
import argparse
import gc
import logging
import os
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch_support import report, settle

STEPS, SAVED = 8, 2
ASLEEP = 0.5  # seconds of a step
LEARNING = 3  # trainings whose saves teach the snapshot policy
GOAL = 1 / 4
PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "frameworks" / "programs"
SCHEDSTAT = Path("/proc/thread-self/schedstat")


def seconds():
    """A clock that stands still while this thread waits for a processor."""
    waited = int(SCHEDSTAT.read_text().split()[1])
    return time.monotonic() - waited / 1e9


class Net(torch.nn.Module):
    """With the ``moments`` of its optimizer it has ``mib``."""

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
    """Saves once, unless ``save`` is None. Times all steps but the first one, which makes the
    optimizer's state."""

    def __init__(self, save):
        self.save = save

    def step_begins(self, done):
        if done == 1:
            self.began = seconds()

    def step_ended(self, done):
        if self.save is not None and done == SAVED:
            self.save()
        self.ended = seconds()

    def lost(self):
        return self.ended - self.began


def arguments():
    """Those of bench/run. Quiets the framework, leaves one processor to the background, and makes a
    process group of this process alone, if one is needed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--sharded", action="store_true", help="FSDP2, on one rank")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    sys.path.append(str(PROGRAMS))
    args = parser.parse_args()
    if args.sharded:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return args


def compare(what, args, ways, train):
    """Reports the way "sidestep" beside each of the others.

    train(way, path)  the seconds of the steps of a training that saves once, into ``path``, in a
                      way of ``ways``, or does not save: None
    """
    path = os.path.join(args.dir, "checkpoints")

    def timed(way):
        seconds_of_steps = train(way, path)
        gc.collect()
        settle(path)
        if os.path.isfile(path):
            os.unlink(path)
        return seconds_of_steps

    for _ in range(LEARNING):
        timed("sidestep")
    took = {way: [] for way in [None, *ways]}
    for _ in range(args.runs):
        for way, samples in took.items():
            samples.append(timed(way))
    quiet = statistics.median(took[None])
    lost = {way: [one - quiet for one in took[way]] for way in ways}
    stock = [way for way in ways if way != "sidestep"]
    best = min(stock, key=lambda way: statistics.median(lost[way]))
    for way in stock:
        report(f"lost, {what}", "stall", GOAL if way == best else 0, lost["sidestep"], way, lost[way])
