# SPDX-License-Identifier: BSD-3-Clause
"""Options of `Checkpointer` whose work the library does: they reach it, and what comes of it."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks
from states import in_groups

from sidestep import Checkpointer, Final
from sidestep._engine import engine_alone


def state_of(step: int) -> dict[str, Any]:
    return {"w": torch.full((1000,), float(step)), "step": step}


def open_at(root: Any, **options: Any) -> Checkpointer:
    return Checkpointer(root, no_dist=True, signals=(), **in_groups(**options))


def resumed(root: Path, **options: Any) -> tuple[int, str]:
    with open_at(root, **options) as checkpoints:
        found = checkpoints.resume(state_of(0))
        assert found is not None
        return found.step, found.rejected


def test_mtbf_and_max_lost(tmp_path: Path) -> None:
    """The interval follows from what saves cost; none of the two without a rate of failures."""
    found = []
    for i, options in enumerate(
        (
            {},
            {"mtbf": datetime.timedelta(hours=1)},
            {"mtbf": datetime.timedelta(hours=1), "max_lost": 0.5},
        )
    ):
        with open_at(tmp_path / str(i), **options) as checkpoints:
            for step in (1, 2):
                checkpoints.save(step, state_of(step)).wait()
                checkpoints.should_save(step)
            found.append(checkpoints.status())
    none, best, longest = found
    assert none.interval_s == none.lost == 0
    assert 0 < best.interval_s < 3600 and 0 < best.lost < 0.5
    assert best.interval_s < longest.interval_s and best.lost < longest.lost <= 0.51


def test_busy_skip(tmp_path: Path) -> None:
    engine = engine_alone()
    with open_at(tmp_path, interval=1, busy="skip") as checkpoints:
        engine.pause(True)
        try:
            assert checkpoints.should_save(1)
            handle = checkpoints.save(1, state_of(1))
            assert not checkpoints.should_save(2) and not handle.done()
        finally:
            engine.pause(False)
        assert checkpoints.status().skipped == 1
        handle.wait()
        assert checkpoints.should_save(3)


def test_any_run(tmp_path: Path) -> None:
    for name, step in (("other", 5), ("mine", 1)):
        with open_at(tmp_path / name) as checkpoints:
            checkpoints.save(step, state_of(step))
    shutil.copytree(tmp_path / "other" / "step-5", tmp_path / "mine" / "step-5")
    step, rejected = resumed(tmp_path / "mine")
    assert step == 1 and "step-5" in rejected
    assert resumed(tmp_path / "mine", any_run=True) == (5, "")
    assert resumed(tmp_path / "mine")[0] == 5  # it is this run's from then on


def come_to_nothing(_: int, root: str, max_restarts: int) -> None:
    checkpoints = open_at(root, max_restarts=max_restarts)
    assert checkpoints.resume(state_of(0)) is not None
    os._exit(7)


def test_max_restarts(tmp_path: Path) -> None:
    with open_at(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, state_of(step))
    for _ in range(2):
        run_ranks(1, come_to_nothing, str(tmp_path), 2, init=None, may_die={0})
    shutil.copytree(tmp_path, tmp_path.with_name("any"))
    step, rejected = resumed(tmp_path, max_restarts=2)
    assert step == 1 and "step-2" in rejected
    assert resumed(tmp_path.with_name("any"))[0] == 2  # the default: any number


def test_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fenced: list[bool] = []
    monkeypatch.setattr("sidestep._checkpointer.fence_optimizers", lambda: fenced.append(True))
    with open_at(tmp_path, fence=False):
        assert not fenced
    with open_at(tmp_path):
        assert fenced == [True]


FULL = """
import os, sys, torch, sidestep
from sidestep import Checkpointer
root, on_full = sys.argv[1], {"none": None}.get(sys.argv[2], sys.argv[2])
options = {"no_dist": True, "signals": (), "keep_last_n": 2,
           "retention": sidestep.RetentionPolicy(on_full=on_full)}

def attempt(step):
    handle = None
    try:
        handle = found.save(step, {"w": torch.full((3 << 18,), float(step))})
        handle.wait()
        told = "saved"
    except sidestep.Error as error:
        told = f"{error.status.name} {'later' if handle else 'at once'}"
        print(f"{error.file}: {error}", file=sys.stderr)
    print(told, sorted(name for name in os.listdir(f"{root}/r") if name[0] != "."))

with Checkpointer(f"{root}/r", **options) as found:
    for step in (1, 2):
        found.save(step, {"w": torch.full((3 << 18,), float(step))}).wait()
    attempt(3)
