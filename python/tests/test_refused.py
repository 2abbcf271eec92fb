# SPDX-License-Identifier: BSD-3-Clause
"""A save says what its own load will refuse; and objects that are large."""

from __future__ import annotations

import collections
import dataclasses
import enum
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock

import sidestep
from sidestep import Error, Status
from sidestep._torch import objects, state


class Phase(enum.Enum):
    WARMUP = 1
    DECAY = 2


@dataclasses.dataclass
class Settings:
    lr: float
    phase: Phase


class Names(list[str]):
    """torch's safe loader fills no list of another class, even if that is allowed."""


class Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 1


@pytest.fixture(autouse=True)
def _nothing_told() -> Iterator[None]:
    state._told.clear()
    objects._readable.clear()
    yield


REFUSED: dict[str, tuple[Any, str]] = {
    "enum": (Phase.DECAY, "add_safe_globals([test_refused.Phase])"),
    "dataclass": (Settings(0.1, Phase.DECAY), "test_refused.Phase, test_refused.Settings"),
    "in a tuple": ((1, Slotted()), "test_refused.Slotted"),
    "a list of another class": ((Names(["a"]),), "test_refused.Names"),
    "a function": ((len,), "add_safe_globals([len])"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_save_warns_once_of_what_its_load_refuses(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    value, words = REFUSED[what]
    values = {"w": torch.ones(2), "odd": value, "again": value}
    for _ in range(2):
        sidestep.save(values, checkpoint_id=tmp_path / "a")
    told = [record.getMessage() for record in caplog.records if "refuse" in record.getMessage()]
    assert len(told) == 1, told
    assert "object 'odd" in told[0] and "again" in told[0] and words in told[0]
    with pytest.raises(Error, match="object 'again") as caught:
        sidestep.load({"again": None, "w": torch.zeros(2)}, checkpoint_id=tmp_path / "a")
    assert caught.value.status == Status.EUNSAFE


def _by_save(path: Path, values: dict[str, Any]) -> None:
    sidestep.save(values, checkpoint_id=path, strict_objects=True)


def _by_async_save(path: Path, values: dict[str, Any]) -> None:
    sidestep.async_save(values, checkpoint_id=path, strict_objects=True).result()


def _by_writer(path: Path, values: dict[str, Any]) -> None:
    writer = sidestep.Writer(path, options=sidestep.SaveOptions(strict_objects=True))
    sidestep.save(values, storage_writer=writer)


def _by_torch(path: Path, values: dict[str, Any]) -> None:
    stock.save(
        values,
        storage_writer=sidestep.Writer(path, options=sidestep.SaveOptions(strict_objects=True)),
    )


def _by_checkpointer(path: Path, values: dict[str, Any]) -> None:
    with sidestep.Checkpointer(
        path, options=sidestep.SaveOptions(strict_objects=True), signals=()
    ) as run:
        run.save(1, values).result()


@pytest.mark.parametrize("way", [_by_save, _by_async_save, _by_writer, _by_torch, _by_checkpointer])
def test_strict_objects_refuses_at_the_save(
    tmp_path: Path, way: Callable[[Path, dict[str, Any]], None]
) -> None:
    path = tmp_path / "a"
    with pytest.raises(BaseException, match="needs test_refused.Phase"):
        way(path, {"odd": Phase.DECAY})
    assert not (path / ".metadata").exists()
    with torch.serialization.safe_globals([Phase]):
        way(path, {"odd": Phase.DECAY})


def test_what_a_load_accepts_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values: dict[str, Any] = {
        "window": collections.deque([1, torch.ones(2), "x"], maxlen=3),
        "counts": (collections.defaultdict(list, a=[1]),),
        "ordered": (collections.OrderedDict(a=1), {1, 2}, torch.Size([1]), torch.bfloat16),
        "optimizer": torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))]).state_dict(),
    }
    sidestep.save(values, checkpoint_id=tmp_path / "a", strict_objects=True)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    got: dict[str, Any] = {"window": None, "counts": None}
    sidestep.load(got, checkpoint_id=tmp_path / "a")
    assert got["counts"] == values["counts"]
    window = got["window"]
    assert type(window) is collections.deque and window.maxlen == 3
    assert window[0] == 1 and torch.equal(window[1], torch.ones(2)) and window[2] == "x"
    got = {"window": None}
    stock.load(got, checkpoint_id=tmp_path / "a")
    assert list(got["window"])[2] == "x"


def test_a_class_that_is_forgotten_again_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = {"odd": Phase.DECAY}
    with torch.serialization.safe_globals([Phase]):
        sidestep.save(values, checkpoint_id=tmp_path / "a")
    assert not caplog.records
    sidestep.save(values, checkpoint_id=tmp_path / "a")
    assert "test_refused.Phase" in caplog.text


# ---------------------------------------------------------------- large ones

LARGE: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"x" * 80_000_000,
    "in a set": lambda: {1, "a", "é" * 36_000_000},
}


@pytest.mark.parametrize("what", LARGE)
def test_an_object_has_no_limit_of_64_mib(tmp_path: Path, what: str) -> None:
    value = LARGE[what]()
    sidestep.save({"x": value}, checkpoint_id=tmp_path / "a")
    for load in (sidestep.load, stock.load):
        got = {"x": None}
        load(got, checkpoint_id=tmp_path / "a")
        assert got["x"] == value
    stock.save({"x": value}, checkpoint_id=tmp_path / "stock")
    got = {"x": None}
    sidestep.load(got, checkpoint_id=tmp_path / "stock")
    assert got["x"] == value
    assert sidestep.read(tmp_path / "a", "x") == value
