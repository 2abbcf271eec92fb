# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that have different values under one name."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import sidestep
from sidestep._torch import compared


class Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        logging.getLogger("sidestep").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _group() -> Any:
    """An engine of its own: only the first save of one compares."""
    return dist.new_group(list(range(dist.get_world_size())))


def _told(path: str, state: dict[str, Any], saves: int = 1) -> list[str]:
    log, group = Log(), _group()
    try:
        for _ in range(saves):
            sidestep.async_save(state, checkpoint_id=path, process_group=group).result()
        return log.lines
    finally:
        logging.getLogger("sidestep").removeHandler(log)


def plain_ones(rank: int, path: str) -> list[list[str]]:
    torch.manual_seed(rank)
    same = {"w": torch.ones(5000), "step": 7, f"rng.{rank}": torch.get_rng_state()}
    return [
        _told(path, same),
        _told(path, {**same, "rng": torch.get_rng_state()}, saves=2),
        _told(path, {**same, "sampler": {"seen": [rank, 1]}}),
        _told(path, {**same, "w": torch.cat([torch.ones(4999), torch.ones(1) * rank])}),
        _told(path, {"norm": torch.ones(3) * (rank == 2)} if rank else {}),
    ]


def test_plain_tensors_and_objects(tmp_path: Path) -> None:
    same, tensor, thing, end, without_first = run_ranks(3, plain_ones, str(tmp_path / "a"))[0]
    assert same == []
    assert len(tensor) == 1 and "'rng' on ranks 0, 1, 2" in tensor[0] and "lowest" in tensor[0]
    assert len(thing) == 1 and "'sampler.seen' on ranks 0, 1, 2" in thing[0]
    assert len(end) == 1 and "'w' on ranks" in end[0]
    assert len(without_first) == 1 and "on ranks 1, 2" in without_first[0]


def many_names(rank: int, path: str) -> list[str]:
    """As many as a large model and its optimizer have; a few differ."""
    odd = range(0, 4000, 100)
    state = {f"layer.{i}": torch.ones(3) * (rank if i in odd else 1) for i in range(4000)}
    log, group = Log(), _group()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compared, "_MOST", 100)
        sidestep.async_save(state, checkpoint_id=path, process_group=group).result()
    logging.getLogger("sidestep").removeHandler(log)
    return log.lines


def test_many_names(tmp_path: Path) -> None:
    """Nearly all of those that differ are found, however many names there are."""
    (told,) = run_ranks(2, many_names, str(tmp_path / "a"))[0]
    assert 32 <= told.count("on ranks 0, 1") <= 40


def meshes(rank: int, path: str) -> list[str]:
    meshes = [DeviceMesh("cpu", [0, 1]), DeviceMesh("cpu", [2, 3])]
    mesh, told = meshes[rank // 2], []
    for values in (torch.arange(8.0), torch.arange(8.0) + rank // 2):
        for placement in (Shard(0), Replicate()):
            local = values.chunk(2)[rank % 2] if placement == Shard(0) else values
            state = {"stage.w": DTensor.from_local(local, mesh, [placement], run_check=False)}
            try:
                told.append(str(_told(path, state)))
            except sidestep.Error as error:
                told.append(str(error))
    return told


def test_two_meshes(tmp_path: Path) -> None:
    """Equal values on both are one tensor, as with tensor parallelism below DDP."""
    for told in run_ranks(4, meshes, str(tmp_path / "a")):
        assert told[:2] == ["[]", "[]"]
        for error in told[2:]:
            assert "different meshes" in error and "a name of its own" in error
    assert not (tmp_path / "b").exists()