with Checkpointer(f"{root}/r", **options) as found:
    attempt(4)
"""


@pytest.mark.parametrize(
    "on_full, expected, said",
    [
        (
            "none",
            ["ENOSPC later ['step-1', 'step-2']"] * 2,
            r"__0_0\.distcp\.part: save '/.*/r/step-3': the storage is full: the files of rank 0 "
            r"take [\d.]+ MiB, and [\d.]+ MiB were free; deleting all checkpoints but the newest "
            r"would free [\d.]+ MiB \(1 checkpoint\): .*: reserve space for "
            r"'__0_0\.distcp\.part': ",
        ),
        (
            "fail",
            ["ENOSPC at once ['step-1', 'step-2']"] * 2,
            r"None: save '/.*/r/step-3': the newest checkpoint takes [\d.]+ MiB, and '/.*/r' has "
            r"[\d.]+ MiB left; deleting all checkpoints but the newest would free [\d.]+ MiB",
        ),
        (
            "make_room",
            ["saved ['step-2', 'step-3']", "ENOSPC at once ['step-2', 'step-3']"],
            r"None: save '/.*/r/step-4': the newest checkpoint takes [\d.]+ MiB, and '/.*/r' has "
            r"[\d.]+ MiB left; nothing could be deleted: this run has committed nothing yet since",
        ),
    ],
    ids=["none", "fail", "make_room"],
)
def test_on_full(tmp_path: Path, on_full: str, expected: list[str], said: str) -> None:
    """On a file system with room for two checkpoints, and retention that would keep two; then once
    more by a run that has just been opened."""
    alone = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=8m tmpfs "$0" && exec "$@"']
    if shutil.which("unshare") is None or subprocess.run([*alone, tmp_path, "true"]).returncode:
        pytest.skip("this user may not mount a small file system")
    done = subprocess.run(
        [*alone, tmp_path, sys.executable, "-c", FULL, tmp_path, on_full],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == expected, done.stdout + done.stderr
    assert re.search(said, done.stderr), done.stderr


@pytest.mark.parametrize(
    "options, said",
    [
        ({"keep_last_n": -1}, "keep_last_n=-1 is negative"),
        ({"keep_last_n": 0}, "keep_last_n=0: the newest always stays"),
        ({"incremental": "yes"}, "incremental: True or False is wanted, not a str"),
        ({"any_run": "yes"}, "any_run: True or False is wanted"),
        ({"fence": 1}, "fence: True or False is wanted, not an int"),
        ({"user_faults": "1"}, "user_faults: True or False is wanted"),
        ({"keep_last_n": 1, "keep_best": ("loss",)}, "keep_best=.* is no"),
        ({"max_failures": -1}, "max_failures=-1 is negative"),
        ({"mtbf": 60}, "mtbf: a datetime.timedelta"),
        ({"final": "safetensors"}, "final='safetensors' is not a sidestep.Final"),
        ({"compress": "gzip"}, "compress='gzip' is none of"),
        ({"spread_s": -1.0}, "spread_s=-1.0 is not a number of seconds"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    """And not in the first save, or in the last one."""
    with pytest.raises((ValueError, TypeError), match=said):
        open_at(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("options", [{"dtype": "foo"}, {"max_shard_size": "5 parsecs"}])
def test_a_final_format_that_is_none(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Final("safetensors", **options)


def test_one_word_is_one_word(tmp_path: Path) -> None:
    """Not its letters: of a signal and of a tag; and no step is negative."""
    with Checkpointer(tmp_path, no_dist=True, signals="SIGUSR2") as checkpoints:
        with pytest.raises(ValueError, match="step=-1 is negative"):
            checkpoints.save(-1, state_of(1))
        checkpoints.save(1, state_of(1), tags="best").wait()
    marks = {path.name for path in (tmp_path / ".sidestep").glob("tag.*")}
    assert marks == {"tag.best.step-1"}


def test_what_is_closed_says_so(tmp_path: Path) -> None:
    checkpoints = open_at(tmp_path)
    checkpoints.save(1, state_of(1))
    checkpoints.close()
    checkpoints.close()
    for call in (
        lambda: checkpoints.save(2, state_of(2)),
        lambda: checkpoints.resume(state_of(0)),
        lambda: checkpoints.should_save(2),
        lambda: checkpoints.note(1, {"loss": 1.0}),
    ):
        with pytest.raises(RuntimeError, match="are closed"):
            call()
