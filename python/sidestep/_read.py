# SPDX-License-Identifier: BSD-3-Clause
"""Looking into a checkpoint without a template: what it holds, and its values."""

from __future__ import annotations

import ctypes
import importlib.util
import operator
import os
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Optional, Union

from ._abi import Status
from ._checked import a_path, a_text
from ._checkpoint import Checkpoint, CheckpointMetadata, ObjectMetadata, TensorMetadata
from ._errors import make_error
from ._flatten import Leaf, set_leaf
from ._library import lib
from ._objects import decode

PathLike = Union[str, "os.PathLike[str]"]
Entry = Union[TensorMetadata, ObjectMetadata]

# Of what NumPy has, where torch is not installed.
_NUMPY = {
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
}


def load_metadata(path: PathLike) -> CheckpointMetadata:
    """What the checkpoint ``path``, ours or torch's, holds.  Reads no data and executes nothing.

    Errors: `Error`: ENOTFOUND, EUNCOMMITTED, ECORRUPT, EUNSAFE, EUNSUPPORTED, EIO.
    """
    with Checkpoint(path) as checkpoint:
        return checkpoint.describe()


def read(
    path: PathLike,
    name: Optional[str] = None,
    *,
    offsets: Optional[Sequence[int]] = None,
    lengths: Optional[Sequence[int]] = None,
    allow_pickle: bool = False,
) -> Any:
    """One value of the checkpoint ``path``, or all of it, without a template and without ranks.

    With a ``name``: a tensor as a new contiguous ``torch.Tensor`` in host memory, or the part of it
    of ``lengths`` at ``offsets`` (in elements; both or neither); an object as its value.  Without
    one: the nested state, dicts with their own keys (str and int) and lists.  It is ordered by
    name, and tensors that shared memory do not share it any more.

    Where torch is not installed, tensors are NumPy arrays, or, where that lacks the dtype or is not
    installed either, memoryviews of their bytes.

    Every byte that is read is checked.  Objects that are more than data are refused (EUNSAFE)
    unless ``allow_pickle``, which lets the checkpoint run code.

    Errors: `Error`: ENOTFOUND for another name; those of `load_metadata`; ECORRUPT.  ValueError for
    a part that is not inside of the tensor.
    """
    path = a_path(path, "path")
    if name is not None:
        a_text(name, "name")
    with Checkpoint(path) as checkpoint:
        if name is None:
            if offsets is not None or lengths is not None:
                raise ValueError("offsets and lengths are of one tensor: which name?")
            return _read_all(checkpoint, allow_pickle)
        saved = checkpoint.find(name)
        if saved is None:
            raise make_error(
                f"'{path}' has no tensor or object '{name}'",
                status=Status.ENOTFOUND,
                tensor=name,
            )
        if saved.is_object:
            if offsets is not None or lengths is not None:
                raise ValueError(f"'{name}' is an object: it has no part at {offsets}")
            return decode(name, checkpoint.stored(name), allow_pickle=allow_pickle)
        shape = saved.shape
        if offsets is not None or lengths is not None:
            offsets, shape = _check_box(name, saved.shape, offsets, lengths)
        return _read_tensor(checkpoint, name, saved.dtype or "", offsets, shape)


