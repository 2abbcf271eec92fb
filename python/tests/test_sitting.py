# SPDX-License-Identifier: BSD-3-Clause
"""tests/gpu/run --sitting, rehearsed: its steps run over the stand-in driver and on processors, and
what they find is on disk even if they are cut off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RUN = Path(__file__).parents[2] / "tests" / "gpu" / "run"


def sit(out: Path, *arguments: str, run: Path = RUN) -> tuple[int, str, list[dict[str, Any]]]:
    """Exit status, output, and records.  It sees no device, and finds the library by itself if it
    is not that of the source tree."""
    environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    if run != RUN:
        for name in ("SIDESTEP_LIBRARY", "PYTHONPATH"):
            environment.pop(name, None)
    done = subprocess.run(
        [str(run), "--out", str(out), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    file = out / "results.jsonl"
    records = file.read_text().splitlines() if file.exists() else []
    return done.returncode, done.stdout, [json.loads(line) for line in records]


def test_a_rehearsal_of_all_steps(tmp_path: Path) -> None:
    status, output, records = sit(tmp_path, "--sitting", "10m", "--rehearse")
    summary = (tmp_path / "summary.txt").read_text()
    logs = "".join(log.read_text() for log in tmp_path.glob("log-*.txt"))
    assert status == 0, output + summary + logs
    assert not [record for record in records if record.get("ok") is False]
    good = {(r["step"], r["name"]) for r in records if r.get("ok")}
    controls = {("race", "race control"), ("training", "training control")}
    assert controls <= good  # what they are to catch was caught
    assert {("race", "race"), ("training", "training"), ("tests", "tests")} <= good
    race = next(r for r in records if r["name"] == "race")
    assert race["words"] >= race["wanted"] and race["rounds"] > 1
    lost = next(r for r in records if r["name"] == "stock, default: lost per checkpoint, seconds")
    assert lost["least"] <= lost["median"] <= lost["greatest"] and "ok" not in lost
    assert "wrong, or a goal that was missed: 0" in summary


def test_arguments_are_checked(tmp_path: Path) -> None:
    for arguments, word in (
        (("--sitting", "soon"), "no time such as"),
        (("--sitting", "1m", "--only", "everything"), "there is no step everything"),
    ):
        status, output, records = sit(tmp_path, *arguments)
        assert status == 2 and word in output and not records
    status, output, _ = sit(tmp_path, "--sitting", "1m", "--list")
    assert status == 0 and "long race" in output


def test_what_is_carried_is_enough(tmp_path: Path) -> None:
    """From a copy that shares nothing with the source tree.  It is also the negative control of
    sittings: without a device one step finds something, and one fails."""
    build = os.path.relpath(Path(os.environ["SIDESTEP_LIBRARY"]).parent, RUN.parents[2])
    carry = tmp_path / "carry"
    subprocess.run(
        [str(RUN.parent / "pack"), str(carry)], env={**os.environ, "BUILD": build}, check=True
    )
    assert sum(file.stat().st_size for file in carry.rglob("*") if file.is_file()) < 64 << 20
    status, output, records = sit(
        tmp_path / "out",
        "--sitting",
        "30m",
        "--only",
        "stand-in,driver",
        run=carry / "tests/gpu/run",
    )
    summary = (tmp_path / "out" / "summary.txt").read_text()
    assert status == 1
    assert "driver: ended with 1" in output and "ended with 1" in summary
    assert records[0]["name"] == "machine" and records[0]["torch"]
    assert [r for r in records if r["step"] == "stand-in" and r["ok"]]
    assert not [r for r in records if r["step"] == "driver"]
