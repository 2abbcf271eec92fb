# SPDX-License-Identifier: BSD-3-Clause
"""torch_bench.py -- stock torch.distributed.checkpoint by the yardstick of bench.c: the same tensors,
and the same plain reads, writes and copies in turns.  Called by bench/run; needs torch in .venv."""
import argparse
import glob
import json
import mmap
import os
import shutil
import time
import warnings

import torch
import torch.distributed.checkpoint as dcp

REQUEST = 8 << 20


def make_state(size):
    """The tensors of state.c."""
    width = 1280 if size > 3 << 29 else 896
    hidden = width * 27 // 10
    rest = size // 4 - 24 * (4 * width * width + 3 * width * hidden)
    words = max(rest // (2 * width), 64)
    shapes = {"model.embedding.weight": (words, width)}
    for layer in range(24):
        for name, shape in (
                ("attention_norm.weight", (width,)),
                ("attention.q.weight", (width, width)), ("attention.q.bias", (width,)),
                ("attention.k.weight", (width, width)), ("attention.k.bias", (width,)),
                ("attention.v.weight", (width, width)), ("attention.v.bias", (width,)),
                ("attention.out.weight", (width, width)), ("mlp_norm.weight", (width,)),
                ("mlp.gate.weight", (hidden, width)), ("mlp.up.weight", (hidden, width)),
                ("mlp.down.weight", (width, hidden))):
            shapes[f"model.layers.{layer}.{name}"] = shape
    shapes.update({"model.norm.weight": (width,), "model.norm.bias": (width,),
                   "model.head.weight": (words, width), "model.rotary.frequencies": (64,),
                   "model.positions": (2048,), "loss_scale": (), "step": ()})
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def warm(state, size):
    for tensor in state.values():
        tensor.view(-1)[::1024].sum()
    free = mmap.mmap(-1, size + (64 << 20))
    free.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, len(free), 4096):
        free[at] = 1
    free.close()


def timed(function):
    began = time.monotonic()
    result = function()
    return time.monotonic() - began, result


def sync_files(path):
    """dcp.save has already synced its files; this makes them droppable."""
    for name in [path, *glob.glob(path + "/*"), *glob.glob(path + "/.metadata")]:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def settle(path):
    shutil.rmtree(path, ignore_errors=True)
    os.sync()
    time.sleep(0.2)


def plain_write(path, state):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    for tensor in state.values():
        data = memoryview(tensor.reshape(-1).numpy()).cast("B")
        for at in range(0, len(data), REQUEST):
            os.write(fd, data[at:at + REQUEST])
    os.fsync(fd)
    os.close(fd)


def plain_read(path):
    buffer = bytearray(REQUEST)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def copy_all(to, state):
    for name, tensor in state.items():
        to[name].copy_(tensor)


def report(what, kind, size, ours, reference, theirs):
    print(json.dumps({"what": what, "kind": kind, "goal": 0, "bytes": size, "ours": ours,
                      "reference": reference, "theirs": theirs}), flush=True)


def measure_save(state, size, runs, directory):
    path = os.path.join(directory, "torch")
    file = os.path.join(path, "plain")
    ours, theirs = [], []
    for _ in range(runs):
        warm(state, size)
        ours.append(timed(lambda: dcp.save(state, checkpoint_id=path, no_dist=True))[0])
        settle(path)
        os.mkdir(path)
        warm(state, size)
        theirs.append(timed(lambda: plain_write(file, state))[0])
        settle(path)
    report("stock torch: dcp.save", "speed", size, ours, "pwrite, fsync", theirs)


def measure_async(state, size, runs, directory):
    path = os.path.join(directory, "torch")
    to = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    ours, theirs = [], []
    for _ in range(runs):
        warm(state, size)
        seconds, future = timed(lambda: dcp.async_save(state, checkpoint_id=path, no_dist=True))
        ours.append(seconds)
        future.result()
        settle(path)
        warm(state, size)
        copy_all(to, state)
        theirs.append(timed(lambda: copy_all(to, state))[0])
    report("stock torch: async_save call", "stall", size, ours, "parallel copy_", theirs)


def measure_load(state, size, runs, directory):
    path = os.path.join(directory, "torch")
    dcp.save(state, checkpoint_id=path, no_dist=True)
    shard = glob.glob(path + "/*.distcp")[0]
    ours, theirs = [], []
    for _ in range(runs):
        sync_files(path)
        warm(state, size)
        ours.append(timed(lambda: dcp.load(state, checkpoint_id=path, no_dist=True))[0])
        sync_files(path)
        warm(state, size)
        theirs.append(timed(lambda: plain_read(shard))[0])
    settle(path)
    report("stock torch: dcp.load, cold", "speed", size, ours, "read into one buffer", theirs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--mib", type=int, required=True)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    size = args.mib << 20
    state = make_state(size)
    size = sum(tensor.numel() * 4 for tensor in state.values())
    measure_save(state, size, args.runs, args.dir)
    measure_async(state, size, args.runs, args.dir)
    measure_load(state, size, args.runs, args.dir)


if __name__ == "__main__":
    main()
