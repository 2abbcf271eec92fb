# SPDX-License-Identifier: BSD-3-Clause
"""Tensors on a device of the stand-in driver, saved beside a training that goes on: see standin.py.

What needs torch.cuda itself (its allocator, graphs, NCCL) is tested by tests/gpu.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from standin import DeviceTensor, Driver, device_tensor, replacements

import sidestep
from sidestep._torch import device as _device

ELEMENTS = 1 << 18
_drivers: list[Driver] = []  # one for the process: engines keep contexts


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """One that has seen no misuse; at the end, too."""
    if not _drivers:
        _drivers.append(Driver())
    ours = _drivers[0]
    for where, name, value in replacements(ours):
        monkeypatch.setattr(where, name, value)
    ours.slow(2000)
    yield ours
    ours.wait()
    gc.collect()
    problem = ours.problem()
    ours.forgive()
    assert problem is None, problem


@pytest.fixture
def fenced(driver: Driver) -> Iterator[None]:
    """Optimizers wait for saves."""
    sidestep.fence_optimizers()
    yield
    sidestep.fence_optimizers(False)


def parameter(driver: Driver, value: float = 1.0) -> Any:
    """With a gradient."""
    tensor = device_tensor(driver, torch.full((ELEMENTS,), float(value)))
    tensor.requires_grad_(True)
    tensor.grad = device_tensor(driver, torch.ones(ELEMENTS))
    return tensor


def optimizer_of(*parameters: Any, **options: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9, foreach=False, **options)


def start(path: Path, state: dict[str, Any]) -> Any:
    return sidestep.async_save(state, checkpoint_id=path, no_dist=True)


def now(driver: Driver, state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """What the tensors hold when all that was queued is done."""
    driver.wait()
    return {name: value.host.clone() for name, value in state.items()}


def assert_saved(path: Path, wanted: dict[str, torch.Tensor]) -> None:
    found = sidestep.read(path)
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name


def test_tensors_lie_where_the_processor_cannot_reach(driver: Driver) -> None:
    tensor = device_tensor(driver, torch.ones(5))
    assert tensor.device == torch.device("cuda:0") and _device.is_direct(tensor)
    with pytest.raises(NotImplementedError):
        tensor.sum()
    there = (ctypes.c_char * 4).from_address(tensor.data_ptr())
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="Bad address"):
        os.write(writer, there)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("fence", [False, True])
def test_what_is_saved_is_the_state_of_the_call(
    driver: Driver, fence: bool, tmp_path: Path
) -> None:
    """The trainer goes on at once: statistics change in forward, parameters in the step."""
    sidestep.fence_optimizers(fence)
    try:
        weight, statistic = parameter(driver), device_tensor(driver, torch.zeros(ELEMENTS))
        optimizer = optimizer_of(weight)
        for number in range(4):
            statistic.add_(1)
            optimizer.step()
            state = {
                "weight": weight.detach(),
                "statistic": statistic,
                "moment": optimizer.state[weight]["momentum_buffer"],
            }
            wanted = now(driver, state)
            handle = start(tmp_path / str(number), {**state, "host": torch.ones(3)})
            for _ in range(2):
                statistic.add_(1)
                optimizer.step()
            handle.result()
            assert_saved(tmp_path / str(number), {**wanted, "host": torch.ones(3)})
            progress = handle.progress()
            assert progress.device_bytes == 3 * 4 * ELEMENTS and not progress.pageable
            assert progress.fenced_bytes == (2 * 4 * ELEMENTS if fence else 0)
    finally:
        sidestep.fence_optimizers(False)


def test_optimizers_in_backward(driver: Driver, fenced: None, tmp_path: Path) -> None:
    """One for each parameter, which step one after the other."""
    weights = {f"w{i}": parameter(driver, i) for i in range(4)}
    optimizers = [optimizer_of(weight) for weight in weights.values()]
    for number in range(3):
        for optimizer in reversed(optimizers):
            optimizer.step()
        state = {name: weight.detach() for name, weight in weights.items()}
        wanted = now(driver, state)
        handle = start(tmp_path / str(number), state)
        for optimizer in reversed(optimizers):
            optimizer.step()
        handle.result()
        assert handle.progress().fenced_bytes == 4 * 4 * ELEMENTS
        assert_saved(tmp_path / str(number), wanted)


def test_the_first_to_step_is_copied_first(driver: Driver, fenced: None, tmp_path: Path) -> None:
    """And its step waits for no more than that."""
    size = 8 << 20  # 32 MiB: so often it is known how far the device is
    weights = {name: device_tensor(driver, torch.zeros(size)) for name in "abc"}
    for weight in weights.values():
        weight.requires_grad_(True)
        weight.grad = device_tensor(driver, torch.ones(size))
    optimizers = [torch.optim.SGD([weights[name]], lr=0.5, foreach=False) for name in "cba"]
    for optimizer in optimizers:
        optimizer.step()
    state = {name: weight.detach() for name, weight in weights.items()}
    wanted = now(driver, state)
    driver.hold_copies(driver.copied_bytes() + 4 * size)
    handle = start(tmp_path / "it", state)
    try:
        optimizers[0].step()
        deadline = time.monotonic() + 60
        while weights["c"].host[0] != -1 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert weights["c"].host[0] == -1
        for optimizer in optimizers[1:]:
            optimizer.step()
        time.sleep(0.05)
        assert weights["b"].host[0] == weights["a"].host[0] == -0.5  # they wait, for ever
    finally:
        driver.hold_copies(0)
    handle.result()
    assert_saved(tmp_path / "it", wanted)


def test_a_bias_that_is_changed_in_a_pre_hook(driver: Driver, fenced: None, tmp_path: Path) -> None:
    weight = parameter(driver)
    optimizer = optimizer_of(weight)

    def change(*_: Any) -> None:
        weight.detach().add_(1)

    optimizer.register_step_pre_hook(change)
    for number in range(3):
        optimizer.step()
        wanted = now(driver, {"weight": weight})
        handle = start(tmp_path / str(number), {"weight": weight.detach()})
        optimizer.step()
        handle.result()
        assert_saved(tmp_path / str(number), wanted)


def test_an_optimizer_that_was_not_seen_to_step(
    driver: Driver, fenced: None, tmp_path: Path
) -> None:
    """Of two, only the one whose hook runs is trusted with a fence; a step that is replayed from a
    graph runs none, and writes on the stream of the call."""
    hooked, replayed = parameter(driver), parameter(driver)
    optimizer = optimizer_of(hooked)
    for number in range(3):
        optimizer.step()
        replayed.detach().add_(1)
        wanted = now(driver, {"hooked": hooked, "replayed": replayed})
        handle = start(
            tmp_path / str(number), {"hooked": hooked.detach(), "replayed": replayed.detach()}
        )
        replayed.detach().add_(1)
        optimizer.step()
        handle.result()
        assert handle.progress().fenced_bytes == 4 * ELEMENTS
        assert_saved(tmp_path / str(number), wanted)


def test_memory_stays_until_it_is_copied(driver: Driver, fenced: None, tmp_path: Path) -> None:
    """The driver would see that it was freed."""
    values = [torch.full((ELEMENTS,), float(i)) for i in range(8)]
    handle = start(
        tmp_path / "it", {f"t{i}": device_tensor(driver, value) for i, value in enumerate(values)}
    )
    gc.collect()
    handle.result()
    assert_saved(tmp_path / "it", {f"t{i}": value for i, value in enumerate(values)})


def test_a_missing_fence_is_seen(
    driver: Driver, fenced: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: hooks that do not fence."""
    monkeypatch.setattr(sidestep.SaveHandle, "_fence_until", lambda *_: None)
    weight = parameter(driver)
    optimizer = optimizer_of(weight)
    optimizer.step()
    start(tmp_path / "before", {"weight": weight.detach()}).result()
    optimizer.step()
    wanted = now(driver, {"weight": weight})
    driver.hold_copies(driver.copied_bytes())
    handle = start(tmp_path / "it", {"weight": weight.detach()})
    try:
        optimizer.step()
        deadline = time.monotonic() + 60
        while torch.equal(weight.host, wanted["weight"]) and time.monotonic() < deadline:
            time.sleep(0.001)
    finally:
        driver.hold_copies(0)
    handle.result()
    assert handle.progress().fenced_bytes == 4 * ELEMENTS
    found = sidestep.read(tmp_path / "it")["weight"]
    assert driver.problem() is not None or not torch.equal(found, wanted["weight"])
    driver.forgive()


def test_strided_tensors_and_loads(driver: Driver, tmp_path: Path) -> None:
    values = {
        "transposed": torch.randn(30, 40).t(),
        "columns": torch.randn(50, 30)[:, 7:20],
        "half": torch.randn(1001).to(torch.bfloat16),
        "scalar": torch.tensor(3.5),
    }
    state: dict[str, Any] = {k: device_tensor(driver, value) for k, value in values.items()}
    start(tmp_path / "it", {**state, "host": torch.ones(2)}).result()
    assert_saved(tmp_path / "it", values)
    into: dict[str, Any] = {
        name: device_tensor(
            driver, torch.empty_strided(value.shape, value.stride()).to(value.dtype)
        )
        for name, value in values.items()
    }
    into["host"] = torch.zeros(2)
    sidestep.load(into, checkpoint_id=tmp_path / "it", no_dist=True)
    for name, value in values.items():
        assert isinstance(into[name], DeviceTensor)
        assert torch.equal(into[name].host, value), name
    assert torch.equal(into["host"], torch.ones(2))
