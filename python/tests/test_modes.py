# SPDX-License-Identifier: BSD-3-Clause
"""No mode of the caller reaches into the package: what is saved and loaded is the same in each."""

from __future__ import annotations

import contextlib
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock
from states import same
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import sidestep
from sidestep import Checkpointer, Reader, TrainState, Writer


class _Refuses(TorchFunctionMode):
    """Fails whatever torch does in it."""

    def __torch_function__(self, function: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"the caller's mode sees {function}")


class _RefusesDispatch(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"the caller's mode sees {function}")


@contextlib.contextmanager
def _default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def _default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float16)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _run(inside: Callable[[], Callable[[Any], Any]]) -> Callable[[Callable[[], None]], None]:
    """A way to call a function in a function that torch transforms."""

    def run(body: Callable[[], None]) -> None:
        def step(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            body()
            return (y + 1).sum()

        inside()(step)(torch.ones(3))

    return run


def _within(mode: Callable[[], Any]) -> Callable[[Callable[[], None]], None]:
    def run(body: Callable[[], None]) -> None:
        with mode():
            body()

    return run


def _compiled() -> Callable[[Any], Any]:
    torch._dynamo.reset()  # type: ignore[no-untyped-call]
    return lambda step: torch.compile(step, backend="eager")


WAYS: dict[str, Callable[[Callable[[], None]], None]] = {
    "none": lambda body: body(),
    "device": _within(lambda: torch.device("meta")),
    "default device": _within(_default_device),
    "default dtype": _within(_default_dtype),
    "inference": _within(torch.inference_mode),
    "no grad": _within(torch.no_grad),
    "autocast": _within(lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "deterministic": _within(_deterministic),
    "functions": _within(_Refuses),
    "dispatch": _within(_RefusesDispatch),
    "fake": _within(FakeTensorMode),
    "functions without subclasses": _within(lambda: torch._C.DisableTorchFunctionSubclass()),
    "compile": _run(_compiled),
    "grad": _run(lambda: torch.func.grad),
    "vmap": _run(lambda: torch.func.vmap),
    "jvp": _run(lambda: lambda step: lambda x: torch.func.jvp(step, (x,), (x,))),
}


pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[], None]], None]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # compilers warn of what they do not compile
        yield WAYS[request.param]


def _state() -> dict[str, Any]:
    torch.manual_seed(3)
    return {
        "weight": torch.randn(6, 4),
        "turned": torch.randn(4, 6).t(),
        "lazy": torch.randn(5, dtype=torch.complex64).conj(),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "object": ("text", torch.arange(4), {"n": 3}),
    }


def _blank() -> dict[str, Any]:
    return {
        "weight": torch.zeros(6, 4, dtype=torch.float64),  # is cast
        "turned": torch.zeros(4, 6).t(),
        "lazy": torch.zeros(5, dtype=torch.complex64).conj(),
        "parameter": torch.nn.Parameter(torch.zeros(3)),
        "object": None,
    }


