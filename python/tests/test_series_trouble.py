# SPDX-License-Identifier: BSD-3-Clause
"""`Checkpointer` when things go wrong between its calls: saves that fail behind its back, callbacks
that raise, signals at the end, a way back that leads nowhere.  One process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks
from saving import held_saves
from states import in_groups

import sidestep
from sidestep import (
    Callbacks,
    Checkpointer,
    Error,
    FailurePolicy,
    Final,
    Preempted,
    Status,
    _series,
    export,
)
from sidestep._c.abi import SaveState
from sidestep._engine import Engine
from sidestep._handle import SaveHandle, _Waiter, in_flight


def state_of(step: int, **more: Any) -> dict[str, Any]:
    return {"w": torch.full((1000,), float(step)), "step": step, **more}


def open_at(root: Path, **options: Any) -> Checkpointer:
    return Checkpointer(root, no_dist=True, **{"signals": (), **in_groups(**options)})


def resumed(root: Path) -> int:
    with open_at(root) as checkpoints:
        found = checkpoints.resume(state_of(0))
        return found.step if found is not None else -1


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every save fails in the background, as far as Python knows."""
    real = SaveHandle._await

    def wait(handle: SaveHandle, which: Any) -> Any:
        error = real(handle, which)
        return Error("lost", status=Status.EIO) if which == SaveState.SAVE_COMMITTED else error

    monkeypatch.setattr(SaveHandle, "_await", wait)


