# SPDX-License-Identifier: BSD-3-Clause
"""Saves and loads on many ranks: one that fails fails all; groups, threads, collectives."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as stock
from ranks import run_ranks
from torch.distributed.checkpoint import staging
from torch.distributed.checkpoint.api import CheckpointException

import sidestep as dcp


class Other(stock.DefaultSavePlanner):
    """A planner that is not one of torch's, and so goes by way of stock."""


def replicated(value: float) -> dict[str, Any]:
    moody = {"weight": torch.ones(2)}
    return {"weight": torch.full((4,), value), "step": int(value), "moody": moody}


class Moody:
    """A Stateful that raises on one rank."""

    def __init__(self, raises: bool) -> None:
        self.raises = raises

    def state_dict(self) -> dict[str, Any]:
        if self.raises:
            raise ValueError("the model is not ready")
        return {"weight": torch.ones(2)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def both_told(rank: int, call: Callable[[], Any], planner: bool = False) -> int:
    """``call`` fails on rank 1, with its own ValueError unless it was a planner's, and on rank 0
    with an error that names rank 1."""
    try:
        call()
    except dcp.Error as error:
        assert rank == 0 or planner, error
        assert error.rank == 1 and "the model is not ready" in str(error)
        assert isinstance(error, CheckpointException) and 1 in error.failures
    except ValueError as error:
        assert rank == 1 and str(error) == "the model is not ready"
    else:
        raise AssertionError("nothing was raised")
    return 1


def failing_ranks(rank: int, root: str) -> int:
    state = {"moody": Moody(rank == 1), "weight": torch.ones(4)}
    path = f"{root}/a"
    told = 0
    dcp.save(replicated(1), checkpoint_id=path)
    told += both_told(rank, lambda: dcp.save(state, checkpoint_id=path))
    told += both_told(rank, lambda: dcp.async_save(state, checkpoint_id=path))
    told += both_told(rank, lambda: dcp.load(state, checkpoint_id=path))
    told += both_told(rank, lambda: dcp.async_save(state, checkpoint_id=path, planner=Other()))

    class Failing(staging.BlockingAsyncStager):
        def stage(self, state_dict: Any) -> Any:
            if rank == 1:
                raise ValueError("the model is not ready")
            return super().stage(state_dict)

    told += both_told(
        rank,
        lambda: dcp.async_save(replicated(1), checkpoint_id=path, async_stager=Failing()),
    )

    class Late(stock.DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            if rank == 1:
                raise ValueError("the model is not ready")
            return super().resolve_data(write_item)

    mine = {f"of-{rank}": torch.ones(2), "step": 1}
    late = Late()
    told += both_told(rank, lambda: dcp.save(mine, checkpoint_id=path, planner=late), True)
    target = replicated(0)
    dcp.load(target, checkpoint_id=path)  # the old one is whole, and the ranks are in step
    assert target["step"] == 1
    dcp.save(replicated(2), checkpoint_id=path)
    dcp.load(target, checkpoint_id=path)
    assert target["step"] == 2 and target["weight"].tolist() == [2] * 4
    return told


def test_a_failing_rank_fails_all_and_no_later_save(tmp_path: pathlib.Path) -> None:
    assert run_ranks(2, failing_ranks, str(tmp_path)) == [6, 6]


def groups_and_collectives(rank: int, root: str) -> int:
    """Saves on two groups, alone, and beside collectives on the group that they use."""
    done = 0
    pair = dist.new_group([0, 1])
    single = dist.new_group([2])
    mine = pair if rank < 2 else single
    for step in range(4):
        world = dcp.async_save(
            {"all": torch.full((1000,), float(step)), f"r{rank}": torch.ones(10) * step},
            checkpoint_id=f"{root}/world",
        )
        total = torch.ones(1000)
        for _ in range(20):
            dist.all_reduce(total)
            total /= 3
        assert total.tolist() == [1.0] * 1000
        part = dcp.async_save(
            {"x": torch.full((7,), float(step))},
            checkpoint_id=f"{root}/{'pair' if rank < 2 else 'single'}",
            process_group=mine,
        )
        alone = dcp.async_save(
            {"x": torch.full((7,), float(rank))}, checkpoint_id=f"{root}/{rank}", no_dist=True
        )
        dist.barrier()
        for handle in (alone, part, world):
            handle.result()
            done += 1
    state = {"all": torch.zeros(1000), "r0": torch.zeros(10), "r2": torch.zeros(10)}
    dcp.load(state, checkpoint_id=f"{root}/world")
    assert state["all"][0] == 3 and state["r0"][0] == 3 and state["r2"][9] == 3
    state = {"x": torch.zeros(7)}
    dcp.load(state, checkpoint_id=f"{root}/{rank}", no_dist=True)
    assert state["x"].tolist() == [rank] * 7
    dcp.load(state, checkpoint_id=f"{root}/pair", process_group=dist.group.WORLD)
    assert state["x"].tolist() == [3.0] * 7
    return done


def test_groups_and_collectives_at_the_same_time(tmp_path: pathlib.Path) -> None:
    assert run_ranks(3, groups_and_collectives, str(tmp_path)) == [12, 12, 12]
