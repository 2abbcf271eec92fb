# SPDX-License-Identifier: BSD-3-Clause
"""mypy --strict and ruff have nothing to say, and each file says why it exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "python").rglob("*.py"))
GENERATED = ROOT / "python" / "sidestep" / "_c" / "abi.py"


def run(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    cache = ROOT / "build"
    if not cache.is_dir():
        cache = tmp_path
    run("mypy", "--strict", f"--cache-dir={cache / 'mypy-cache'}", "python/sidestep")


def test_ruff() -> None:
    pytest.importorskip("ruff")
    run("ruff", "check", "--no-cache", "--output-format=concise", "python")


def test_ruff_finds_what_is_planted(tmp_path: Path) -> None:
    """It is our configuration that is used, and it does look."""
    pytest.importorskip("ruff")
    (tmp_path / "planted.py").write_text("import os\n\nlonger = " + repr("x" * 100) + "\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ruff", "check", "--no-cache"),
            *("--config=pyproject.toml", "--output-format=concise", str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "F401" in done.stdout
    assert "E501" in done.stdout


def test_how_files_begin_and_end() -> None:
    """Licence first, then why the file exists; at most 600 lines (CONTRIBUTING.md, rule 2)."""
    assert len(FILES) > 10
    for file in FILES:
        text = file.read_text()
        assert text.startswith("# SPDX-License-Identifier: BSD-3-Clause\n"), file
        assert ast.get_docstring(ast.parse(text)), f"{file} does not say why it exists"
        assert text.count("\n") <= 600 or file == GENERATED, file


def test_public_functions_and_classes_are_documented() -> None:
    looked_at = 0
    for file in FILES:
        if "tests" in file.parts:
            continue
        for node in ast.parse(file.read_text()).body:
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            if isinstance(node, kinds) and not node.name.startswith("_"):
                looked_at += 1
                assert ast.get_docstring(node), f"{file}:{node.lineno}: {node.name}"
    assert looked_at > 50


def test_events_are_documented() -> None:
    """Those that the engine emits are those of docs/SERIES-REFERENCE.md."""
    emitted: set[str] = set()
    calls = 0
    for file in sorted((ROOT / "src").glob("*/*.c")):
        text = file.read_text()
        for call in re.findall(r"(?<!void )events_emit\(([^;]*);", text):
            calls += 1
            name = call.split(",", 1)[1]
            if "state_events[" not in name.split(",")[0]:
                names = re.findall(
                    r'"(\w+)"', name.partition("json_pack")[0].partition("fields")[0]
                )
                assert names, call
                emitted.update(names)
        table = re.search(r"state_events\[\] = \{(.*?)\};", text, re.DOTALL)
        if table:
            emitted.update(re.findall(r'"(\w+)"', table.group(1)))
    section = (ROOT / "docs" / "SERIES-REFERENCE.md").read_text().partition("## Events\n")[2]
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], re.MULTILINE)
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert calls >= 7 and {"started", "committed", "loaded", "deleted"} <= emitted
    assert sorted(documented) == sorted(emitted)
