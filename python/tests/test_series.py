# SPDX-License-Identifier: BSD-3-Clause
"""`Checkpointer`: what stays, what is resumed from, and what it says about it.  One process."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from scripts import Scripts
from states import in_groups

import sidestep
from sidestep import Checkpointer, Error, Status
from sidestep._handle import SaveHandle, in_flight


def state_of(step: int) -> dict[str, Any]:
    return {"w": torch.full((1000,), float(step)), "step": step, "nested": {"b": torch.ones(3)}}


def steps(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in root.glob("step-*"))


def open_at(root: Path, **options: Any) -> Checkpointer:
    return Checkpointer(root, no_dist=True, signals=(), **in_groups(**options))


def damage(path: Path, at: int = 3000) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def wait_for_callbacks() -> None:
    """Those of a save are called on a thread of their own."""
    until = time.monotonic() + 60
    while in_flight() and time.monotonic() < until:
        time.sleep(0.01)


def test_the_last_ones_stay_and_callbacks_are_called(tmp_path: Path) -> None:
    root = tmp_path / "new" / "root"
    staged, committed, deleted = [], [], []
    with open_at(
        root,
        keep_last_n=2,
        on_staged=lambda step, _: staged.append(step),
        on_committed=lambda step, _: committed.append(step),
        on_deleted=deleted.append,
    ) as checkpoints:
        assert checkpoints.latest() is None
        assert checkpoints.resume(state_of(0)) is None
        for step in range(1, 6):
            handle = checkpoints.save(step, state_of(step))
            assert isinstance(handle, SaveHandle)
        assert checkpoints.wait()
    assert steps(root) == [4, 5]
    wait_for_callbacks()
    assert staged == [1, 2, 3, 4, 5] and committed == staged
    assert sorted(map(os.path.basename, deleted)) == ["step-1", "step-2", "step-3"]
    with open_at(root, keep_last_n=1) as checkpoints:
        state = state_of(0)
        found = checkpoints.resume(state)
        assert found is not None and found.step == 5 and found.rejected == ""
        assert state["step"] == 5 and bool((state["w"] == 5).all())


def test_all_are_told_before_it_is_closed(tmp_path: Path) -> None:
    deleted: list[str] = []
    begun = threading.Event()

    def slowly(path: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            time.sleep(1)
        deleted.append(os.path.basename(path))

    with open_at(tmp_path, keep_last_n=1, on_deleted=slowly) as checkpoints:
        for step in range(1, 5):
            checkpoints.save(step, state_of(step))
        assert checkpoints.wait() and begun.wait(60)
    assert sorted(deleted) == ["step-1", "step-2", "step-3"]


def test_best_pinned_and_every(tmp_path: Path) -> None:
    with open_at(
        tmp_path, keep_last_n=1, keep_every=4, keep_best=("accuracy", 1, "max")
    ) as checkpoints:
        for step, accuracy in enumerate([0.5, 0.9, 0.7, 0.2, 0.1, 0.3], start=1):
            checkpoints.save(step, state_of(step), metrics={"accuracy": accuracy}, tags=["run-a"])
            if step == 1:
                checkpoints.wait()
                checkpoints.pin(1)
                checkpoints.tag(1, "first")
        checkpoints.note(6, {"accuracy": 0.31})
    assert steps(tmp_path) == [1, 2, 4, 6]
    sidestep.pin(tmp_path / "step-1", False)
    with pytest.raises(Error) as told:
        sidestep.tag(tmp_path / "step-3", "gone")
    assert told.value.status == Status.ENOTFOUND
    with pytest.raises(ValueError, match="keep_last_n"):
        open_at(tmp_path / "other", keep_best=("loss", 1, "min"))


def test_damage_is_passed_over_and_said(tmp_path: Path, caplog: Any) -> None:
    with open_at(tmp_path) as checkpoints:
        for step in range(1, 5):
            checkpoints.save(step, state_of(step)).wait()
    damage(tmp_path / "step-4" / ".metadata", 100)
    damage(tmp_path / "step-3" / "__0_0.distcp")
    with open_at(tmp_path) as checkpoints:
        state = state_of(0)
        found = checkpoints.resume(state)
        assert found is not None and found.step == 2
        assert "step-3" in found.rejected
        warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert any("passed over" in text and "step-3" in text for text in warned)
        assert bool((state["w"] == 2).all())
        checkpoints.save(3, state_of(3)).wait()  # its name is free again
    assert len(list(tmp_path.glob(".sidestep.*.bad"))) == 2
    for path in [*tmp_path.glob("step-*/__0_0.distcp")]:
        damage(path)
    with open_at(tmp_path) as checkpoints, pytest.raises(Error) as told:
        checkpoints.resume(state_of(0))
    assert told.value.status == Status.ECORRUPT


def test_what_is_verified(tmp_path: Path) -> None:
    """A byte of what is read, and one of what is not: each level finds what it says, no more."""
    with open_at(tmp_path / "a") as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, state_of(step)).wait()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with open_at(tmp_path / "a") as checkpoints:
        other = tmp_path / "a" / "step-2" / "__0_0.distcp"
        damage(other, other.read_bytes().index(torch.full((1000,), 2.0).numpy().tobytes()) + 8)
        part: dict[str, Any] = {"nested": {"b": torch.zeros(3)}}
        for verify, expected in (("structure", 2), ("read", 2), ("before", 1)):
            if verify != "before":
                assert checkpoints.load(part, verify=verify).step == 2
            found = checkpoints.resume(part, verify=verify)
            assert found is not None and found.step == expected, verify
            assert bool((part["nested"]["b"] == 1).all())
    with open_at(tmp_path / "b") as checkpoints:
        other = tmp_path / "b" / "step-2" / "__0_0.distcp"
        damage(other, other.read_bytes().index(torch.full((1000,), 2.0).numpy().tobytes()) + 8)
        state = state_of(0)
        found = checkpoints.resume(state, verify="structure")
        assert found is not None and found.step == 2
        assert int((state["w"] != 2).sum()) == 1  # as it was asked for
        for verify in ("read", "before"):
            with pytest.raises(Error) as told:
                checkpoints.load(state_of(0), verify=verify)
            assert told.value.status == Status.ECORRUPT
        found = checkpoints.resume(state_of(0), verify="read")
        assert found is not None and found.step == 1 and "step-2" in found.rejected
        for call in (checkpoints.resume, checkpoints.load):
            with pytest.raises(ValueError, match="verify='nonsense' is none of"):
                call(state_of(0), verify="nonsense")


def test_going_back_starts_a_new_line(tmp_path: Path) -> None:
    with open_at(tmp_path) as checkpoints:
        for step in range(1, 5):
            checkpoints.save(step, state_of(step))
    with open_at(tmp_path) as checkpoints:
        seen = checkpoints.load(state_of(0))  # to look is not to go back
        assert seen.step == 4
        found = checkpoints.resume(state_of(0), step=2)
        assert found is not None and found.step == 2
    with open_at(tmp_path) as checkpoints:
        found = checkpoints.resume(state_of(0))
        assert found is not None and found.step == 2 and "step-4" in found.rejected
        checkpoints.save(3, state_of(33)).wait()
        with pytest.raises(Error) as told:
            checkpoints.resume(state_of(0), step=77)
        assert told.value.status == Status.ENOTFOUND
    with open_at(tmp_path) as checkpoints:
        state = state_of(0)
        found = checkpoints.resume(state)
        assert found is not None and found.step == 3 and state["step"] == 33


def test_load_reports_names(tmp_path: Path) -> None:
    with open_at(tmp_path) as checkpoints:
        checkpoints.save(1, state_of(1)).wait()
        found = checkpoints.load({"w": torch.zeros(1000)}, step=1)
        assert found.unexpected == ["nested.b", "step"]
        assert found.missing == found.mismatched == []
        for call in (checkpoints.load, checkpoints.resume):
            state = {"w": torch.zeros(1000)}
            with pytest.raises(Error, match=r"nested\.b") as told:
                call(state, exact=True)
            assert told.value.status == Status.EMISMATCH and not state["w"].any()
            with pytest.raises(Error, match="Missing key"):
                call({**state_of(0), "more": torch.zeros(1)})
            with pytest.raises(Error, match="Size mismatch"):
                call({**state_of(0), "w": torch.zeros(3)})
        with pytest.raises(Error) as told:
            checkpoints.load(state_of(0), step=9)
        assert told.value.status == Status.ENOTFOUND
    with open_at(tmp_path / "empty") as checkpoints, pytest.raises(Error) as told:
        checkpoints.load(state_of(0))
    assert told.value.status == Status.ENOTFOUND


def test_what_does_not_fit_is_left_and_listed(tmp_path: Path) -> None:
    """strict=False: as torch's load_state_dict() returns it, and what was mismatched, too."""
    with open_at(tmp_path) as checkpoints:
        checkpoints.save(1, state_of(1)).wait()
        for call in (checkpoints.load, checkpoints.resume):
            state: dict[str, Any] = {
                "w": torch.full((2, 3), 7.0, dtype=torch.float64),
                "more": torch.full((1,), 7.0),
                "nested": {"b": 7, "c": torch.full((1,), 7.0)},
            }
            found = call(state, strict=False)
            assert found is not None and found.missing == ["more", "nested.c"]
            assert found.unexpected == ["step"]
            assert found.mismatched == [
                "nested.b: saved float32 [3], wanted a int",
                "w: saved float32 [1000], wanted float64 [2, 3]",
            ]
            assert bool((state["w"] == 7).all()) and state["nested"]["b"] == 7
            state = {"w": torch.zeros(1000), "more": torch.zeros(1), "nested": {}}
            found = call(state, strict=False)
            assert found is not None and bool((state["w"] == 1).all())
            assert found.missing == ["more"] and found.mismatched == []


