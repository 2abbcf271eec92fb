# SPDX-License-Identifier: BSD-3-Clause
"""Fences: which tensors may be late, and when optimizers wait; over host memory, since what devices
do is tested by the library's own tests and by tests/gpu."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Optional

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

import sidestep
from sidestep._c import abi
from sidestep._torch import device as _device
from sidestep._torch import fence as _fence
from sidestep._torch import state as _state
from sidestep._torch.fence import Fences
from sidestep._torch.flatten import flatten
from sidestep._torch.state import StateCache


class Handle:
    """A save in flight, as far as fences look at it."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.is_staged = False
        self.staged = SimpleNamespace(done=lambda: self.is_staged)

    def _fence_until(self, turn: Optional[int]) -> None:
        """As SaveHandle's."""
        self.log.append("fence" if turn is None else f"fence {turn}")


@pytest.fixture
def fences() -> Iterator[Fences]:
    """One that is on, and off at the end."""
    ours = Fences()
    ours.switch(True)
    yield ours
    ours.switch(False)


def model_and_optimizer(**options: Any) -> tuple[Any, Any]:
    """A model with parameters and a buffer, and an optimizer with states."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    return model, torch.optim.AdamW(model.parameters(), **options)


def step(model: Any, optimizer: Any) -> None:
    """One step of training."""
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def storages(tensors: Any) -> set[int]:
    """Their addresses."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


def test_what_optimizers_write_may_be_late(fences: Fences) -> None:
    model, optimizer = model_and_optimizer()
    assert fences.late_storages() == {}  # no step was seen yet
    step(model, optimizer)
    late = fences.late_storages()
    assert storages(model.parameters()) <= set(late)
    assert not storages(model.buffers()) & set(late)  # statistics change in forward
    moments = [state["exp_avg"] for state in optimizer.state.values()]
    assert storages(moments) <= set(late)
    assert fences.late_storages() == {}  # no step since
    step(model, optimizer)
    assert fences.late_storages() == late


def test_graphs_run_no_hooks(fences: Fences, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = model_and_optimizer(capturable=False)
    monkeypatch.setattr(_fence, "is_capturing", lambda: True)
    step(model, optimizer)
    monkeypatch.setattr(_fence, "is_capturing", lambda: False)
    step(model, optimizer)
    assert fences.late_storages() == {}  # it is in a graph, which may be replayed
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    for group in other.param_groups:
        group["capturable"] = True
    step(model, other)
    assert fences.late_storages() == {}


def test_steps_wait_for_saves_first_of_all(fences: Fences) -> None:
    model, optimizer = model_and_optimizer()
    log: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: log.append("own hook"))
    later = register_optimizer_step_pre_hook(lambda *_: log.append("global"))
    handle = Handle(log)
    fences.add(handle)  # type: ignore[arg-type]
    try:
        step(model, optimizer)
        assert log == ["fence", "global", "own hook"]
        step(model, optimizer)  # not staged: another stream may need it
        assert log[3:] == ["fence", "global", "own hook"]
        handle.is_staged = True
        step(model, optimizer)
        assert log[6:] == ["global", "own hook"]
    finally:
        later.remove()


def test_the_hook_comes_before_hooks_that_were_there() -> None:
    model, optimizer = model_and_optimizer()
    log: list[str] = []
    earlier = register_optimizer_step_pre_hook(lambda *_: log.append("mine"))
    fences = Fences()
    fences.switch(True)
    fences.switch(True)  # once
    handle = Handle(log)
    fences.add(handle)  # type: ignore[arg-type]
    try:
        step(model, optimizer)
    finally:
        fences.switch(False)
        earlier.remove()
    assert log == ["fence", "mine"]
    step(model, optimizer)
    assert log == ["fence", "mine"] and not fences.on


def test_optimizers_in_backward_wait(fences: Fences) -> None:
    model, _ = model_and_optimizer()
    log: list[str] = []
    handle = Handle(log)
    optimizers = {}
    for parameter in model.parameters():
        optimizers[parameter] = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    fences.add(handle)  # type: ignore[arg-type]
    model(torch.randn(8, 4)).sum().backward()
    assert log == ["fence"] * 4
    assert storages(model.parameters()) <= set(fences.late_storages())


