# SPDX-License-Identifier: BSD-3-Clause
"""python_busy.py -- measures the time that a checkpoint takes from a trainer that keeps every
processor busy and does not change its state until it is written, for every way to save in the
background.

bench/run calls it. The trainer loses the time of the call, and its share of the processor time that
this process takes until its work is done. Time of other programs does not count, nor does that
of the kernel threads that write stock's files from the page cache to the disk. Other processes
stand for the trainer, so that no processor is idle.
"""
import os
import signal
import statistics
import subprocess
import sys
import time

import torch.distributed as dist
from python_bench import LEARNING, tensors_of
from python_trainers import Bench, start, upload
from torch_support import report, settle, warm

WORK = [sys.executable, "-c", "while True: pass"]
GOAL = 1 / 5
CPUS = len(os.sched_getaffinity(0))
SETTLING = 8  # saves before the first sample of `auto`: its price of finding out is a row of its own
SECONDS = 4  # a save ends in this time even if it gets little processor time


class Trainer:
    """Processes that keep all processors busy during compute()."""

    def __init__(self):
        self.processes = [subprocess.Popen(WORK) for _ in range(CPUS)]
        self.tell(signal.SIGSTOP)

    def tell(self, what):
        for process in self.processes:
            process.send_signal(what)

    def compute(self):
        self.tell(signal.SIGCONT)
        time.sleep(SECONDS)
        self.tell(signal.SIGSTOP)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def processor_time_at_rest():
    """Of this process, once its threads have nothing left to do."""
    used, then = time.process_time(), 0
    while used - then > 0.002:
        time.sleep(0.1)
        used, then = time.process_time(), used
    return used


def lost_by(bench, trainer, save):
    """(seconds lost, seconds of processor time) of one save. Nothing waits for it, so it gets the
    processor time that the trainer leaves. What it does after the checkpoint exists counts, too."""
    warm(tensors_of(bench.state), bench.bytes)
    before, began = time.process_time(), time.monotonic()
    answer = save(bench.state, checkpoint_id=bench.path)
    call, called = time.monotonic() - began, time.process_time()
    trainer.compute()
    upload(answer).result()
    ended = processor_time_at_rest()
    settle(bench.path)
    return call + (ended - called) / CPUS, ended - before


def main():
    bench, ways = start()
    trainer = Trainer()
    del ways["stock: save"]  # not in the background
    lost, took = {way: [] for way in ways}, {way: [] for way in ways}
    settling = [lost_by(bench, trainer, ways["auto"])[0] for _ in range(SETTLING)]
    for save in [*ways.values()] * LEARNING:
        lost_by(bench, trainer, save)
    for _ in range(bench.args.runs):
        for way, save in ways.items():
            seconds, processor = lost_by(bench, trainer, save)
            lost[way].append(seconds)
            took[way].append(processor)
    trainer.end()
    report(f"lost, first {SETTLING} saves, auto, {bench.pages}, all processors busy", "stall", 0, [sum(settling)],
           "copy, settled", [SETTLING * statistics.median(lost["copy"])])
    best = min((way for way in ways if way.startswith("stock: ")), key=lambda way: statistics.median(lost[way]))
    for ours in ("auto", "copy"):
        report(f"lost, {ours}, {bench.pages}, all processors busy", "stall", GOAL if ours == "auto" else 0,
               lost[ours], best, lost[best])
        report(f"processor time, {ours}, {bench.pages}, all processors busy", "cpu", 0, took[ours], best, took[best])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
