# SPDX-License-Identifier: BSD-3-Clause
"""``Mirror(after_exit=True)``: a process that is left behind sends what is left.  What it does is
in tests/cli/mirror_cases.py."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

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
