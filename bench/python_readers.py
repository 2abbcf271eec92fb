# SPDX-License-Identifier: BSD-3-Clause
"""python_readers.py -- measures saves in the background while a data loader reads from the same
disk, 128 KiB at a time: the times of its reads and of the saves. bench/run calls it."""

import mmap
import multiprocessing
import os
import random
import sys
import tempfile
import time

import torch
from torch_support import report

import sidestep

SIZE = 128 << 10
WAYS = {"0": "reads beside a save", "1": "with SIDESTEP_KEEP_PACE"}


def save(path, mib, keep_pace, pipe):
    """Save at each request, and send the seconds to the pipe."""
    os.environ["SIDESTEP_KEEP_PACE"] = keep_pace
    state = {f"t{i}": torch.full((1 << 22,), float(i)) for i in range(mib // 16)}
    sidestep.save(state, checkpoint_id=path)
    while pipe.recv():
        began = time.perf_counter()
        handle = sidestep.async_save(state, checkpoint_id=path)
        while not handle.done():
            time.sleep(0.001)
        pipe.send(time.perf_counter() - began)


def read(file, pipe):
    """(mean, 99th percentile) of a read while a save runs, and the seconds of the save. Without a
    pipe, it reads for one second without a save."""
    memory, took, until = mmap.mmap(-1, SIZE), [], time.perf_counter() + 1
    if pipe is not None:
        pipe.send(True)
    while not pipe.poll() if pipe is not None else time.perf_counter() < until:
        began = time.perf_counter()
        os.preadv(file, [memory], random.randrange(os.fstat(file).st_size // SIZE) * SIZE)
        took.append(time.perf_counter() - began)
    return sum(took) / len(took), sorted(took)[len(took) * 99 // 100], pipe.recv() if pipe is not None else 1.0


def main(directory, mib, runs):
    """Measure in turns: no save, a save that backs off, and a save that keeps its pace."""
    spawn, pipes = multiprocessing.get_context("spawn"), {None: None}
    with tempfile.TemporaryDirectory(dir=directory) as root, open(os.path.join(root, "data"), "wb") as data:
        for _ in range(mib):
            os.write(data.fileno(), os.urandom(1 << 20))
        os.fsync(data.fileno())
        file = os.open(data.name, os.O_RDONLY | os.O_DIRECT)
        for way in WAYS:
            pipes[way], theirs = spawn.Pipe()
            spawn.Process(target=save, args=(os.path.join(root, way), mib, way, theirs), daemon=True).start()
            read(file, pipes[way])  # the first save allocates memory
        runs = [{way: read(file, pipe) for way, pipe in pipes.items()} for _ in range(runs)]
        for way in WAYS:
            pipes[way].send(False)
    for i, what in enumerate(("mean", "99th percentile", "seconds of the save")):
        for way, label in WAYS.items():
            none = [run[None][i] for run in runs] if i < 2 else None
            report(f"{label}: {what}", "duration", 0, [run[way][i] for run in runs], "no save" if none else "", none)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
