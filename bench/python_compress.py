# SPDX-License-Identifier: BSD-3-Clause
"""python_compress.py -- compares compressed saves through Python with stock torch's zstd
extension.

bench/run calls it with the output of real_states.py; it needs torch and zstandard in .venv. The
state is that of a mixed-precision training: bfloat16 weights and two float32 moments of Adam,
repeated under other names until it has --mib MiB. A codec sees one tensor at a time, so repetition
does not improve compression.
"""
import argparse
import os
import statistics
import time
import warnings

import torch
import torch.distributed.checkpoint as stock
from safetensors.torch import load_file
from torch.distributed.checkpoint._extension import ZStandard
from torch_support import report, settle, timed, warm

import sidestep


def repeated(tensors, size):
    """Copies of ``tensors`` in turn, until there are ``size`` bytes."""
    state, total = {}, 0
    while total < size:
        for name, tensor in tensors.items():
            state[f"{len(state)}.{name}"] = tensor.clone()
            total += tensor.numel() * tensor.element_size()
    return state


def make_state(args):
    weights, first, second = (load_file(os.path.join(args.states, name + ".safetensors"))
                              for name in ("weights", "first_moments", "second_moments"))
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in weights.items() if tensor.is_floating_point()}
    size = args.mib << 20
    return {"model": repeated(weights, size // 5), "exp_avg": repeated(first, 2 * size // 5),
            "exp_avg_sq": repeated(second, 2 * size // 5)}


def tensors_of(state):
    return [tensor for part in state.values() for tensor in part.values()]


def bytes_in(path):
    return sum(entry.stat().st_size for entry in os.scandir(path))


class Bench:
    def __init__(self, args):
        self.args, self.state = args, make_state(args)
        self.bytes = sum(t.numel() * t.element_size() for t in tensors_of(self.state))
        self.path = os.path.join(args.dir, "compressed")

    def report(self, what, kind, goal, ours, reference="", theirs=None, size=0):
        report("python: " + what, kind, goal, ours, reference, theirs, size)

    def ours(self, compress):
        def save():
            sidestep.save(self.state, storage_writer=sidestep.Writer(
                self.path, options=sidestep.SaveOptions(compress=compress)))
        return save

    def stock(self, threads, extensions):
        def save():
            stock.save(self.state, storage_writer=stock.FileSystemWriter(
                self.path, thread_count=threads, _extensions=extensions))
        return save

    def once(self, save):
        """(seconds, percent that the files are smaller than the tensors)."""
        warm(tensors_of(self.state), self.bytes)
        seconds = timed(save)[0]
        saved = 100 * (1 - bytes_in(self.path) / self.bytes)
        settle(self.path)
        return seconds, saved

    def saves(self):
        """Measure the time until the checkpoint is durable, and the saved bytes. Stock's extension
        uses one thread per file."""
        ways = {"none": self.ours("none"), "zstd": self.ours("zstd"), "planes": self.ours("planes"),
                "stock": self.stock(1, None), "stock zstd": self.stock(1, [ZStandard()]),
                "stock zstd, 2": self.stock(2, [ZStandard()])}
        self.once(ways["none"])  # plans, allocates
        found = {name: [] for name in ways}
        for _ in range(self.args.runs):
            for name, save in ways.items():
                found[name].append(self.once(save))
        seconds = {name: [one[0] for one in rows] for name, rows in found.items()}
        best = min(("stock zstd", "stock zstd, 2"), key=lambda name: statistics.median(seconds[name]))
        label = "dcp.save, zstd" + (", thread_count=2" if best.endswith("2") else "")
        for name in ("zstd", "planes"):
            self.report(f"save with {name}", "speed", 3.0, seconds[name], label, seconds[best], self.bytes)
        for name in ("zstd", "planes"):
            self.report(f"save with {name}", "speed", 0, seconds[name], "sidestep.save without",
                        seconds["none"], self.bytes)
        self.report("save, zstd (stock's own cost)", "speed", 0, seconds[best], "dcp.save without",
                    seconds["stock"], self.bytes)
        for name in ("zstd", "planes", "stock zstd"):
            self.report(f"bytes saved by {name}", "share", 0, [found[name][0][1]])

    def hold(self):
        """Measure how long the call stops the trainer, with and without compression."""
        def run(compress):
            warm(tensors_of(self.state), self.bytes)
            options = sidestep.SaveOptions(compress=compress)
            writer = sidestep.Writer(self.path, options=options)
            began = time.monotonic()
            handle = sidestep.async_save(self.state, storage_writer=writer)
            seconds = time.monotonic() - began
            handle.result()
            settle(self.path)
            return seconds

        found = {"none": [], "planes": []}
        run("planes")
        for _ in range(self.args.runs):
            for compress, samples in found.items():
                samples.append(run(compress))
        self.report("held by an async save with planes", "stall", 1.15, found["planes"],
                    "without compression", found["none"])

    def gains(self):
        """Measure saved bytes and encoding speed for weights, first moments and second moments."""
        for part, tensors in self.state.items():
            planes = sidestep.SaveOptions(compress="planes")
            handle = sidestep.async_save(tensors, storage_writer=sidestep.Writer(self.path, options=planes))
            handle.result()
            raw, stored, seconds = (sum(column) for column in zip(*handle.progress().gains.values()))
            self.report(f"saved of {part} by planes", "share", 0, [100 * (1 - stored / raw)])
            self.report(f"encoding {part} by planes, one core", "duration", 0, [seconds], size=raw)
            settle(self.path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--states", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("parts", nargs="*", default=["saves", "hold", "gains"])
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    bench = Bench(args)
    for part in args.parts:
        getattr(bench, part)()


if __name__ == "__main__":
    main()
