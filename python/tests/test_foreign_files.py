# SPDX-License-Identifier: BSD-3-Clause
"""Nothing that is not ours is moved, replaced or deleted: each command and each function that
writes or deletes, with things of others everywhere."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign
import pytest
import torch

import sidestep

PROGRAM = Path(os.environ.get("SIDESTEP_LIBRARY", "build/libsidestep.so.0")).resolve().parent


def command(*words: object, fails: bool = False) -> str:
    done = subprocess.run(
        [PROGRAM / "sidestep", *map(str, words)], capture_output=True, text=True, timeout=300
    )
    assert fails or done.returncode in (0, 3, 4, 5, 10, 11), (words, done.stdout, done.stderr)
    return done.stdout


def state(number: float) -> dict[str, Any]:
    return {"model": {"w": torch.full((64, 64), number), "v": torch.ones(3)}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A series of four steps, of which the newest is damaged, and two checkpoints of their own."""
    root = tmp_path_factory.mktemp("made") / "runs"
    with sidestep.Checkpointer(root) as series:
        for step in range(1, 5):
            series.save(step, state(step)).result()
    sidestep.save(state(7), checkpoint_id=root / "one")
    sidestep.save(state(8), checkpoint_id=root / "two")
    shard = next((root / "step-4").glob("*.distcp"))
    content = bytearray(shard.read_bytes())
    content[4096:4100] = b"\xff\x00\xff\x00"
    shard.write_bytes(content)
    return root


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "runs", symlinks=True)
    return tmp_path / "runs"


def everywhere(runs: Path) -> list[Path]:
    return [runs, *(path for path in sorted(runs.iterdir()) if path.is_dir())]


def resume(runs: Path) -> None:
    with sidestep.Checkpointer(runs) as series:
        series.resume(state(0))


def rotate(runs: Path) -> None:
    with sidestep.Checkpointer(runs, keep_last_n=1) as series:
        series.resume(state(0))
        for step in range(10, 13):
            series.save(step, state(step)).result()


def queue(runs: Path) -> None:
    handles = [sidestep.async_save(state(3), checkpoint_id=runs / name) for name in ("one", "two")]
    for handle in handles:
        handle.result()


def rebuild(runs: Path) -> None:
    os.unlink(runs / "one/.metadata")
    command("rebuild", runs / "one", fails=True)  # a shard that is a FIFO cannot be read


def convert_all(runs: Path) -> None:
    """Onto places that are there, and beside them."""
    for at in ("two", "logs", "empty", "notes.txt", "link", "fifo", "way/new", "new"):
        for to in ("dcp", "safetensors", "torch", "npz"):
            command("convert", f"--to={to}", runs / "one", runs / at, fails=True)


def copy_all(runs: Path) -> None:
    for at in ("two", "step-1", "logs", "notes.txt", "link", "way", "fifo", "new", "new"):
        command("cp", runs / "one", runs / at, fails=True)
        command("cp", "--replace", runs / "one", runs / at, fails=True)


def mirror_all(runs: Path) -> None:
    """To where things of others are: an error, or beside them."""
    for at in ("two", "logs", "empty", "notes.txt", "link", "way", "fifo", "new"):
        command("mirror", "--keep-last=1", runs, runs / at, fails=True)
        command("mirror", "--keep-last=1", runs / at, runs / "far", fails=True)


def save_at_names(runs: Path) -> None:
    """Where something of somebody else is: an error, or beside it."""
    for at in ("logs", "empty", "notes.txt", "link", "way", "fifo", "dangling", "self", "socket"):
        with contextlib.suppress(sidestep.Error):
            sidestep.save(state(2), checkpoint_id=runs / at)


def gc(runs: Path) -> None:
    """What it says is what has happened."""
    before = set(runs.rglob("*")) | set(runs.iterdir())
    told = json.loads(command("gc", "--json", "--yes", runs))
    for path in told["removed"]:
        assert not os.path.lexists(path), path
    assert told["kept"] or not before


def python_deletes(runs: Path) -> None:
    from sidestep import _rotation

    for name in ("one", "two", "step-1", "logs", "empty"):
        with contextlib.suppress(sidestep.Error, OSError):
            _rotation.delete(str(runs / name))


def python_calls(runs: Path) -> None:
    sidestep.pin(runs / "step-1")
    sidestep.tag(runs / "step-2", "a")
    sidestep.tag(runs / "step-2", "a", on=False)
    sidestep.copy(runs / "one", runs / "copied")
    sidestep.copy(runs / "two", runs / "copied", replace=True)
    sidestep.convert(runs / "one", runs / "converted")
    sidestep.export(runs / "one", runs / "exported")
    sidestep.load(state(0), checkpoint_id=runs / "one")
    assert sidestep.latest(runs)


