# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that have a file system of their own under the path of the others are told so, all of them,
by ``save`` and by ``Checkpointer``; ranks on hosts that share it are not refused."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Optional

import pytest
import torch
from ranks import run_ranks

import sidestep

CLONE_NEWNS = 0x20000


def on_host(root: str, alone: bool) -> None:
    """From now on this process is on a host of its own, with the same mounts, or with its own."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    if alone:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", root], check=True)


def save_here(path: str) -> None:
    sidestep.save({"w": torch.zeros(8)}, checkpoint_id=path)


def open_here(path: str) -> None:
    with sidestep.Checkpointer(path):
        pass


WAYS = {"save": save_here, "Checkpointer": open_here}


def told(rank: int, way: str, root: str, alone: bool) -> tuple[str, str]:
    """What this rank is told: the name of the status, and the message."""
    on_host(root, alone and rank == 1)
    try:
        WAYS[way](os.path.join(root, "it"))
    except sidestep.Error as error:
        return error.status.name, str(error)
    return "OK", ""


@pytest.fixture(scope="module")
def mounts() -> None:
    probe = ["unshare", "-m", "sh", "-c", "mount --make-rprivate / && mount -t tmpfs tmpfs /mnt"]
    try:
        if subprocess.run(probe, stderr=subprocess.DEVNULL).returncode != 0:
            pytest.skip("this user may not mount a file system")
    except OSError:
        pytest.skip("there is no unshare(1)")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("mounts")
def test_every_rank_is_told(tmp_path: Path, way: str) -> None:
    said = run_ranks(2, told, way, str(tmp_path), True)
    for status, message in said:
        assert status == "EDISAGREE", said
        assert "is seen by rank 0 on " in message and "but not by rank 1 on " in message
        assert str(tmp_path / "it") in message and "s3://" in message
    assert not list(tmp_path.glob("it/.metadata"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("mounts")
def test_hosts_that_share_are_not_refused(tmp_path: Path, way: str) -> None:
    assert run_ranks(2, told, way, str(tmp_path), False) == [("OK", ""), ("OK", "")]


def save_and_resume(rank: int, root: str) -> Optional[int]:
    """On hosts that have their own file systems under one path.  Returns the step of the resume."""
    on_host(root, rank == 1)
    for step in (1, 2):
        with sidestep.Checkpointer(os.path.join(root, "it"), near="per_node") as checkpoints:
            state = {"w": torch.zeros(8)}
            loaded = checkpoints.resume(state)
            checkpoints.save(step, {"w": torch.full((8,), float(step))})
    assert loaded is not None and torch.equal(state["w"], torch.ones(8))
    return loaded.step


@pytest.mark.usefixtures("mounts")
def test_directories_of_each_node_may_be_allowed(tmp_path: Path) -> None:
    assert run_ranks(2, save_and_resume, str(tmp_path)) == [1, 1]
    assert (tmp_path / "it" / "step-2").exists()  # the part of rank 0
    assert not list(tmp_path.glob("it/*/.metadata"))
