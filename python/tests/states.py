# SPDX-License-Identifier: BSD-3-Clause
"""What tests need of states: to count and compare every bit of two, and to blank one out."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
import torch.distributed.checkpoint as stock
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.tensor import DTensor

import sidestep
from sidestep._option_groups import GROUPS

DTYPES = [
    getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "complex32"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("bits8", "bits16"),
    )
    if hasattr(torch, name)
]


def in_groups(**options: Any) -> dict[str, Any]:
    """Options of `Checkpointer`, with those of a group given by that group."""
    group_of = {field.name: name for name, kind in GROUPS.items() for field in fields(kind)}
    groups: dict[str, dict[str, Any]] = {}
    for name in set(options) & set(group_of):
        groups.setdefault(group_of[name], {})[name] = options.pop(name)
    return {**options, **{name: GROUPS[name](**given) for name, given in groups.items()}}


def raw(tensor: torch.Tensor) -> bytes:
    """The elements in order, as bytes."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def filled(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Bytes that tell by their value where they stand; bool has only its two."""
    tensor = torch.empty(shape, dtype=dtype)
    data = torch.arange(tensor.numel() * tensor.element_size()) * 7 + seed * 31 + 1
    if dtype is torch.bool:
        data = data % 2
    flat = data.to(torch.uint8)
    return flat.view(dtype).reshape(shape) if tensor.numel() else tensor


def locals_of(value: torch.Tensor) -> list[torch.Tensor]:
    """The local tensors of any kind of tensor."""
    if isinstance(value, DTensor):
        return [] if value.device_mesh.get_coordinate() is None else [value.to_local()]
    if isinstance(value, ShardedTensor):
        return [shard.tensor for shard in value.local_shards()]
    return [value]


def same(got: Any, want: Any, where: str = "state") -> int:
    """Assert equality to the last bit, of types of keys too.  How many values were compared."""
    if isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor), where
        assert got.shape == want.shape and got.dtype == want.dtype, where
        ours, theirs = locals_of(got), locals_of(want)
        assert len(ours) == len(theirs), where
        for a, b in zip(ours, theirs):
            assert a.shape == b.shape and raw(a) == raw(b), f"{where}: {a} is not {b}"
        return 1
    if isinstance(want, Mapping):
        assert isinstance(got, Mapping) and list(map(repr, got)) == list(map(repr, want)), where
        return sum(same(got[key], want[key], f"{where}[{key!r}]") for key in want)
    if isinstance(want, (list, tuple)):
        assert type(got) is type(want) and len(got) == len(want), where
        pairs = enumerate(zip(got, want))
        return sum(same(a, b, f"{where}[{i}]") for i, (a, b) in pairs)
    if isinstance(want, float):
        assert isinstance(got, float) and got.hex() == want.hex(), where
        return 1
    assert type(got) is type(want) and bool(got == want), f"{where}: {got!r} is not {want!r}"
    return 1


def blank(value: Any) -> Any:
    """The same state with every tensor filled with other bytes, and every object replaced."""
    if isinstance(value, DTensor):
        # Not from_local(): the way there may be collective.
        made = value.detach().clone()
        for tensor in locals_of(made):
            _spoil(tensor)
        return made
    if isinstance(value, ShardedTensor):
        made = copy.deepcopy(value)
        for tensor in locals_of(made):
            _spoil(tensor)
        return made
    if isinstance(value, torch.Tensor):
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        _spoil(made)
        return made
    if isinstance(value, Mapping):
        return {key: blank(item) for key, item in value.items()}
    if isinstance(value, list):
        entered = any(isinstance(item, (torch.Tensor, Mapping, list)) for item in value)
        return [blank(item) for item in value] if entered else "spoiled"
    return "spoiled"


def _spoil(tensor: torch.Tensor) -> None:
    if tensor.numel():
        tensor.untyped_storage().fill_(1 if tensor.dtype is torch.bool else 0xA5)


def ordered(value: Any) -> Any:
    """With the keys of dicts in the order in which `sidestep.read` gives them."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (0, key, "") if type(key) is int else (1, 0, key))
        return {key: ordered(value[key]) for key in keys}
    return [ordered(item) for item in value] if isinstance(value, list) else value


def both_ways(state: dict[Any, Any], path: str, **options: Any) -> int:
    """Save by each, load by the other; and ours by ourselves.  How many values were compared."""
    compared = 0
    stock.save(state, checkpoint_id=f"{path}-stock", **options)
    sidestep.save(state, checkpoint_id=f"{path}-ours", **options)
    for load, writer in (
        (sidestep.load, "stock"),
        (stock.load, "ours"),
        (sidestep.load, "ours"),
    ):
        target = blank(state)
        load(target, checkpoint_id=f"{path}-{writer}", **options)
        compared += same(target, state)
    return compared