def test_when(tmp_path: Path) -> None:
    with open_at(tmp_path, interval=3) as checkpoints:
        assert [step for step in range(10) if checkpoints.should_save(step)] == [3, 6, 9]
        checkpoints.request_save()
    with Checkpointer(tmp_path, no_dist=True, interval=datetime.timedelta(hours=1)) as checkpoints:
        assert not any(checkpoints.should_save(step) for step in range(50))
        checkpoints.request_save()
        due = [step for step in range(50, 60) if checkpoints.should_save(step)]
        assert len(due) == 1 and not checkpoints.stopping
        checkpoints.request_stop()
        assert checkpoints.should_save(60) and checkpoints.stopping
        with pytest.raises(sidestep.Preempted) as ended:
            checkpoints.save(60, state_of(60))
        assert ended.value.code == 143
        assert steps(tmp_path) == [60]
        assert checkpoints.status().interval_s == 3600
    wrong: list[tuple[Any, type[Exception]]] = [(0.5, TypeError), ("5", TypeError)]
    wrong += [(-1, ValueError), ((3, datetime.timedelta(-1)), ValueError)]
    for interval, error in wrong:
        with pytest.raises(error, match="interval"):
            open_at(tmp_path / "other", interval=interval)


def test_by_steps_and_by_time(tmp_path: Path) -> None:
    """Whichever comes first."""
    with open_at(tmp_path / "a", interval=(3, datetime.timedelta(hours=1))) as checkpoints:
        assert [step for step in range(10) if checkpoints.should_save(step)] == [3, 6, 9]
        assert checkpoints.status().interval_s == 3600
    moment = datetime.timedelta(milliseconds=50)
    with open_at(tmp_path / "b", interval=(1000000, moment)) as checkpoints:
        step = 0
        while not checkpoints.should_save(step):
            step += 1
            time.sleep(0.001)
        assert 0 < step < 1000000


