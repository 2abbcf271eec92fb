# SPDX-License-Identifier: BSD-3-Clause
"""gpu_bench.py -- measures what a save of CUDA tensors costs a training: the call, the copy compared
with one large pinned copy, steps during a copy, loads, pinning, and stock DCP's ways to save the
same state.

Prints one line of JSON per figure: the median, the minimum and the maximum. A figure with a goal
(docs/GPU.md) also has ``at_most`` or ``at_least``, and ``ok``. Without a GPU it prints that it was
skipped. ``--device cpu`` uses tensors in host memory: that tests this program and measures nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import tempfile
import time
from typing import Any, Callable

import torch

CALL_S, OF_LINK, BESIDE, OF_STOCK, OF_LESSER = 0.005, 0.9, 1.02, 1 / 20, 0.8  # docs/GPU.md


class Bench:
    """The options, the device, and the time limit."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device, self.runs = options.device, options.runs
        self.ends = time.monotonic() + options.seconds
        self.case: dict[str, Any] = {}

    def say(self, name: str, values: Any = (), **figures: Any) -> float:
        """Print one line; return the median of ``values``."""
        found = sorted(values)
        middle = statistics.median(found) if found else 0.0
        if found:
            figures = {"median": middle, "least": found[0], "greatest": found[-1], **figures}
        measured = bool(found) and self.device == "cuda"
        if measured and "at_most" in figures:
            figures["ok"] = middle <= figures["at_most"]
        if measured and "at_least" in figures:
            figures["ok"] = middle >= figures["at_least"]
        print(json.dumps({"name": name, **self.case, **figures}), flush=True)
        return middle

    def is_over(self) -> bool:
        return time.monotonic() > self.ends

    def wait(self) -> None:
        """Wait until the device is idle."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def timed(self, work: Callable[[], Any]) -> float:
        """Seconds of ``work``, including what it starts on the device."""
        self.wait()
        began = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - began

    def times(self, work: Callable[[], Any]) -> list[float]:
        return [self.timed(work) for _ in range(self.runs)]

    def timed_on_stream(self, work: Callable[[], Any]) -> float:
        """Seconds until the current stream is done, without waiting for other streams."""
        if self.device != "cuda":
            return self.timed(work)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    def link(self, size: int) -> float:
        """Bytes per second of one large pinned copy from the device."""
        source = torch.empty(size, dtype=torch.uint8, device=self.device)
        host = torch.empty(size, dtype=torch.uint8, pin_memory=self.device == "cuda")
        host.copy_(source, non_blocking=True)
        times = self.times(lambda: host.copy_(source, non_blocking=True))
        return self.say("link, bytes per second", [size / seconds for seconds in times])


class Trainer:
    """Matrix products that keep the device busy, and an optimizer over the state."""

    def __init__(self, bench: Bench, size: int, tensors: int) -> None:
        count, numbers = tensors // 3, max(1, size // tensors // 4)
        self.parameters = [
            torch.nn.Parameter(torch.randn(numbers, device=bench.device)) for _ in range(count)
        ]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4)
        width = 4096 if bench.device == "cuda" else 64
        self.work = torch.randn(width, width, device=bench.device)
        for parameter in self.parameters:
            parameter.grad = torch.randn_like(parameter)

    def forward_and_backward(self) -> None:
        """Compute without changing the state."""
        for _ in range(10):
            self.work = torch.tanh(self.work @ self.work)

    def step(self) -> None:
        """Run forward and backward, then the optimizer."""
        self.forward_and_backward()
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        """The state after the last step."""
        return {
            "model": {str(i): p.detach() for i, p in enumerate(self.parameters)},
            "optim": self.optimizer.state_dict(),
        }


class Saves:
    """Saves to one new directory after the other; at most two checkpoints exist."""

    def __init__(self, folder: str, start: Callable[[str], Any]) -> None:
        self.folder, self.start = folder, start
        self.paths: list[str] = []

    def begin(self) -> Any:
        """Start one: what waits for it."""
        self.paths.append(f"{self.folder}/{len(self.paths)}")
        return self.start(self.paths[-1])

    def end(self, handle: Any) -> None:
        """Wait for it, and remove the one before."""
        handle.result()
        for path in self.paths[:-1]:
            shutil.rmtree(path, ignore_errors=True)


def lost_time(bench: Bench, trainer: Trainer, saves: Saves, name: str, **goals: Any) -> float:
    """Report the time of a save's call, and how much longer the steps took during which it ran."""
    one = statistics.median(bench.times(trainer.step))
    saves.end(saves.begin())
    seconds = bench.timed(lambda: saves.end(saves.begin()))
    steps = min(200, max(4, int(1.5 * seconds / one)))
    several = min(20, steps)
    plain = statistics.median(bench.times(lambda: [trainer.step() for _ in range(several)]))
    plain *= steps / several
    calls, losses = [], []
    for _ in range(bench.runs):
        trainer.step()
        bench.wait()
        began = time.perf_counter()
        handle = saves.begin()
        calls.append(time.perf_counter() - began)
        for _ in range(steps):
            trainer.step()
        bench.wait()
        losses.append(time.perf_counter() - began - plain)
        saves.end(handle)
    bench.say(f"{name}: call, seconds", calls, **goals)
    return bench.say(f"{name}: lost per checkpoint, seconds", losses, steps=steps, step_s=one)


