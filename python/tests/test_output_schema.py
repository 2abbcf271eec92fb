# SPDX-License-Identifier: BSD-3-Clause
"""docs/output.schema.json says what the commands print with --json: no field more or less."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
import torch.distributed.checkpoint as stock

import sidestep

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "output.schema.json").read_text())
PROGRAM = Path(os.environ.get("SIDESTEP_LIBRARY", "build/libsidestep.so.0")).resolve().parent


def check(name: str, text: str) -> Any:
    """What ``text`` holds, which must fit the schema of ``name``."""
    value = json.loads(text)
    schema = {**SCHEMA, "$ref": f"#/$defs/{name}"}
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)
    return value


def said(name: str, *arguments: object, status: int = 0) -> Any:
    done = subprocess.run(
        [PROGRAM / "sidestep", "--json", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done
    return check(name, done.stdout if name != "error" else done.stderr)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good, damaged, empty, foreign and pinned entries; a tensor of a class; small files."""
    root = tmp_path_factory.mktemp("root")
    state = {"w": torch.arange(4.0), "nan": torch.tensor([float("nan")]), "o": {"lr": 0.1}}
    for step in (1, 2, 3):
        path = root / f"step-{step}"
        sidestep.save(state, checkpoint_id=path, files={"state.json": b"{}"})
    shard = root / "step-2" / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    sidestep.pin(root / "step-1")
    torch.save({"w": torch.ones(1)}, root / "weights.pt")
    (root / "step-4").mkdir()
    packed = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8)
    stock.save({"c": packed}, checkpoint_id=root / "stock", no_dist=True)
    return root


def test_a_field_too_many_is_found(root: Path) -> None:
    value = said("latest", "latest", root)
    for wrong in ({**value, "more": 1}, {k: v for k, v in value.items() if k != "step"}):
        with pytest.raises(jsonschema.ValidationError):
            check("latest", json.dumps(wrong))


def test_commands(root: Path) -> None:
    assert said("latest", "latest", root)["step"] == 3
    entries = {entry["name"]: entry for entry in said("ls", "ls", root)["checkpoints"]}
    assert entries["step-1"]["pinned"] and entries["step-1"]["small_files"] == 1
    assert said("show", "show", root / "step-3")["files"][0]["name"] == "state.json"
    shown = said("show", "show", "--stats", root / "step-3")
    assert shown["tensors"][0]["stats"]["nan"] == 1
    assert said("show", "show", root / "stock")["tensors"][0]["class"] is not None
    assert said("verify", "verify", root / "step-3")["ok"]
    assert not said("verify", "verify", root / "step-2", status=3)["ok"]
    assert said("verify_root", "verify", root, status=3)["counts"]["damaged"] == 1
    assert said("check", "check", root)["status"] == "OK"


def test_both_levels(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    with sidestep.Checkpointer(near, no_dist=True, signals=(), mirror=sidestep.Mirror(far)) as run:
        run.save(1, {"w": torch.ones(2)}).wait()
    assert said("latest", "latest", "--mirror", near)["level"] == "near"
    assert said("ls", "ls", "--mirror", near)["checkpoints"][0]["level"] == "both"
    assert said("verify_root", "verify", "--mirror", near)["counts"]["ok"] == 2
    assert said("check", "check", "--mirror", near)["roots"][1]["place"] == str(far)


def test_failures(root: Path) -> None:
    assert said("error", "show", root / "none", status=10)["error"]["status"] == "ENOTFOUND"
