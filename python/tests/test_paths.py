# SPDX-License-Identifier: BSD-3-Clause
"""Paths are bytes: no encoding is asked of them, as stock torch asks for none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ranks import run_ranks

import sidestep

torch = pytest.importorskip("torch")
stock = pytest.importorskip("torch.distributed.checkpoint")

ODD = os.fsdecode(b"\xff\xfe r\xc3t")


def loads(module, path) -> bool:
    state = {"w": torch.zeros(5)}
    module.load(state, checkpoint_id=path)
    return torch.equal(state["w"], torch.arange(5.0))


def as_path(text: str) -> Path:
    return Path(text)


@pytest.mark.parametrize("kind", [str, os.fsencode, as_path])
def test_saves_and_loads(tmp_path: Path, kind) -> None:
    path = str(tmp_path / ODD)
    sidestep.save({"w": torch.arange(5.0)}, checkpoint_id=kind(path))
    assert loads(sidestep, kind(path)) and loads(stock, path)
    sidestep.async_save({"w": torch.arange(5.0)}, checkpoint_id=kind(path + "2")).result()
    assert loads(sidestep, kind(path + "2"))


def test_a_checkpoint_of_stock(tmp_path: Path) -> None:
    stock.save({"w": torch.arange(5.0)}, checkpoint_id=tmp_path / ODD)
    assert loads(sidestep, tmp_path / ODD)
    sidestep.convert(tmp_path / ODD, tmp_path / (ODD + ".pt"))
    assert torch.equal(torch.load(tmp_path / (ODD + ".pt"))["w"], torch.arange(5.0))


def _resume_past_damage(rank: int, place: str) -> None:
    root = Path(place) / ODD
    os.environ["SIDESTEP_EVENTS"] = f"{place}/events"  # read by the first use of the package
    with sidestep.Checkpointer(root) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, {"w": torch.full((5,), float(step))})
    os.truncate(root / "step-2" / "__0_0.distcp", 700)
    with sidestep.Checkpointer(root) as checkpoints:
        loaded = checkpoints.resume({"w": torch.zeros(5)})
    assert loaded.step == 1 and os.fsencode(loaded.path) == os.fsencode(root / "step-1")
    assert "step-2" in loaded.rejected
    assert os.fsencode(sidestep.latest(root)) == os.fsencode(root / "step-1")


def test_a_series_and_its_events(tmp_path: Path) -> None:
    run_ranks(1, _resume_past_damage, str(tmp_path))
    lines = (tmp_path / "events").read_text("utf-8").splitlines()
    told = [json.loads(line) for line in lines]
    for event in ("committed", "loaded", "rejected"):
        paths = [line["path"] for line in told if line["event"] == event]
        assert paths and all("\ufffd\ufffd r\ufffdt" in path for path in paths), told


def test_an_error_shows_it(tmp_path: Path) -> None:
    with pytest.raises(sidestep.Error) as caught:
        loads(sidestep, tmp_path / ODD)
    str(caught.value).encode("utf-8")
    assert "\ufffd\ufffd r" in str(caught.value)
