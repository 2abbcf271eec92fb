# SPDX-License-Identifier: BSD-3-Clause
"""Copies of checkpoints through Python; tests/unit/copy_test.c has what can happen to them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

import sidestep
from sidestep import Error, Status, copy

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def state(step: int) -> dict[str, object]:
    return {"weight": torch.full((1000,), float(step)), "step": step}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    sidestep.save(state(1), checkpoint_id=tmp_path / "made", no_dist=True)
    return tmp_path / "made"


def test_copy(made: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    told = copy(made, tmp_path / "copy", progress=lambda done, total: seen.append((done, total)))
    assert files_of(tmp_path / "copy") == files_of(made)
    assert told.save_id and (made / f".sidestep.manifest.{told.save_id}").exists()
    assert (told.files, told.copied_files, told.step) == (1, 1, None)
    assert seen[-1] == (told.bytes, told.bytes) and told.bytes == told.copied_bytes
    assert copy(made, tmp_path / "copy").copied_files == 0


def test_replace(made: Path, tmp_path: Path) -> None:
    sidestep.save(state(2), checkpoint_id=tmp_path / "copy", no_dist=True)
    with pytest.raises(Error) as error:
        copy(made, tmp_path / "copy")
    assert error.value.status == Status.EEXISTS
    copy(made, tmp_path / "copy", replace=True)
    assert files_of(tmp_path / "copy") == files_of(made)


def test_arguments(made: Path, tmp_path: Path) -> None:
    for wrong in ({"threads": -1}, {"progress": 3}):
        with pytest.raises((TypeError, ValueError)):
            copy(made, tmp_path / "copy", **wrong)
    with pytest.raises(Error) as error:
        copy(made, "gs://bucket/copy")
    assert error.value.status == Status.EUNSUPPORTED
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_progress_that_raises_does_no_harm(made: Path, tmp_path: Path) -> None:
    def fail(done: int, total: int) -> None:
        raise ValueError("mine")

    copy(made, tmp_path / "copy", progress=fail)
    assert files_of(tmp_path / "copy") == files_of(made)


def test_other_threads_run_meanwhile(made: Path, tmp_path: Path) -> None:
    """The call holds no lock of the interpreter: another thread's work is what it waits for."""
    went = threading.Event()
    thread = threading.Thread(target=lambda: (time.sleep(0), went.set()))

    def wait(done: int, total: int) -> None:
        if not thread.is_alive() and not went.is_set():
            thread.start()
        assert went.wait(60)

    copy(made, tmp_path / "copy", progress=wait)
    assert went.is_set()
    thread.join()