def _check(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert same(got, {**want, "weight": want["weight"].double()}) > len(want)
    assert not any(torch.is_inference(v) for v in got.values() if isinstance(v, torch.Tensor))


def test_save_and_load(tmp_path: pathlib.Path, way: Any) -> None:
    state, got = _state(), _blank()
    handles = []

    def body() -> None:
        sidestep.save(state, checkpoint_id=tmp_path / "a")
        sidestep.load(got, checkpoint_id=tmp_path / "a")
        handle = sidestep.async_save(state, checkpoint_id=tmp_path / "b")
        handle.wait()
        handles.append(handle.result())

    way(body)
    _check(got, state)
    again = _blank()
    stock.load(again, checkpoint_id=str(tmp_path / "b"))
    _check(again, state)
    assert handles[0].state_dict_metadata.keys() == state.keys()


def test_a_meta_tensor_gets_memory_that_can_be_trained(tmp_path: pathlib.Path, way: Any) -> None:
    state = {"w": torch.randn(4, 4)}
    sidestep.save(state, checkpoint_id=tmp_path / "a")
    got = {"w": torch.empty(4, 4, device="meta")}
    way(lambda: sidestep.load(got, checkpoint_id=tmp_path / "a"))
    assert torch.equal(got["w"], state["w"])
    got["w"].requires_grad_(True)
    got["w"].sum().backward()


def test_read_stats_and_convert(tmp_path: pathlib.Path, way: Any) -> None:
    state = _state()
    sidestep.save(state, checkpoint_id=tmp_path / "a")
    found: dict[str, Any] = {}

    def body() -> None:
        found["all"] = sidestep.read(tmp_path / "a")
        found["one"] = sidestep.read(tmp_path / "a", "weight", offsets=(1, 1), lengths=(2, 2))
        found["stats"] = sidestep.stats(tmp_path / "a", ["weight"])
        found["pages"] = sidestep.huge_pages({"w": state["weight"]})
        how = {"to": "safetensors", "objects": "skip"}
        sidestep.convert(tmp_path / "a", tmp_path / "m.safetensors", **how)

    way(body)
    assert same(found["all"], dict(sorted(state.items()))) > len(state)
    assert torch.equal(found["one"], state["weight"][1:3, 1:3])
    assert found["stats"]["weight"].elements == 24
    assert (tmp_path / "m.safetensors").exists()


def test_a_run_resumes(tmp_path: pathlib.Path, way: Any) -> None:
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    first = TrainState(model, optimizer)
    first.step = 7
    other = torch.nn.Linear(3, 2)
    second = TrainState(other, torch.optim.Adam(other.parameters()))

    def body() -> None:
        with Checkpointer(tmp_path, signals=()) as checkpoints:
            checkpoints.save(7, first).wait()
            checkpoints.resume(second)

    way(body)
    assert second.step == 7
    assert same(dict(other.state_dict()), dict(model.state_dict())) == 2
    assert same(second.optimizers[0].state_dict(), optimizer.state_dict())


def test_targets_made_in_inference_mode_are_filled(tmp_path: pathlib.Path) -> None:
    state = {"w": torch.randn(4), "m": torch.nn.Linear(2, 2).state_dict()}
    sidestep.save(state, checkpoint_id=tmp_path / "a")
    with torch.inference_mode():
        got = {"w": torch.zeros(4, dtype=torch.float64), "m": torch.nn.Linear(2, 2)}
        sidestep.load(got, checkpoint_id=tmp_path / "a")
    assert torch.equal(got["w"], state["w"].double())
    assert same(dict(got["m"].state_dict()), dict(state["m"])) == 2


# What torch's own functions do in a mode is torch's; Writer and Reader only work as without it.
@pytest.mark.parametrize("mode", ["inference", "no grad", "autocast", "deterministic", "device"])
def test_under_torchs_own_functions(tmp_path: pathlib.Path, mode: str) -> None:
    state, got = _state(), _blank()
    with torch.inference_mode():
        target = got["made"] = torch.zeros(2, dtype=torch.float64)
    state["made"] = torch.ones(2)

    def body() -> None:
        stock.save(state, storage_writer=Writer(tmp_path / "a"))
        stock.load(got, storage_reader=Reader(tmp_path / "a"))

    WAYS[mode](body)
    assert torch.equal(got["weight"], state["weight"].double())
    assert torch.equal(target, state["made"].double())


def test_the_callers_modes_are_back_after_a_failure(tmp_path: pathlib.Path) -> None:
    mode = _Refuses()
    with torch.inference_mode(), torch.device("meta"), mode:
        with pytest.raises(sidestep.Error):
            sidestep.load({"w": 0}, checkpoint_id=tmp_path / "none")
        assert torch.is_inference_mode_enabled()
        with pytest.raises(AssertionError, match="the caller's mode sees"):
            torch.zeros(1)
    with torch.device("meta"):
        assert torch.zeros(1).device.type == "meta"
    assert torch.zeros(1).device.type == "cpu"


def test_a_tensor_of_a_transform_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(sidestep.Error, match=r"'x': a tensor of a torch\.func transform"):
            sidestep.save({"x": x}, checkpoint_id=tmp_path / "a")
        return x.sum()

    torch.func.vmap(step)(torch.ones(2, 3))
    torch.func.grad(step)(torch.ones(3))
