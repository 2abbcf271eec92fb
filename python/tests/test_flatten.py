# SPDX-License-Identifier: BSD-3-Clause
"""Flattening is stock torch's, name by name, and what differs is only that keys keep their type."""

from __future__ import annotations

import collections
import copy
import enum
import subprocess
import sys
import types
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint import _version
from torch.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict

from sidestep._torch.flatten import MAX_DEPTH, Index, flatten, flatten_as_2_3, set_leaf

KEYS = st.one_of(
    st.sampled_from(["a", "b", "a.b", "0", "1", "", "weight", "ä"]),
    st.integers(-2, 3),
    st.sampled_from([True, None, 1.5, (1, 2)]),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just(1.5))


def tensors() -> Any:
    return st.builds(lambda: torch.zeros(1))


def containers(inner: Any) -> Any:
    dicts = st.dictionaries(KEYS, inner, max_size=4)
    return st.one_of(
        dicts,
        dicts.map(collections.OrderedDict),
        dicts.map(types.MappingProxyType),
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(st.integers(), max_size=3),
    )


VALUES = st.recursive(st.one_of(SCALARS, tensors()), containers, max_leaves=16)
STATES = st.dictionaries(KEYS, VALUES, max_size=6)


def no_twins(state: Any) -> bool:
    """Stock torch cannot build what has keys that are equal only as text."""
    dicts = [value for value in walk(state) if isinstance(value, collections.abc.Mapping)]
    return all(len({str(key) for key in found}) == len(found) for found in dicts)


def stock(state: Any) -> Any:
    """(flat, mapping) of stock torch, or the text of its error."""
    try:
        return flatten_state_dict(state)
    except ValueError as error:
        return str(error)


def ours(state: Any, function: Any = flatten) -> Any:
    try:
        leaves = function(state)
    except ValueError as error:
        return str(error)
    flat = {leaf.name: leaf.value for leaf in leaves}
    paths = {
        leaf.name: tuple(int(k) if type(k) is Index else str(k) for k in leaf.path)
        for leaf in leaves
    }
    assert len(flat) == len(leaves)
    return flat, paths


def assert_same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, str):
        assert isinstance(mine, str) and mine.startswith(theirs + ":")
        return
    assert list(mine[0]) == list(theirs[0])
    assert all(mine[0][name] is theirs[0][name] for name in theirs[0])
    assert mine[1] == theirs[1]


seen: collections.Counter[str] = collections.Counter()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(STATES)
def test_names_and_paths_are_those_of_stock_torch(state: Any) -> None:
    theirs = stock(state)
    seen["refused" if isinstance(theirs, str) else "flattened"] += 1
    seen["leaves"] += 0 if isinstance(theirs, str) else len(theirs[0])
    assert_same(ours(state), theirs)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(STATES)
def test_the_old_rule_is_that_of_stock_torch(state: Any) -> None:
    _version._derived_version = "2_3"
    try:
        theirs = stock(state)
    finally:
        _version._derived_version = None
    assert_same(ours(state, flatten_as_2_3), theirs)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(STATES)
def test_every_leaf_can_be_put_back_where_it_was(state: Any) -> None:
    try:
        leaves = flatten(state)
    except ValueError:
        return
    if any(isinstance(value, types.MappingProxyType) for value in walk(state)):
        return
    state = copy.copy(state)
    marks = [object() for _ in leaves]
    for leaf, mark in zip(leaves, marks):
        set_leaf(state, leaf.path, mark)
        seen["set"] += 1
    found = state
    for leaf, mark in zip(leaves, marks):
        found = state
        for key in leaf.path:
            found = found[key]
        assert found is mark


def walk(value: Any) -> Any:
    yield value
    if isinstance(value, collections.abc.Mapping):
        for item in value.values():
            yield from walk(item)
    elif isinstance(value, list):
        for item in value:
            yield from walk(item)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(STATES)
def test_an_empty_state_is_built_like_stock_builds_it(state: Any) -> None:
    theirs = stock(state)
    if isinstance(theirs, str) or not no_twins(state):
        return
    expected = unflatten_state_dict(*theirs)
    built: dict[Any, Any] = {}
    for name, path in theirs[1].items():
        set_leaf(built, tuple(Index(k) if type(k) is int else k for k in path), theirs[0][name])
        seen["built"] += 1
    assert repr(built) == repr(expected)


