# SPDX-License-Identifier: BSD-3-Clause
"""Every state that one process has, saved by stock torch and loaded by us, and the reverse."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock
from hypothesis import given, settings
from hypothesis import strategies as st
from states import DTYPES, blank, both_ways, filled, ordered, same
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
)

import sidestep
from sidestep import Error

pytestmark = pytest.mark.filterwarnings("ignore")


def optimized() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 2, dtype=torch.float32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True)
    model(torch.randn(7, 5)).pow(2).sum().backward()
    optimizer.step()
    return model, optimizer


def lora() -> dict[str, Any]:
    return {f"layer.{i}.lora_{part}": torch.randn(4, 2) for i in range(3) for part in "AB"}


def single_states() -> dict[str, dict[Any, Any]]:
    torch.manual_seed(5)
    model, optimizer = optimized()
    base = filled(torch.float32, 6, 8).nan_to_num()
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    tied = torch.randn(4, 3)
    # Stock cannot save complex32 and bits; it saves the rest.
    dtypes = [d for d in DTYPES if "bits" not in str(d) and d is not torch.complex32]
    return {
        "plain": {"w": torch.randn(3, 4), "b": torch.randn(3), "n.m": torch.arange(5)},
        "nested": {
            "a": {"b": {"c": torch.randn(2)}, "l": [torch.ones(1), {"x": torch.zeros(2)}, 5]},
            "list of lists": [[torch.ones(2)], [[torch.zeros(1), "s"]]],
            "empty": {},
        },
        "objects": {
            "none": None,
            "step": 7,
            "lr": 1e-4,
            "text": "Zürich",
            "bytes": b"\x00\xff",
            "flags": [True, False],
            "tuple": (1, (2, "x")),
            "with tensor": (torch.ones(3), [torch.zeros(2)]),
            "empty list": [],
            "set": {1, 2, 3},
            "big": 2**80,
        },
        "optimizer by name": {
            "model": model.state_dict(),
            "optim": get_optimizer_state_dict(model, optimizer),
        },
        "flattened optimizer": get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True)
        ),
        "tied": {"emb": tied, "head": tied, "view": tied[1:], "t": tied.t()},
        "strides": {
            "transposed": base.t(),
            "column": base[:, 3],
            "steps": base[::2, ::3],
            "channels_last": image,
            "expanded": torch.randn(1, 4).expand(3, 4),
        },
        "lazy": {
            "conj": torch.randn(3, dtype=torch.cfloat).conj(),
            "neg": torch.randn(3, dtype=torch.cfloat).conj().imag,
        },
        "scalars": {"zero": torch.tensor(0), "pi": torch.tensor(3.14), "none": torch.empty(0, 7)},
        "dtypes": {str(d): filled(d, 3, 5, seed=i) for i, d in enumerate(dtypes)},
        "parameters": {"p": nn.Parameter(torch.randn(3)), "b": nn.Buffer(torch.randn(2))},
        "lora": lora(),
    }


@pytest.mark.parametrize("name", sorted(single_states()))
def test_states_of_one_rank_both_ways(name: str, tmp_path: pathlib.Path) -> None:
    state = single_states()[name]
    if name == "strides":
        expanded = state.pop("expanded")
        stock.save({"e": expanded}, checkpoint_id=tmp_path / "e")
        sidestep.save({"e": expanded}, checkpoint_id=tmp_path / "e2")
        for path in (tmp_path / "e", tmp_path / "e2"):
            for load in (stock.load, sidestep.load):
                target = {"e": torch.zeros(3, 4)}
                load(target, checkpoint_id=path)
                assert torch.equal(target["e"], expanded)
    leaves = {"plain": 3, "nested": 7, "objects": 13, "tied": 4, "strides": 4, "lora": 6}
    compared = both_ways(state, str(tmp_path / "c"))
    assert compared >= 3 * leaves.get(name, 2)
    if name in leaves and name != "objects":
        assert compared == 3 * leaves[name]


def test_integer_keys_survive_and_save_again(tmp_path: pathlib.Path) -> None:
    """A plain optimizer.state_dict(), over and over: stock fails at the second save."""
    _, optimizer = optimized()
    state = {"optim": optimizer.state_dict()}
    for turn in range(3):
        path = str(tmp_path / f"{turn}")
        sidestep.save(state, checkpoint_id=path)
        target = {"optim": blank(state["optim"])}
        sidestep.load(target, checkpoint_id=path)
        assert same(target, state) >= 24
        assert list(target["optim"]["state"]) == list(range(6))
        assert (
            same(
                sidestep.read(path)["optim"]["state"][5],
                {
                    key: state["optim"]["state"][5][key]
                    for key in sorted(state["optim"]["state"][5])
                },
            )
            == 4
        )
        state = target
    optimizer.load_state_dict(state["optim"])
    # Stock reads it, by strings as it does.
    template = {"optim": {"state": blank({str(k): v for k, v in state["optim"]["state"].items()})}}
    stock.load(template, checkpoint_id=str(tmp_path / "2"))
    want = {str(key): value for key, value in state["optim"]["state"].items()}
    assert same(template["optim"]["state"], want) == 24


def test_partial_states(tmp_path: pathlib.Path) -> None:
    """Adapters alone out of a checkpoint of everything, and the reverse."""
    everything = {"base": torch.randn(5), **lora()}
    for save, load in ((stock.save, sidestep.load), (sidestep.save, stock.load)):
        path = str(tmp_path / save.__module__.split(".")[0])
        save(everything, checkpoint_id=path)
        wanted = {key: value for key, value in everything.items() if "lora" in key}
        target = blank(wanted)
        load(target, checkpoint_id=path)
        assert same(target, wanted) == 6
    save, path = sidestep.save, str(tmp_path / "adapters")
    save(wanted, checkpoint_id=path)
    with pytest.raises(Error, match="Missing key in checkpoint state_dict: base"):
        sidestep.load(blank(everything), checkpoint_id=path)
    planner = stock.DefaultLoadPlanner(allow_partial_load=True)
    target = {"base": torch.full((5,), 2.0), **blank(wanted)}
    sidestep.load(target, checkpoint_id=path, planner=planner)
    assert same(target, {"base": torch.full((5,), 2.0), **wanted}) == 7


KEYS = st.text(st.characters(categories=["L", "P"], exclude_characters="."), max_size=4)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.binary(max_size=4),
    st.tuples(st.integers(), st.none()),
    st.builds(filled, st.sampled_from([torch.float32, torch.int8]), st.integers(0, 4)),
)
# Empty dicts leave nothing behind, in stock as here.
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(KEYS, st.integers(-3, 99)), inner, min_size=1, max_size=3),
    ),
    max_leaves=12,
)


def with_strings(value: Any) -> Any:
    """As stock has it: with strings for integer keys."""
    if isinstance(value, dict):
        return {str(key): with_strings(item) for key, item in value.items()}
    return [with_strings(item) for item in value] if isinstance(value, list) else value


def test_any_nesting(tmp_path: pathlib.Path) -> None:
    compared = [0]

    @settings(max_examples=60, derandomize=True, database=None, deadline=None)
    @given(
        st.dictionaries(
            st.one_of(KEYS.filter(bool), st.integers(0, 9)), NESTED, min_size=1, max_size=4
        )
    )
    def check(state: dict[Any, Any]) -> None:
        path = str(tmp_path / f"{len(list(tmp_path.iterdir()))}")
        sidestep.save(state, checkpoint_id=path)
        compared[0] += same(sidestep.read(path), ordered(state))
        target = blank(state)
        sidestep.load(target, checkpoint_id=path)
        compared[0] += same(target, state)
        target = blank(with_strings(state))
        stock.load(target, checkpoint_id=path)
        compared[0] += same(target, with_strings(state))
        stock.save(with_strings(state), checkpoint_id=path + "-stock")
        target = blank(state)
        sidestep.load(target, checkpoint_id=path + "-stock")
        compared[0] += same(target, state)

    check()
    assert compared[0] > 1000


def test_pages_of_the_file_are_pages_of_memory(tmp_path: pathlib.Path) -> None:
    """What is written from where it lies begins anywhere in a page of the file, as in memory."""
    state = {f"w{i}": torch.randn(1000 + 37 * i, 1024 + i) for i in range(4)}
    for _ in range(3):  # the first save does not know yet that nobody writes to the state
        sidestep.async_save(state, checkpoint_id=tmp_path / "it").result()
    loaded = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    stock.load(loaded, checkpoint_id=tmp_path / "it")
    for name, tensor in state.items():
        assert torch.equal(loaded[name], tensor)
