# SPDX-License-Identifier: BSD-3-Clause
"""Saves stand still while they are told to, and take their time where they may."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

import sidestep


def state() -> dict[str, torch.Tensor]:
    return {f"t{i}": torch.arange(1 << 20, dtype=torch.float32) + i for i in range(8)}


def written(handle: sidestep.SaveHandle) -> int:
    return handle.progress().bytes_written


def test_writes_stand_still(tmp_path: Path) -> None:
    sidestep.save(state(), checkpoint_id=tmp_path / "first")  # there is an engine now
    with sidestep.paused():
        with sidestep.paused():
            handle = sidestep.async_save(state(), checkpoint_id=tmp_path / "second")
        assert not handle.committed.done()
        assert written(handle) == 0  # leaving the inner block let nothing go
    # Nobody waits: it is seen, not hurried.
    ended = threading.Event()
    handle.add_done_callback(lambda _: ended.set())
    assert ended.wait(60)
    assert handle.exception() is None


def test_who_waits_is_not_held(tmp_path: Path) -> None:
    sidestep.save(state(), checkpoint_id=tmp_path / "first")
    with sidestep.paused():
        handle = sidestep.async_save(state(), checkpoint_id=tmp_path / "second")
        handle.result(60)


def test_saves_of_a_run_take_their_time(tmp_path: Path) -> None:
    with sidestep.Checkpointer(
        tmp_path, options=sidestep.SaveOptions(spread_s=3600.0)
    ) as checkpoints:
        handle = checkpoints.save(1, state())
        assert not handle.committed.done()
        handle.result(60)  # who waits does not wait for an hour


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), 1e300])
def test_no_time(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(ValueError, match="not a number of seconds"):
        sidestep.Checkpointer(tmp_path, options=sidestep.SaveOptions(spread_s=seconds))


def test_no_time_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDESTEP_SPREAD_MS", "soon")
    with pytest.raises(sidestep.Error, match="SIDESTEP_SPREAD_MS"):
        sidestep.save(state(), checkpoint_id=tmp_path / "it")