def test_enough_was_compared() -> None:
    assert seen["flattened"] > 50 and seen["refused"] > 0, seen
    assert seen["leaves"] > 200 and seen["set"] > 30 and seen["built"] > 100, seen


def test_keys_keep_their_type() -> None:
    class Color(enum.IntEnum):
        RED = 1

    state = {0: {"a": 1}, "x": [torch.zeros(1), {-5: 2}], Color.RED: 3, True: 4}
    paths = [leaf.path for leaf in flatten({**state, "1": {Color.RED: 5}})]
    assert paths[0] == (0, "a") and type(paths[0][0]) is int
    assert paths[1] == ("x", Index(0)) and type(paths[1][1]) is Index
    assert paths[2] == ("x", Index(1), -5) and type(paths[2][2]) is int
    assert paths[3][0] is Color.RED
    assert paths[4] == ("1", Color.RED)


def test_an_index_is_no_key() -> None:
    assert Index(0) != 0 and 0 != Index(0) and ("a", 0) != ("a", Index(0))  # noqa: SIM300
    assert Index(3) == Index(3) and hash(Index(3)) == hash(Index(3))
    assert ["a", "b"][Index(1)] == "b" and repr(Index(1)) == "Index(1)"


def test_duplicates_are_named_with_both_ways() -> None:
    with pytest.raises(ValueError, match=r"duplicated flatten key a\.b: .*\['a\.b'\].*'a', 'b'"):
        flatten({"a.b": 1, "a": {"b": 2}})
    with pytest.raises(ValueError, match=r"duplicated flatten key 0: "):
        flatten({0: 1, "0": 2})
    with pytest.raises(ValueError, match=r"duplicated flatten key 0: "):
        flatten({0: 1, "0": 2}, nested=False)


def test_the_top_level_alone() -> None:
    inner = {"b": 1}
    leaves = flatten({"a": inner, 7: [torch.zeros(1)]}, nested=False)
    assert [(leaf.name, leaf.path) for leaf in leaves] == [("a", ("a",)), ("7", (7,))]
    assert leaves[0].value is inner


def nest(depth: int, kind: type) -> Any:
    value: Any = {"x": 1}
    for _ in range(depth):
        value = {"k": value} if kind is dict else [value]
    return {"root": value}


@pytest.mark.parametrize("kind", [dict, list])
def test_depth_has_a_limit(kind: type) -> None:
    (leaf,) = flatten(nest(MAX_DEPTH - 2, kind))
    assert len(leaf.path) == MAX_DEPTH
    with pytest.raises(
        ValueError, match=r"'root\..*' is nested deeper than 64|lists nested deeper"
    ):
        flatten(nest(MAX_DEPTH - 1, kind))


def test_a_container_in_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(ValueError, match=r"'self\.self.* is nested deeper than 64"):
        flatten(loop)
    items: list[Any] = []
    items.append(items)
    with pytest.raises(ValueError, match="deeper than 64"):
        flatten({"a": items})


def test_where_a_value_cannot_be_put() -> None:
    with pytest.raises(TypeError, match=r"'a\.b': 'a' is of int"):
        set_leaf({"a": 1}, ("a", "b"), 2)
    with pytest.raises(TypeError, match=r"'a\.0': 'a' is of dict"):
        set_leaf({"a": {}}, ("a", Index(0)), 2)
    with pytest.raises(ValueError, match=r"a list of 0 items has no place 1048576"):
        set_leaf({"a": []}, ("a", Index(1 << 20)), 2)
    state: dict[str, Any] = {"a": []}
    set_leaf(state, ("a", Index(2), "b"), 5)
    assert state == {"a": [None, None, {"b": 5}]}


def test_flattening_needs_no_torch() -> None:
    code = (
        "import sys; from sidestep._torch.flatten import flatten; "
        "assert [x.name for x in flatten({'a': {'b': [1], 'c': [{}, 2]}})] == ['a.b', 'a.c.1']; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
