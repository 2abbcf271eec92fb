# SPDX-License-Identifier: BSD-3-Clause
"""Tensors without one strided memory of their own, in states and in checkpoints of torch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock
import torch.nested._internal.nested_tensor as jagged
from ranks import run_ranks
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map

import sidestep
from sidestep import Error, Status


class Scaled(torch.Tensor):
    """int8 values and a scale, as packages for quantization have them."""

    @staticmethod
    def __new__(cls, values: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, values.shape, dtype=torch.float32, device=values.device
        )

    def __init__(self, values: torch.Tensor, scale: torch.Tensor) -> None:
        self.values_, self.scale_ = values, scale

    def plain(self) -> torch.Tensor:
        return self.values_.float() * self.scale_

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Scaled({tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        me = args[0]
        name = function.__name__.split(".")[0]
        if name in ("detach", "alias"):
            return cls(me.values_, me.scale_)
        if name == "copy_" and isinstance(args[1], cls):
            me.values_.copy_(args[1].values_)
            me.scale_.copy_(args[1].scale_)
            return me
        plain = tree_map(lambda x: x.plain() if isinstance(x, cls) else x, (args, kwargs or {}))
        return function(*plain[0], **plain[1])


class Flat(Scaled):
    """The same, by the protocol of torch.compile."""

    def __tensor_flatten__(self) -> Any:
        return ["values_", "scale_"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["values_"], inner["scale_"])


def _values(number: int) -> torch.Tensor:
    return torch.arange(6, dtype=torch.int8) * number


MADE: dict[str, Callable[[int], Any]] = {
    "no protocol": lambda n: Scaled(_values(n), torch.tensor(0.5)),
    "flattened": lambda n: Flat(_values(n), torch.tensor(0.5)),
    "a parameter": lambda n: torch.nn.Parameter(Flat(_values(n), torch.tensor(0.5)), False),
    "of two": lambda n: TwoTensor(_values(n).float(), torch.ones(6)),
    "quantized": lambda n: torch.quantize_per_tensor(_values(n).float(), 0.5, 0, torch.qint8),
    "by channel": lambda n: torch.quantize_per_channel(
        _values(n).float().view(2, 3),
        torch.ones(2),
        torch.zeros(2, dtype=torch.int64),
        0,
        torch.qint8,
    ),
    "sparse": lambda n: (torch.eye(3) * n).to_sparse(),
    "csr": lambda n: (torch.eye(3) * (n + 1)).to_sparse_csr(),
    "jagged": lambda n: torch.nested.nested_tensor(
        [torch.ones(2) * n, torch.ones(3)], layout=torch.jagged
    ),
    "nested": lambda n: torch.nested.nested_tensor([torch.ones(2) * n, torch.ones(3)]),
}
SAFE: list[Any] = [Scaled, Flat, TwoTensor]
if torch.__version__ >= "2.15":  # where they are no safe globals any more
    SAFE += [torch._utils._rebuild_nested_tensor, jagged.NestedTensor, jagged._rebuild_njt]


def plain(value: Any) -> Any:
    if isinstance(value, Scaled):
        return value.plain()
    if isinstance(value, TwoTensor):
        return value.a
    if value.is_nested:
        return torch.cat(list(value.unbind()))
    return value.dequantize() if value.is_quantized else value.to_dense()


def _stock_save(values: dict[str, Any], *, checkpoint_id: Path) -> None:
    stock.save(values, checkpoint_id=checkpoint_id)


def _async_save(values: dict[str, Any], *, checkpoint_id: Path) -> None:
    sidestep.async_save(values, checkpoint_id=checkpoint_id).result()


@pytest.mark.parametrize("save", [sidestep.save, _async_save, _stock_save])
@pytest.mark.parametrize("what", MADE)
def test_the_class_comes_back(tmp_path: Path, what: str, save: Callable[..., Any]) -> None:
    make = MADE[what]
    if save is _stock_save and what in ("sparse", "csr", "jagged", "nested"):
        pytest.skip("torch cannot save it")
    with torch.serialization.safe_globals(SAFE):
        for number in (3, 2):  # the second save knows the layout
            save({"w": make(number), "p": torch.ones(2)}, checkpoint_id=tmp_path / "a")
        target = make(1)
        got = {"w": target, "p": torch.zeros(2)}
        sidestep.load(got, checkpoint_id=tmp_path / "a")
        assert got["w"] is target  # a module has it, too
        assert torch.equal(plain(target), plain(make(2))) and got["p"].sum() == 2
        found = {"w": make(1)}
        stock.load(found, checkpoint_id=tmp_path / "a")
        assert type(found["w"]) is type(target)
        assert torch.equal(plain(found["w"]), plain(make(2)))
        if save is not _stock_save:
            assert torch.equal(plain(sidestep.read(tmp_path / "a", "w")), plain(make(2)))


def test_a_model_is_filled_in_place(tmp_path: Path) -> None:
    def model(number: int) -> torch.nn.Module:
        made = torch.nn.Linear(6, 1, bias=False)
        made.weight = MADE["a parameter"](number)
        return made

    with torch.serialization.safe_globals([Flat]):
        sidestep.save({"model": model(2).state_dict()}, checkpoint_id=tmp_path / "a")
        other = model(1)
        sidestep.load({"model": other.state_dict()}, checkpoint_id=tmp_path / "a")
        assert torch.equal(plain(other.weight), plain(model(2).weight))


def test_a_class_that_is_not_allowed_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sidestep.save({"w": MADE["flattened"](1)}, checkpoint_id=tmp_path / "a")
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(told) == 1 and "add_safe_globals([test_tensor_classes.Flat])" in told[0]
    with pytest.raises(Error, match="needs test_tensor_classes.Flat") as caught:
        sidestep.load({"w": MADE["flattened"](1)}, checkpoint_id=tmp_path / "a")
    assert caught.value.status == Status.EUNSAFE


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    with torch.serialization.safe_globals([Flat]):
        state = {"w": MADE["flattened"](1), "bias": torch.ones(3)}
        sidestep.save(state, checkpoint_id=tmp_path / "a")
        wrong = Flat(torch.zeros(7, dtype=torch.int8), torch.tensor(1.0))
        state = {"w": wrong, "bias": torch.zeros(3)}
        with pytest.raises(Error, match=r"'w': .*Flat, which cannot be copied .* shape") as caught:
            sidestep.load(state, checkpoint_id=tmp_path / "a")
        assert caught.value.status == Status.EMISMATCH
        assert state["bias"].sum() == 0, "no tensor is touched"
        sidestep.save({"w": torch.ones(6)}, checkpoint_id=tmp_path / "b")
        with pytest.raises(Error, match=r"'w' is a plain tensor .*Flat in the state"):
            sidestep.load({"w": MADE["flattened"](1)}, checkpoint_id=tmp_path / "b")


def test_a_name_that_the_checkpoint_lacks_beside_one(tmp_path: Path) -> None:
    with torch.serialization.safe_globals([Flat]):
        sidestep.save({"w": MADE["flattened"](2)}, checkpoint_id=tmp_path / "a")
        got = {"w": MADE["flattened"](1), "x": torch.ones(1), "y": MADE["flattened"](1)}
        planner = stock.DefaultLoadPlanner(allow_partial_load=True)
        sidestep.load(got, checkpoint_id=tmp_path / "a", planner=planner)
        assert torch.equal(plain(got["w"]), plain(MADE["flattened"](2)))
        assert torch.equal(plain(got["y"]), plain(MADE["flattened"](1)))


def as_a_shard(rank: int, path: str) -> list[str]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    plain_one = distribute_tensor(torch.ones(6), mesh, [Shard(0)])
    local = MADE["flattened"](1)
    spec = plain_one._spec
    shard = DTensor(local, spec, requires_grad=False)  # type: ignore[call-arg]
    sidestep.save({"w": plain_one}, checkpoint_id=path)
    told = []
    for use in (sidestep.save, sidestep.async_save, sidestep.load):
        with pytest.raises(Error) as caught:
            use({"w": shard}, checkpoint_id=path)  # type: ignore[operator]
        assert caught.value.status == Status.EUNSUPPORTED
        told.append(str(caught.value))
    assert torch.equal(sidestep.read(path, "w"), torch.ones(6))
    return told


def test_as_a_shard_it_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (told,) = run_ranks(1, as_a_shard, str(tmp_path / "a"))
    for line in told:
        assert "'w': a " in line and "Flat keeps its data in other tensors" in line
        assert "as a shard it cannot be saved or loaded: save the tensors it is made of" in line
