# SPDX-License-Identifier: BSD-3-Clause
"""What is said of names that a checkpoint lacks, and that following the advice works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import sidestep
from sidestep import Checkpointer, Error, Status, TrainState
from sidestep._torch.missing import missing_error, nearest_names


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))


def refused(state: Any, path: Path) -> str:
    with pytest.raises(Error) as told:
        sidestep.load(state, checkpoint_id=path, no_dist=True)
    assert told.value.status == Status.EMISMATCH
    assert f"load '{path}': Missing key in checkpoint state_dict: " in told.value.message
    return told.value.message


@pytest.mark.parametrize(
    ("name", "saved", "nearest"),
    [
        ("a.weight", ["b", "model.a.weight", "a.bias"], ["model.a.weight"]),
        ("model.a.weight", ["a.weight", "weight", "xweight"], ["a.weight", "weight"]),
        ("layer.wieght", ["layer.weight", "other"], ["layer.weight"]),
        ("w", ["something.else"], []),
        ("w", [], []),
        ("layers.7.w", [f"layers.{i}.v" for i in range(10_000)], []),  # too many to compare
    ],
)
def test_the_nearest_names(name: str, saved: list[str], nearest: list[str]) -> None:
    assert nearest_names(name, saved) == nearest


def test_what_is_listed() -> None:
    missing = [f"layer.{i}" for i in range(67)]
    error = missing_error("/ckpt/step-1", missing, ["w"])
    assert error.tensor == "layer.0" and error.file is None
    assert error.message == (
        "load '/ckpt/step-1': Missing key in checkpoint state_dict: layer.0. 66 more are missing: "
        "layer.1, layer.2, layer.3, layer.4, layer.5, layer.6, layer.7, ...."
    )
    assert "It is empty." in missing_error("c", ["w"], []).message
    # What cannot be printed, or is not there to be seen, is spelled.
    assert r"state_dict: '\ud800'. 1 more are missing: ''." in str(
        missing_error("c", ["\ud800", ""], ["w"])
    )


def test_a_plain_state_dict_for_a_train_state(tmp_path: Path) -> None:
    saved, mine = model(), model()
    with Checkpointer(tmp_path / "r", no_dist=True, signals=()) as checkpoints:
        checkpoints.save(7, {"net": saved.state_dict(), "step": 7}).wait()
        state = TrainState(mine)
        with pytest.raises(Error, match=r"Missing key .*: progress\.step\. \d+ more") as told:
            checkpoints.resume(state)
        path = str(tmp_path / "r" / "step-7")
        assert "saved from a plain state dict, not from a TrainState" in told.value.message
        assert f"load({{'net': ..., 'step': ...}}, checkpoint_id={path!r})" in told.value.message
        # As it says:
        counter = {"net": mine.state_dict(), "step": 0}
        sidestep.load(counter, checkpoint_id=path, no_dist=True)
        state.step = counter["step"]
        checkpoints.save(8, state).wait()
        assert checkpoints.resume(state) is not None and state.step == 7
    assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), saved.parameters()))


def test_a_train_state_under_a_name(tmp_path: Path) -> None:
    """It is no plain state dict, and only its name is too much."""
    sidestep.save(TrainState(model()).state_dict(), checkpoint_id=tmp_path / "c", no_dist=True)
    told = refused({"run": TrainState(model())}, tmp_path / "c")
    assert "plain state dict" not in told and "without that: load state['run']" in told


def test_a_beginning_too_much_or_too_little(tmp_path: Path) -> None:
    saved = model()
    sidestep.save(saved.state_dict(), checkpoint_id=tmp_path / "bare", no_dist=True)
    sidestep.save({"model": saved.state_dict()}, checkpoint_id=tmp_path / "named", no_dist=True)
    mine = {"model": model().state_dict()}
    assert "load state['model'] instead" in refused(mine, tmp_path / "bare")
    sidestep.load(mine["model"], checkpoint_id=tmp_path / "bare", no_dist=True)
    other = model().state_dict()
    assert "load {'model': state} instead" in refused(other, tmp_path / "named")
    sidestep.load({"model": other}, checkpoint_id=tmp_path / "named", no_dist=True)
    for name, value in saved.state_dict().items():
        assert torch.equal(mine["model"][name], value) and torch.equal(other[name], value)


def test_a_flat_state_of_a_compiled_model(tmp_path: Path) -> None:
    """The state has no part "_orig_mod" that one could load instead; the advice works."""
    saved = model()
    sidestep.save(saved.state_dict(), checkpoint_id=tmp_path / "c", no_dist=True)
    mine = model()
    state = {f"_orig_mod.{name}": value for name, value in mine.state_dict().items()}
    advice = refused(state, tmp_path / "c").partition("without that: load ")[2]
    assert "state[" not in advice
    inner = eval(advice.partition(" instead of state")[0], {"state": state})
    sidestep.load(inner, checkpoint_id=tmp_path / "c", no_dist=True)
    for name, value in saved.state_dict().items():
        assert torch.equal(mine.state_dict()[name], value)


def test_compiled_layers(tmp_path: Path) -> None:
    """Their names have "_orig_mod" in the middle; the advice works, in both directions."""
    bare = model().state_dict()
    wrapped = {name.replace(".", "._orig_mod.", 1): value for name, value in bare.items()}
    sidestep.save(bare, checkpoint_id=tmp_path / "bare", no_dist=True)
    sidestep.save(wrapped, checkpoint_id=tmp_path / "wrapped", no_dist=True)
    mine = {name: torch.zeros_like(value) for name, value in wrapped.items()}
    advice = refused(mine, tmp_path / "bare").partition("without '_orig_mod.': load ")[2]
    inner = eval(advice.partition(" instead of state")[0], {"state": mine})
    sidestep.load(inner, checkpoint_id=tmp_path / "bare", no_dist=True)
    assert all(torch.equal(mine[name], value) for name, value in wrapped.items())
    told = refused({name: value.clone() for name, value in bare.items()}, tmp_path / "wrapped")
    rename = told.partition("--rename='")[2].partition("'")[0]
    sidestep.convert(tmp_path / "wrapped", tmp_path / "new", to="dcp", rename=[rename])
    sidestep.load(bare, checkpoint_id=tmp_path / "new", no_dist=True)


def test_an_empty_name_is_refused(tmp_path: Path) -> None:
    for value in (torch.ones(2), 1):
        with pytest.raises(Error, match="the state dict has the key ''") as told:
            sidestep.save({"": value}, checkpoint_id=tmp_path / "c", no_dist=True)
        assert told.value.status == Status.EINVAL


@pytest.mark.parametrize("wanted", [torch.zeros(3), 1])
def test_what_does_not_fit_names_the_checkpoint(tmp_path: Path, wanted: Any) -> None:
    sidestep.save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "c", no_dist=True)
    with pytest.raises(sidestep.Error, match=f"load '{tmp_path / 'c'}': .* for w"):
        sidestep.load({"w": wanted}, checkpoint_id=tmp_path / "c", no_dist=True)


def test_a_name_that_no_checkpoint_can_have(tmp_path: Path) -> None:
    """It is missing, and is not taken for what stands in front of its NUL."""
    sidestep.save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "c", no_dist=True)
    target = torch.zeros(2)
    for name in ("w\0", "w\0more", "\ud800"):
        assert repr(name) in refused({name: target}, tmp_path / "c")
    assert not target.any()