def test_two_runs_cannot_share_a_root(tmp_path: Path) -> None:
    with open_at(tmp_path), pytest.raises(Error) as told:
        open_at(tmp_path)
    assert told.value.status == Status.ELOCKED


class Failing:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        real = SaveHandle._await

        def wait(handle: SaveHandle, which: Any) -> Any:
            error = real(handle, which)
            if self.left and which == sidestep._c.abi.SaveState.SAVE_COMMITTED:
                self.left -= 1
                return Error("lost", status=Status.EIO)
            return error

        monkeypatch.setattr(SaveHandle, "_await", wait)


def test_failures_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch)
    failed: list[int] = []
    with open_at(tmp_path / "a", on_failed=lambda step, _: failed.append(step)) as checkpoints:
        failing.left = 1
        checkpoints.save(1, state_of(1))
        with pytest.raises(Error, match="lost"):
            checkpoints.save(2, state_of(2))
        checkpoints.save(3, state_of(3))
        wait_for_callbacks()
        assert checkpoints.failures == 1 and failed == [1]
    with open_at(tmp_path / "b", max_failures=2) as checkpoints:
        failing.left = 3
        for step in (1, 2, 3):
            checkpoints.save(step, state_of(step))
        with pytest.raises(Error, match="lost"):
            checkpoints.save(4, state_of(4))
        checkpoints.save(5, state_of(5)).wait()
        assert checkpoints.failures == 3 and checkpoints.failures_in_a_row == 0


