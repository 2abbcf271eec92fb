# SPDX-License-Identifier: BSD-3-Clause
"""The newest checkpoint is the same for everybody who asks: the one that a resume takes."""

import json
import logging
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import sidestep
from sidestep import _directory

BUILD = Path(os.environ.get("SIDESTEP_LIBRARY", "build/libsidestep.so.0")).resolve().parent
PROGRAM = BUILD / "sidestep"


def make(root, *steps):
    with sidestep.Checkpointer(root) as checkpoints:
        for step in steps:
            checkpoints.save(step, {"w": torch.full((8,), float(step))})


def test_what_was_left_behind_is_not_the_latest(tmp_path):
    make(tmp_path, 1, 2, 3, 4, 5, 6)
    state = {"w": torch.zeros(8)}
    with sidestep.Checkpointer(tmp_path) as checkpoints:
        assert checkpoints.resume(state, step=3) is not None
        assert os.path.basename(sidestep.latest(tmp_path)) == "step-3"
        state["w"].zero_()
        checkpoints.load(step=-1, into=state)
        assert state["w"][0] == 3
        checkpoints.save(4, {"w": torch.full((8,), 44.0)})
    for mark in (tmp_path / ".sidestep").glob("abandoned.*"):
        mark.unlink()  # and the incarnations still tell
    assert os.path.basename(sidestep.latest(tmp_path)) == "step-4"
    with sidestep.Checkpointer(tmp_path) as checkpoints:
        checkpoints.resume(state)
    assert state["w"][0] == 44


def test_copies_are_not_the_latest(tmp_path):
    make(tmp_path, 1, 2)
    shutil.copytree(tmp_path / "step-2", tmp_path / "best")
    shutil.copytree(tmp_path / "step-1", tmp_path / "step-9")
    assert os.path.basename(sidestep.latest(tmp_path)) == "step-2"
    shutil.rmtree(tmp_path / "step-1")
    shutil.rmtree(tmp_path / "step-2")
    with pytest.raises(sidestep.Error, match="copied or renamed") as refused:
        sidestep.latest(tmp_path)
    assert refused.value.status == sidestep.Status.EMISMATCH


def test_what_is_passed_over_is_logged(tmp_path, caplog):
    make(tmp_path, 1, 2, 3, 4)
    (tmp_path / "step-4" / ".metadata").unlink()
    (tmp_path / "step-3" / "__0_0.distcp").unlink()
    with caplog.at_level(logging.WARNING, logger="sidestep"):
        assert os.path.basename(sidestep.latest(tmp_path)) == "step-2"
    newest, older = [record.getMessage() for record in caplog.records]
    assert "passed over" in newest and "step-4' (damaged)" in newest and ".metadata" in newest
    assert "step-3' (damaged): file '__0_0.distcp': it is missing" in older
    caplog.clear()
    for step in (3, 4):
        shutil.rmtree(tmp_path / f"step-{step}")
    assert os.path.basename(sidestep.latest(tmp_path)) == "step-2"
    assert not caplog.records


def test_why_there_is_none_is_logged(tmp_path, caplog):
    (tmp_path / "step-7").mkdir()
    (tmp_path / "step-7" / "__0_0.distcp").write_bytes(b"cut short")
    with caplog.at_level(logging.WARNING, logger="sidestep"):
        assert sidestep.latest(tmp_path) is None
    assert "step-7' (incomplete): .metadata is missing" in caplog.text


def test_a_root_that_is_none_is_refused(tmp_path):
    """Who is told None begins anew."""
    file = tmp_path / "file"
    file.write_text("no directory")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "dangling", "loop"):
        with pytest.raises(sidestep.Error) as refused:
            sidestep.latest(tmp_path / name)
        assert refused.value.status == sidestep.Status.EINVAL, name
    assert sidestep.latest(tmp_path / "not-there-yet") is None


def test_a_root_that_is_not_there_is_a_warning_of_rank_0(tmp_path, caplog, monkeypatch):
    with caplog.at_level(logging.INFO, logger="sidestep"):
        assert sidestep.latest(tmp_path / "typo") is None
        assert "/typo': No such file or directory" in caplog.text
        assert "check the path" in caplog.text
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        caplog.clear()
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert sidestep.latest(tmp_path / "typo") is None
        assert not caplog.records


def test_a_root_that_is_empty_is_no_warning(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="sidestep"):
        assert sidestep.latest(tmp_path) is None
    assert [record.levelno for record in caplog.records] == [logging.INFO]


UNPUBLISHED = """
import os, signal, sys
import torch
import sidestep
from sidestep import _directory
from sidestep._engine import engine_for

root, how = sys.argv[1] + "/runs", sys.argv[2]
state, files = {"w": torch.full((8,), 9.0)}, lambda: {"trainer_state.json": b"{}"}
if how == "hooks":
    with _directory.for_hooks(f"{root}/checkpoint-9") as inside:
        _directory.save(inside, state, files, step=9).wait()
        os.kill(os.getpid(), signal.SIGKILL)
if how == "there":
    os.mkdir(f"{root}/checkpoint-9")
    open(f"{root}/checkpoint-9/notes.txt", "w").close()
engine_for()  # only engines that are open are paused
with sidestep.paused():
    _directory.save(f"{root}/checkpoint-9", state, files, step=9)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["new", "there", "hooks"])
def test_what_an_adapter_has_not_published_is_not_the_latest(scripts, tmp_path, how):
    """It was killed in its save, or while the hooks of the framework wrote."""
    root = tmp_path / "runs"
    files = {"trainer_state.json": b"{}"}
    state = {"w": torch.full((8,), 1.0)}
    _directory.save(str(root / "checkpoint-1"), state, lambda: files, step=1).wait()
    assert scripts.start(UNPUBLISHED, tmp_path, how).wait() == -9
    assert sidestep.latest(root) == str(root / "checkpoint-1")
    told = subprocess.run([PROGRAM, "latest", root], capture_output=True, text=True, check=True)
    assert told.stdout == f"{root}/checkpoint-1\n"
    told = subprocess.run([PROGRAM, "ls", "--json", root], capture_output=True, check=True)
    states = {one["name"]: one["state"] for one in json.loads(told.stdout)["checkpoints"]}
    assert [name for name, word in states.items() if word == "committed"] == ["checkpoint-1"]
    with sidestep.Checkpointer(root, name="checkpoint-{step}") as checkpoints:
        found = checkpoints.resume(state)
    assert found is None or found.path == str(root / "checkpoint-1")
    assert state["w"][0] == 1
