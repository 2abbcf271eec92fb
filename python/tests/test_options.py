# SPDX-License-Identifier: BSD-3-Clause
"""How the state is held still and how bytes go to storage: by argument, or by the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks

import sidestep
from sidestep import Checkpointer, SaveHandle, SaveOptions, Writer
from sidestep._c import abi
from sidestep._options import Ways

STATE = {"w": torch.ones(4 << 20)}


def saved(path: Path, **options: Any) -> SaveHandle:
    handle = sidestep.async_save(
        STATE, storage_writer=Writer(path, options=SaveOptions(**options)), no_dist=True
    )
    assert isinstance(handle, SaveHandle)
    handle.wait()
    return handle


def test_arguments_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen is what the result says, and above the environment."""
    monkeypatch.setenv("SIDESTEP_SNAPSHOT", "cow")
    for snapshot in ("copy", "cow"):
        found = saved(tmp_path / "c", snapshot=snapshot).progress()
        assert found.snapshot == snapshot or (snapshot == "cow" and found.copy_reason), found
    for io, direct in (("buffered", False), ("threads:3", True), ("uring:2", True)):
        found = saved(tmp_path / "c", io=io).progress()
        assert not found.direct_io or direct, (io, found)
        assert found.io_depth <= int(io.partition(":")[2] or 4), (io, found)
    with Checkpointer(
        tmp_path / "r",
        no_dist=True,
        signals=(),
        options=SaveOptions(snapshot="copy", io="buffered"),
    ) as checkpoints:
        handle = checkpoints.save(1, STATE)
        handle.wait()
        assert handle.progress().snapshot == "copy" and not handle.progress().direct_io
        state = {"w": torch.zeros(4 << 20)}
        assert checkpoints.load(state).step == 1 and bool((state["w"] == 1).all())


def test_user_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    def flags(asked: Any) -> int:
        options = abi.EngineOptions()
        Ways(user_faults=asked).set_in(options)
        return int(options.flags)

    assert [flags(asked) for asked in (None, False, True)] == [0, 0, 1]
    assert abi.ENGINE_USER_MODE_FAULTS == 1
    monkeypatch.setenv("SIDESTEP_USER_FAULTS", "1")
    assert [flags(asked) for asked in (None, False, True)] == [1, 0, 1]


def test_words_that_mean_nothing(tmp_path: Path) -> None:
    for wrong in ({"snapshot": "cows"}, {"io": "uring:0"}, {"io": "fast"}):
        (name,) = wrong
        with pytest.raises(ValueError, match=f"{name}='.*' is none of"):
            Writer(tmp_path / "c", options=SaveOptions(**wrong))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"{name}='.*' is none of"):
            Checkpointer(
                tmp_path / "r",
                no_dist=True,
                options=SaveOptions(**wrong),  # type: ignore[arg-type]
            )


def test_what_a_writer_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="incremental: only a Checkpointer"):
        Writer(tmp_path / "c", options=SaveOptions(incremental=True))
    with pytest.raises(TypeError, match="is not a sidestep.SaveOptions"):
        Writer(tmp_path / "c", options={"compress": "zstd"})  # type: ignore[arg-type]


def two_ways(rank: int, root: str) -> list[str]:
    """Two engines of one group, in turns."""
    found = []
    state = {f"w{rank}": torch.ones(1 << 20)}
    for i in range(2):
        for snapshot in (None, "copy"):
            path = f"{root}/{i}{snapshot}"
            handle = sidestep.async_save(
                state, storage_writer=Writer(path, options=SaveOptions(snapshot=snapshot))
            )
            assert isinstance(handle, SaveHandle)
            found.append(handle.progress().snapshot if snapshot else "")
            handle.wait()
    return found


def test_ranks_have_an_engine_for_each_way(tmp_path: Path) -> None:
    assert run_ranks(2, two_ways, str(tmp_path)) == [["", "copy"] * 2] * 2