def test_tensors_are_copied_in_the_order_of_the_steps(fences: Fences) -> None:
    """As it was seen since the save before; a step waits for its own turn, one that nobody knows
    for all."""
    model, _ = model_and_optimizer()
    first, second, third = (torch.optim.SGD([p], lr=0.1) for p in list(model.parameters())[:3])
    shared = torch.optim.SGD(list(model.parameters())[:3], lr=0.1)
    for optimizer in (third, first, shared, first, third):
        optimizer.step()
    late = fences.late_storages()
    turns = [late.get(*storages([p])) for p in list(model.parameters())]
    assert turns == [1, 2, 0, None]
    log: list[str] = []
    handle = Handle(log)
    fences.add(handle)  # type: ignore[arg-type]
    for optimizer in (third, shared, second, first):
        optimizer.step()
    assert log == ["fence 0", "fence 2", "fence", "fence 1"]
    # The next save has turns of its own; that of the earlier one keeps its.
    late = fences.late_storages()
    assert [late.get(*storages([p])) for p in list(model.parameters())] == [1, 1, 0, None]
    later = Handle(log)
    fences.add(later)  # type: ignore[arg-type]
    del log[:]
    second.step()
    first.step()
    assert log == ["fence", "fence 2", "fence 1", "fence 3"]


def test_saves_that_are_gone_are_forgotten(fences: Fences) -> None:
    model, optimizer = model_and_optimizer()
    log: list[str] = []
    fences.add(Handle(log))  # type: ignore[arg-type]
    gc.collect()
    step(model, optimizer)
    assert log == []


def turns_of(state: Any) -> list[Optional[int]]:
    """Of the tensors of a state: which are late, and whose."""
    return [entry.turn for entry in state._entries if entry.kind != _state._OBJECT]


def test_what_is_late_is_told_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory that is taken for a device's: the library reads it all the same."""
    monkeypatch.setattr(_state, "_is_away", lambda tensor: True)
    monkeypatch.setattr(_device, "is_direct", lambda tensor: True)
    tensors = {"a": torch.ones(4), "b": torch.zeros(3, 3).t(), "step": 1}
    late: dict[int, int] = {}
    monkeypatch.setattr(_state.fences, "late_storages", lambda: late)
    cache = StateCache()
    first = cache.get(flatten(tensors))
    assert turns_of(first) == [None, None] and not first.late
    assert first.devices == {None}
    assert cache.get(flatten(tensors)) is first
    late = dict.fromkeys(storages([tensors["b"]]), 0)
    second = cache.get(flatten(tensors))
    assert second is not first
    assert turns_of(second) == [None, 0] and second.late
    assert cache.get(flatten(tensors)) is second
    late = dict.fromkeys(storages([tensors["b"]]), 3)
    assert turns_of(cache.get(flatten(tensors))) == [None, 3]
    late = {}
    assert cache.get(flatten(tensors)) is first
    assert not first.late


def test_fence_optimizers_is_switched_on_and_off() -> None:
    sidestep.fence_optimizers(False)  # a Checkpointer of another test switched it on
    assert not _fence.fences.on
    sidestep.fence_optimizers()
    try:
        assert _fence.fences.on
    finally:
        sidestep.fence_optimizers(False)
    assert not _fence.fences.on


def test_a_fence_of_a_save_without_devices_does_nothing(tmp_path: Any) -> None:
    handle = sidestep.async_save({"a": torch.ones(3)}, checkpoint_id=tmp_path / "it", no_dist=True)
    handle.fence()
    handle.result()
    progress = handle.progress()
    assert progress.device_bytes == 0 and progress.fenced_bytes == 0 and not progress.pageable


def test_host_tensors_are_no_devices() -> None:
    assert not _device.is_direct(torch.ones(3))
    assert sidestep.Status.EDEVICE == abi.Status.EDEVICE
