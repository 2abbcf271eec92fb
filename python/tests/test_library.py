# SPDX-License-Identifier: BSD-3-Clause
"""Where the library is looked for, and what is said where none is found that fits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sidestep._c import abi
from sidestep._c import library as _library


def compiled(folder: Path, name: str, text: str, *options: str) -> Path:
    """A shared library made of this C text."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = folder / f"{name}.c", folder / f"lib{name}.so"
    source.write_text(text)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), *options]
    subprocess.run(command, check=True)
    return library


def message(monkeypatch: pytest.MonkeyPatch, path: Path | str) -> str:
    """What loading says where SIDESTEP_LIBRARY is this path."""
    monkeypatch.setenv("SIDESTEP_LIBRARY", str(path))
    with pytest.raises(ImportError) as caught:
        _library._load()
    assert caught.value.name == "libsidestep"
    assert f"tried {path} (from SIDESTEP_LIBRARY): " in str(caught.value)
    assert str(caught.value).count("tried") == 1
    return str(caught.value)


def test_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = message(monkeypatch, tmp_path / "nowhere.so")
    assert "No such file or directory" in text
    assert "set SIDESTEP_LIBRARY to the path of libsidestep.so.0" in text


def test_not_a_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("not ELF\n" * 100)
    assert "invalid ELF header" in message(monkeypatch, tmp_path / "text.so")


def test_another_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = compiled(tmp_path, "other", "int other(void) { return 1; }\n")
    assert "is not libsidestep: it has no sidestep_version()" in message(monkeypatch, other)


MAJOR, MINOR, _ = (int(number) for number in abi.VERSION.split("."))


@pytest.mark.parametrize("version", ["0.0.9", f"{MAJOR}.{MINOR + 1}.0", f"{MAJOR + 1}.1.0", "x"])
def test_another_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    text = f'const char *sidestep_version(void) {{ return "{version}"; }}\n'
    other = compiled(tmp_path, "other", text)
    assert f"is version {version}; this package needs {abi.VERSION}" in message(monkeypatch, other)


def test_an_older_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another patch level would do, but what it lacks is named."""
    version = f"{MAJOR}.{MINOR}.99"
    text = f'const char *sidestep_version(void) {{ return "{version}"; }}\n'
    other = compiled(tmp_path, "other", text)
    assert f"version {version} lacks sidestep_status_text()" in message(monkeypatch, other)


def test_what_it_needs_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needed = compiled(tmp_path, "needed", "int needed(void) { return 1; }\n")
    text = "int needed(void);\nint f(void) { return needed(); }\n"
    library = compiled(tmp_path, "needs", text, f"-L{tmp_path}", "-lneeded")
    needed.unlink()
    text = message(monkeypatch, library)
    assert "libneeded.so: cannot open shared object file" in text
    assert "libzstd1" in text


def test_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "sidestep"
    package.mkdir()
    monkeypatch.setattr(_library, "__file__", str(package / "_c" / "library.py"))
    monkeypatch.setenv("SIDESTEP_LIBRARY", "/named")
    assert [path for path, _ in _library._places()] == ["/named"]
    monkeypatch.delenv("SIDESTEP_LIBRARY")
    assert [path for path, _ in _library._places()] == ["libsidestep.so.0"]
    bundled = package / "libsidestep.so.0"
    bundled.write_text("")
    assert [path for path, _ in _library._places()] == [str(bundled)]
    monkeypatch.setenv("SIDESTEP_LIBRARY", "/named")
    assert [path for path, _ in _library._places()] == [str(bundled), "/named"]


def run_python(text: str) -> str:
    """Run a program in a fresh interpreter; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_many_threads_load_it_once() -> None:
    printed = run_python("""
        import threading
        from sidestep._c import library as _library
        opened, barrier = [], threading.Barrier(16)
        real = _library._open
        _library._open = lambda path: opened.append(path) or real(path)
        got = []
        def work():
            barrier.wait()
            got.append(_library.lib())
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(opened), len(got), len(set(map(id, got))))
    """)
    assert printed == "1 16 1"


def test_a_child_of_fork_is_not_stuck_behind_a_thread_of_its_parent() -> None:
    printed = run_python("""
        import os, signal
        from sidestep._c import library as _library
        with _library._lock:
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(0 if _library.lib().sidestep_version() else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert printed == "0"


def test_a_tree_without_the_module_of_the_header(tmp_path: Path) -> None:
    package = Path(_library.__file__).parents[1]
    shutil.copytree(
        package, tmp_path / "sidestep", ignore=shutil.ignore_patterns("abi.py", "*.pyc")
    )
    ended = subprocess.run(
        [sys.executable, "-c", "import sidestep; sidestep.Status"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "the module sidestep._c.abi was not made yet: type `make`" in ended.stderr
