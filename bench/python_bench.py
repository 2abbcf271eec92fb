# SPDX-License-Identifier: BSD-3-Clause
"""python_bench.py -- compares sidestep with stock torch.distributed.checkpoint, through Python.

bench/run calls it; it needs torch in .venv. The state is that of a mixed-precision training with
bfloat16 parameters and two float32 moments of Adam, in 300 tensors; or it has 10,000 small tensors.
Both save and load the same tensors in turns. With --ranks, each rank holds its DTensor shards.
"""
import argparse
import contextlib
import functools
import glob
import os
import re
import statistics
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch_support import MemoryGroup, drop_from_cache, plain_read, report, settle, timed, warm

import sidestep

STEPS, SAVE_AT = 12, 4  # steps of a trainer's loop, and the step that saves
LEARNING = 3  # loops that are not counted: they allocate, and sidestep learns when the trainer writes


# ---------------------------------------------------------------- the state

def make_state(args):
    if args.tensors > 1000:
        return {f"layer.{i}": torch.randn(args.mib * 2**20 // args.tensors // 4) for i in range(args.tensors)}
    layers = args.tensors // 3
    each = args.mib * 2**20 // 10 // layers // 1024
    state = {"model": {}, "exp_avg": {}, "exp_avg_sq": {}}
    for i in range(layers):
        weight = torch.randn(each, 1024)
        state["model"][f"layers.{i}.weight"] = weight.to(torch.bfloat16)
        state["exp_avg"][f"layers.{i}.weight"] = weight
        state["exp_avg_sq"][f"layers.{i}.weight"] = weight * weight
    return state


def sharded(state, mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    if mesh is None:
        return state
    return {key: sharded(value, mesh) if isinstance(value, dict)
            else distribute_tensor(value, mesh, [Shard(0)]) for key, value in state.items()}


def tensors_of(state):
    for value in state.values():
        if isinstance(value, dict):
            yield from tensors_of(value)
        else:
            yield value.to_local() if hasattr(value, "to_local") else value


def bytes_of(state):
    return sum(t.numel() * t.element_size() for t in tensors_of(state))


# ---------------------------------------------------------------- measuring

class Bench:
    """One state, one directory and one set of ranks. Rank 0 prints the rows on stdout."""

    def __init__(self, args, rank, mesh):
        self.args, self.rank, self.mesh = args, rank, mesh
        self.state = sharded(make_state(args), mesh)
        self.bytes = bytes_of(self.state)
        self.prefix = f"python, {args.ranks} ranks: " if args.ranks > 1 else "python: "
        if args.tensors > 1000:
            self.prefix += f"{args.tensors} tensors, "

    def path(self, name):
        return os.path.join(self.args.dir, "python-" + name)

    def together(self, seconds):
        """The time of the slowest rank."""
        if self.mesh is None:
            return seconds
        slowest = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return slowest.item()

    def barrier(self):
        if self.mesh is not None:
            dist.barrier()

    def clean(self, path):
        self.barrier()
        if self.rank == 0:
            settle(path)
        self.barrier()

    def warm(self):
        warm(tensors_of(self.state), self.bytes)
        self.barrier()

    def turns(self, *functions):
        """Run each function once per run, in turns; return the samples of each."""
        samples = [[] for _ in functions]
        for _ in range(self.args.runs):
            for function, sample in zip(functions, samples):
                self.warm()
                sample.append(self.together(function()))
        return samples

    def report(self, what, kind, goal, ours, reference, theirs, size=None):
        if self.rank == 0:
            size = self.bytes * self.args.ranks if size is None else size
            report(self.prefix + what, kind, goal, ours, reference, theirs, size)

    # ------------------------------------------------------------ blocking

    def save(self):
        def run(save):
            path = self.path("save")
            seconds = timed(lambda: save(self.state, checkpoint_id=path))[0]
            self.clean(path)
            return seconds

        def with_threads(count, state, checkpoint_id):
            writer = stock.FileSystemWriter(checkpoint_id, thread_count=count)
            return stock.save(state, storage_writer=writer)

        variants = {f"thread_count={n}": functools.partial(run, functools.partial(with_threads, n))
                    for n in (2, 4)}
        run(sidestep.save)  # plans, allocates
        ours, default, *others = self.turns(functools.partial(run, sidestep.save),
                                            functools.partial(run, stock.save), *variants.values())
        goal = 1.5 if self.args.ranks > 1 else 2.0
        self.report("save", "speed", goal if self.args.tensors <= 1000 else 0, ours, "dcp.save", default)
        best = min(others, key=statistics.median)
        name = list(variants)[others.index(best)]
        self.report("save", "speed", 1.3 if self.args.tensors <= 1000 and self.args.ranks == 1 else 0,
                    ours, f"dcp.save, {name}", best)

    def load(self):
        path = self.path("load")
        sidestep.save(self.state, checkpoint_id=path)
        files = sorted(glob.glob(path + "/*.distcp"))

        def cold(function):
            self.barrier()
            if self.rank == 0:  # memory that the page cache has just freed is fast to allocate again
                for file in files:
                    plain_read(file)
            self.barrier()
            drop_from_cache(path)
            self.barrier()
            return function()

        def time_of(action):
            return lambda: timed(action)[0]

        own = files[self.rank % len(files)]
        ours = time_of(lambda: sidestep.load(self.state, checkpoint_id=path))
        theirs = time_of(lambda: stock.load(self.state, checkpoint_id=path))
        plain = time_of(lambda: plain_read(own))
        into_tensors = time_of(lambda: self.read_into_tensors(own))
        ours()
        samples = self.turns(ours, theirs, into_tensors)
        self.report("load, page cache", "speed", 3.0 if self.args.tensors <= 1000 else 0,
                    samples[0], "dcp.load", samples[1])
        self.report("load, page cache", "speed", 0, samples[0], "plain read into the tensors", samples[2])
        samples = self.turns(*(functools.partial(cold, f) for f in (ours, plain, theirs)))
        self.report("load, cold", "speed", 0.9, samples[0], "plain read of the files", samples[1])
        self.report("load, cold", "speed", 0, samples[0], "dcp.load", samples[2])
        self.clean(path)

    def read_into_tensors(self, path):
        """Read a file into this rank's tensors, one call for each. Nothing is parsed or verified."""
        with open(path, "rb", buffering=0) as file:
            for tensor in tensors_of(self.state):
                file.readinto(tensor.view(-1).view(torch.uint8).numpy())

    def again(self):
        """Measure three loads of a checkpoint in a row: what the first leaves for the next."""
        path, names, taken = self.path("again"), ("first", "second", "third"), {}
        sidestep.save(self.state, checkpoint_id=path)
        self.warm()
        for load in (sidestep.load, stock.load):
            load(self.state, checkpoint_id=path)
        if self.args.page_cache and self.rank == 0:
            self.args.group.leave_to_page_cache(self.args.page_cache << 20)
        for _ in range(self.args.runs):
            for load in (sidestep.load, stock.load):
                self.barrier()
                drop_from_cache(path)
                for name in names:
                    self.barrier()
                    seconds = timed(lambda load=load: load(self.state, checkpoint_id=path))[0]
                    taken.setdefault((load, name), []).append(self.together(seconds))
        tight = f", page cache of {self.args.page_cache} MiB" if self.args.page_cache else ""
        for name in names:
            self.report(f"load, {name} in a row{tight}", "speed", 0, taken[sidestep.load, name],
                        "dcp.load", taken[stock.load, name])
        self.clean(path)

    # ------------------------------------------------------------ asynchronous

    def stock_variants(self):
        """{name: (async_save, close)} of the variants that stock torch offers in one process."""
        def reused(is_async):
            stager = DefaultStager(StagingOptions(
                use_pinned_memory=False, use_shared_memory=False, use_async_staging=is_async,
                use_non_blocking_copy=False))
            return functools.partial(stock.async_save, async_stager=stager), stager.close

        group = dist.new_group(backend="gloo") if self.mesh is not None else None
        chosen = {"default": (stock.async_save, lambda: None), "a reused stager": reused(False),
                  "async staging": reused(True)}
        return {name: (functools.partial(save, process_group=group), close)
                for name, (save, close) in chosen.items()}

    @staticmethod
    def finish(answer):
        getattr(answer, "upload_completion", answer).result()

    @staticmethod
    def staged(answer):
        staging = getattr(answer, "staging_completion", None)
        if staging is not None:
            staging.result()

    def hold(self):
        """Measure the seconds from the call until the tensors may change."""
        path = self.path("hold")

        def run(save):
            began = time.monotonic()
            answer = save(self.state, checkpoint_id=path)
            self.staged(answer)
            seconds = time.monotonic() - began
            self.finish(answer)
            self.clean(path)
            return seconds

        variants = self.stock_variants()
        functions = [functools.partial(run, sidestep.async_save)]
        functions += [functools.partial(run, save) for save, _ in variants.values()]
        for function in functions:
            function()  # allocates what is reused
        ours, *theirs = self.turns(*functions)
        for _, close in variants.values():
            close()
        names = list(variants)
        timed_goal = self.args.tensors <= 1000
        self.report("held until it may change", "stall", 0.6 if timed_goal else 0, ours,
                    "async_save, default", theirs[0])
        best = min(theirs[1:], key=statistics.median)
        self.report("held until it may change", "stall", 1.0 if timed_goal else 0, ours,
                    "async_save, " + names[theirs.index(best)], best)

    def loop(self, save):
        """Run STEPS steps of a trainer that rewrites its state, with one checkpoint. Returns the
        seconds that it lost: the call, and how much longer steps during the save took."""
        path, answer = self.path("loop"), None
        work = torch.randn(1536, 1536)
        quiet, beside, called = [], [], 0.0
        for step in range(STEPS):
            self.barrier()
            saving = answer is not None and not getattr(answer, "upload_completion", answer).done()
            began = time.monotonic()
            for _ in range(4):  # forward and backward
                work = torch.tanh(work @ work)
            if answer is not None:
                self.staged(answer)
            for tensor in tensors_of(self.state):  # the optimizer
                tensor.mul_(0.999)
            if step != 0:
                (beside if saving else quiet).append(time.monotonic() - began)
            self.barrier()
            if step == SAVE_AT:
                began = time.monotonic()
                answer = save(self.state, checkpoint_id=path)
                called = time.monotonic() - began
        self.finish(answer)
        self.clean(path)
        return called + sum(beside) - len(beside) * statistics.median(quiet)

    def lost(self):
        """Measure the time that a trainer loses per checkpoint while it continues."""
        variants = self.stock_variants()
        saves = [sidestep.async_save, *(save for save, _ in variants.values())]
        loops = [functools.partial(self.loop, save) for save in saves]
        for threads in (1, 2) if self.args.ranks == 1 else (1,):
            torch.set_num_threads(threads)
            for loop in loops * LEARNING:
                loop()
            ours, *theirs = self.turns(*loops)
            best = min(theirs, key=statistics.median)
            self.report(f"lost per checkpoint, trainer of {threads} thread(s)", "stall", 0.6, ours,
                        "async_save, " + list(variants)[theirs.index(best)], best, size=0)
        for _, close in variants.values():
            close()

    def memory(self):
        """Measure the peak of memory, without the state, while a save is in flight."""
        path = self.path("memory")

        def run(save):
            before = peak_memory(reset=True)
            answer = save(self.state, checkpoint_id=path)
            self.finish(answer)
            extra = self.together(float(peak_memory(reset=False) - before))
            self.clean(path)
            return [extra]

        ours = run(sidestep.async_save)
        theirs = run(functools.partial(stock.async_save, process_group=dist.new_group(backend="gloo")
                                       if self.mesh is not None else None))
        self.report("peak of extra memory, a rank", "memory", 1.1 * self.bytes, ours,
                    "async_save, default", theirs)


def peak_memory(reset):
    """The peak of resident bytes since the last reset; ``reset``: reset it first."""
    if reset:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    with open("/proc/self/status", encoding="ascii") as status:
        return int(re.search(r"VmHWM:\s*(\d+)", status.read())[1]) * 1024


# ---------------------------------------------------------------- processes

def run_parts(args, rank, mesh):
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    bench = Bench(args, rank, mesh)
    for part in args.parts:
        getattr(bench, part)()


def run_rank(rank, args, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=args.ranks)
    run_parts(args, rank, dist.init_device_mesh("cpu", (args.ranks,)))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--tensors", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--page-cache", type=int, default=0, help="MiB that 'again' leaves to it; 0: all")
    parser.add_argument("parts", nargs="*", default=["memory", "save", "load", "again", "hold", "lost"])
    args = parser.parse_args()
    with MemoryGroup() if args.page_cache else contextlib.nullcontext() as args.group:
        if args.ranks == 1:
            run_parts(args, 0, None)
            return
        with tempfile.TemporaryDirectory() as directory:
            torch.multiprocessing.spawn(run_rank, (args, os.path.join(directory, "rendezvous")), args.ranks)


if __name__ == "__main__":
    main()
