# SPDX-License-Identifier: BSD-3-Clause
"""A nested state dict as a flat list of named leaves, and back.

The rules are those of ``torch.distributed.checkpoint`` since torch 2.4, because files go both ways:
every Mapping is entered; a list is entered only if it holds a tensor, a Mapping, or a list that is
entered itself; tuples and everything else are leaves.  A name is ``str(key)`` of dicts and decimal
positions of lists, joined by dots.  Empty dicts leave nothing behind.

What differs: the path of a leaf keeps the keys themselves, so that ``{0: ...}`` is found again.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from .collecting import no_collection

MAX_DEPTH = 64
"""Items of a path (SIDESTEP_MAX_PATH_ITEMS)."""

MAX_GAP = 1 << 20
"""Places that set_leaf() adds to a list at a time: an index may come from a file."""


def is_stateful(value: Any) -> bool:
    """Whether torch's ``Stateful`` protocol holds."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


class Index(int):
    """A position in a list, as an item of a path.  Never equal to the integer key of a dict."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is Index and int(self) == int(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__

    def __repr__(self) -> str:
        return f"Index({int(self)})"


class Leaf:
    """One value of a flattened state dict.

    ``name``: the path joined with dots.  ``path``: from the root to the value; keys of dicts as
    they are (str, int, or whatever was used), positions in lists as Index.
    """

    __slots__ = ("name", "path", "value")

    def __init__(self, name: str, path: tuple[Any, ...], value: Any) -> None:
        self.name = name
        self.path = path
        self.value = value

    def __repr__(self) -> str:
        return f"Leaf({self.name!r}, {self.path!r}, {self.value!r})"


_LEAF, _DICT, _LIST, _TENSOR = range(4)

_KINDS: dict[type, int] = {
    **dict.fromkeys((type(None), bool, int, float, complex, str, bytes, tuple, set), _LEAF),
    dict: _DICT,
    list: _LIST,
}

# Equal positions are one object: comparing the paths of a known layout then stops at identity.
_POSITIONS = [Index(i) for i in range(256)]


class _Flattener:
    """One pass over one state dict: what it has learned about types, and the leaves so far."""

    __slots__ = ("kinds", "leaves", "old_rule", "tensor")

    def __init__(self, old_rule: bool) -> None:
        self.kinds = dict(_KINDS)
        self.leaves: list[Leaf] = []
        self.old_rule = old_rule
        torch = sys.modules.get("torch")
        self.tensor: Any = getattr(torch, "Tensor", ())

    def kind(self, cls: type) -> int:
        """The kind of values of ``cls``; cached in ``kinds``."""
        bases = ((self.tensor, _TENSOR), (Mapping, _DICT), (list, _LIST), (object, _LEAF))
        self.kinds[cls] = next(kind for base, kind in bases if issubclass(cls, base))
        return self.kinds[cls]

    def entered(self, items: Iterable[Any], depth: int = 0) -> bool:
        """Whether to enter a list of ``items`` (old rule: a dict of these values)."""
        if depth > MAX_DEPTH:
            raise ValueError(f"lists nested deeper than {MAX_DEPTH}")
        kinds = self.kinds
        for item in items:
            kind = kinds.get(type(item))
            if kind is None:
                kind = self.kind(type(item))
            if kind == _LEAF:
                continue
            if kind == _TENSOR:
                return True
            if kind == _DICT:
                if not self.old_rule or self.entered(item.values(), depth + 1):
                    return True
            elif self.entered(item, depth + 1):
                return True
        return False

    def add(self, items: Iterable[tuple[Any, Any]], prefix: str, path: tuple[Any, ...]) -> None:
        """The leaves of a dict or list; ``prefix`` is its name and a dot."""
        if len(path) >= MAX_DEPTH:
            raise ValueError(
                f"'{prefix[:-1][:200]}' is nested deeper than {MAX_DEPTH} dicts or lists"
            )
        kinds = self.kinds
        append = self.leaves.append
        for key, value in items:
            text = key if type(key) is str else _text(key)
            kind = kinds.get(type(value))
            if kind is None:
                kind = self.kind(type(value))
            if kind in (_LEAF, _TENSOR):
                append(Leaf(prefix + text, (*path, key), value))
            else:
                self.container(kind, value, prefix + text, (*path, key))

    def container(self, kind: int, value: Any, name: str, path: tuple[Any, ...]) -> None:
        """The leaves of a dict or list, or the one leaf that it is."""
        if kind == _DICT:
            if not self.old_rule or self.entered(value.values()):
                return self.add(value.items(), name + ".", path)
        elif self.entered(value):
            positions = itertools.chain(_POSITIONS, map(Index, itertools.count(len(_POSITIONS))))
            return self.add(zip(positions, value), name + ".", path)
        self.leaves.append(Leaf(name, path, value))
        return None


def flatten(state: Mapping[Any, Any], *, nested: bool = True) -> list[Leaf]:
    """The leaves of ``state`` in order of insertion.

    ``nested=False`` takes the top level only: each key is a name, each value a leaf.
    Raises ValueError with the name where two values would have the same one, and where containers
    are nested deeper than MAX_DEPTH (a container inside itself, say).
    """
    if not nested:
        return _unique([Leaf(str(key), (key,), value) for key, value in state.items()])
    flattener = _Flattener(old_rule=False)
    with no_collection():
        flattener.add(state.items(), "", ())
        return _unique(flattener.leaves)


def flatten_as_2_3(state: Mapping[Any, Any]) -> list[Leaf]:
    """The same by the rule of torch before 2.4, for old checkpoints.

    By that rule, a dict without tensors and without entered containers was a leaf, too.
    """
    flattener = _Flattener(old_rule=True)
    flattener.add(state.items(), "", ())
    return _unique(flattener.leaves)


def _unique(leaves: list[Leaf]) -> list[Leaf]:
    if len({leaf.name for leaf in leaves}) != len(leaves):
        first: dict[str, Leaf] = {}
        for leaf in leaves:
            other = first.setdefault(leaf.name, leaf)
            if other is not leaf:
                raise ValueError(
                    f"duplicated flatten key {leaf.name}: two values of the state dict have this "
                    f"name, by the keys {list(other.path)} and {list(leaf.path)}; rename one"
                )
    return leaves


def set_leaf(state: MutableMapping[Any, Any], path: tuple[Any, ...], value: Any) -> None:
    """Put ``value`` at ``path``, with the keys as they are.

    Dicts and lists that are not there yet are made: a list where the next item is an Index.
    Lists grow with None up to the index.  Raises TypeError where the path leads through something
    that is neither, ValueError for an index more than MAX_GAP past the end.
    """
    container: Any = state
    for place, key in enumerate(path):
        if type(key) is Index:
            _grow(container, key, path)
        elif not isinstance(container, Mapping):
            raise _not_a_container(container, path, place)
        if place == len(path) - 1:
            container[key] = value
            return
        missing = container[key] is None if type(key) is Index else key not in container
        if missing:
            container[key] = [] if type(path[place + 1]) is Index else {}
        container = container[key]


def drop_leaf(state: MutableMapping[Any, Any], path: tuple[Any, ...]) -> None:
    """Remove the value at ``path``, a key of a dict.  Its container stays, perhaps empty."""
    container: Any = state
    for key in path[:-1]:
        container = container[key]
    if isinstance(container, MutableMapping):
        del container[path[-1]]


def _grow(items: Any, index: Index, path: tuple[Any, ...]) -> None:
    if not isinstance(items, list):
        raise _not_a_container(items, path, path.index(index))
    gap = int(index) + 1 - len(items)
    if index < 0 or gap > MAX_GAP:
        raise ValueError(
            f"'{_spell(path)}': a list of {len(items)} items has no place {int(index)}"
        )
    if gap > 0:
        items.extend([None] * gap)


def _not_a_container(value: object, path: tuple[Any, ...], place: int) -> TypeError:
    return TypeError(f"'{_spell(path)}': '{_spell(path[:place])}' is of {type(value).__name__}")


def _spell(path: tuple[Any, ...]) -> str:
    return ".".join(map(_text, path))


def _text(key: Any) -> str:
    return str(int(key) if type(key) is Index else key)
