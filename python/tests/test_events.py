# SPDX-License-Identifier: BSD-3-Clause
"""What a run tells in its events, and docs/events.schema.json, which says how."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

import sidestep

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "events.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

# Saves, and is killed some steps later.
KILLED = """
import os, signal, sys, time, torch, sidestep
ckpt = sidestep.Checkpointer(sys.argv[1], interval=10)
state = {"w": torch.ones(8)}
for step in range(1, 18):
    if step in (11, 17):
        time.sleep(1.1)  # a run notes its step at most once in a second
    if ckpt.should_save(step):
        ckpt.save(step, state).wait()
os.kill(os.getpid(), signal.SIGKILL)
"""


def events(root: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The events of a series, each of which must fit the schema."""
    lines = (root / ".sidestep" / f"events.rank-{rank}").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    for event in found:
        schema = next(one for one in SCHEMA["oneOf"] if is_of(one, event))
        jsonschema.Draft202012Validator({**schema, "$defs": SCHEMA["$defs"]}).validate(event)
    return found


def is_of(schema: dict[str, Any], event: dict[str, Any]) -> bool:
    return bool(schema["properties"]["event"]["const"] == event["event"])


def of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in found if event["event"] == kind]


def fields_of(name: str) -> set[str]:
    """The fields of an event in the schema, without those of all events."""
    schema = next(one for one in SCHEMA["oneOf"] if is_of(one, {"event": name}))
    return set(schema["properties"]) - {"event", "time", "rank", "incarnation"}


def test_the_schema_has_what_is_documented() -> None:
    section = (ROOT / "docs" / "SERIES-REFERENCE.md").read_text()
    names = [schema["properties"]["event"]["const"] for schema in SCHEMA["oneOf"]]
    assert len(set(names)) == len(names) > 20
    table = section.partition("## Events\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert sorted(names) == sorted(re.findall(r"`(\w+)`", " ".join(rows)))
    fields = section.partition("## Fields of events\n")[2].partition("\n## ")[0]
    for name in names:
        for field in fields_of(name):
            assert f"`{field}`" in fields, (name, field)


def test_the_schema_has_what_is_emitted() -> None:
    """Also events that no test here brings about: where name and fields are in one call."""
    seen = 0
    for file in sorted((ROOT / "src").glob("*/*.c")):
        for call in re.findall(r"(?<!void )events_emit\(([^;]*);", file.read_text()):
            names, _, packed = call.partition("json_pack(")
            found = re.findall(r'"(\w+)"', names)
            if found and packed:
                keys = set(re.findall(r'"(\w+)"', packed.partition("}")[2])) - {"incarnation"}
                assert all(keys == fields_of(name) for name in found) or found == ["deleted"], call
                seen += 1
    assert seen >= 8


def test_a_line_that_does_not_fit_is_found() -> None:
    line = {"event": "closed", "time": 1.5, "rank": 0, "path": "/run"}
    VALIDATOR.validate(line)
    for other in ({"event": "done"}, {"more": 1}, {"rank": "0"}):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate({**line, **other})


def test_a_resume_tells_what_it_loses(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert done.returncode == -signal.SIGKILL
    state = {"w": torch.zeros(8)}
    with sidestep.Checkpointer(tmp_path, interval=10) as ckpt:
        assert ckpt.resume(state).step == 10
        assert ckpt.resume(state, step=10).step == 10
    with sidestep.Checkpointer(tmp_path, interval=10) as ckpt:
        ckpt.resume(state)
    first, again, second = of(events(tmp_path), "resumed")
    assert (first["step"], first["before"], first["why"]) == (10, "killed", "newest"), first
    assert (first["reached"], first["lost_steps"]) == (17, 7), first
    assert (again["before"], again["why"], again["lost_steps"]) == ("running", "asked", 0), again
    assert (second["before"], second["lost_steps"]) == ("closed", 0), second
    # Without it, or with something else in its place, nothing is known.
    for text in (None, "run x", "x" * 1000):
        progress = tmp_path / ".sidestep" / "progress"
        progress.unlink()
        if text is not None:
            progress.write_text(text)
        with sidestep.Checkpointer(tmp_path, interval=10) as ckpt:
            ckpt.resume(state)
        last = of(events(tmp_path), "resumed")[-1]
        assert (last["before"], last["reached"], last["lost_steps"]) == (None, None, None), last


def test_due_and_requests(tmp_path: Path) -> None:
    state = {"w": torch.zeros(8)}
    with sidestep.Checkpointer(tmp_path, interval=3) as ckpt:
        for step in range(1, 8):
            if step == 5:
                ckpt.request_save()
            if ckpt.should_save(step):
                ckpt.save(step, state).wait()
    found = events(tmp_path)
    assert [(event["step"], event["why"]) for event in of(found, "due")] == [
        (3, "interval"),
        (5, "request"),
        (6, "interval"),
    ]
    assert [(event["step"], event["why"]) for event in of(found, "requested")] == [(5, "save")]
    assert not of(found, "signal")


def test_a_signal_and_an_export(tmp_path: Path) -> None:
    final = sidestep.Final(only=None)
    ckpt = sidestep.Checkpointer(tmp_path, interval=100, final=final)
    state = {"w": torch.zeros(8)}
    ckpt.save(1, state, final=True)
    os.kill(os.getpid(), signal.SIGTERM)
    step = 2
    while not ckpt.should_save(step):
        step += 1
    with pytest.raises(sidestep.Preempted):
        ckpt.save(step, state)
    ckpt.close()
    found = events(tmp_path)
    (exported,) = of(found, "exported")
    assert (exported["step"], exported["to"]) == (1, str(tmp_path / "final"))
    (asked,) = of(found, "signal")
    assert (asked["signal"], asked["why"], asked["step"]) == (signal.SIGTERM, "stop", step)
    assert [event["why"] for event in of(found, "due")] == ["stop"]
    assert [event["step"] for event in of(found, "stopping")] == [step]
