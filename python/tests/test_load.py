# SPDX-License-Identifier: BSD-3-Clause
"""`load` fills any state in place, or says why not and leaves it alone."""

from __future__ import annotations

import gc
import logging
import pathlib
import random
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as stock
from ranks import run_ranks
from states import DTYPES, blank, filled, raw, same
from torch.distributed.checkpoint import _version
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import sidestep
from sidestep import Error, Reader, Status
from sidestep._torch import load as _load

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "c")


def save(path: str, state: dict[Any, Any]) -> None:
    stock.save(state, checkpoint_id=path)


def loaded(path: str, state: dict[Any, Any], **options: Any) -> dict[Any, Any]:
    sidestep.load(state, checkpoint_id=path, **options)
    return state


# ---------------------------------------------------------------- tensors


def test_every_dtype_in_place(path: str) -> None:
    state = {str(dtype): filled(dtype, 3, 5, seed=i) for i, dtype in enumerate(DTYPES)}
    sidestep.save(state, checkpoint_id=path)  # stock cannot, some of them
    target = blank(state)
    kept = dict(target)
    assert same(loaded(path, target), state) == len(DTYPES) >= 20
    assert all(target[name] is kept[name] for name in kept)


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_left_as_it_was(
    path: str, collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [collects]
    monkeypatch.setattr(gc, "isenabled", lambda: calls[-1])
    monkeypatch.setattr(gc, "disable", lambda: calls.append(False))
    monkeypatch.setattr(gc, "enable", lambda: calls.append(True))
    state = {"w": filled(torch.float32, 3)}
    sidestep.save(state, checkpoint_id=path)
    assert same(loaded(path, blank(state)), state)
    with pytest.raises(Error, match="Size mismatch"):
        loaded(path, {"w": torch.zeros(4)})
    assert calls == ([True, False] * max(4, len(calls) // 2) + [True] if collects else [False])


def layouts() -> dict[str, torch.Tensor]:
    base = filled(torch.float32, 6, 8)
    return {
        "transposed": base.clone().t(),
        "column": base.clone()[:, 3],
        "stepped": base.clone()[::2, 1::3],
        "channels_last": filled(torch.float32, 2, 3, 4, 5).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(3.25),
        "empty": torch.empty(0, 4),
        "empty columns": torch.empty(4, 0),
        "parameter": torch.nn.Parameter(filled(torch.float32, 4)),
        "complex": filled(torch.complex64, 3, 3),
    }


def test_memory_layouts_keep_their_strides(path: str) -> None:
    save(path, {name: value.detach().contiguous() for name, value in layouts().items()})
    target = layouts()
    strides = {name: value.stride() for name, value in target.items()}
    for value in target.values():
        value.detach().zero_()
    assert same(loaded(path, target), layouts()) == 9
    assert {name: value.stride() for name, value in target.items()} == strides


def test_what_lies_beside_a_view_is_not_touched(path: str) -> None:
    save(path, {"a": torch.ones(3, 2), "b": torch.full((2, 4), 2.0)})
    memory = torch.zeros(6, 8)
    loaded(path, {"a": memory[1:4, 6:], "b": memory[4:, :4]})
    want = torch.zeros(6, 8)
    want[1:4, 6:] = 1
    want[4:, :4] = 2
    assert torch.equal(memory, want)


def test_lazy_conjugates_and_negatives(path: str) -> None:
    value = torch.tensor([1 + 2j, 3 - 4j])
    save(path, {"conj": value, "imag": value.imag.clone(), "plain": value.conj()})
    base, other = torch.zeros(2, dtype=torch.complex64), torch.zeros(2, dtype=torch.complex64)
    state = {"conj": base.conj(), "imag": other.conj().imag, "plain": torch.zeros_like(base)}
    assert state["conj"].is_conj() and state["imag"].is_neg()
    loaded(path, state)
    assert torch.equal(base, value.conj()) and torch.equal(other.imag, -value.imag)
    assert torch.equal(state["plain"], value.conj().resolve_conj())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_tied_targets_take_what_is_the_same(path: str, dtype: torch.dtype) -> None:
    """By the library where it writes into the tensors, by copies where the dtype is another."""
    one, other = torch.arange(24.0).view(4, 6), torch.ones(4, 6)
    save(path, {"a": one, "b": one.clone(), "c": other, "d": other[:, ::2].clone()})
    tied = torch.zeros(4, 6, dtype=dtype)
    loaded(path, {"a": tied, "b": tied})
    assert torch.equal(tied, one.to(dtype))
    loaded(path, {"c": tied, "d": tied[:, ::2]})
    assert torch.equal(tied, other.to(dtype))
    with pytest.raises(Error, match="shares memory with another tensor") as caught:
        loaded(path, {"a": tied, "c": tied})
    assert caught.value.status == Status.EMISMATCH


@pytest.mark.parametrize(
    ("whole", "columns"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16), (torch.float64,) * 2],
)
def test_overlapping_targets(path: str, whole: torch.dtype, columns: torch.dtype) -> None:
    """Of which the library fills one, or none."""
    memory, ones = torch.zeros(4, 6), torch.ones(4, 6)
    part, beside = memory[:, 1:5:2], memory[:, 2::2]
    save(path, {"a": ones.to(whole), "b": ones[:, :2].to(columns), "c": torch.zeros(4, 2)})
    loaded(path, {"a": memory, "b": part})
    assert torch.equal(memory, ones)
    loaded(path, {"b": part, "c": beside})  # side by side
    assert torch.equal(memory[0], torch.tensor([1.0, 1, 0, 1, 0, 1]))
    for names in (("a", "c"), ("c", "a")):
        with pytest.raises(Error, match="shares memory with another tensor") as caught:
            loaded(path, {name: {"a": memory, "c": beside}[name] for name in names})
        assert caught.value.status == Status.EMISMATCH


def test_tied_targets_of_one_element(path: str) -> None:
    """Whose stride says nothing."""
    save(path, {"a": torch.ones(1), "b": torch.ones(1), "c": torch.zeros(1)})
    tied = torch.zeros(4, dtype=torch.float64)[::2][:1]
    assert tied.stride() == (2,)
    loaded(path, {"a": tied, "b": tied})
    assert tied.item() == 1
    with pytest.raises(Error, match="shares memory with another tensor"):
        loaded(path, {"a": tied, "c": tied})


def test_an_expanded_vector(path: str) -> None:
    save(path, {"w": torch.full((5,), 7.0)})
    target = torch.zeros(1).expand(5)
    loaded(path, {"w": target})
    assert target[0] == 7


def test_casts_are_those_of_copy(path: str) -> None:
    sources = {
        "float": torch.tensor([1.5, -2.25, 1e30, float("nan"), float("inf"), 3.9]),
        "int": torch.tensor([0, 1, -7, 300, 2**40]),
        "bool": torch.tensor([True, False]),
        "half": filled(torch.bfloat16, 9),
        "fp8": filled(torch.float8_e4m3fn, 9),
        "complex": torch.tensor([1 + 2j, -3.5j]),
    }
    kinds = [torch.float64, torch.bfloat16, torch.float8_e5m2, torch.int16, torch.bool]
    kinds += [torch.complex128, torch.uint8]
    save(path, {f"{name} {kind}": value for name, value in sources.items() for kind in kinds})
    compared = 0
    for name, value in sources.items():
        for kind in kinds:
            ours, stocks = (
                torch.zeros(value.shape, dtype=kind),
                torch.zeros(value.shape, dtype=kind),
            )
            loaded(path, {f"{name} {kind}": ours})
            stock.load({f"{name} {kind}": stocks}, checkpoint_id=path)
            assert raw(ours) == raw(stocks), (name, kind)
            compared += 1
    assert compared == 42
    strided = torch.zeros(6, dtype=torch.float64)[::3]
    loaded(path, {"bool torch.int16": strided})
    assert strided.tolist() == [1.0, 0.0]


def test_expanded_targets_take_what_fits(path: str) -> None:
    row = filled(torch.float32, 1, 4).nan_to_num()
    save(path, {"a": row.expand(5, 4), "b": torch.arange(20.0).reshape(5, 4)})
    target = torch.zeros(1, 4)
    loaded(path, {"a": target.expand(5, 4)})
    assert torch.equal(target, row)
    with pytest.raises(Error, match=r"'b': elements of the target share memory") as caught:
        loaded(path, {"b": target.expand(5, 4)})
    assert caught.value.status == Status.EMISMATCH and caught.value.tensor == "b"


def test_autograd_sees_the_change(path: str) -> None:
    save(path, {"w": torch.full((3,), 5.0), "x": torch.full((3,), 6.0, dtype=torch.float64)})
    weight = torch.nn.Parameter(torch.ones(3))
    x = torch.ones(3, requires_grad=True)
    versions = weight._version, x._version
    loss = (weight * weight * x * x).sum()
    loaded(path, {"w": weight, "x": x})
    assert weight.requires_grad and weight.is_leaf and weight.tolist() == [5.0] * 3
    assert weight._version > versions[0] and x._version > versions[1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        frozen = torch.zeros(3)
        loaded(path, {"w": frozen})
    assert frozen.tolist() == [5.0] * 3


def test_tied_weights_and_views_of_one_storage(path: str) -> None:
    values = torch.arange(12.0)
    save(path, {"a": values, "b": values, "head": values[:4], "tail": values[4:]})
    memory = torch.zeros(12)
    state = {"a": memory, "b": memory, "head": memory[:4], "tail": memory[4:]}
    loaded(path, state)
    assert torch.equal(memory, values) and state["a"] is state["b"]


def test_meta_tensors_get_memory(path: str) -> None:
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    real = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    save(path, {"model": real.state_dict(), "list": [torch.ones(2), {"t": torch.zeros(1)}]})
    state = {
        "model": dict(model.state_dict()),
        "list": [torch.ones(2, device="meta", dtype=torch.float64), {"t": torch.zeros(1)}],
    }
    loaded(path, state)
    assert same(state["model"], dict(real.state_dict())) == 4
    assert state["list"][0].dtype is torch.float64 and state["list"][0].tolist() == [1.0, 1.0]
    model.load_state_dict(state["model"], assign=True)
    assert same(dict(model.state_dict()), dict(real.state_dict())) == 4


# ---------------------------------------------------------------- structure


class Recorder:
    """A Stateful that writes down what is asked of it."""

    log: list[str] = []

    def __init__(self, name: str, **values: Any) -> None:
        self.name = name
        self.values = values

    def state_dict(self) -> dict[str, Any]:
        self.log.append(f"get {self.name}")
        return dict(self.values)

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.log.append(f"put {self.name}")
        self.values = values


def test_stateful_values(path: str) -> None:
    save(path, {"b": {"w": torch.ones(2), "n": 4}, "a": {"v": torch.zeros(3)}, "plain": 9})
    a, b = Recorder("a", v=torch.ones(3)), Recorder("b", w=torch.zeros(2), n=0)
    state = {"b": b, "plain": 0, "a": a}
    Recorder.log.clear()
    loaded(path, state)
    assert Recorder.log == ["get a", "get b", "put a", "put b"]
    assert state["a"] is a and state["b"] is b and state["plain"] == 9
    assert same(b.values, {"w": torch.ones(2), "n": 4}) == 2 and a.values["v"].tolist() == [0] * 3
    model, optimizer = torch.nn.Linear(2, 2), None
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, lr=0.5)
    save(path, {"model": model, "optimizer": optimizer})
    other = torch.nn.Linear(2, 2)
    slow = torch.optim.SGD(other.parameters(), momentum=0.9, lr=0.1)
    loaded(path, {"model": other, "optimizer": slow})
    assert same(dict(other.state_dict()), dict(model.state_dict())) == 2
    assert slow.param_groups[0]["lr"] == 0.5


def test_a_stateful_that_raises(path: str) -> None:
    class Broken(Recorder):
        def state_dict(self) -> dict[str, Any]:
            raise OSError("the disk is on fire")

    save(path, {"a": {"x": 1}})
    with pytest.raises(OSError, match="the disk is on fire"):
        loaded(path, {"a": Broken("a")})
    assert loaded(path, {"a": {"x": 0}}) == {"a": {"x": 1}}


def test_integer_keys_of_the_template(path: str) -> None:
    """Stock wrote "0" for 0; the state that is filled keeps its own keys."""
    save(path, {"opt": {0: {"step": 1, "m": torch.ones(2)}, 11: {"step": 2}, "x": 3}, 5: "five"})
    state = {"opt": {0: {"step": 0, "m": torch.zeros(2)}, 11: {"step": 0}, "x": 0}, 5: ""}
    loaded(path, state)
    want = {"opt": {0: {"step": 1, "m": torch.ones(2)}, 11: {"step": 2}, "x": 3}, 5: "five"}
    assert same(state, want) == 5
    stocks = {"opt": {0: {"step": 0, "m": torch.zeros(2)}, 11: {"step": 0}, "x": 0}}
    stock.load(stocks, checkpoint_id=path)
    assert list(stocks["opt"]) == [0, 11, "x", "0", "11"], "what this is better than"


def test_objects_of_all_kinds(path: str) -> None:
    state = {
        "none": None,
        "numbers": [1, 2.5, True, -(2**70), float("inf")],
        "text": "Grüße\n",
        "bytes": b"\0\xff",
        "tuple": (1, ("two", None)),
        "empty list": [],
        "set": {1, 2},
        "ordered": OrderedDict(a=1),
        "random": random.getstate(),
        "dtype": torch.bfloat16,
        "size": torch.Size([2, 3]),
        "in tuple": (torch.ones(2), 3),
        "list": [torch.zeros(2), "in a list", [1, 2]],
    }
    save(path, state)
    target = blank(state)
    target["ordered"] = OrderedDict(a="spoiled")
    assert same(loaded(path, target), state) > 600
    assert type(target["ordered"]) is OrderedDict


def test_the_names_of_old_torch(path: str) -> None:
    """Before 2.4 a dict without tensors was one object."""
    state = {"opt": {"groups": {"lr": 0.5, "eps": (1, 2)}, "m": torch.ones(2)}, "args": {"n": 1}}
    _version._derived_version = "2_3"
    try:
        save(path, state)
    finally:
        _version._derived_version = None
    names = set(sidestep.load_metadata(path).objects)
    assert names == {"opt.groups", "args"}
    target: dict[str, Any] = {
        "opt": {"groups": {"lr": 0.0, "eps": None}, "m": torch.zeros(2)},
        "args": {"n": 0},
    }
    assert same(loaded(path, target), state) == 5


def test_golden_files_of_other_versions() -> None:
    golden = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
    loads = 0
    for metadata in sorted(golden.glob("torch-*/*/.metadata")):
        described = sidestep.load_metadata(metadata.parent)
        state: dict[str, Any] = {
            entry.name: torch.full(entry.shape, 99, dtype=getattr(torch, entry.dtype))
            for entry in described.tensors.values()
        }
        state.update(dict.fromkeys(described.objects, "spoiled"))
        loaded(str(metadata.parent), state)
        for name in described.tensors:
            assert raw(state[name]) == raw(sidestep.read(metadata.parent, name)), name
        assert "spoiled" not in [v for v in state.values() if isinstance(v, str)]
        loads += len(state)
    assert loads >= 20


def test_planner_options(path: str, caplog: pytest.LogCaptureFixture) -> None:
    save(path, {"a": torch.ones(2), "n": {"x": 1}})
    state = {"a": torch.zeros(2), "more": torch.full((2,), 7.0), "n": {"x": 0, "y": 8}}
    with caplog.at_level(logging.DEBUG, "sidestep"):
        loaded(path, state, planner=DefaultLoadPlanner(allow_partial_load=True))
    want = {"a": torch.ones(2), "more": torch.full((2,), 7.0), "n": {"x": 1, "y": 8}}
    assert same(state, want) == 4
    assert "2 names are missing: more, n.y" in caplog.text
    with caplog.at_level(logging.DEBUG, "sidestep"):
        loaded(path, {"a": torch.zeros(2)})
    assert "1 names not asked for: n.x" in caplog.text
    flat = stock.DefaultSavePlanner(flatten_state_dict=False)
    stock.save({"a": torch.ones(2), "n": {"x": 1}}, checkpoint_id=path + "2", planner=flat)
    state = {"a": torch.zeros(2), "n": {"x": 0, "other": 1}}
    loaded(path + "2", state, planner=DefaultLoadPlanner(flatten_state_dict=False))
    assert same(state, {"a": torch.ones(2), "n": {"x": 1}}) == 2


@pytest.mark.parametrize("other", [{"b": torch.ones(2)}, {"a": 1, "b": torch.ones(2)}, {}])
def test_a_checkpoint_that_is_replaced_while_it_is_loaded(
    path: str, other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking what there is and reading it: also where names may be missing."""
    save(path, {"a": torch.ones(2), "b": torch.ones(2)})

    class Late(_load.StateDict):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            sidestep.save(other, checkpoint_id=path)

    monkeypatch.setattr(_load, "StateDict", Late)
    wide = {"a": torch.full((2,), 7.0, dtype=torch.float64), "b": torch.full((2,), 7.0)}
    with pytest.raises(Error) as caught:
        loaded(path, wide, planner=DefaultLoadPlanner(allow_partial_load=True))
    assert caught.value.status == Status.EMISMATCH
    assert all(bool((value == 7).all()) for value in wide.values())


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("wanted", "message", "status"),
    [
        ({"x": 1}, r"Missing key in checkpoint state_dict: x\.$|Missing.*: x\. ", "EMISMATCH"),
        ({"x": 1, "y": torch.ones(1)}, r"Missing key .*: x\. 1 more are missing", "EMISMATCH"),
        (
            {"w": torch.zeros(3, 3)},
            r"Size mismatch between saved torch.Size\(\[2, 3\]\) and current: "
            r"torch.Size\(\[3, 3\]\) for w",
            "EMISMATCH",
        ),
        ({"w": torch.zeros(6)}, "Size mismatch .* for w", "EMISMATCH"),
        ({"w": 5}, "Invalid checkpoint metadata for w, expected BytesStorageM", "EMISMATCH"),
        ({"w": torch.zeros(2, 3).to_sparse()}, "'w' is a plain .*sparse", "EMISMATCH"),
        ({"a": {"b": 1}, "a.b": 2}, "duplicated flatten key a.b", None),
    ],
)
def test_what_does_not_fit(path: str, wanted: Any, message: str, status: Any) -> None:
    save(path, {"v": torch.ones(2), "w": torch.ones(2, 3), "n": 4})
    state = {"v": torch.zeros(2), "n": 0, **wanted}
    with pytest.raises(Exception, match=message) as caught:
        loaded(path, state)
    assert torch.equal(state["v"], torch.zeros(2)) and state["n"] == 0
    if status is not None:
        assert isinstance(caught.value, Error) and isinstance(caught.value, CheckpointException)
        assert caught.value.status == Status[status]


def test_an_object_where_the_state_has_a_tensor(path: str) -> None:
    save(path, {"lr": 0.25})
    assert loaded(path, {"lr": torch.zeros(())}) == {"lr": 0.25}


class Dangerous:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('it ran')",)


class Harmless:
    def __eq__(self, other: object) -> bool:
        return type(other) is Harmless


def test_objects_that_are_more_than_data(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save(path, {"a": torch.ones(2), "o": Harmless(), "n": 3})
    state = {"a": torch.zeros(2), "o": None, "n": 0}
    with pytest.raises(Error, match=r"'o' needs .*Harmless.*SIDESTEP_UNSAFE_OBJECTS") as caught:
        loaded(path, state)
    assert caught.value.status == Status.EUNSAFE and caught.value.tensor == "o"
    assert state["o"] is None and state["n"] == 0, "objects are put back together, or not at all"
    assert state["a"].sum() == 0, "no tensor is touched"
    state = {"a": torch.zeros(2), "o": None, "n": 0}
    sidestep.load(state, storage_reader=Reader(path, allow_pickle=True))
    assert state["o"] == Harmless() and state["n"] == 3
    monkeypatch.setenv("SIDESTEP_UNSAFE_OBJECTS", "1")
    assert loaded(path, {"o": None})["o"] == Harmless()
    monkeypatch.delenv("SIDESTEP_UNSAFE_OBJECTS")
    save(path + "2", {"o": Dangerous()})
    with pytest.raises(Error, match="exec"):
        loaded(path + "2", {"o": None})


def _one_refuses(rank: int, path: str) -> tuple[str, float]:
    sidestep.save({"a": torch.ones(2), "o": Harmless()}, checkpoint_id=path)
    reader = Reader(path, allow_pickle=rank == 0)
    state = {"a": torch.zeros(2), "o": None}
    with pytest.raises(Error) as caught:
        sidestep.load(state, storage_reader=reader)
    assert caught.value.status == Status.EUNSAFE
    assert state["o"] is None
    return str(caught.value), float(state["a"].sum())


def test_no_rank_changes_a_tensor_if_one_refuses_an_object(path: str) -> None:
    (told, first), (refused, second) = run_ranks(2, _one_refuses, path)
    assert first == second == 0
    assert "'o' needs" in refused and "'o' needs" in told and "rank 1" in told


def test_damaged_and_missing_checkpoints(path: str) -> None:
    with pytest.raises(Error, match="c'") as caught:
        loaded(path, {"a": torch.zeros(2)})
    assert caught.value.status in (Status.ENOTFOUND, Status.EUNCOMMITTED)
    save(path, {"a": torch.arange(1000.0)})
    file = pathlib.Path(path, "__0_0.distcp")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(Error, match=r"__0_0.distcp|'a'") as caught:
        loaded(path, {"a": torch.zeros(1000)})
    assert caught.value.status == Status.ECORRUPT
    file.unlink()
    with pytest.raises(Error, match="__0_0.distcp"):
        loaded(path, {"a": torch.zeros(1000)})


# ---------------------------------------------------------------- ranks


class RaisesOn(Recorder):
    def __init__(self, rank: int, **values: Any) -> None:
        super().__init__("r", **values)
        self.rank = rank

    def state_dict(self) -> dict[str, Any]:
        if dist.get_rank() == self.rank:
            raise ValueError("no state today")
        return super().state_dict()


def failures(path: str) -> list[str]:
    """Every way in which one rank fails, and what each rank is told."""
    rank = dist.get_rank()
    told = []

    def failing(state: dict[str, Any], file: str = path) -> None:
        try:
            sidestep.load(state, checkpoint_id=file)
            told.append("no error")
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")

    failing({"a": RaisesOn(1, x=torch.zeros(1))})
    failing({"w": torch.zeros(9 if rank == 2 else 4)})
    failing({"w": torch.zeros(4), **({"gone": 1} if rank == 0 else {})})
    failing({"w": torch.zeros(4), **({"o": None} if rank == 1 else {})})
    failing({"w": torch.zeros(4)}, path if rank else path + "-not")
    state = {"w": torch.zeros(4)}
    sidestep.load(state, checkpoint_id=path)
    told.append(f"{state['w'].tolist()}")
    return told


def sharded_meta(path: str) -> int:
    """Meta DTensors get memory, below an integer key, and are cast."""
    world = init_device_mesh("cpu", (3,))
    whole = torch.arange(21.0).reshape(7, 3)
    state = {0: {"w": distribute_tensor(whole, world, [Shard(0)]), "step": 4}}
    sidestep.save(state, checkpoint_id=path)
    with torch.device("meta"):
        local = torch.empty(state[0]["w"].to_local().shape, dtype=torch.float64)
    target = {
        0: {
            "w": DTensor.from_local(local, world, [Shard(0)], shape=whole.shape, stride=(3, 1)),
            "step": 0,
        }
    }
    sidestep.load(target, checkpoint_id=path)
    got = target[0]["w"]
    assert got.dtype is torch.float64 and got.device.type == "cpu"
    assert torch.equal(got.full_tensor(), whole.double())
    return int(target[0]["step"])


def on_ranks(rank: int, path: str) -> tuple[list[str], int]:
    stock.save({"a": {"x": torch.ones(1)}, "w": torch.ones(4), "o": Harmless()}, checkpoint_id=path)
    return failures(path), sharded_meta(path + "-sharded")


def test_one_rank_fails_and_all_are_told(path: str) -> None:
    results = run_ranks(3, on_ranks, path)
    assert [step for _, step in results] == [4, 4, 4]
    told = [list(line) for line in zip(*(lines for lines, _ in results))]
    assert len(told) == 6
    culprits = [
        (1, "no state today"),
        (2, "Size mismatch"),
        (0, "Missing key in checkpoint"),
        (1, "'o' needs"),
    ]
    for lines, (culprit, words) in zip(told, culprits):
        assert all(words in line for line in lines), lines
        for rank, line in enumerate(lines):
            if rank != culprit:
                assert line.startswith("Error") and f"rank {culprit}" in line, line
    assert told[0][1].startswith("ValueError: no state today")
    assert all("c-not" in line or "rank 0" in line for line in told[4]), told[4]
    assert told[5] == ["[1.0, 1.0, 1.0, 1.0]"] * 3
