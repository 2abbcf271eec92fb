# SPDX-License-Identifier: BSD-3-Clause
"""A name that a checkpoint lacks counts as loaded if its tensor is memory of one that it has."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn

import sidestep
from sidestep import Error, Status


class Tied(nn.Module):
    """Its head is its embedding."""

    def __init__(self, seed: int, rows: int = 12) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(rows, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, rows, bias=False)
        self.head.weight = self.embed.weight


def save_once(path: Path, model: Tied) -> None:
    """As other programs do: one of two tied tensors is left out."""
    state = {name: value for name, value in model.state_dict().items() if name != "head.weight"}
    sidestep.save(state, checkpoint_id=path, no_dist=True)


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters()))


def test_a_module_and_its_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = Tied(1)
    save_once(tmp_path / "c", source)
    caplog.set_level(logging.DEBUG, "sidestep")
    bare, inner, cast = Tied(2), Tied(3), Tied(4).double()
    sidestep.load(bare.state_dict(), checkpoint_id=tmp_path / "c", no_dist=True)
    assert "lacks head.weight, which is the same memory as embed.weight" in caplog.text
    sidestep.save({"m": source}, checkpoint_id=tmp_path / "whole", no_dist=True)
    sidestep.save(
        {"m": {name: x for name, x in source.state_dict().items() if name != "embed.weight"}},
        checkpoint_id=tmp_path / "other",
        no_dist=True,
    )
    sidestep.load({"m": inner}, checkpoint_id=tmp_path / "other", no_dist=True)
    sidestep.load(cast.state_dict(), checkpoint_id=tmp_path / "c", no_dist=True)
    assert equal(bare, source) and equal(inner, source) and equal(cast, source.double())


def test_meta_tensors_stay_tied(tmp_path: Path) -> None:
    source = Tied(1)
    save_once(tmp_path / "c", source)
    with torch.device("meta"):
        model = Tied(2)
    state = model.state_dict()
    sidestep.load(state, checkpoint_id=tmp_path / "c", no_dist=True)
    model.load_state_dict(state, assign=True)
    assert equal(model, source)
    assert state["head.weight"].data_ptr() == state["embed.weight"].data_ptr()


def test_what_is_not_the_same_memory_is_missing(tmp_path: Path) -> None:
    w = torch.ones(4, 4)
    sidestep.save({"w": w, "none": w[:0]}, checkpoint_id=tmp_path / "c", no_dist=True)
    mine = torch.zeros(4, 4)
    for other in (mine[:3], mine.t(), mine.view(torch.int32), mine.clone(), mine[:0], 1):
        state: dict[str, Any] = {"w": mine, "other": other, "none": torch.zeros(0, 4)}
        with pytest.raises(Error, match=r"Missing key .*: other\.") as told:
            sidestep.load(state, checkpoint_id=tmp_path / "c", no_dist=True)
        assert told.value.status == Status.EMISMATCH and not mine.any()


def sharded(rank: int, path: str) -> bool:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = Tied(2, rows=1)  # the last rank has no row of it
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    sidestep.load(model.state_dict(), checkpoint_id=path)
    whole = {name: value.full_tensor() for name, value in model.state_dict().items()}
    return all(torch.equal(whole[name], value) for name, value in Tied(1, 1).state_dict().items())


def test_ranks_of_which_one_has_nothing_of_it(tmp_path: Path) -> None:
    save_once(tmp_path / "c", Tied(1, rows=1))
    assert run_ranks(2, sharded, str(tmp_path / "c")) == [True, True]
