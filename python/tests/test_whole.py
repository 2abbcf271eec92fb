# SPDX-License-Identifier: BSD-3-Clause
"""Directories of tensors and small files that appear whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sidestep
from sidestep import _whole

torch = pytest.importorskip("torch")


def begin(target: Path, **how) -> _whole.WholeSave:
    def write(directory: str) -> None:
        (Path(directory) / "inner").mkdir()
        (Path(directory) / "inner" / "notes.txt").write_text(target.name)
        (Path(directory) / "state.json").write_text("{}")

    part = _whole.Part("tensors_0", {"model": lambda: {"weight": torch.arange(4.0)}})
    links = {"others_0": "tensors_0"}
    files = {"files": lambda: _whole.collect(write), "links": links}
    return _whole.save(str(target), [part], **files, **how)


def test_all_of_it_appears(tmp_path):
    target = tmp_path / "checkpoint-1"
    _whole.wait_all(begin(target))
    assert (target / "inner" / "notes.txt").read_text() == "checkpoint-1"
    assert os.listdir(tmp_path) == ["checkpoint-1"]
    state = {"model": {"weight": torch.zeros(4)}}
    sidestep.load(state, checkpoint_id=target / "others_0")
    assert torch.equal(state["model"]["weight"], torch.arange(4.0))


def test_one_that_is_there_is_replaced(tmp_path):
    target = tmp_path / "checkpoint-1"
    target.mkdir()
    (target / "left").touch()
    _whole.wait_all(begin(target))
    assert not (target / "left").exists()
    assert os.listdir(tmp_path) == ["checkpoint-1"]


def test_it_is_not_there_before_it_is_published(tmp_path, monkeypatch):
    """And what was committed by a process that is gone is published by the next."""
    target = tmp_path / "checkpoint-1"

    def fails(*places: str) -> None:
        raise OSError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(_whole, "publish", fails)
        with pytest.raises(OSError, match="planted"):
            _whole.wait_all(begin(target))
    assert os.listdir(tmp_path) == [".checkpoint-1.unpublished"]
    _whole.tidy(str(tmp_path))
    assert os.listdir(tmp_path) == ["checkpoint-1"]
    assert (target / "state.json").exists()


def test_a_failure_is_told_by_the_next_save(tmp_path, monkeypatch):
    def fails(*places: str) -> None:
        raise OSError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(_whole, "publish", fails)
        before = begin(tmp_path / "checkpoint-1")
        with pytest.raises(OSError, match="planted"):
            begin(tmp_path / "checkpoint-2", before=before)
    _whole.wait_all(begin(tmp_path / "checkpoint-3", before=before))
    assert (tmp_path / "checkpoint-3").exists()


def test_what_cannot_be_written_saves_nothing(tmp_path):
    def fails() -> dict[str, bytes]:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        _whole.save(str(tmp_path / "checkpoint-1"), [_whole.Part("", {})], fails)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", ".metadata", "", "a//b"])
def test_files_stay_inside(tmp_path, name):
    value = {"sidestep_files": {"rank0": (({name: b"x"}, {}),)}}
    sidestep.save(value, checkpoint_id=tmp_path / "planted")
    with pytest.raises(sidestep.Error, match="small files") as caught:
        _whole.write_out(str(tmp_path / "planted"), str(tmp_path / "into"))
    assert caught.value.status == sidestep.Status.ECORRUPT
    assert not (tmp_path / "out").exists()


def test_tidy_leaves_others_alone(tmp_path):
    for name in ("checkpoint-1", ".hidden", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / ".checkpoint-2.trash" / "deep").mkdir(parents=True)
    (tmp_path / ".checkpoint-3.unpublished").mkdir()
    _whole.tidy(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [".hidden", "checkpoint-1", "notes"]
