# SPDX-License-Identifier: BSD-3-Clause
"""Directories of tensors and small files, as the adapters of frameworks save and delete them."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sidestep
from sidestep import _directory
from sidestep._files import FirstRank, Taken

torch = pytest.importorskip("torch")

STATE = {"model": lambda: {"weight": torch.arange(4.0)}}
FILES = {"state.json": FirstRank(b"{}"), "inner/notes.txt": FirstRank(b"notes")}


def begin(target: Path, **how) -> _directory.DirectorySave:
    files = _directory.with_aliases(FILES, ["others_0"])
    return _directory.save(str(target), STATE, lambda: files, **how)


def tree(directory: Path) -> dict[str, bytes]:
    """All files but those of sidestep."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith((".metadata", ".sidestep", "__"))
    }


def test_all_of_it_appears(tmp_path):
    target = tmp_path / "checkpoint-1"
    _directory.wait_all(begin(target))
    assert os.listdir(tmp_path) == ["checkpoint-1"]
    assert (target / "inner" / "notes.txt").read_text() == "notes"
    state = {"model": {"weight": torch.zeros(4)}}
    sidestep.load(state, checkpoint_id=target / "others_0")
    assert torch.equal(state["model"]["weight"], torch.arange(4.0))


@pytest.mark.parametrize("kind", ["directory", "link", "working"])
def test_what_others_have_put_there_stays(tmp_path, monkeypatch, kind):
    place = tmp_path / "out"
    place.mkdir()
    (place / "data").mkdir()
    (place / "data" / "rows.bin").write_bytes(b"rows")
    (place / "state.json").write_text("theirs")
    target = place
    if kind == "link":
        target = tmp_path / "link"
        target.symlink_to(place)
    if kind == "working":
        monkeypatch.chdir(place)
        target = Path(".")
    for _ in range(2):
        _directory.wait_all(begin(target.absolute()))
        found = tree(place)
        assert found["data/rows.bin"] == b"rows" and found["state.json"] == b"theirs"
        assert sidestep.read_file(place, "state.json") == b"{}"
    if kind == "link":
        assert target.is_symlink()
    (place / "late").write_text("after the save")
    assert not _directory.delete(str(place), "a test wants it")
    assert tree(place)["late"] == b"after the save"


def test_a_failure_on_the_way_leaves_the_older_one(tmp_path):
    target = tmp_path / "last"
    _directory.wait_all(begin(target))
    before = tree(target)

    def fails():
        raise RuntimeError("no state")

    with pytest.raises(RuntimeError, match="no state"):
        _directory.save(str(target), {"model": fails}, dict)
    assert tree(target) == before
    assert _directory.damage_of(str(target)) is None


def test_what_follows_runs_after_the_commit(tmp_path, caplog):
    seen = []
    target = tmp_path / "one"
    saving = begin(target, then=lambda: seen.append(_directory.described(str(target))))
    _directory.wait_all(saving)
    assert seen[0].files.keys() == FILES.keys()

    def fails():
        raise OSError("cannot")

    _directory.wait_all(begin(tmp_path / "two", then=fails))
    assert "'" + str(tmp_path / "two") + "' is saved, but what had to follow failed" in caplog.text


def test_the_oldest_go_but_not_the_one_just_saved(tmp_path, caplog):
    paths = [str(tmp_path / f"checkpoint-{number}") for number in (5, 6, 7, 0)]
    for path in paths:
        _directory.wait_all(begin(Path(path)))
    foreign = tmp_path / "checkpoint-3"
    foreign.mkdir()
    (foreign / "model.bin").write_bytes(b"theirs")
    sidestep.pin(paths[0])
    (Path(paths[1]) / "mine.txt").write_text("mine")
    new = paths[3]
    order = [new, str(foreign), *paths[:3]]
    _directory.delete_oldest(order, 1, [new], "a limit of 1")
    left = {name for name in os.listdir(tmp_path) if not name.startswith(".")}
    assert left == {"checkpoint-0", "checkpoint-3", "checkpoint-5", "checkpoint-6"}
    assert tree(foreign) == {"model.bin": b"theirs"}
    assert caplog.text.count("stays, although a limit of 1") == 2


def test_hooks_have_a_directory_beside_the_target(tmp_path):
    target = tmp_path / "deep" / "checkpoint-1"
    with _directory.for_hooks(str(target), "run") as place:
        assert Path(place).name == "run"
        assert Path(place).parent.parent == target.parent
        (Path(place) / "a").mkdir()
        (Path(place) / "a" / "b").write_bytes(b"1")
        assert _directory.taken_from(place) == {"a/b": Taken(f"{place}/a/b")}
    assert os.listdir(target.parent) == []


