# SPDX-License-Identifier: BSD-3-Clause
"""python_overhead.py -- measures the time that a save spends in Python before it calls the library:
flattening the state and updating the library's description of it.

bench/run calls it; it needs torch in .venv. It measures a known layout and a new one.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch_support import report

from sidestep._torch.flatten import flatten
from sidestep._torch.state import StateCache, StateDict

REPETITIONS = 15
NEW_LEAF = 40e-6  # goal for each leaf of a new layout, in seconds


def plain(count: int) -> dict[str, Any]:
    """A flat model of ``count`` small tensors."""
    return {"model": {f"layers.{i}.weight": torch.zeros(8, 8) for i in range(count)}, "step": 1}


def sharded(count: int, mesh: Any) -> dict[str, Any]:
    """A model of DTensors with a flattened optimizer: ``count`` tensors, 1,100 small objects."""
    from torch.distributed.tensor import Shard, distribute_tensor

    model = {
        f"layers.{i}.weight": distribute_tensor(torch.zeros(8, 8), mesh, [Shard(0)])
        for i in range(count // 3)
    }
    state: dict[str, Any] = {
        f"layers.{i}.weight": {
            key: distribute_tensor(torch.zeros(8, 8), mesh, [Shard(0)]) for key in ("exp_avg", "exp_avg_sq")
        }
        for i in range(count // 3)
    }
    groups = {f"layers.{i}.weight.{key}": 0.1 * i for i in range(220) for key in "abcde"}
    return {"model": model, "optim": {"state": state, "param_groups": groups}}


def seconds_of(function: Callable[[], Any]) -> list[float]:
    """Seconds of each of REPETITIONS runs."""
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return times


def fresh(state: Any) -> Any:
    """What a state_dict() call returns: new containers, new tensors on the same memory."""
    if isinstance(state, dict):
        return {key: fresh(value) for key, value in state.items()}
    return state.detach() if isinstance(state, torch.Tensor) else state


def measure(name: str, state: dict[str, Any], goal: float) -> None:
    """Report both times. ``goal``: seconds for a known layout; a new one may take NEW_LEAF more per
    leaf."""
    cache = StateCache()
    count = len(flatten(state))
    first = cache.get(flatten(state))
    states = iter([fresh(state) for _ in range(REPETITIONS)])

    def known() -> None:
        nonlocal state
        state = next(states)
        if cache.get(flatten(state)) is not first:
            raise RuntimeError(f"{name}: the layout was not recognized")

    what = f"python: overhead of a save, {count} {name}"
    report(what, "duration", goal, seconds_of(known))
    report(what + ", new", "duration", goal + count * NEW_LEAF, seconds_of(lambda: StateDict(flatten(state))))


def main() -> None:
    """Measure all cases; the mesh of the sharded ones has one rank."""
    torch.set_num_threads(1)
    measure("tensors", plain(300), 0.003)
    measure("tensors", plain(10_000), 0.060)
    with tempfile.TemporaryDirectory() as scratch:
        address = f"file://{os.path.join(scratch, 'store')}"
        dist.init_process_group("gloo", init_method=address, rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))
        measure("DTensors and objects", sharded(300, mesh), 0.003)
        measure("DTensors and objects", sharded(10_000, mesh), 0.060)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