ACTIONS: dict[str, Callable[[Path], Any]] = {
    "save": lambda runs: sidestep.save(state(9), checkpoint_id=runs / "one"),
    "save anew": lambda runs: sidestep.save(state(9), checkpoint_id=runs / "new"),
    "async saves": queue,
    "saves at names of others": save_at_names,
    "resume": resume,
    "rotate": rotate,
    "prune": lambda runs: command("prune", "--keep-last=1", "--yes", runs),
    "gc": gc,
    "gc dry": lambda runs: command("gc", "--dry-run", runs),
    "gc of a checkpoint": lambda runs: command("gc", "--yes", runs / "one"),
    "delete": python_deletes,
    "cp": copy_all,
    "mirror": mirror_all,
    "convert": convert_all,
    "rebuild": rebuild,
    "pin": lambda runs: command("pin", runs / "step-1"),
    "unpin": lambda runs: command("unpin", runs / "step-1"),
    "tag": lambda runs: command("tag", runs / "step-1", "x"),
    "python": python_calls,
    "bench": lambda runs: command("bench", "--size=16MiB", "--runs=1", runs),
    "doctor": lambda runs: command("doctor", runs),
    "readers": lambda runs: [
        command(*words, runs)
        for words in (["ls"], ["latest"], ["verify"], ["verify", "--help"], ["report"])
    ],
}


@pytest.mark.parametrize("hidden", [False, True], ids=["", "hidden"])
@pytest.mark.parametrize("name", ACTIONS)
def test_what_is_not_ours_stays(runs: Path, name: str, hidden: bool) -> None:
    there = foreign.plant(*everywhere(runs), hidden=hidden)
    ACTIONS[name](runs)
    assert foreign.changes(there) == []


def test_an_interrupted_copy(tmp_path: Path) -> None:
    """What somebody puts into its hidden directory stays, and comes along."""
    (tmp_path / "runs").mkdir()
    source, copied = tmp_path / "source", tmp_path / "runs/copied"
    sidestep.save({"w": torch.ones(16 << 20)}, checkpoint_id=source)
    hidden: list[Path] = []
    while not hidden:
        running = subprocess.Popen([PROGRAM / "sidestep", "cp", source, copied])
        while not hidden and running.poll() is None:
            hidden = list(copied.parent.glob(".sidestep.*.saving"))
        running.kill()
        running.wait()
        if copied.exists():  # it was too quick
            shutil.rmtree(copied)
            hidden = []
    (hidden[0] / "theirs.txt").write_text("theirs")
    (hidden[0] / "link").symlink_to("theirs.txt")
    command("cp", source, copied)
    found = [path for path in copied.parent.rglob("theirs.txt") if path.read_text() == "theirs"]
    assert len(found) == 1
    assert (found[0].parent / "link").is_symlink()


def test_every_command_is_tried() -> None:
    """A new command is added here, or to those that only read."""
    reads = {"show", "cat", "diff", "watch", "check", "metrics", "completion", "help", "version"}
    reads |= {"events", "trace", "report"}
    tried = {
        "ls",
        "latest",
        "verify",
        "convert",
        "cp",
        "mirror",
        "gc",
        "prune",
        "pin",
        "unpin",
        "tag",
    }
    tried |= {"rebuild", "doctor", "bench"}
    listed = command("help").partition("COMMANDS\n")[2].partition("\n\n")[0].splitlines()
    assert {line.split()[0] for line in listed if line[2] != " "} == reads | tried


@pytest.mark.parametrize("change", ["gone", "other bytes", "other link", "anew", "mode"])
def test_that_the_check_finds(runs: Path, change: str) -> None:
    """The control: what a command must not do, done to one thing at a time."""
    there = foreign.plant(runs)
    file, link, fifo = runs / "notes.txt", runs / "link", runs / "fifo"
    assert foreign.changes(there) == []
    if change == "gone":
        shutil.rmtree(runs / "logs")
    elif change == "other bytes":
        file.write_text("x" * file.stat().st_size)
    elif change == "other link":
        link.unlink()
        link.symlink_to("elsewhere")
    elif change == "anew":
        fifo.rename(runs / "moved")
        os.mkfifo(fifo)
    else:
        file.chmod(0o600)
    assert foreign.changes(there)