def _check_box(
    name: str,
    shape: tuple[int, ...],
    offsets: Optional[Sequence[int]],
    lengths: Optional[Sequence[int]],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offsets and lengths as integers.  TypeError, ValueError."""
    if offsets is None or lengths is None:
        raise ValueError(f"'{name}': a part has offsets and lengths")
    offsets, lengths = _integers(name, offsets), _integers(name, lengths)
    if not len(offsets) == len(lengths) == len(shape) or any(
        offset < 0 or length < 0 or offset + length > size
        for offset, length, size in zip(offsets, lengths, shape)
    ):
        raise ValueError(
            f"'{name}': {list(lengths)} at {list(offsets)} is not inside of {list(shape)}"
        )
    return offsets, lengths


def _integers(name: str, values: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(operator.index(value) for value in values)
    except TypeError:
        raise TypeError(
            f"'{name}': offsets and lengths are lists of integers, which {values!r} is not"
        ) from None


def _read_all(checkpoint: Checkpoint, allow_pickle: bool) -> dict[Any, Any]:
    described = checkpoint.describe()
    entries: list[Entry] = [*described.tensors.values(), *described.objects.values()]
    entries.sort(key=_order)
    read_values = _read_by_torch if importlib.util.find_spec("torch") else _read_one_by_one
    state: dict[Any, Any] = {}
    for entry, value in zip(entries, read_values(checkpoint, described.path, entries)):
        if isinstance(entry, ObjectMetadata):
            value = decode(entry.name, value, allow_pickle=allow_pickle)
        try:
            set_leaf(state, entry.path, value)
        except (TypeError, ValueError) as error:
            raise make_error(
                f"'{described.path}': the recorded nesting contradicts itself: {error}",
                status=Status.ECORRUPT,
                tensor=entry.name,
            ) from error
    return state


def _read_by_torch(checkpoint: Checkpoint, path: str, entries: list[Entry]) -> Iterable[Any]:
    """Tensors, and the stored bytes of objects: all in one load, by all threads."""
    import torch

    from ._engine import engine_alone
    from ._load import dtype_of
    from ._state import StateDict

    values: list[Any] = [
        torch.empty(entry.shape, dtype=dtype_of(entry.name, entry.dtype))
        if isinstance(entry, TensorMetadata)
        else None
        for entry in entries
    ]
    leaves = [Leaf(entry.name, (entry.name,), value) for entry, value in zip(entries, values)]
    state = StateDict(leaves, for_load=True)
    engine_alone().load(path, state)
    return [
        state.stored(entry.name) if value is None else value
        for entry, value in zip(entries, values)
    ]


def _read_one_by_one(checkpoint: Checkpoint, path: str, entries: list[Entry]) -> Iterable[Any]:
    for entry in entries:
        if isinstance(entry, TensorMetadata):
            yield _read_tensor(checkpoint, entry.name, entry.dtype, None, entry.shape)
        else:
            yield checkpoint.stored(entry.name)


def _order(entry: Any) -> list[tuple[int, int, str]]:
    """By path, numbers by value."""
    return [(0, int(key), "") if isinstance(key, int) else (1, 0, key) for key in entry.path]


# ---------------------------------------------------------------- tensors


def _read_tensor(
    checkpoint: Checkpoint,
    name: str,
    dtype: str,
    offsets: Optional[Sequence[int]],
    shape: tuple[int, ...],
) -> Any:
    size = prod(shape) * _element_size(name, dtype)
    lengths = None if offsets is None else shape
    if importlib.util.find_spec("torch") is not None:
        return _torch_tensor(checkpoint, name, dtype, offsets, shape)
    if dtype in _NUMPY and importlib.util.find_spec("numpy") is not None:
        import numpy

        array = numpy.empty(shape, dtype=dtype)
        checkpoint.read_box(name, offsets, lengths, array.ctypes.data, size)
        return array
    data = bytearray(size)
    address = ctypes.addressof((ctypes.c_char * size).from_buffer(data)) if size else None
    checkpoint.read_box(name, offsets, lengths, address, size)
    return memoryview(data)


def _torch_tensor(
    checkpoint: Checkpoint,
    name: str,
    dtype: str,
    offsets: Optional[Sequence[int]],
    shape: tuple[int, ...],
) -> Any:
    import torch

    from ._load import dtype_of

    tensor = torch.empty(shape, dtype=dtype_of(name, dtype))
    size = tensor.numel() * tensor.element_size()
    lengths = None if offsets is None else shape
    checkpoint.read_box(name, offsets, lengths, tensor.data_ptr() or None, size)
    return tensor


def _element_size(name: str, dtype: str) -> int:
    library = lib()
    size = library.sidestep_dtype_size(library.sidestep_dtype_from_name(dtype.encode()))
    if size == 0:
        raise make_error(
            f"'{name}': saved with dtype {dtype}, which is not known here",
            status=Status.EUNSUPPORTED,
            tensor=name,
        )
    return int(size)
