# SPDX-License-Identifier: BSD-3-Clause
"""Plain tensors that all ranks have: each rank writes a part of those that are equal."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as stock
from ranks import run_ranks
from test_compared import Log
from torch.nn.parallel import DistributedDataParallel

import sidestep
from sidestep._comm import Comm
from sidestep._engine import Engine

RANKS = 4


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(8))
        self.norm = torch.nn.BatchNorm1d(1024)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        out: torch.Tensor = self.norm(x)
        return out


def _sizes(path: str) -> list[int]:
    return [
        sum(f.stat().st_size for f in Path(path).glob(f"__{rank}_*.distcp"))
        for rank in range(RANKS)
    ]


def _load_stock(path: str, like: dict[str, Any]) -> dict[str, Any]:
    state = {
        name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else value
        for name, value in like.items()
    }
    stock.load(state, storage_reader=stock.FileSystemReader(path), no_dist=True)
    return state


def train(rank: int, path: str) -> tuple[list[list[int]], list[str]]:
    """Saves of a model under DDP, whose BatchNorm sees other data on each rank."""
    os.environ["SIDESTEP_REPLICAS"] = "share"
    torch.manual_seed(0)
    model = DistributedDataParallel(Model(), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    group, log, sizes = dist.new_group(list(range(RANKS))), Log(), []
    for step in range(2):
        torch.manual_seed(10 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(8, 1024)).square().mean().backward()
        optimizer.step()
        state = model.module.state_dict()
        if step == 1 and rank == 2:  # what must not be, and happens
            with torch.no_grad():
                model.module.layers[3].weight[700, 7] += 1
        at = f"{path}/{step}"
        sidestep.save(state, checkpoint_id=at, process_group=group)
        sizes.append(_sizes(at))
        if rank == 0:
            loaded = _load_stock(at, state)
            for name, value in state.items():
                assert torch.equal(loaded[name], value), name
        dist.barrier()
    return sizes, log.lines


def test_a_model_under_ddp(tmp_path: Path) -> None:
    results = run_ranks(RANKS, train, str(tmp_path))
    (first, second), lines = results[0]
    assert max(first) < 1.1 * min(first)
    weight = 4 * 1024 * 1024
    assert second[0] >= weight and max(second) < 1.1 * min(second)  # the others write the rest
    assert len(lines) == 2, lines
    assert "'norm.running_mean' on ranks 0, 1, 2, 3" in lines[0]
    assert "'layers.3.weight'" in lines[1] and "lowest" in lines[1]
    assert results[1][1] == []


def test_a_wrong_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDESTEP_REPLICAS", "all")
    with pytest.raises(sidestep.Error, match="is 'all', none of: auto, lowest, share"):
        Engine(Comm())


def test_on_one_host_the_lowest_rank_writes(tmp_path: Path) -> None:
    (sizes,) = run_ranks(RANKS, save_once, str(tmp_path / "a"))[:1]
    assert sizes[0] > 100 * max(sizes[1:])


def save_on_hosts(rank: int, path: str) -> list[int]:
    """As if there were two ranks on each of two hosts; [] where that needs privileges."""
    if ctypes.CDLL(None).unshare(0x04000000) != 0:  # CLONE_NEWUTS
        return []
    socket.sethostname(f"host-{rank // 2}")
    return save_once(rank, path)


def test_on_several_hosts_all_ranks_write(tmp_path: Path) -> None:
    sizes = run_ranks(RANKS, save_on_hosts, str(tmp_path / "a"))[0]
    if not sizes:
        pytest.skip("a host name of a process needs privileges")
    assert max(sizes) < 1.1 * min(sizes)


def save_once(rank: int, path: str) -> list[int]:
    sidestep.save({"w": torch.ones(8 << 20)}, checkpoint_id=path)
    return _sizes(path)
