# SPDX-License-Identifier: BSD-3-Clause
"""gpu_bench.py [GIB] -- measures what a save of CUDA tensors costs a training: the call, the copy
compared with one large pinned copy, steps during a copy, loads, and stock DCP with the same
state.

Needs a GPU, and says so if there is none. Prints one line of JSON per figure, some with their
goals ``at_most`` and ``at_least`` (docs/GPU.md).
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from typing import Any, Callable

import torch

RUNS = 5
TENSORS = 100  # and two moments of each


def say(name: str, **figures: Any) -> None:
    """One line."""
    print(json.dumps({"name": name, **figures}), flush=True)


def timed(work: Callable[[], Any]) -> float:
    """Seconds, with the device's work."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def link_rate(size: int) -> float:
    """Bytes per second of one large pinned copy from the device."""
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    host.copy_(device, non_blocking=True)
    return size / statistics.median(
        timed(lambda: host.copy_(device, non_blocking=True)) for _ in range(RUNS)
    )


class Trainer:
    """Matrix products that keep the device busy, and an optimizer over the state."""

    def __init__(self, size: int) -> None:
        count = size // 3 // TENSORS // 4
        self.parameters = [
            torch.nn.Parameter(torch.randn(count, device="cuda")) for _ in range(TENSORS)
        ]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4)
        self.work = torch.randn(4096, 4096, device="cuda")
        for parameter in self.parameters:
            parameter.grad = torch.randn_like(parameter)

    def forward_and_backward(self) -> None:
        """Nothing of the state changes."""
        for _ in range(40):
            self.work = torch.tanh(self.work @ self.work)

    def step(self) -> None:
        """Forward and backward, then the optimizer."""
        self.forward_and_backward()
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        """As the last step has left it."""
        return {
            "model": dict(enumerate(map(torch.Tensor.detach, self.parameters))),
            "optim": self.optimizer.state_dict(),
        }


def lost_time(trainer: Trainer, save: Callable[[], Any], steps: int = 20) -> tuple[float, float]:
    """Seconds that one save costs ``steps`` steps, and the seconds of its call."""
    plain = statistics.median(
        timed(lambda: [trainer.step() for _ in range(steps)]) for _ in range(RUNS)
    )
    calls, losses = [], []
    for _ in range(RUNS):
        trainer.step()
        torch.cuda.synchronize()
        began = time.perf_counter()
        handle = save()
        calls.append(time.perf_counter() - began)
        for _ in range(steps):
            trainer.step()
        torch.cuda.synchronize()
        losses.append(time.perf_counter() - began - plain)
        handle.result()
    return statistics.median(losses), statistics.median(calls)


def on_host(values: Any) -> Any:
    """The same in host memory."""
    if isinstance(values, torch.Tensor):
        return values.cpu()
    if isinstance(values, dict):
        return {key: on_host(value) for key, value in values.items()}
    return values


def load_seconds(values: Any, path: str) -> float:
    """Seconds of a load into ``values``; from the page cache if it has room, for host and device
    alike."""
    import sidestep

    return statistics.median(
        timed(lambda: sidestep.load(values, checkpoint_id=path, no_dist=True)) for _ in range(RUNS)
    )


def slowdown(trainer: Trainer, save: Callable[[], Any], copy_s: float) -> float:
    """How much longer forward and backward take if they run entirely during a copy of ``copy_s``."""
    one = statistics.median(timed(trainer.forward_and_backward) for _ in range(RUNS))
    count = max(1, int(copy_s / 2 / one))

    def several() -> None:
        for _ in range(count):
            trainer.forward_and_backward()

    plain = statistics.median(timed(several) for _ in range(RUNS))
    beside = []
    for _ in range(RUNS):
        trainer.step()
        handle = save()
        beside.append(timed_from_here(several))
        handle.result()
    return statistics.median(beside) / plain


def timed_from_here(work: Callable[[], Any]) -> float:
    """Seconds until the current stream is done, without waiting for other streams."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def main() -> None:
    """All figures."""
    if not torch.cuda.is_available():
        say("skipped", reason="torch finds no CUDA device here")
        return
    import torch.distributed.checkpoint as stock
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    import sidestep

    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 4) * (1 << 30))
    trainer = Trainer(size)
    trainer.step()
    say("machine", device=torch.cuda.get_device_name(), torch=torch.__version__, bytes=size)
    link = link_rate(min(size, 4 << 30))
    say("link", bytes_per_second=link)
    with tempfile.TemporaryDirectory() as folder:
        sidestep.fence_optimizers()
        paths = [f"{folder}/{name}" for name in ("ours", "stock")]
        handles: list[Any] = []

        def ours() -> Any:
            handles.append(
                sidestep.async_save(trainer.state(), checkpoint_id=paths[0], no_dist=True)
            )
            return handles[-1]

        ours().result()  # pins the memory
        loss, call = lost_time(trainer, ours)
        copied = [handle.progress() for handle in handles[1:]]
        say("sidestep", lost_s=loss)
        say("call", seconds=call, tensors=3 * TENSORS, at_most=0.002)
        ours_lost = loss
        rate = statistics.median(p.device_bytes / max(p.device_s, 1e-9) for p in copied)
        say(
            "copy",
            bytes_per_second=rate,
            of_link=rate / link,
            pageable=copied[-1].pageable,
            at_least=0.9,
        )
        copy_s = statistics.median(p.device_s for p in copied)
        say("step beside a copy", of_plain=slowdown(trainer, ours, copy_s), at_most=1.05)
        disk = size / load_seconds(on_host(trainer.state()), paths[0])
        loaded = size / load_seconds(trainer.state(), paths[0])
        say(
            "load",
            bytes_per_second=loaded,
            to_host_memory=disk,
            of_lesser=loaded / min(disk, link),
            at_least=0.8,
        )
        sidestep.fence_optimizers(False)
        loss, call = lost_time(
            trainer,
            lambda: stock.async_save(trainer.state(), checkpoint_id=paths[1], no_dist=True),
        )
        say("stock", lost_s=loss, call_s=call, ours_of_it=ours_lost / loss, at_most=1 / 20)
        # The best case: pinned memory that is used again.
        stager = DefaultStager(StagingOptions(use_shared_memory=False, use_async_staging=False))

        def pinned() -> Any:
            return stock.async_save(
                trainer.state(), checkpoint_id=paths[1], no_dist=True, async_stager=stager
            )

        pinned().result()
        loss, call = lost_time(trainer, pinned)
        stager.close()
        say("stock, pinned", lost_s=loss, call_s=call, ours_of_it=ours_lost / loss, at_most=1 / 20)


if __name__ == "__main__":
    main()