def test_after_an_exception_the_same_process_can_resume(tmp_path: Path) -> None:
    """As in a notebook, or a loop that tries again."""
    for attempt in range(3):
        with pytest.raises(ValueError, match="body"), open_at(tmp_path) as checkpoints:
            found = checkpoints.resume(state_of(0))
            assert (found.step if found is not None else 0) == attempt
            checkpoints.save(attempt + 1, state_of(attempt + 1))
            raise ValueError("in the body")
    assert steps(tmp_path) == [1, 2, 3]


def test_an_exception_of_the_body_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(KeyError), open_at(tmp_path) as checkpoints:
        checkpoints.save(1, state_of(1))
        raise KeyError("the trainer's")
    assert steps(tmp_path) == [1]
    checkpoints.close()
    with open_at(tmp_path):  # and the lock is free
        pass


TRAINING = """
import sys, time, torch, sidestep
from pathlib import Path
root = Path(sys.argv[1]) / "root"
w = torch.zeros(1000)
state = {"w": w, "step": 0}
options = {"interval": 1000000, "preemption": sidestep.PreemptionPolicy(grace_s=4),
           **eval(sys.argv[2])}
with sidestep.Checkpointer(root, **options) as checkpoints:
    found = checkpoints.resume(state)
    step = found.step if found else 0
    print("from", step, flush=True)
    while True:
        step += 1
        state["w"].fill_(step)
        state["step"] = step
        time.sleep(0.002)
        if checkpoints.should_save(step):
            checkpoints.save(step, state)
        if step % 20 == 0:
            print("step", step, flush=True)
"""


def test_a_signal_makes_a_last_checkpoint(scripts: Scripts, tmp_path: Path) -> None:
    last = 0
    for options, number, code in (
        ("{}", signal.SIGTERM, 143),
        (
            "{'signals': ('USR1', 'TERM'), 'preemption': sidestep.PreemptionPolicy(exit_code=7)}",
            signal.SIGUSR1,
            7,
        ),
        # The last one comes behind those that are queued.
        (
            "{'interval': 3, 'schedule': sidestep.SchedulePolicy(busy='queue', queue=2),"
            " 'keep_last_n': 3, 'preemption': sidestep.PreemptionPolicy(grace_s=30)}",
            signal.SIGTERM,
            143,
        ),
    ):
        script = scripts.start(TRAINING, tmp_path, options)
        script.wait_for(f"from {last}\n")
        script.wait_for("step")
        script.signal(number)
        assert script.wait() == code, script.output()
        found = sidestep.latest(tmp_path / "root")
        assert found is not None
        step = int(found.rpartition("-")[2])
        assert step > last
        last = step
        assert sidestep.read(found, "step") == step
        assert bool((sidestep.read(found, "w") == step).all())


