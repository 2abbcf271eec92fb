# SPDX-License-Identifier: BSD-3-Clause
"""What a trainer deletes after it has called for a new checkpoint goes when that is committed, and
stays if it fails."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import sidestep
from sidestep._rotation import Rotation, delete, under_way


@pytest.fixture
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Saves that begin do not end before its ``release()``."""
    first = tmp_path_factory.mktemp("first") / "a"
    sidestep.async_save({"x": torch.ones(1)}, checkpoint_id=first).result()
    pause = sidestep.paused()
    pause.__enter__()
    left: list[Any] = [pause]

    class Held:
        def release(self) -> None:
            while left:
                left.pop().__exit__(None, None, None)

    yield Held()
    Held().release()


def save(rotation: Rotation, path: Path) -> sidestep.SaveHandle:
    rotation.begin(str(path))
    handle = sidestep.async_save({"weight": torch.ones(4)}, checkpoint_id=path)
    assert isinstance(handle, sidestep.SaveHandle)
    rotation.add(handle)
    return handle


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))


def test_the_old_one_stays_until_the_new_one_is_there(tmp_path: Path, held: Any) -> None:
    sidestep.save({"weight": torch.zeros(4)}, checkpoint_id=tmp_path / "old")
    rotation = Rotation()
    save(rotation, tmp_path / "new")
    rotation.delete(str(tmp_path / "old"))
    assert names(tmp_path) == ["old"]
    found = rotation.find(str(tmp_path / "new"))
    assert found is not None
    assert not found.done()
    held.release()
    rotation.wait()
    assert names(tmp_path) == ["new"]
    assert rotation.find(str(tmp_path / "new")) is None


def test_the_old_one_stays_if_the_new_one_fails(
    tmp_path: Path, held: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sidestep.save({"weight": torch.zeros(4)}, checkpoint_id=tmp_path / "old")
    rotation = Rotation()
    handle = save(rotation, tmp_path / "new")
    rotation.delete(str(tmp_path / "old"))
    handle.abort()
    with caplog.at_level(logging.WARNING, "sidestep"), pytest.raises(sidestep.Error):
        rotation.wait()
    assert names(tmp_path) == ["old"]
    assert any("'" + str(tmp_path / "old") + "' is kept" in line for line in caplog.messages)


def test_one_that_failed_before_the_deletion_was_asked_for(tmp_path: Path, held: Any) -> None:
    sidestep.save({"weight": torch.zeros(4)}, checkpoint_id=tmp_path / "old")
    rotation = Rotation()
    handle = save(rotation, tmp_path / "new")
    handle.abort()
    assert isinstance(handle.exception(), sidestep.Error)
    rotation.delete(str(tmp_path / "old"))
    rotation.wait()  # somebody was told of the failure
    assert names(tmp_path) == ["old"]


def test_one_that_is_saved_again_is_not_deleted(tmp_path: Path, held: Any) -> None:
    rotation = Rotation()
    save(rotation, tmp_path / "a")
    rotation.delete(str(tmp_path / "last"))
    held.release()
    save(rotation, tmp_path / "last")
    rotation.wait()
    assert names(tmp_path) == ["a", "last"]


def test_without_a_save_it_is_deleted_at_once(tmp_path: Path) -> None:
    sidestep.save({"weight": torch.zeros(4)}, checkpoint_id=tmp_path / "old")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "old")
    rotation = Rotation()
    for name in ("link", "file", "none"):
        rotation.delete(str(tmp_path / name))
    assert names(tmp_path) == ["old"]
    assert sidestep.load_metadata(tmp_path / "old").format == "sidestep"
    rotation.delete(str(tmp_path / "old"))
    assert names(tmp_path) == []


def test_what_is_pinned_or_not_ours_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sidestep.save({"weight": torch.zeros(4)}, checkpoint_id=tmp_path / "pinned")
    sidestep.pin(tmp_path / "pinned")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "meta.pt").touch()
    for name in ("pinned", "theirs"):
        delete(str(tmp_path / name))
    assert names(tmp_path) == ["pinned", "theirs"]
    assert (tmp_path / "theirs" / "meta.pt").exists()
    assert "pinned' stays, although the trainer lets it go" in caplog.text
    assert "theirs' stays: sidestep did not make it" in caplog.text


def test_what_is_under_way_is_found_by_path(tmp_path: Path, held: Any) -> None:
    rotation = Rotation()
    handle = save(rotation, tmp_path / "new")
    assert under_way(str(tmp_path / "new")) == (rotation, handle)
    assert under_way(str(tmp_path / "old")) is None
    held.release()
    rotation.wait()
    assert under_way(str(tmp_path / "new")) is None


def test_pickled_it_is_an_empty_one(tmp_path: Path) -> None:
    rotation = Rotation()
    save(rotation, tmp_path / "a").result()
    other = pickle.loads(pickle.dumps(rotation))
    assert other.last() is None
    assert rotation.last() is not None
