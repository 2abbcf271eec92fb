# SPDX-License-Identifier: BSD-3-Clause
"""`Checkpointer(mirror=Mirror(...))`: saves reach the mirror, and a run goes on from it.  What is
sent, and when, is in tests/unit/series_mirror_test.c."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock
from ranks import run_ranks

import sidestep
from sidestep import Checkpointer, Mirror, Preempted


def state_of(step: int) -> dict[str, Any]:
    return {"w": torch.full((1000,), float(step)), "step": step}


def open_at(root: Path, mirror: Mirror, **options: Any) -> Checkpointer:
    return Checkpointer(root, no_dist=True, signals=(), mirror=mirror, **options)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name.startswith("step-"))


def test_the_mirror_survives(tmp_path: Path) -> None:
    """The fast disk is lost, and the run goes on; stock torch loads what is at the mirror."""
    near, far = tmp_path / "near", tmp_path / "far"
    mirror = Mirror(far, keep_last_n=2)
    with open_at(near, mirror, keep_last_n=1) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, state_of(step)).wait()
    assert "step-3" in names(far) and names(near) == ["step-3"]
    shutil.rmtree(near)
    state = state_of(0)
    with open_at(near, mirror, keep_last_n=1) as checkpoints:
        found = checkpoints.resume(state)
        assert found is not None and found.step == 3
        assert state["w"][0] == 3 and state["step"] == 3
        checkpoints.save(4, state_of(4)).wait()
    assert sidestep.latest(far) == str(far / "step-4")
    loaded = state_of(0)
    stock.load(loaded, checkpoint_id=str(far / "step-4"), no_dist=True)
    assert loaded["w"][0] == 4


def test_the_environment_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    monkeypatch.setenv("SIDESTEP_MIRROR", f"{tmp_path}/far/")
    with Checkpointer(tmp_path / "run", no_dist=True, signals=()) as checkpoints:
        checkpoints.save(1, state_of(1))
    assert names(tmp_path / "far" / "run") == ["step-1"]
    with open_at(tmp_path / "other", Mirror(tmp_path / "named")) as checkpoints:
        checkpoints.save(1, state_of(1))
    assert names(tmp_path / "named") == ["step-1"] and not (tmp_path / "far" / "other").exists()


def test_options_reach_the_library(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    with open_at(near, Mirror(far, every=100, keep_last_n=1, keep_every=4)) as checkpoints:
        for step in (1, 4, 6):
            checkpoints.save(step, state_of(step)).wait()
    assert set(names(far)) >= {"step-4", "step-6"}


@pytest.mark.parametrize(
    ("mirror", "problem"),
    [
        (lambda far: str(far), "is not a sidestep.Mirror"),
        (lambda far: Mirror(far, every=-1), "every"),
        (lambda far: Mirror(far, keep_every=3), "keep_every without keep_last_n"),
        (lambda far: Mirror(far, keep_last_n=0), "keep_last_n"),
        (lambda far: Mirror(5), "root"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options(tmp_path: Path, mirror: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        open_at(tmp_path / "near", mirror(tmp_path / "far"))


def test_a_mirror_that_is_away(tmp_path: Path) -> None:
    """Saves go on, and `close` says that the mirror lacks them."""
    near, far = tmp_path / "near", tmp_path / "far"
    checkpoints = open_at(near, Mirror(far))
    checkpoints.save(1, state_of(1)).wait()
    while not (far / "step-1" / ".metadata").exists():
        pass
    far.rename(tmp_path / "away")
    far.touch()
    checkpoints.save(2, state_of(2)).wait()
    with pytest.raises(sidestep.Error, match="does not have the newest"):
        checkpoints.close()
    assert names(near) == ["step-1", "step-2"]
    with pytest.raises(sidestep.Error, match="the mirror must be readable"):
        open_at(near, Mirror(far))
    far.unlink()
    (tmp_path / "away").rename(far)
    with open_at(near, Mirror(far)) as again:
        found = again.resume(state_of(0))
        assert found is not None and found.step == 2
    assert names(far) == ["step-1", "step-2"]


def test_the_grace_time_ends_it(tmp_path: Path) -> None:
    """At a signal, the mirror gets what the time allows; the checkpoint is safe where it is."""
    near, far = tmp_path / "near", tmp_path / "far"
    state = {"w": torch.zeros(4 << 20), "step": 1}
    slow = Mirror(far, bytes_per_second=1 << 20)  # 16 s
    preemption = sidestep.PreemptionPolicy(grace_s=2)
    checkpoints = Checkpointer(near, no_dist=True, mirror=slow, preemption=preemption)
    with pytest.raises(Preempted), checkpoints:
        os.kill(os.getpid(), signal.SIGTERM)
        while not checkpoints.should_save(1):
            pass
        checkpoints.save(1, state)
    assert names(near) == ["step-1"] and names(far) == []
    with open_at(near, Mirror(far)) as again:
        found = again.resume(state)
        assert found is not None and found.step == 1
    assert names(far) == ["step-1"]


def test_closing_tells_of_its_progress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While closing waits for the mirror, the log and the events say how far it is; before, not."""
    near, far = tmp_path / "near", tmp_path / "far"
    caplog.set_level(logging.INFO, "sidestep")
    with open_at(near, Mirror(far, every=100)) as checkpoints:
        checkpoints.save(1, state_of(1)).wait()
        while names(far) != ["step-1"]:
            time.sleep(0.01)
        assert "sending" not in caplog.text
        checkpoints.save(2, state_of(2)).wait()
    assert f"sending the newest checkpoint to '{far}': " in caplog.text
    log = (near / ".sidestep/events.rank-0").read_text()
    told = [json.loads(line) for line in log.splitlines()]
    told = [event for event in told if event["event"] == "mirroring"]
    assert [event["path"] for event in told] == [str(far)] and told[0]["bytes"] > 4000


def run_two(rank: int, near: str, far: str, steps: list[int]) -> None:
    with Checkpointer(near, signals=(), mirror=Mirror(far)) as checkpoints:
        state = {"w": torch.full((1000,), float(rank)), "step": 0}
        found = checkpoints.resume(state)
        assert (found.step if found is not None else 0) == steps[0] - 1
        for step in steps:
            state["step"] = step
            checkpoints.save(step, state).wait()


def test_two_ranks(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    run_ranks(2, run_two, str(near), str(far), [1, 2])
    shutil.rmtree(near)
    run_ranks(2, run_two, str(near), str(far), [3])
    assert names(far)[-1] == "step-3"