def slowdown(bench: Bench, trainer: Trainer, saves: Saves, copy_s: float) -> None:
    """Report how much longer forward and backward take if they run entirely during a copy."""
    one = statistics.median(bench.times(trainer.forward_and_backward))
    count = max(1, int(copy_s / 2 / one))

    def several() -> None:
        for _ in range(count):
            trainer.forward_and_backward()

    plain = statistics.median(bench.timed_on_stream(several) for _ in range(bench.runs))
    beside = []
    for _ in range(bench.runs):
        trainer.step()
        handle = saves.begin()
        beside.append(bench.timed_on_stream(several) / plain)
        saves.end(handle)
    bench.say("step beside a copy, of a plain one", beside, at_most=BESIDE)


def on_host(values: Any) -> Any:
    """A copy of the state in host memory."""
    if isinstance(values, torch.Tensor):
        return values.cpu()
    if isinstance(values, dict):
        return {key: on_host(value) for key, value in values.items()}
    return values


def loads(bench: Bench, trainer: Trainer, path: str, size: int, link: float) -> None:
    """Report the rates of loads to the host and to the device, from the page cache if it has room."""
    import sidestep

    def rates(values: Any) -> list[float]:
        times = bench.times(lambda: sidestep.load(values, checkpoint_id=path, no_dist=True))
        return [size / seconds for seconds in times]

    host = bench.say("load to the host, bytes per second", rates(on_host(trainer.state())))
    device = rates(trainer.state())
    bench.say("load to the device, bytes per second", device)
    lesser = [rate / min(host, link) for rate in device]
    bench.say("load to the device, of the lesser of disk and link", lesser, at_least=OF_LESSER)


def ours(bench: Bench, trainer: Trainer, folder: str, size: int, link: float) -> float:
    """Report all figures of sidestep; return the lost seconds per checkpoint."""
    import sidestep

    sidestep.fence_optimizers()
    handles: list[Any] = []

    def start(path: str) -> Any:
        handles.append(sidestep.async_save(trainer.state(), checkpoint_id=path, no_dist=True))
        return handles[-1]

    saves = Saves(folder, start)
    trainer.step()
    saves.end(saves.begin())
    first = handles[0].progress()
    pinned = first.pool_bytes if not first.pageable else 0
    bench.say("first save", pool_s=first.pool_s, pinned_bytes=pinned, why_not=first.pin_reason)
    loss = lost_time(bench, trainer, saves, "sidestep", at_most=CALL_S)
    copied = [handle.progress() for handle in handles[1:]]
    rates = [p.device_bytes / p.device_s for p in copied if p.device_s]
    bench.say("copy, bytes per second", rates, pageable=copied[-1].pageable)
    bench.say("copy, of the link", [rate / link for rate in rates], at_least=OF_LINK)
    copy_s = statistics.median(p.device_s for p in copied)
    slowdown(bench, trainer, saves, copy_s)
    loads(bench, trainer, saves.paths[-1], size, link)
    sidestep.fence_optimizers(False)
    return loss


