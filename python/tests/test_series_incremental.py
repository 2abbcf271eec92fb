# SPDX-License-Identifier: BSD-3-Clause
"""Incremental checkpoints: what is frozen is written once, and everybody reads it as before."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

import sidestep
from sidestep import Checkpointer, Final, SaveOptions

MIB = 1 << 18  # of float32

INCREMENTAL = SaveOptions(incremental=True)


def state_of(step: int, frozen: int = 1000) -> dict[str, Any]:
    """Nine tenths are frozen."""
    torch.manual_seed(frozen)
    base = {f"base.{i}": torch.randn(3, MIB) for i in range(3)}
    torch.manual_seed(step)
    return {"model": base, "adapter": torch.randn(MIB), "step": step}


def assert_equal(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert got["step"] == want["step"]
    assert torch.equal(got["adapter"], want["adapter"])
    for name, tensor in want["model"].items():
        assert torch.equal(got["model"][name], tensor)


def by_stock_torch(path: Path) -> dict[str, Any]:
    state = state_of(0, 0)
    dcp.state_dict_loader.load(state, storage_reader=dcp.FileSystemReader(path), no_dist=True)
    return state


def test_what_is_frozen_is_written_once(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, no_dist=True, signals=(), options=INCREMENTAL) as checkpoints:
        for step in range(1, 6):
            handle = checkpoints.save(step, state_of(step))
            assert handle.wait()
            progress = handle.progress()
            written = progress.bytes_total - progress.linked_bytes
            assert progress.link_reason == ""
            assert (progress.linked_bytes > 0) == (step > 3)
        assert written <= 0.12 * progress.bytes_total
        checkpoints.save(6, state_of(6, frozen=6)).wait()  # a late change
    for step in (4, 5):
        assert_equal(by_stock_torch(tmp_path / f"step-{step}"), state_of(step))
    assert_equal(by_stock_torch(tmp_path / "step-6"), state_of(6, frozen=6))
    shutil.rmtree(tmp_path / "step-3")  # which wrote it
    sidestep.export(tmp_path / "step-5", tmp_path / "out", Final("torch"))
    assert_equal(by_stock_torch(tmp_path / "step-5"), state_of(5))
    with Checkpointer(tmp_path, no_dist=True, signals=(), options=INCREMENTAL) as checkpoints:
        state = state_of(0, 0)
        checkpoints.load(state, step=5)
        assert_equal(state, state_of(5))


def test_by_default_nothing_is_shared(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, no_dist=True, signals=()) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(step, state_of(step)).wait()
    assert not list(tmp_path.glob("step-*/__0_1*"))