def test_it_stays_until_the_save_has_ended_and_its_files_are_linked(tmp_path):
    sidestep.async_save({"x": torch.ones(1)}, checkpoint_id=str(tmp_path / "zero")).result()
    with sidestep.paused(), contextlib.ExitStack() as opened:
        place = Path(opened.enter_context(_directory.for_hooks(str(tmp_path / "one"))))
        (place / "unet").mkdir()
        (place / "unet" / "model.bin").write_bytes(b"weights")
        inode = (place / "unet" / "model.bin").stat().st_ino
        files = _directory.taken_from(str(place))
        saving = _directory.save(str(tmp_path / "one"), STATE, lambda: files, holds=opened)
        opened.close()
        assert place.exists()
    _directory.wait_all(saving)
    assert not place.exists()
    saved = tmp_path / "one" / "unet" / "model.bin"
    assert (saved.read_bytes(), saved.stat().st_ino) == (b"weights", inode)
    assert sidestep.read_file(tmp_path / "one", "unet/model.bin") == b"weights"


def test_it_goes_when_the_save_fails(tmp_path):
    with contextlib.ExitStack() as opened:
        place = Path(opened.enter_context(_directory.for_hooks(str(tmp_path / "one"))))
        gone = {"a": Taken(str(place / "gone"))}
        saving = _directory.save(str(tmp_path / "one"), STATE, lambda: gone, holds=opened)
    with pytest.raises(sidestep.Error, match="file 'a'"):
        saving.wait()
    assert not place.exists()


def test_what_the_trainer_waited_before_the_call_is_in_the_log(tmp_path, caplog):
    caplog.set_level("INFO", "sidestep")
    began = time.monotonic() - 7
    saving = _directory.save(str(tmp_path / "one"), STATE, dict, began=began)
    _directory.wait_all(saving)
    waited = re.search(r"training waited (\d+)", caplog.text)
    assert waited and int(waited[1]) >= 7000
    assert saving.handle.progress().call_s >= 7


def make_hooks(parent):
    with _directory.for_hooks(str(parent / "checkpoint-1")):
        pass


@pytest.mark.parametrize(
    "sweep", [make_hooks, lambda parent: _directory.collect_garbage(str(parent))]
)
def test_only_those_of_dead_processes_on_this_host_are_removed(tmp_path, sweep):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    host = socket.gethostname()
    dead = [
        f".sidestep-hooks-{host}-{process.pid}.7-x",
        f".sidestep-hooks-{host}-{os.getpid()}.7-x",  # its number is in use again
    ]
    alive = [
        f".sidestep-hooks-{host}-{_directory._process_name(os.getpid())}-x",
        f".sidestep-hooks-another{host}-{process.pid}.7-x",
        ".sidestep-hooks-of-somebody",
        f"sidestep-hooks-{host}-{process.pid}.7-x",
    ]
    for name in (*dead, *alive):
        (tmp_path / name).mkdir()
    sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(alive)


def test_a_process_in_a_container_of_the_same_name_is_not_taken_for_dead(tmp_path):
    namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*namespace, "true"], capture_output=True).returncode != 0:
        pytest.skip("no namespaces of processes can be made here")
    target = str(tmp_path / "checkpoint-1")
    look = f"from sidestep import _directory\nwith _directory.for_hooks({target!r}): pass"
    with _directory.for_hooks(target) as place:
        Path(place, "notes.txt").touch()
        subprocess.run([*namespace, sys.executable, "-c", look], check=True)
        assert os.listdir(place) == ["notes.txt"]
    assert os.listdir(tmp_path) == []


def test_what_is_no_number_is_no_checkpoint(tmp_path):
    for word in ("1", "10", "007", "\u00b2", "\u0663", "9" * 200, "-1", "", "2.bak"):
        (tmp_path / f"checkpoint-{word}").mkdir()
    assert _directory.numbers_in(str(tmp_path), "checkpoint-") == [1, 10]


def test_what_is_empty_or_damaged_is_passed_over_and_nothing_changes(tmp_path, caplog):
    (tmp_path / "checkpoint-8").mkdir()
    (tmp_path / "checkpoint-8" / "of-another-program").touch()
    _directory.wait_all(begin(tmp_path / "checkpoint-9"))
    (tmp_path / "checkpoint-9" / "state.json").unlink()
    (tmp_path / "checkpoint-10").mkdir()
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert _directory.newest(str(tmp_path), "checkpoint-", lambda path: None) == 8
    assert "checkpoint-10': it is empty" in caplog.text
    assert "checkpoint-9': file 'state.json': it is missing" in caplog.text
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_an_export_gets_the_files(tmp_path):
    _directory.wait_all(begin(tmp_path / "one"))
    (tmp_path / "into").mkdir()
    _directory.write_out(str(tmp_path / "one"), str(tmp_path / "into"))
    assert tree(tmp_path / "into") == {"inner/notes.txt": b"notes", "state.json": b"{}"}
