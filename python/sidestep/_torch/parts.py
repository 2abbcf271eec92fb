# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a state that is to be filled, and what of a checkpoint belongs to them.

What ``state_dict()`` returns is not all that a part can take: a fresh optimizer has no moments yet.
So a load asks an optimizer, a scheduler, a GradScaler and a data loader for whatever the checkpoint
has under their names.  What then still has no place, under the name of any part, is lost, and is
told.
"""

from __future__ import annotations

import copy
import inspect
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from .._loaded import listed
from .flatten import Index, Leaf, is_stateful, set_leaf
from .targets import dtype_of, materialized

if TYPE_CHECKING:
    from .._checkpoint import Checkpoint, Saved

_RETURNED = "returned"
_DEPTH = 3  # at which a state dict of an optimizer is looked for


class Part(NamedTuple):
    """``path``: of its values in the state; ``name``: the same, with a dot at the end."""

    path: tuple[Any, ...]
    name: str
    # A Stateful, a list of optimizers, None: values that are their own, or _RETURNED: the values
    # that the state_dict() of an optimizer has returned
    value: Any


def needs_closure(optimizer: Any) -> bool:
    """Whether ``step()`` has to be given a closure (LBFGS), so that torch cannot make its state."""
    try:
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    except (AttributeError, TypeError, ValueError):
        return False
    return closure is not None and closure.default is inspect.Parameter.empty


def parts_of(state: Any, values: Mapping[Any, Any], *, whole: bool) -> list[Part]:
    """The parts of ``state``, one ``Stateful`` or a dict that may hold some; ``values``: what they
    have returned."""
    if whole:
        return list(_inner((), state))
    parts: list[Part] = []
    for key in values:
        if is_stateful(state[key]):
            parts += _inner((key,), state[key])
    plain = {key: value for key, value in values.items() if not is_stateful(state[key])}
    return parts + list(_returned((), plain))


def _inner(path: tuple[Any, ...], value: Any) -> Iterator[Part]:
    """The parts of a ``Stateful``: those that it names itself (`TrainState`), or itself."""
    parts = getattr(value, "parts_of_state", None)
    if parts is None:
        yield _part(path, [value] if _is_optimizer(value) else value)
        return
    for below, inner in parts():
        if inner is None or isinstance(inner, list):
            yield _part((*path, *below), inner)
        else:
            yield from _inner((*path, *below), inner)


def _returned(path: tuple[Any, ...], value: Any) -> Iterator[Part]:
    """Where ``value`` has what ``optimizer.state_dict()`` has returned."""
    if not isinstance(value, Mapping) or len(path) > _DEPTH:
        return
    if isinstance(value.get("state"), Mapping) and isinstance(value.get("param_groups"), list):
        yield _part((*path, "state"), _RETURNED)
        yield _part((*path, "param_groups"), _RETURNED)
        return
    for key, inner in value.items():
        yield from _returned((*path, key), inner)


def _part(path: tuple[Any, ...], value: Any) -> Part:
    return Part(path, "".join(f"{key}." for key in _spelled(path)), value)


def _is_optimizer(value: Any) -> bool:
    return hasattr(value, "param_groups") and hasattr(value, "state")


def _takes_all(value: Any) -> bool:
    """Whether ``load_state_dict()`` takes whatever ``state_dict()`` has returned at any time."""
    import torch

    if isinstance(value, (torch.nn.Module, Mapping, list, str)):
        return False
    kinds = (torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
    return isinstance(value, kinds) or hasattr(value, "__iter__")


class Asking:
    """What a load asks for: ``leaves`` of ``values``, and more for the ``parts`` of them.

    saved   the names in the checkpoint
    """

    def __init__(
        self,
        values: MutableMapping[Any, Any],
        leaves: list[Leaf],
        parts: Sequence[Part],
        checkpoint: Checkpoint,
    ) -> None:
        self.values = values
        self.leaves = leaves
        self.parts = parts
        self._checkpoint = checkpoint
        self.saved = sorted(checkpoint.names())
        self._added: dict[str, tuple[Any, ...]] = {}
        for part in parts:
            if isinstance(part.value, list):
                self._ask_optimizers(part, part.value)
            elif _takes_all(part.value):
                self._ask_all(part)

    def lost(self) -> list[str]:
        """The names of the parts in the checkpoint that nothing asks for."""
        asked = {leaf.name for leaf in self.leaves}
        lost = {name for part in self.parts for name in self._below(part.name)}
        return sorted(lost - asked)

    def has_no_state(self, leaf: Leaf) -> bool:
        """Whether ``leaf`` is in an optimizer's state of a parameter that had none, by the
        checkpoint."""
        for part in self.parts:
            n = len(part.path)
            if isinstance(part.value, list) and leaf.path[:n] == part.path:
                if leaf.path[n] == "state" and len(leaf.path) > n + 2:
                    return not any(self._below(f"{part.name}state.{leaf.path[n + 1]}."))
        return False

    def added_at(self, leaf: Leaf) -> Optional[tuple[Any, ...]]:
        """If ``leaf`` was added: the path of what is useless without it, which is all the state of
        its parameter."""
        return self._added.get(leaf.name)

    def _below(self, prefix: str) -> Iterator[str]:
        for at in range(bisect_left(self.saved, prefix), len(self.saved)):
            if not self.saved[at].startswith(prefix):
                return
            yield self.saved[at]

    # -- optimizers

    def _ask_optimizers(self, part: Part, optimizers: list[Any]) -> None:
        values = _separate(self.values, part.path)
        if any(map(needs_closure, optimizers)):  # how much it keeps changes from step to step
            values["state"] = {}
            prefix = f"{part.name}state."
            self.leaves = [leaf for leaf in self.leaves if not leaf.name.startswith(prefix)]
        asked = {leaf.name for leaf in self.leaves}
        groups = values.get("param_groups", [])
        for i in range(len(groups)):
            front = (*part.path, "param_groups", Index(i))
            self._add_below(front, f"{part.name}param_groups.{i}.", asked, None)
        for key, parameter, owner in _parameters(groups, optimizers):
            front = (*part.path, "state", key)
            self._add_below(front, f"{part.name}state.{key}.", asked, (parameter, owner))

    def _add_below(
        self, front: tuple[Any, ...], prefix: str, asked: set[str], of: Optional[tuple[Any, Any]]
    ) -> None:
        """Ask for what the checkpoint has below ``prefix``, a name at the path ``front``.
        ``of``: the parameter whose state it is, and its optimizer."""
        for name in self._below(prefix):
            if name not in asked:
                path = front + self._rest(name, front, prefix)
                self._add(name, path, of, front if of is not None else path)

    def _rest(self, name: str, front: tuple[Any, ...], prefix: str) -> tuple[Any, ...]:
        """The end of the path of ``name``, by the checkpoint if it knows it."""
        path = self._checkpoint.path(name)
        if "".join(f"{key}." for key in _spelled(path[: len(front)])) == prefix:
            return path[len(front) :]
        return (name[len(prefix) :],)

    def _add(
        self,
        name: str,
        path: tuple[Any, ...],
        of: Optional[tuple[Any, Any]],
        at: tuple[Any, ...],
    ) -> None:
        saved = self._checkpoint.find(name)
        assert saved is not None, name
        value = None if saved.is_object else _template(name, saved, of)
        if saved.is_object or value is not None:
            set_leaf(self.values, path, value)
            self.leaves.append(Leaf(name, path, value))
            self._added[name] = at

    # -- schedulers, scalers, loaders

    def _ask_all(self, part: Part) -> None:
        """Ask for all that was saved; where a value has become a dict or was one, for that."""
        _separate(self.values, part.path)
        names = set(self._below(part.name))
        asked = {leaf.name for leaf in self.leaves}
        added = names - asked
        stale = [leaf for leaf in self.leaves if leaf.name not in names]
        gone = {leaf.name for leaf in stale if leaf.name.startswith(part.name)}
        gone = {name for name in gone if any(_nested(name, other) for other in added)}
        self.leaves = [leaf for leaf in self.leaves if leaf.name not in gone]
        for name in sorted(added):
            path = part.path + self._rest(name, part.path, part.name)
            _make_way(self.values, path)
            self._add(name, path, None, path)


def _nested(name: str, other: str) -> bool:
    return name.startswith(other + ".") or other.startswith(name + ".")


def _spelled(path: tuple[Any, ...]) -> list[str]:
    return [str(int(key) if type(key) is Index else key) for key in path]


def _make_way(values: Any, path: tuple[Any, ...]) -> None:
    """Remove what is no dict and no list on the way to ``path``: `set_leaf` makes them."""
    container = values
    for key, then in zip(path, path[1:]):
        inside = isinstance(container, list) == (type(key) is Index)
        there = inside and (key < len(container) if type(key) is Index else key in container)
        if not there:
            return
        wanted = list if type(then) is Index else MutableMapping
        if not isinstance(container[key], wanted):
            container[key] = [] if wanted is list else {}
        container = container[key]


def _separate(values: MutableMapping[Any, Any], path: tuple[Any, ...]) -> Any:
    """Put a copy of the dicts and lists at ``path`` in their place: ``state_dict()`` may have
    returned those that the part works with.  Returns the copy."""
    if not path:
        for key, value in values.items():
            values[key] = _copied(value)
        return values
    container: Any = values
    for key in path[:-1]:
        container = container[key]
    container[path[-1]] = _copied(container[path[-1]])
    return container[path[-1]]


def _copied(value: Any) -> Any:
    if isinstance(value, MutableMapping):
        value = copy.copy(value)
        for key, inner in value.items():
            value[key] = _copied(inner)
    elif type(value) is list:
        value = [_copied(inner) for inner in value]
    return value


def _parameters(
    groups: Iterable[Mapping[str, Any]], optimizers: list[Any]
) -> Iterator[tuple[Any, Any, Any]]:
    """(key, parameter, optimizer) of each parameter.  None if the groups do not say which is which
    (FSDP1, with flat parameters)."""
    keys = [group["params"] for group in groups]
    live = [(group["params"], one) for one in optimizers for group in one.param_groups]
    if [len(names) for names in keys] == [len(parameters) for parameters, _ in live]:
        for names, (parameters, one) in zip(keys, live):
            for name, parameter in zip(names, parameters):
                yield name, parameter, one


def _template(name: str, saved: Saved, of: Optional[tuple[Any, Any]]) -> Any:
    """A tensor for what was saved as ``name``; None: it is not known which.  State of a parameter
    has its shape and shards, unless it is a number, or the optimizer is of another kind."""
    import torch

    dtype, device = dtype_of(name, saved.dtype), torch.device("cpu")
    if of is not None:
        parameter, optimizer = of
        if saved.shape and (saved.shape == tuple(parameter.shape) or _has_their_shapes(optimizer)):
            return materialized(name, torch.empty_like(parameter.detach(), dtype=dtype))
        if saved.shape and hasattr(parameter, "placements"):
            return None
        if saved.shape and parameter.device.type != "meta":
            device = parameter.device
    return torch.empty(saved.shape, dtype=dtype, device=device)


def _has_their_shapes(optimizer: Any) -> bool:
    """Whether all states of a parameter have its shape: those of most optimizers of torch have."""
    kind = type(optimizer)
    others = ("Adafactor", "LBFGS")
    return kind.__module__.startswith("torch.optim.") and kind.__name__ not in others


# ---------------------------------------------------------------- what is lost


def told(path: str, lost: Sequence[str], parts: Sequence[Part]) -> str:
    """A sentence about the names that found no place."""
    count = f"{len(lost)} names" if len(lost) > 1 else "1 name"
    where = f"load '{path}': the checkpoint has {count} that found no place in the state"
    text = f"{where}: {listed(lost)}"
    for part in parts:
        optimizers = isinstance(part.value, list)
        if part.value is _RETURNED and _any_below(part.name, lost):
            return f"{text}; give the optimizer itself instead of what its state_dict() returns"
        if optimizers and _any_below(f"{part.name}param_groups.", lost):
            return f"{text}; the saved optimizer had more parameter groups: add them first"
        if optimizers and _any_below(f"{part.name}state.", lost):
            return f"{text}; the saved optimizer had other parameters: give it all of them"
    return text


def _any_below(prefix: str, names: Iterable[str]) -> bool:
    return any(name.startswith(prefix) for name in names)
