# SPDX-License-Identifier: BSD-3-Clause
"""`SIDESTEP_METRICS`: what a run counts for Prometheus; the dashboard shows nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TRAINS = """
import os, sys, torch, sidestep
root, fails = sys.argv[1], sys.argv[2:] == ["fails"]
state = {"w": torch.ones(8)}
policy = sidestep.FailurePolicy(max_failures=9)
with sidestep.Checkpointer(root, interval=2, failure=policy) as ckpt:
    loaded = ckpt.resume(state)
    step = loaded.step if loaded else 0
    for _ in range(6):
        step += 1
        if ckpt.should_save(step):
            ckpt.save(step, state)
    ckpt.wait()
    if fails:
        handle = ckpt.save(step + 2, state)
        handle.abort()
"""


def run(root: Path, file: Path, *arguments: str) -> dict[str, float]:
    """The samples after a run of `TRAINS`, by name and labels without the root."""
    env = {**os.environ, "SIDESTEP_METRICS": str(file)}
    done = subprocess.run([sys.executable, "-c", TRAINS, root, *arguments], env=env, check=False)
    assert done.returncode == 0
    label = re.escape(str(root).replace("\\", "\\\\").replace('"', '\\"'))
    found = {}
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(rf'(\w+)\{{root="{label}",?(.*)\}} ([\d.]+)', line)
            assert match is not None, line
            found[match[1] + match[2]] = float(match[3])
    return found


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (package prometheus)")
    return found


def test_a_run_counts_its_saves(tmp_path: Path) -> None:
    root, file = tmp_path / 'a"b\\c', tmp_path / "run.prom"
    found = run(root, file)
    assert found["sidestep_saves_started_total"] == found["sidestep_saves_committed_total"] == 3
    assert found['sidestep_saves_failed_totalstatus="EIO"'] == 0
    assert found["sidestep_resumes_total"] == 0
    for name in ("blocked", "waited", "background"):
        first = f"sidestep_save_{name}_seconds_b"
        buckets = [value for key, value in found.items() if key.startswith(first)]
        assert len(buckets) == 9 and buckets == sorted(buckets) and buckets[-1] == 3, buckets
        assert found[f"sidestep_save_{name}_seconds_count"] == 3
        assert 0 <= found[f"sidestep_save_{name}_seconds_sum"] < 600
    assert found["sidestep_save_background_seconds_sum"] > 0
    assert len(found) <= 60
    assert file.stat().st_mode & 0o777 == 0o644
    assert sorted(os.listdir(tmp_path)) == ['a"b\\c', "run.prom"]
    # Another process begins anew, and resumes.
    found = run(root, file)
    assert found["sidestep_saves_committed_total"] == 3
    assert (found["sidestep_resumes_total"], found["sidestep_lost_steps_total"]) == (1, 0)


def test_failures_count_by_status(tmp_path: Path) -> None:
    found = run(tmp_path / "root", tmp_path / "run.prom", "fails")
    ended = found["sidestep_saves_committed_total"] + sum(
        value for key, value in found.items() if key.startswith("sidestep_saves_failed")
    )
    assert found["sidestep_saves_started_total"] == ended == 4, found


def test_the_file_must_be_writable(tmp_path: Path) -> None:
    env = {**os.environ, "SIDESTEP_METRICS": str(tmp_path / "no" / "run.prom")}
    done = subprocess.run(
        [sys.executable, "-c", TRAINS, tmp_path / "root"],
        env=env,
        check=False,
        text=True,
        stderr=subprocess.PIPE,
    )
    assert done.returncode != 0 and "write the metrics file" in done.stderr, done.stderr


def test_promtool_accepts_the_metrics(tmp_path: Path) -> None:
    run(tmp_path / 'a"b\\c', tmp_path / "run.prom")
    text = (tmp_path / "run.prom").read_bytes()
    done = subprocess.run([promtool(), "check", "metrics"], input=text, check=False)
    assert done.returncode == 0
    broken = text.replace(b"histogram", b"histogramm", 1)
    assert subprocess.run([promtool(), "check", "metrics"], input=broken, check=False).returncode


def test_the_dashboard_shows_what_there_is(tmp_path: Path) -> None:
    """Names in contrib and in docs/OBSERVABILITY.md are those of the metrics, and the reverse."""
    root, file = tmp_path / "root", tmp_path / "run.prom"
    run(root, file)
    program = Path(os.environ.get("SIDESTEP_LIBRARY", "build/libsidestep.so.0")).resolve().parent
    state = subprocess.run([program / "sidestep", "metrics", root], capture_output=True, check=True)
    text = file.read_text() + state.stdout.decode()
    types = dict(re.findall(r"^# TYPE (sidestep_\w+) (\w+)$", text, re.MULTILINE))
    there = set(re.findall(r"^(sidestep_\w+)\{", text, re.MULTILINE))
    assert len(there) > 20

    dashboard = json.loads((ROOT / "contrib" / "grafana" / "sidestep.json").read_text())
    shown: set[str] = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            shown.update(re.findall(r"sidestep_\w+", target["expr"]))
    assert shown <= there, shown - there
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert set(types) - families == {"sidestep_build_info"}
    for rules in (ROOT / "contrib" / "prometheus").glob("*.yml"):
        names = set(re.findall(r"\bsidestep_\w+", rules.read_text()))
        assert names <= there, names - there
    docs = (ROOT / "docs" / "OBSERVABILITY.md").read_text()
    assert set(re.findall(r"`(sidestep_\w+)", docs)) == set(types)