LATE = """
import logging, os, sys, time, torch, sidestep
from pathlib import Path
logging.basicConfig(level=logging.INFO)
state = {"w": torch.zeros(int(sys.argv[3]) << 18)}
options = {"interval": int(sys.argv[2]),
           "preemption": sidestep.PreemptionPolicy(grace_s=1.0, at_signal=sys.argv[4])}
with sidestep.Checkpointer(Path(sys.argv[1]) / "late", **options) as checkpoints:
    step = 0
    print("ready", flush=True)
    while True:
        step += 1
        time.sleep(0.002)
        if checkpoints.should_save(step):
            print("save", step, flush=True)
            checkpoints.save(step, state)
"""


@pytest.mark.parametrize(
    "interval, ready, at_signal",
    [
        (1000000, "ready", "save"),  # the last save itself is slow
        (1, "save 2", "save"),  # so is the one before: the signal comes while it is waited for
        (1, "save 2", "finish"),
        (100, "save 100", "save"),
        (100, "save 100", "finish"),
        (100, "save 100", "abort"),
    ],
)
def test_the_grace_time_is_the_end(
    scripts: Scripts, tmp_path: Path, interval: int, ready: str, at_signal: str
) -> None:
    """A save that would take a minute is not waited for: neither in the next one's place, nor by
    `close`, nor at exit."""
    script = scripts.start(
        LATE,
        tmp_path,
        str(interval),
        "96",
        at_signal,
        environment={"SIDESTEP_WRITE_BYTES_PER_SECOND": str(1 << 20)},
    )
    script.wait_for(ready)
    script.signal(signal.SIGTERM)
    assert script.wait(timeout=40) == 143, script.output()
    errors = script.output()[1]
    said = "is not waited for" if at_signal == "abort" else "grace time"
    assert said in errors and "Traceback" not in errors, errors
    assert sidestep.latest(tmp_path / "late") is None


def test_nothing_is_under_way_at_a_signal(scripts: Scripts, tmp_path: Path) -> None:
    """With "finish" and "abort" then no last checkpoint is made, and the root is given back."""
    for at_signal in ("finish", "abort"):
        script = scripts.start(LATE, tmp_path, "1000000", "1", at_signal)
        script.wait_for("ready")
        script.signal(signal.SIGTERM)
        assert script.wait() == 143, script.output()
        assert steps(tmp_path / "late") == [] and "Traceback" not in script.output()[1]


def test_a_signal_finishes_what_is_under_way(scripts: Scripts, tmp_path: Path) -> None:
    """With "finish" it is committed, and no other one is made."""
    script = scripts.start(
        LATE.replace("1.0", "30").replace("step = 0", "step = 0; sidestep.paused().__enter__()"),
        tmp_path,
        "100",
        "2",
        "finish",
    )
    script.wait_for("save 100")
    script.signal(signal.SIGTERM)
    assert script.wait() == 143, script.output()
    assert steps(tmp_path / "late") == [100]
    with open_at(tmp_path / "late") as checkpoints:
        state = {"w": torch.ones(2 << 18)}
        found = checkpoints.resume(state)
        assert found is not None and found.step == 100 and not state["w"].any()


def test_words_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    for name, word in (
        ("at_signal", "quit"),
        ("busy", "later"),
        ("on_full", "delete"),
        ("keep_best", ("loss", 1, "least")),
    ):
        with pytest.raises(ValueError, match=f"{name}='?[a-z]+'? is none of"):
            open_at(tmp_path, keep_last_n=1, **{name: word})


def test_ranks_that_know_nothing_of_each_other_are_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "4"), ("TORCHELASTIC_RESTART_COUNT", "2")):
        monkeypatch.setenv(name, value)
    with caplog.at_level("INFO", logger="sidestep"), Checkpointer(tmp_path, no_dist=True) as made:
        assert made.environment.world_size == 4
    assert "torch.distributed is not initialized" in caplog.text
    assert "restarted 2 times" in caplog.text


def test_other_threads_do_not_handle_signals(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def work() -> None:
        with Checkpointer(tmp_path, no_dist=True) as checkpoints:
            checkpoints.save(1, state_of(1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    with Checkpointer(tmp_path, no_dist=True):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    shutil.rmtree(tmp_path)
