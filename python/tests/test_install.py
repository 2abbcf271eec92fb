# SPDX-License-Identifier: BSD-3-Clause
"""`install` puts ours in the place of torch's functions, and ``sidestep.run`` does so for a program
that was not written for it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

import sidestep
from sidestep import run as program
from sidestep._torch import install as module
from sidestep._torch import originals


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    yield
    sidestep.uninstall()


def is_ours(path: Any) -> bool:
    return sidestep.load_metadata(str(path)).format == "sidestep"


def a_state() -> dict[str, Any]:
    return {"weight": torch.arange(6.0), "step": 3}


# ---------------------------------------------------------------- install


def test_saves_and_loads_are_ours(tmp_path: Path) -> None:
    stock.save(a_state(), checkpoint_id=tmp_path / "before", no_dist=True)
    sidestep.install()
    stock.save(a_state(), checkpoint_id=tmp_path / "a")
    stock.async_save(a_state(), checkpoint_id=tmp_path / "b").result()
    assert [is_ours(tmp_path / name) for name in ("before", "a", "b")] == [False, True, True]
    got = {"weight": torch.zeros(6), "step": 0}
    stock.load(got, checkpoint_id=tmp_path / "before")
    assert torch.equal(got["weight"], torch.arange(6.0))
    assert got["step"] == 3


def test_modules_that_imported_them_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    other = types.ModuleType("somebodys_trainer")
    vars(other).update(keep=stock.save, restore=stock.load, unrelated=len)
    monkeypatch.setitem(sys.modules, "somebodys_trainer", other)
    names = sidestep.install()
    assert {"somebodys_trainer.keep", "somebodys_trainer.restore"} <= set(names)
    vars_of_other: Any = vars(other)
    assert vars_of_other["keep"] is stock.save is not originals.save
    assert vars_of_other["unrelated"] is len
    sidestep.uninstall()
    assert vars_of_other["keep"] is originals.save
    assert vars_of_other["restore"] is originals.load


def test_a_second_time_replaces_nothing() -> None:
    first = sidestep.install()
    assert "torch.distributed.checkpoint.save" in first
    assert sidestep.install() == ()
    sidestep.uninstall()
    assert stock.save is state_dict_saver.save is originals.save
    assert stock.async_save is state_dict_saver.async_save is originals.async_save
    assert stock.load is state_dict_loader.load is originals.load


def test_what_others_put_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    sidestep.install()
    monkeypatch.setattr(stock, "save", len)
    sidestep.uninstall()
    assert stock.save is len
    assert state_dict_saver.save is originals.save
    monkeypatch.undo()
    stock.save = originals.save


def test_one_line_says_what_was_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sidestep"):
        sidestep.install()
    assert len(caplog.messages) == 1
    assert "save, async_save and load of torch.distributed.checkpoint" in caplog.messages[0]


class Subclass(stock.FileSystemWriter):
    pass


def test_a_fall_back_is_explained_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sidestep.install()
    with caplog.at_level(logging.WARNING, "sidestep"):
        for name in "ab":
            stock.save(a_state(), storage_writer=Subclass(tmp_path / name), no_dist=True)
            assert not is_ours(tmp_path / name)
    told = [line for line in caplog.messages if "Subclass" in line]
    assert len(told) == 1
    assert "torch's own save() is used" in told[0]


def test_a_fall_back_in_the_background(tmp_path: Path) -> None:
    """torch's own thread calls the replaced save(): it ends at torch's, too."""
    sidestep.install()
    writer = Subclass(tmp_path / "a")
    stock.async_save(a_state(), storage_writer=writer, no_dist=True).result()
    assert not is_ours(tmp_path / "a")
    got = {"weight": torch.zeros(6), "step": 0}
    stock.load(got, checkpoint_id=tmp_path / "a", no_dist=True)
    assert torch.equal(got["weight"], torch.arange(6.0))


def test_a_save_that_waits_is_explained_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module._tell_of_blocking.cache_clear()
    sidestep.install()
    with caplog.at_level(logging.INFO, "sidestep"):
        stock.async_save(a_state(), checkpoint_id=tmp_path / "a").result()
        assert not [line for line in caplog.messages if "returns when the" in line]
        for _ in range(2):
            stock.save(a_state(), checkpoint_id=tmp_path / "a")
    assert len([line for line in caplog.messages if "returns when the" in line]) == 1


# ---------------------------------------------------------------- python -m sidestep.run


def run(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sidestep.run", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


def test_a_program_saves_with_ours(tmp_path: Path) -> None:
    write(
        tmp_path / "train.py",
        """\
        import subprocess, sys, torch
        from torch.distributed.checkpoint import save

        if sys.argv[1:] == ["outer"]:  # as a launcher does
            sys.exit(subprocess.call([sys.executable, __file__, "inner"]))
        save({"weight": torch.ones(3)}, checkpoint_id="saved")
        sys.exit(7)
        """,
    )
    done = run("-v", "train.py", "outer", cwd=tmp_path, RANK="0")
    assert done.returncode == 7, done.stderr
    assert is_ours(tmp_path / "saved")
    assert "sidestep: rank 0: INFO: sidestep.install: " in done.stderr
    assert "returns when the checkpoint is committed" in done.stderr


def test_without_verbose_nothing_is_said(tmp_path: Path) -> None:
    write(
        tmp_path / "quiet.py",
        """\
        import torch.distributed.checkpoint as dcp
        print(dcp.save.__module__)
        """,
    )
    done = run("--", "quiet.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sidestep._torch.save\n", "")


def test_a_python_without_sidestep_says_so(tmp_path: Path) -> None:
    """A stand-in for torch, so that nothing is there but what the hook needs."""
    folder = tmp_path / "torch" / "distributed" / "checkpoint"
    folder.mkdir(parents=True)
    for place in (folder, folder.parent, folder.parent.parent):
        (place / "__init__.py").touch()
    write(
        tmp_path / "train.py",
        """\
        import sys
        sys.modules["sidestep"] = None
        import torch.distributed.checkpoint
        print("goes on")
        """,
    )
    done = run("train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert "sidestep.run: torch's own functions stay: " in done.stderr


@pytest.mark.parametrize("first", ["import sidestep._handle", "import torch, sidestep"])
def test_a_program_that_imports_ours_first(tmp_path: Path, first: str) -> None:
    """One of our modules is what imports torch's functions, and is half a module meanwhile."""
    program = f"""\
        {first}
        import torch.distributed.checkpoint as dcp
        print(dcp.save.__module__)
        """
    write(tmp_path / "train.py", program)
    done = run("train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sidestep._torch.save\n", "")


