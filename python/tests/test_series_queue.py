# SPDX-License-Identifier: BSD-3-Clause
"""`Checkpointer` with several saves under way: their order, what is noted of them, and failures
that are told once.  One process.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import torch
from saving import held_saves
from test_series import open_at, state_of, steps, wait_for_callbacks

from sidestep import Checkpointer, Error, RetentionPolicy, SchedulePolicy, paused
from sidestep._engine import engine_alone
from sidestep._handle import SaveHandle


def test_what_is_noted_later_waits_and_forgets_nothing(tmp_path: Path) -> None:
    """Of any save that is under way, not of the last one only; the best stays the best."""
    values = {"w": torch.zeros(1000)}
    with Checkpointer(
        tmp_path,
        keep_last_n=1,
        signals=(),
        schedule=SchedulePolicy(busy="queue", queue=2),
        retention=RetentionPolicy(keep_best=("loss", 1, "min")),
    ) as checkpoints:
        with paused():
            for step in range(1, 4):
                checkpoints.save(step, values, metrics={"loss": float(step)})
            checkpoints.note(1, {"eval": 0.5})
        checkpoints.save(4, values, metrics={"loss": 4.0})
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-1", "step-4"]


def test_saves_are_queued_and_committed_in_order(tmp_path: Path) -> None:
    told: list[int] = []
    engine = engine_alone()

    def on_committed(step: int, handle: SaveHandle) -> None:
        told.append(step)
        time.sleep(0.1)  # the others come meanwhile, if they do
        told.append(step)

    with open_at(tmp_path, busy="queue", queue=2, on_committed=on_committed) as checkpoints:
        engine.pause(True)
        try:
            handles = [checkpoints.save(step, state_of(step)) for step in range(1, 4)]
            assert not any(handle.written.done() for handle in handles)
            assert [handle.progress().queued for handle in handles] == [False, True, True]
            handles.append(checkpoints.save(4, state_of(4)))  # waits for the first
            assert handles[0].done()
        finally:
            engine.pause(False)
        assert checkpoints.status().queued == 3
        handles[-1].wait()
        for step in range(1, 5):
            found = state_of(0)
            checkpoints.load(found, step=step)
            assert torch.equal(found["w"], state_of(step)["w"]) and found["step"] == step
    wait_for_callbacks()
    assert told == [1, 1, 2, 2, 3, 3, 4, 4]
    for wrong in (0, 9):
        with pytest.raises(ValueError, match="queue"):
            open_at(tmp_path, busy="queue", queue=wrong)


def take_away_what_is_being_saved(root: Path) -> None:
    """The directory of a save that is paused, so that it fails when it goes on.  Its file is there
    by then: else it would fail at once."""
    until = time.monotonic() + 60
    while not list(root.glob(".sidestep.*.saving/*.part")):
        assert time.monotonic() < until
        time.sleep(0.001)
    for saving in root.glob(".sidestep.*.saving"):
        shutil.rmtree(saving)


@pytest.mark.parametrize("max_failures", [0, 3])
def test_a_queued_save_that_fails_is_told_once(tmp_path: Path, max_failures: int) -> None:
    failed: list[int] = []
    engine = engine_alone()
    checkpoints = open_at(
        tmp_path,
        busy="queue",
        queue=2,
        max_failures=max_failures,
        on_failed=lambda step, _: failed.append(step),
    )
    engine.pause(True)
    try:
        first = checkpoints.save(1, state_of(1))
        take_away_what_is_being_saved(tmp_path)
        second = checkpoints.save(2, state_of(2))
    finally:
        engine.pause(False)
    second.wait()
    first._wait_for_turn()
    if max_failures == 0:
        with pytest.raises(Error, match="the save before this one failed"):
            checkpoints.save(3, state_of(3))
    checkpoints.save(4, state_of(4)).wait()
    checkpoints.close()
    wait_for_callbacks()
    assert failed == [1] and checkpoints.failures == 1
    assert 2 in steps(tmp_path) and 4 in steps(tmp_path) and 1 not in steps(tmp_path)


@pytest.mark.parametrize("max_failures", [0, 3])
def test_a_failure_is_told_by_who_has_learned_of_it(tmp_path: Path, max_failures: int) -> None:
    """The library knows of it before the handle's thread has asked: no call is refused for it then,
    else it would be told twice, and those that may fail would be raised."""
    engine = engine_alone()
    checkpoints = open_at(tmp_path, busy="queue", queue=2, max_failures=max_failures)
    with held_saves() as go:
        engine.pause(True)
        try:
            first = checkpoints.save(1, state_of(1))
            take_away_what_is_being_saved(tmp_path)
        finally:
            engine.pause(False)
        until = time.monotonic() + 60
        while first.progress().state != "aborted" and time.monotonic() < until:
            time.sleep(0.001)
        second = checkpoints.save(2, state_of(2))
        assert not first.done()
        go.set()
        assert second.wait(60) and first.reach(60)
        if max_failures == 0:
            with pytest.raises(Error, match="the save before this one failed"):
                checkpoints.save(3, state_of(3))
        checkpoints.save(4, state_of(4))
    checkpoints.close()
    assert checkpoints.failures == 1 and steps(tmp_path) == [2, 4]