@pytest.fixture
def late_callbacks(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A save has ended, and its callbacks are called when the event is set."""
    go = threading.Event()
    real = SaveHandle._invoke_callbacks  # type: ignore[attr-defined]

    def invoke(handle: SaveHandle) -> None:
        if isinstance(threading.current_thread(), _Waiter):
            go.wait(60)
        real(handle)

    monkeypatch.setattr(SaveHandle, "_invoke_callbacks", invoke)
    yield go
    go.set()


# ---------------------------------------------------------------- saves that fail


def test_closing_says_what_nobody_was_told(
    tmp_path: Path, lost: None, late_callbacks: threading.Event
) -> None:
    checkpoints = open_at(tmp_path)
    checkpoints.save(1, state_of(1))
    with pytest.raises(Error, match="lost"):
        checkpoints.close()
    checkpoints.close()  # said once
    assert checkpoints.failures == checkpoints.failures_in_a_row == 1
    with open_at(tmp_path) as checkpoints:  # and the lock is free
        handle = checkpoints.save(2, state_of(2))
        with pytest.raises(Error, match="lost"):
            handle.result()  # whoever was told is not told again
    with open_at(tmp_path, max_failures=1) as checkpoints:
        checkpoints.save(3, state_of(3))


def test_as_many_may_fail_as_are_allowed(
    tmp_path: Path, lost: None, late_callbacks: threading.Event
) -> None:
    with open_at(tmp_path, max_failures=1) as checkpoints:
        checkpoints.save(1, state_of(1))
        checkpoints.save(2, state_of(2))
        with pytest.raises(Error, match="lost"):
            checkpoints.save(3, state_of(3))
        assert checkpoints.failures == 2


def test_storage_that_is_away_when_a_save_begins(tmp_path: Path) -> None:
    """Such a save is one that failed, as if it had failed in the background."""
    root, away, told = tmp_path / "run", tmp_path / "away", []
    failure = FailurePolicy(max_failures=2)
    callbacks = Callbacks(on_failed=lambda *it: told.append(it))
    with open_at(root, failure=failure, callbacks=callbacks) as checkpoints:
        checkpoints.save(1, state_of(1)).result()
        root.rename(away)
        lost = [checkpoints.save(step, state_of(step)) for step in (2, 3)]
        assert [save.done() for save in lost] == [True, True]
        assert (checkpoints.failures, checkpoints.failures_in_a_row) == (2, 2)
        with pytest.raises(Error) as caught:
            checkpoints.save(4, state_of(4))
        assert caught.value.status == Status.ENOTFOUND
        away.rename(root)
        with pytest.raises(Error):
            lost[1].result()
        checkpoints.save(5, state_of(5)).result()
        assert (checkpoints.failures, checkpoints.failures_in_a_row) == (2, 0)
    assert [step for step, _ in told] == [2, 3]
    assert resumed(root) == 5


# ---------------------------------------------------------------- callbacks


def test_a_callback_that_raises_does_not_keep_the_lock(tmp_path: Path, caplog: Any) -> None:
    told = []

    def deleted(path: str) -> None:
        told.append(path)
        raise ValueError("no deletions today")

    with open_at(tmp_path, keep_last_n=1, on_deleted=deleted) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, state_of(step))
    assert len(told) == 2 and "no deletions today" in caplog.text
    assert resumed(tmp_path) == 3


# ---------------------------------------------------------------- nobody closes it


def dropped(root: Path, **options: Any) -> None:
    """A run is made, saves, and is let go of."""
    checkpoints = open_at(root, **options)
    checkpoints.save(1, state_of(1))
    with pytest.warns(ResourceWarning, match=f"Checkpointer of '{root}' was dropped without close"):
        del checkpoints
        gc.collect()


def test_one_that_is_dropped_gives_its_root_back(tmp_path: Path) -> None:
    """Its save is finished, and signals are what they were."""
    before = signal.getsignal(signal.SIGTERM)
    for _ in range(2):
        dropped(tmp_path / "r", signals="SIGTERM")
        assert signal.getsignal(signal.SIGTERM) is before
        assert resumed(tmp_path / "r") == 1
        shutil.rmtree(tmp_path / "r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_at(tmp_path / "r").close()  # which is no reason for a warning
        gc.collect()


def test_others_need_not_wait_for_the_next_opening(tmp_path: Path) -> None:
    """A thread that is idle gives the root back; here one is, from the save before."""
    open_at(tmp_path / "other").save(1, state_of(1)).wait()
    dropped(tmp_path / "r")
    until = time.monotonic() + 60
    while _series._left or _series._closing.locked():
        assert time.monotonic() < until
        time.sleep(0.001)
    assert run_ranks(1, resumed_there, tmp_path / "r", init=None) == [1]


def resumed_there(rank: int, root: Path) -> int:
    return resumed(root)


def test_one_that_is_dropped_elsewhere(tmp_path: Path, came: list[int]) -> None:
    """Only the main thread can remove handlers of signals: those that stay do what was done before
    them."""
    held: list[Any] = [open_at(tmp_path, signals="SIGTERM")]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        thread = threading.Thread(target=lambda: (held.clear(), gc.collect()))
        thread.start()
        thread.join()
    assert [warning.category for warning in told] == [ResourceWarning]
    signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGTERM]
    open_at(tmp_path).close()


def test_who_has_the_root_is_said(tmp_path: Path) -> None:
    """Where it is this process, also what to do."""
    with open_at(tmp_path / "r"):
        (tmp_path / "link").symlink_to(tmp_path / "r")
        for name in ("r", "link"):
            with pytest.raises(Error, match="which is this process: close the Checkpoint") as told:
                open_at(tmp_path / name)
            assert told.value.status == Status.ELOCKED
        (said,) = run_ranks(1, refused_there, tmp_path / "r", init=None)
        assert f"in use by process {os.getpid()} on" in said
        assert "this process: close" not in said
    open_at(tmp_path / "r").close()


def refused_there(rank: int, root: Path) -> str:
    with pytest.raises(Error) as told:
        open_at(root)
    return told.value.message


# ---------------------------------------------------------------- going back


def test_a_way_back_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with open_at(tmp_path) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, state_of(step)).wait()
        with pytest.raises(Error) as told:
            checkpoints.resume(state_of(0, more=torch.zeros(3)), step=1)
        assert told.value.status == Status.EMISMATCH
        shard = next(tmp_path.joinpath("step-2").glob("*.distcp"))
        data = bytearray(shard.read_bytes())
        data[len(data) // 4] ^= 1
        shard.write_bytes(data)
        for verify in ("read", "before"):
            with pytest.raises(Error) as told:
                checkpoints.resume(state_of(0), step=2, verify=verify)
            assert told.value.status == Status.ECORRUPT
    assert resumed(tmp_path) == 3


def test_a_checkpoint_instead_of_its_root(tmp_path: Path) -> None:
    """A run that is given one does not begin anew."""
    sidestep.save(state_of(1), checkpoint_id=tmp_path / "step-1", no_dist=True)
    with open_at(tmp_path / "step-1") as checkpoints, pytest.raises(Error) as told:
        checkpoints.resume(state_of(0))
    assert told.value.status == Status.EINVAL and "is a checkpoint itself" in told.value.message
    assert resumed(tmp_path) == 1


# ---------------------------------------------------------------- the end, once more


def test_a_run_that_is_over_when_it_resumes(tmp_path: Path) -> None:
    """Its last save, which stands behind the loop, is refused: and it is said what to do."""

    def run(careful: bool = False) -> None:
        with open_at(tmp_path / "r") as checkpoints:
            state = state_of(0)
            found = checkpoints.resume(state)
            while state["step"] < 3:
                state["step"] += 1
            if not careful or found is None or found.step < state["step"]:
                checkpoints.save(state["step"], state, final=True)

    run()
    with pytest.raises(Error, match=r"no step since.*final=True\) only at") as told:
        run()
    path = str(tmp_path / "r" / "step-3")
    assert told.value.status == Status.EEXISTS
    assert f"sidestep.export('{path}', ...)" in told.value.message
    run(careful=True)
    export(path, tmp_path / "final", Final(only=None))
    assert (tmp_path / "final" / "model.safetensors").exists()
    with open_at(tmp_path / "r") as checkpoints:
        checkpoints.save(4, state_of(4))
        with pytest.raises(Error) as told:  # of one that has not resumed, something else is said
            checkpoints.save(3, state_of(3), final=True)
        assert told.value.status == Status.EEXISTS and "final=True" not in told.value.message


# ---------------------------------------------------------------- signals


@pytest.fixture
def came() -> Iterator[list[int]]:
    """What a handler of the program's own is told."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def test_a_signal_while_it_is_closed(
    tmp_path: Path, came: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is waited for is committed within the grace time, and then the process ends."""
    handler = signal.getsignal(signal.SIGTERM)
    checkpoints = open_at(tmp_path, signals="SIGTERM")
    with held_saves() as go:
        real = SaveHandle._hurry

        def hurry(handle: SaveHandle) -> None:
            if not go.is_set():
                signal.raise_signal(signal.SIGTERM)
            go.set()
            real(handle)

        checkpoints.save(1, state_of(1))
        monkeypatch.setattr(SaveHandle, "_hurry", hurry)
        with pytest.raises(Preempted) as ended:
            checkpoints.close()
    assert ended.value.signal == signal.SIGTERM and ended.value.code == 143
    assert not came and signal.getsignal(signal.SIGTERM) is handler
    assert resumed(tmp_path) == 1


def test_a_signal_that_is_named_twice_is_handled_once(tmp_path: Path, came: list[int]) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    with open_at(tmp_path, signals=("SIGTERM", "TERM", int(signal.SIGTERM))):
        signal.raise_signal(signal.SIGTERM)
        assert not came
        signal.raise_signal(signal.SIGTERM)
        assert came == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_checkpointer_that_another_thread_closes_takes_no_signal(
    tmp_path: Path, came: list[int]
) -> None:
    checkpoints = open_at(tmp_path, signals="SIGTERM")
    thread = threading.Thread(target=checkpoints.close)
    thread.start()
    thread.join()
    signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGTERM]


@pytest.mark.parametrize("name", ["SIGKILL", signal.SIGSTOP, 4711, "SIG_DFL"])
def test_what_cannot_be_handled_is_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(ValueError):
        open_at(tmp_path / "run", signals=name if isinstance(name, str) else [name])
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- when


def test_the_same_step_is_answered_alike(tmp_path: Path) -> None:
    with open_at(tmp_path, interval=2, signals="SIGTERM") as checkpoints:
        assert [checkpoints.should_save(step) for step in (1, 1, 2, 2, 3)] == [0, 0, 1, 1, 0]
        checkpoints.request_stop()
        for _ in range(2):
            assert checkpoints.should_save(5) and checkpoints.stopping


def test_callbacks_hold_nothing_up(tmp_path: Path) -> None:
    """They may take as long as they like, and wait for what they are told of."""
    go = threading.Event()
    told: list[tuple[str, int]] = []

    def staged(step: int, handle: SaveHandle) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert handle.wait(60) and go.wait(60)
        told.append(("staged", step))

    def committed(step: int, handle: SaveHandle) -> None:
        assert threading.current_thread() is not threading.main_thread()
        told.append(("committed", step))

    with open_at(tmp_path / "r", on_staged=staged, on_committed=committed) as checkpoints:
        for step in range(3):
            checkpoints.save(step, state_of(step))
        assert checkpoints.wait(60)
        assert told == []
    go.set()
    until = time.monotonic() + 60
    while in_flight() and time.monotonic() < until:
        time.sleep(0.01)
    for step in range(3):
        assert [what for what, of in told if of == step] == ["staged", "committed"]


def test_a_forked_child_has_no_part_in_it(tmp_path: Path) -> None:
    """It leaves the `with` block whatever its parent's threads were doing."""
    go, busy = threading.Event(), threading.Event()

    def deleted(_: str) -> None:
        busy.set()
        go.wait(60)

    with open_at(tmp_path / "r", keep_last_n=1, on_deleted=deleted) as checkpoints:
        for step in range(2):
            checkpoints.save(step, state_of(step)).wait()
        assert busy.wait(60)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                checkpoints.close()
                checkpoints.__exit__(None, None, None)
                os._exit(0)
            os._exit(1)
        until = time.monotonic() + 60
        ended, status = os.waitpid(child, os.WNOHANG)
        while not ended and time.monotonic() < until:
            time.sleep(0.01)
            ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        go.set()
        assert ended and status == 0
        checkpoints.save(2, state_of(2)).wait()  # it is still the parent's
    assert resumed(tmp_path / "r") == 2


def test_an_interrupt_when_it_was_just_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has it then, and it is not left open."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    open_at(tmp_path / "elsewhere").close()  # and with it, the engine is there
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "check", interrupted)
        with pytest.raises(KeyboardInterrupt):
            open_at(tmp_path)
    assert resumed(tmp_path) == -1