def stock_ways() -> dict[str, Callable[[], dict[str, Any]]]:
    """The options of stock async_save() by the name of the way."""
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    def staged(pinned: bool, shared: bool) -> Callable[[], dict[str, Any]]:
        def make() -> dict[str, Any]:
            stager = DefaultStager(
                StagingOptions(
                    use_pinned_memory=pinned,
                    use_shared_memory=shared,
                    use_async_staging=False,
                    use_non_blocking_copy=pinned,
                )
            )
            # Some versions close the inner stager after each save, so that a second save fails. Left
            # open, it uses its memory again, which is stock's best.
            stager._state_dict_stager.close = lambda: None
            return {"async_stager": stager}

        return make

    pinned = torch.cuda.is_available()
    return {
        "default": dict,
        "pinned": staged(pinned, False),
        "shared": staged(pinned, True),
        "process": lambda: {"async_checkpointer_type": AsyncCheckpointerType.PROCESS},
    }


def stock(bench: Bench, trainer: Trainer, folder: str, way: str) -> float | None:
    """Report stock DCP saving in this way; return the lost seconds. None: this torch cannot do it."""
    import torch.distributed.checkpoint as dcp

    stager = None
    try:
        options = stock_ways()[way]()
        stager = options.get("async_stager")

        def start(path: str) -> Any:
            found = dcp.async_save(trainer.state(), checkpoint_id=path, **options)
            return getattr(found, "upload_completion", found)

        return lost_time(bench, trainer, Saves(folder, start), f"stock, {way}")
    except Exception as error:  # of other people's code, of which there are many versions
        bench.say(f"stock, {way}", skipped=f"{type(error).__name__}: {error}"[:300])
        return None
    finally:
        if stager is not None:
            stager.close()


def join_alone() -> None:
    """Make a process group of one rank, which stock's way "process" needs."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def folder_for(size: int) -> str | None:
    """The first folder with free space for a checkpoint that replaces another."""
    for folder in (tempfile.gettempdir(), "/dev/shm"):
        room = shutil.disk_usage(folder).free if os.path.isdir(folder) else 0
        if room > 2.2 * size:
            return folder
    return None


def measure(bench: Bench, size: int, tensors: int, ways: list[str]) -> None:
    """Report all figures of one size."""
    bench.case = {"bytes": size, "tensors": tensors}
    where = folder_for(size)
    if where is None:
        bench.say("skipped", skipped="no folder has room for two checkpoints")
        return
    trainer = Trainer(bench, size, tensors)
    link = bench.link(min(size, 4 << 30))
    folder = tempfile.mkdtemp(prefix="gpu_bench-", dir=where)
    try:
        lost = ours(bench, trainer, f"{folder}/ours", size, link)
        shutil.rmtree(f"{folder}/ours")
        losses = []
        for way in ways:
            if bench.is_over():
                bench.say(f"stock, {way}", skipped="no time was left")
                continue
            loss = stock(bench, trainer, f"{folder}/stock", way)
            losses += [loss] if loss is not None else []
            shutil.rmtree(f"{folder}/stock", ignore_errors=True)
        best = min(losses, default=0)
        # If stock loses nothing that can be measured, there is nothing to compare with.
        shares = [max(lost, 0) / best] if best > 0 else []
        bench.say("lost per checkpoint, of stock's best", shares, at_most=OF_STOCK)
    finally:
        shutil.rmtree(folder)


def main(arguments: list[str] | None = None) -> None:
    """Report all figures of all sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--gib", default="4", help="sizes of the state in GiB, as 1,4,32")
    parser.add_argument("--tensors", type=int, default=300, help="number of tensors of the state")
    parser.add_argument("--ways", default="default,pinned,shared,process", help="ways of stock DCP")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3600, help="start no case after this time")
    options = parser.parse_args(arguments)
    bench = Bench(options)
    if options.device == "cuda" and not torch.cuda.is_available():
        bench.say("skipped", skipped="torch finds no CUDA device here")
        return
    name = torch.cuda.get_device_name() if options.device == "cuda" else "host memory"
    bench.say("machine", device=name, torch=torch.__version__, cuda=torch.version.cuda)
    if "process" in options.ways:
        join_alone()
    sizes = [int(float(text) * (1 << 30)) for text in options.gib.split(",")]
    for size in sizes:
        if bench.is_over():
            bench.say("skipped", bytes=size, tensors=options.tensors, skipped="no time was left")
            continue
        measure(bench, size, options.tensors, [way for way in options.ways.split(",") if way])
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
