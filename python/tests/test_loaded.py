# SPDX-License-Identifier: BSD-3-Clause
"""What a load says that it did: read, cast, left as it was, ignored."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

import sidestep
from sidestep import Cast, Checkpointer, Error, Status, TrainState
from sidestep._loaded import narrows

SMALL = ["bool", "uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float8_e8m0fnu"]
SMALL += [f"float8_{kind}" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")]
LARGE = ["int32", "int64", "uint32", "uint64", "float32", "float64", "complex64", "complex128"]


def every_value(dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.tensor([False, True])
    bits = torch.uint8 if dtype.itemsize == 1 else torch.uint16
    return torch.arange(1 << 8 * dtype.itemsize).to(bits).view(dtype)


def test_narrower_is_what_loses_values() -> None:
    """For all small dtypes, by their values."""
    compared = 0
    for name in SMALL:
        saved = getattr(torch, name)
        values = every_value(saved)
        exact = values.double()
        finite = exact.isfinite()
        for other in SMALL + LARGE:
            wanted = getattr(torch, other)
            cast = values.to(wanted)
            cast = cast.real if cast.is_complex() else cast
            loses = not torch.equal(cast.double()[finite], exact[finite])
            assert narrows(saved, wanted) == loses, (saved, wanted)
            compared += 1
    assert compared == 12 * 20
    wide = [("float32", "float64"), ("int32", "float64"), ("float32", "complex64")]
    narrow = [("float64", "float32"), ("int64", "float64"), ("complex64", "float64")]
    narrow += [("int32", "float32"), ("uint64", "int64"), ("float32", "float4_e2m1fn_x2")]
    for pairs, expected in ((wide, False), (narrow, True)):
        for a, b in pairs:
            assert narrows(getattr(torch, a), getattr(torch, b)) == expected, (a, b)


def saved() -> dict[str, Any]:
    w = torch.linspace(-1, 1, 6).reshape(2, 3)
    return {"w": w, "half": w.half(), "n": torch.ones(4, dtype=torch.int64), "o": {"k": "v"}}


def wanted() -> dict[str, Any]:
    half, n = torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64)
    return {"w": torch.zeros(2, 3, dtype=torch.bfloat16), "half": half, "n": n}


NARROW = "narrower dtype: w (float32 to bfloat16)"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    caplog.clear()
    return found


def test_load_tells_what_it_did(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = str(tmp_path / "c")
    sidestep.save(saved(), checkpoint_id=path, no_dist=True)
    state = wanted()
    found = sidestep.load(state, checkpoint_id=path, no_dist=True)
    assert found is not None and (found.step, found.path) == (-1, path)
    assert found.read == ["half", "n", "w"] and found.unexpected == ["o.k"]
    assert found.cast == {
        "w": Cast("float32", "bfloat16", narrows=True),
        "half": Cast("float16", "float32", narrows=False),
    }
    assert [found.bytes[name] for name in ("w", "half", "n")] == [24, 12, 32]
    assert found.bytes["o.k"] > 0 and found.missing == []
    (told,) = warnings(caplog)
    assert path in told and NARROW in told and "half" not in told
    # Experts that no entry filled, and a counter of them, which is no float.
    state = {"n": state["n"], "expert": torch.ones(5), "seen": torch.ones(5, dtype=torch.int8)}
    planner = DefaultLoadPlanner(allow_partial_load=True)
    found = sidestep.load(state, checkpoint_id=path, planner=planner, no_dist=True)
    assert found is not None and found.missing == ["expert", "seen"]
    assert found.bytes["expert"] == 20 and found.read == ["n"] and found.cast == {}
    (told,) = warnings(caplog)
    assert path in told and "nothing filled" in told and told.endswith(": expert")


def test_a_resume_refuses_a_narrower_dtype(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Checkpointer(tmp_path, no_dist=True, signals=()) as checkpoints:
        checkpoints.save(3, saved()).wait()
        for call in (checkpoints.resume, checkpoints.load):
            state = wanted()
            with pytest.raises(Error, match="Nothing was changed; cast=") as told:
                call(state)
            assert told.value.status == Status.EMISMATCH and told.value.tensor == "w"
            assert NARROW in str(told.value) and not state["half"].any()
            assert warnings(caplog) == []
            found = call(state, cast="allow")
            assert found is not None and found.step == 3 and found.cast["w"].narrows
            assert bool(state["half"].any()) and warnings(caplog) == []
            found = call(state, strict=False)
            assert found is not None and any(NARROW in line for line in warnings(caplog))
            with pytest.raises(ValueError, match="cast='yes' is none of"):
                call(state, cast="yes")
        other = {"w": torch.ones(9), "more": torch.ones(1), "n": torch.zeros(4).long()}
        checkpoints.resume(other, strict=False)
        (told_once,) = warnings(caplog)
        assert "nothing filled" in told_once and told_once.endswith("more, w")


def test_a_half_precision_model_of_a_whole_one(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    with Checkpointer(tmp_path, no_dist=True, signals=()) as checkpoints:
        checkpoints.save(1, TrainState(model, optimizer)).wait()
        half = torch.nn.Linear(3, 3).to(torch.bfloat16)
        state = TrainState(half, torch.optim.AdamW(half.parameters()))
        with pytest.raises(Error, match=r"float32 to bfloat16\), .*optimizer\.state"):
            checkpoints.resume(state)
        assert checkpoints.resume(state, cast="allow") is not None
    assert torch.equal(half.weight, model.weight.bfloat16())


def on_ranks(rank: int, root: str) -> list[str]:
    """One rank alone asks for a narrower dtype: all are told."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(6.0).reshape(3, 2)
    told = []
    with Checkpointer(root, signals=()) as checkpoints:
        checkpoints.save(1, {"w": distribute_tensor(whole, mesh, [Shard(0)]), "x": whole}).wait()
        target = distribute_tensor(torch.zeros(3, 2), mesh, [Shard(0)])
        dtype = torch.float16 if rank == 1 else torch.float32
        try:
            checkpoints.resume({"w": target, "x": torch.zeros(3, 2, dtype=dtype)})
        except Error as error:
            told.append(str(error))
        found = checkpoints.resume({"w": target, "x": torch.zeros(3, 2)})
        assert found is not None
        told.append(f"{found.read} {found.bytes['w']}")
    return told


def test_one_of_two_ranks(tmp_path: Path) -> None:
    (zero, mine), (one, theirs) = run_ranks(2, on_ranks, str(tmp_path))
    assert "rank 1" in zero and "x (float32 to float16)" in zero and "x (float32 to float16)" in one
    assert (mine, theirs) == ("['w', 'x'] 16", "['w', 'x'] 8")
