# SPDX-License-Identifier: BSD-3-Clause
"""Directories of tensors and small files that appear whole."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
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


def test_directories_are_synced_while_the_trainer_goes_on(tmp_path, monkeypatch):
    """All that the new names need, and nothing of it in the call."""
    synced, sync = [], os.fsync

    def fsync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        synced.append((threading.current_thread() is threading.main_thread(), path))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    _whole.wait_all(begin(tmp_path / "checkpoint-1"))
    assert [path for by_trainer, path in synced if by_trainer] == []
    hidden = tmp_path / ".checkpoint-1.sidestep-unpublished"
    directories = {str(one) for one in (tmp_path, hidden, hidden / "inner")}
    assert directories <= {path for _, path in synced}


@pytest.mark.parametrize("call", ["scandir", "fsync"])
def test_a_directory_that_cannot_be_synced_is_not_published(tmp_path, monkeypatch, call):
    """The error names it."""
    original = getattr(os, call)

    def fail(what):
        path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fspath(what)
        if path == f"{tmp_path}/.checkpoint-1.sidestep-unpublished/inner":
            raise OSError(errno.EIO, "Input/output error", path if call == "scandir" else None)
        return original(what)

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(sidestep.Error, match="sync '.*/inner': Input/output error"):
        _whole.wait_all(begin(tmp_path / "checkpoint-1"))
    assert not (tmp_path / "checkpoint-1").exists()


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
    assert os.listdir(tmp_path) == [".checkpoint-1.sidestep-unpublished"]
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
    others = ["checkpoint-1", ".hidden", "notes", ".trash", ".mine.trash", ".mine.unpublished"]
    for name in others:
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").touch()
    (tmp_path / ".checkpoint-2.sidestep-trash" / "deep").mkdir(parents=True)
    (tmp_path / ".checkpoint-3.sidestep-unpublished").mkdir()
    _whole.tidy(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted(others)
    assert all((tmp_path / name / "precious").exists() for name in others)


def unpublished(target: Path, patch: pytest.MonkeyPatch) -> str:
    """Save ``target`` by a process that ends before it publishes.  Returns where that lies."""
    with patch.context() as now:
        now.setattr(_whole, "publish", lambda *places: None)
        _whole.wait_all(begin(target))
    return _whole.hidden_of(str(target))


@pytest.mark.parametrize("has_locks", [True, False])
def test_of_two_that_publish_none_destroys_it(tmp_path, monkeypatch, has_locks):
    """A process that was stopped while it published goes on after another one tidied up."""
    target = tmp_path / "checkpoint-1"
    hidden = unpublished(target, monkeypatch)
    write_out, stops = _whole.write_out, [True]

    def stopped(*arguments) -> None:
        write_out(*arguments)
        if stops.pop() if stops else False:
            _whole.tidy(str(tmp_path))
            assert target.exists() is not has_locks

    def refuse(*arguments) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(_whole, "write_out", stopped)
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", refuse)
    if has_locks:
        _whole.publish(hidden, str(target))
    else:
        with pytest.raises(sidestep.Error, match="another process has moved") as caught:
            _whole.publish(hidden, str(target))
        assert caught.value.status == sidestep.Status.EABORTED
    state = {"model": {"weight": torch.zeros(4)}}
    sidestep.load(state, checkpoint_id=target / "tensors_0")
    assert torch.equal(state["model"]["weight"], torch.arange(4.0))


def test_killed_before_the_new_one_is_in_its_place(tmp_path, monkeypatch):
    """What was there is only put aside until then, and a load by name finds the new one."""
    target = tmp_path / "last"
    _whole.wait_all(begin(target))
    hidden = unpublished(target, monkeypatch)
    rename = os.rename

    def killed(source: str, name: str) -> None:
        if source == hidden:
            raise KeyboardInterrupt
        rename(source, name)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            _whole.publish(hidden, str(target))
    assert (tmp_path / ".last.sidestep-trash" / "state.json").exists()
    _whole.settle(str(target))
    assert (target / "state.json").exists()
    _whole.tidy(str(tmp_path))
    assert os.listdir(tmp_path) == ["last"]


def test_a_link_is_replaced_and_deleted_as_one(tmp_path):
    target, elsewhere = tmp_path / "last", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    target.symlink_to(elsewhere)
    _whole.wait_all(begin(target))
    assert not target.is_symlink()
    shutil.rmtree(target)
    target.symlink_to(elsewhere)
    _whole.remove(str(target))
    assert sorted(os.listdir(tmp_path)) == ["elsewhere"]
    assert (elsewhere / "precious").exists()


def test_what_is_no_number_is_no_checkpoint(tmp_path):
    for word in ("1", "10", "007", "\u00b2", "\u0663", "9" * 200, "-1", "", "2.bak"):
        (tmp_path / f"checkpoint-{word}").mkdir()
    assert _whole.numbers_in(str(tmp_path), "checkpoint-") == [1, 10]


def test_an_empty_directory_is_passed_over(tmp_path, caplog):
    (tmp_path / "checkpoint-9").mkdir()
    (tmp_path / "checkpoint-9" / "of-another-program").touch()
    (tmp_path / "checkpoint-10").mkdir()
    assert _whole.newest(str(tmp_path), "checkpoint-", lambda path: None) == 9
    assert "checkpoint-10': it is empty" in caplog.text