# What stands for a framework: its module, and a module of ours that takes its place.
STANDIN = """\
import sys, types
import sidestep._adapt as module
ours = types.ModuleType("sidestep.standin")
ours.Trainer = type("Ours", (), {})
sys.modules["sidestep.standin"] = ours
module._FRAMEWORKS["accelerate"] = lambda: module._replace(
    "accelerate", "sidestep.standin", "Trainer"
)
from accelerate import Trainer
print(Trainer.__name__)
"""


@pytest.mark.parametrize(
    ("words", "printed"),
    [(["--adapt", "accelerate"], "Ours"), (["--adapt", "lightning"], "Stock"), ([], "Stock")],
    ids=str,
)
def test_a_framework_is_adapted_if_it_is_named(
    tmp_path: Path, words: list[str], printed: str
) -> None:
    write(tmp_path / "accelerate.py", 'Trainer = type("Stock", (), {})\n')
    write(tmp_path / "train.py", STANDIN)
    done = run("-v", *words, "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{printed}\n"), done.stderr
    told = "of accelerate, these are now sidestep's: accelerate.Trainer" in done.stderr
    assert told == (printed == "Ours")


def test_an_adapter_that_does_not_fit_is_told_of(tmp_path: Path) -> None:
    write(tmp_path / "accelerate.py", "version = 0\n")
    write(tmp_path / "train.py", "import accelerate; print(accelerate.version)\n")
    done = run("--adapt", "accelerate", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "0\n")
    assert "sidestep.run: accelerate saves by itself: " in done.stderr


def test_the_sitecustomize_of_the_machine_is_read(tmp_path: Path) -> None:
    write(tmp_path / "sitecustomize.py", "import builtins; builtins.was_read = True\n")
    write(tmp_path / "train.py", "import sys; print(was_read, 'torch' in sys.modules)\n")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run("train.py", cwd=tmp_path, PYTHONPATH=paths)
    assert (done.returncode, done.stdout) == (0, "True False\n"), done.stderr


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["train.py", "-v"], [sys.executable, "train.py", "-v"]),
        (["-m", "package.train"], [sys.executable, "-m", "package.train"]),
        (["train.py", "--adapt", "x"], [sys.executable, "train.py", "--adapt", "x"]),
        (["torchrun", "--", "train.py"], ["torchrun", "--", "train.py"]),
    ],
)
def test_what_is_executed(words: list[str], command: list[str]) -> None:
    adapt = ["--adapt", "transformers", "--adapt=accelerate", "--wait"]
    for before in ([], ["--"], ["-v"], ["-v", "--"], [*adapt, "-v"], [*adapt, "--"]):
        assert program.command_of(program._parse(before + words).command) == command


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "no COMMAND is given"),
        (["--"], 2, "no COMMAND is given"),
        (
            ["--adapt", "nothing", "train.py"],
            2,
            "no adapter for 'nothing': choose from accelerate, ",
        ),
        (["--adapt"], 2, "--adapt: expected one argument"),
        (["no-such-program"], 127, "'no-such-program' was not found"),
        (["./a-text"], 126, "cannot be run: Exec format error"),
    ],
)
def test_what_cannot_be_run(tmp_path: Path, words: list[str], status: int, message: str) -> None:
    write(tmp_path / "a-text", "\0no program\n").chmod(0o755)
    done = run(*words, cwd=tmp_path)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
