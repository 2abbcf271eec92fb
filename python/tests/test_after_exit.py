# SPDX-License-Identifier: BSD-3-Clause
"""``Mirror(after_exit=True)``: a process that is left behind sends what is left.  What it does is
in tests/cli/mirror_cases.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
import torch.distributed.checkpoint as dcp
from ranks import RanksFailed, run_ranks

import sidestep

PROGRAMS = Path(os.environ.get("SIDESTEP_LIBRARY", "build/libsidestep.so.0")).resolve().parent


def states(step: int) -> dict[str, Any]:
    return {f"w{i}": torch.full((300, 70), float(step * 10 + i)) for i in range(4)}


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.startswith("."))


def wait_for(path: Path) -> None:
    until = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.05)


def train(rank: int, root: str, nodes: str, end: str) -> None:
    """Save two steps, of which the mirror gets the first one, and end."""
    os.environ["PATH"] = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    far = Path(root, "far")
    mirror = sidestep.Mirror(far, every=100, keep_last_n=2, after_exit=True)
    checkpoints = sidestep.Checkpointer(f"{root}/{nodes[rank]}/run", mirror=mirror)
    checkpoints.save(1, states(1)).wait()
    wait_for(far / "step-1" / ".metadata")
    checkpoints.save(2, states(2), final=end == "final").wait()
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    checkpoints.close()
    assert names(far) == ["step-1"]


@pytest.mark.parametrize("nodes", ["a", "aa", "ab"])
@pytest.mark.parametrize("end", ["close", "final", "kill"])
def test_the_newest_is_sent_after_the_end(tmp_path: Path, nodes: str, end: str) -> None:
    try:
        run_ranks(len(nodes), train, str(tmp_path), nodes, end)
    except RanksFailed:
        assert end == "kill"
    for node in set(nodes):
        wait_for(tmp_path / node / "run" / ".sidestep" / "mirror.log")
    wait_for(tmp_path / "far" / "step-2" / ".metadata")
    state = states(0)
    dcp.load(state, checkpoint_id=tmp_path / "far" / "step-2", no_dist=True)
    assert all(torch.equal(state[name], tensor) for name, tensor in states(2).items())
    assert names(tmp_path / "far") == ["step-1", "step-2"]


def test_relative_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = (
        "import sidestep, torch\n"
        "mirror = sidestep.Mirror('far', every=9, after_exit=True)\n"
        "with sidestep.Checkpointer('near', no_dist=True, mirror=mirror) as checkpoints:\n"
        "    checkpoints.save(1, {'w': torch.ones(9)})\n"
    )
    path = f"{os.path.relpath(PROGRAMS)}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PATH": path})
    wait_for(tmp_path / "far" / "step-1" / ".metadata")


def disagree(rank: int, root: str) -> None:
    mirror = sidestep.Mirror(f"{root}/far", after_exit=rank == 0)
    with pytest.raises(sidestep.Error, match="after_exit"):
        sidestep.Checkpointer(f"{root}/near", mirror=mirror)


def test_ranks_must_agree(tmp_path: Path) -> None:
    run_ranks(2, disagree, str(tmp_path))


def save_one(rank: int, near: str, far: Optional[str], step: int) -> None:
    os.environ["PATH"] = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    mirror = None if far is None else sidestep.Mirror(far, after_exit=True)
    with sidestep.Checkpointer(near, mirror=mirror) as checkpoints:
        checkpoints.save(step, states(step))


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "hard link"])
def test_what_is_not_our_log_gets_nothing(tmp_path: Path, kind: str) -> None:
    near, far, other = tmp_path / "near", tmp_path / "far", tmp_path / "other"
    run_ranks(1, save_one, str(near), None, 1)
    log = near / ".sidestep" / "mirror.log"
    other.touch()
    if kind == "fifo":
        os.mkfifo(log)
    elif kind == "directory":
        log.mkdir()
    elif kind == "link":
        log.symlink_to(other)
    else:
        log.hardlink_to(other)
    run_ranks(1, save_one, str(near), str(far), 2)
    wait_for(far / "step-2" / ".metadata")
    assert other.read_bytes() == b""


def open_without_program(rank: int, root: str) -> None:
    os.environ["PATH"] = root if rank == 0 else os.environ["PATH"]
    mirror = sidestep.Mirror(f"{root}/far", after_exit=True)
    with pytest.raises(sidestep.Error, match="'sidestep' is not installed"):
        sidestep.Checkpointer(f"{root}/near", mirror=mirror)
    with sidestep.Checkpointer(f"{root}/near") as checkpoints:
        checkpoints.save(1, states(1))


def test_without_the_command_opening_fails(tmp_path: Path) -> None:
    run_ranks(2, open_without_program, str(tmp_path))


def finish(rank: int, root: str, nodes: str) -> None:
    """What is exported of parts has to be at the mirror first."""
    os.environ["PATH"] = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    mirror, far = sidestep.Mirror(f"{root}/far", after_exit=True), Path(root, "far")
    final = sidestep.Final("torch")
    with sidestep.Checkpointer(f"{root}/{nodes[rank]}/run", mirror=mirror, final=final) as one:
        one.save(1, {"model": states(1)}, final=True)
        assert {"step-1", "final.pt"} <= set(names(far))


def test_an_export_of_parts_waits_for_the_mirror(tmp_path: Path) -> None:
    run_ranks(2, finish, str(tmp_path), "ab")
