# SPDX-License-Identifier: BSD-3-Clause
"""python_convert.py -- compares `sidestep convert` with what stock torch offers, and with a simple
copy of the file.

bench/run calls it; it needs torch and safetensors in .venv. Sources are not in the page cache. A
time ends when the output is durable: stock's tools do not sync, so this program does it for them.
Each way runs in its own process, to measure its memory. For stock, the time to start Python and to
import torch does not count.
"""
import argparse
import glob
import mmap
import os
import statistics
import subprocess
import sys
import time

from torch_support import drop_from_cache, report, settle

REQUEST = 16 << 20
MATRIX_MIB = 16  # size of each tensor


# ---------------------------------------------------------------- stock's ways, in a process of their own

def make_durable(path):
    for name in sorted(glob.glob(path + "/**", recursive=True)) if os.path.isdir(path) else [path]:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def template(source):
    import torch
    from torch.distributed.checkpoint import FileSystemReader

    metadata = FileSystemReader(source).read_metadata().state_dict_metadata
    return {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in metadata.items()}


def loaded(source):
    import torch.distributed.checkpoint as dcp

    state = template(source)
    dcp.load(state, checkpoint_id=source)
    return state


def dcp_to_safetensors(source, target):
    from safetensors.torch import save_file

    save_file(loaded(source), target)


def dcp_to_hf(source, target):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageWriter

    dcp.save(loaded(source), storage_writer=HuggingFaceStorageWriter(
        target, save_distributed=True, enable_consolidation=True, thread_count_consolidation=2))


def safetensors_to_dcp(source, target):
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file

    dcp.save(load_file(source), checkpoint_id=target)


def dcp_to_torch(source, target):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(source, target)


def torch_to_dcp(source, target):
    from torch.distributed.checkpoint.format_utils import torch_save_to_dcp

    torch_save_to_dcp(source, target)


STOCK = {function.__name__: function for function in
         (dcp_to_safetensors, dcp_to_hf, safetensors_to_dcp, dcp_to_torch, torch_to_dcp)}


def run_stock(name, source, target):
    """Run in a process made for this way; print the seconds on standard output."""
    import warnings

    import safetensors.torch  # noqa: F401 -- so that its time is not counted
    import torch.distributed.checkpoint.format_utils  # noqa: F401

    warnings.filterwarnings("ignore")
    began = time.monotonic()
    STOCK[name](source, target)
    make_durable(target)
    print(time.monotonic() - began)


def make_checkpoint(mib, path):
    import torch

    import sidestep

    count = mib // MATRIX_MIB
    state = {f"layers.{i}.weight": torch.randn(MATRIX_MIB * 256, 2048, dtype=torch.bfloat16) for i in range(count)}
    sidestep.save(state, checkpoint_id=path)


# ---------------------------------------------------------------- measuring

def plain_copy(source, target):
    """Copy one file with O_DIRECT, one request after the other, and make it durable."""
    buffer = mmap.mmap(-1, REQUEST)
    began = time.monotonic()
    reading = os.open(source, os.O_RDONLY | os.O_DIRECT)
    writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o666)
    at = 0
    while (length := os.preadv(reading, [buffer], at)) > 0:
        os.pwritev(writing, [memoryview(buffer)[: -(-length // 4096) * 4096]], at)
        at += length
    os.fsync(writing)
    os.close(reading)
    os.close(writing)
    return time.monotonic() - began


def measured(command, prints_seconds):
    """(seconds, peak of resident bytes) of a process."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"bench: '{' '.join(command)}' failed")
    return float(said) if prints_seconds else seconds, usage.ru_maxrss * 1024


class Bench:
    def __init__(self, args):
        self.args = args
        self.path = {name: os.path.join(args.dir, name) for name in
                     ("dcp", "weights.safetensors", "weights.pt", "out")}
        self.bytes = 0

    def make_sources(self):
        """Write the sources with sidestep; stock can read them. Another process writes them, since a
        child's peak of memory starts at that of its parent."""
        command = [sys.executable, __file__, f"--make={self.args.mib}", self.path["dcp"]]
        subprocess.run(command, check=True)
        self.bytes = self.args.mib // MATRIX_MIB * MATRIX_MIB << 20
        for target in ("weights.safetensors", "weights.pt"):
            subprocess.run([self.args.cli, "convert", "-q", self.path["dcp"], self.path[target]],
                           check=True, stdout=subprocess.DEVNULL)

    def once(self, source, ending, command, prints_seconds=False):
        target = self.path["out"] + ending
        drop_from_cache(source)
        found = measured([*command, source, target], prints_seconds)
        self.clean(target)
        return found

    def copy(self, source):
        if os.path.isdir(source):
            (source,) = glob.glob(source + "/*.distcp")
        target = self.path["out"]
        drop_from_cache(source)
        seconds = plain_copy(source, target)
        self.clean(target)
        return seconds, REQUEST

    @staticmethod
    def clean(target):
        if os.path.exists(target) and not os.path.isdir(target):
            os.unlink(target)
        settle(target)

    def compare(self, what, source, ending, to, others):
        source = self.path[source]
        ours = [self.args.cli, "convert", "-q", "--to=" + to]
        ways = {"sidestep": lambda: self.once(source, ending, ours), "copy": lambda: self.copy(source)}
        for name in others:
            command = [sys.executable, __file__, "--stock=" + name]
            ways[name] = lambda name=name, command=command: self.once(
                source, "" if name == "dcp_to_hf" else ending, command, True)
        samples = {name: [] for name in ways}
        for _ in range(self.args.runs):
            for name, way in ways.items():
                samples[name].append(way())
        times, peaks = ({name: [one[k] for one in rows] for name, rows in samples.items()} for k in (0, 1))
        self.report(what, "speed", 0.8, times["sidestep"], "plain copy, O_DIRECT", times["copy"], self.bytes)
        for name in others:
            self.report(what, "speed", 3.0, times["sidestep"], others[name], times[name], self.bytes)
        best = min(others, key=lambda name: statistics.median(peaks[name]))
        self.report(what + ", memory", "memory", 256 << 20, peaks["sidestep"], others[best], peaks[best])

    def report(self, what, kind, goal, ours, reference, theirs, size=0):
        report("convert: " + what, kind, goal, ours, reference, theirs, size)

    def run(self):
        self.make_sources()
        self.compare("checkpoint to safetensors", "dcp", ".safetensors", "safetensors", {
            "dcp_to_safetensors": "dcp.load, save_file", "dcp_to_hf": "dcp.load, dcp.save to HF"})
        self.compare("safetensors to checkpoint", "weights.safetensors", "", "dcp", {
            "safetensors_to_dcp": "load_file, dcp.save"})
        self.compare("checkpoint to torch.save()", "dcp", ".pt", "torch", {"dcp_to_torch": "dcp_to_torch_save"})
        self.compare("torch.save() to checkpoint", "weights.pt", "", "dcp", {"torch_to_dcp": "torch_save_to_dcp"})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir")
    parser.add_argument("--cli")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--stock")
    parser.add_argument("--make", type=int)
    parser.add_argument("paths", nargs="*")
    args = parser.parse_args()
    if args.stock:
        run_stock(args.stock, *args.paths)
    elif args.make:
        make_checkpoint(args.make, *args.paths)
    else:
        Bench(args).run()


if __name__ == "__main__":
    main()
