# SPDX-License-Identifier: BSD-3-Clause
"""Looks into a checkpoint without a template: its entries, values, and statistics."""

from __future__ import annotations

import ctypes
import importlib.util
import operator
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Optional, Union

from ._c import abi
from ._c.abi import Status
from ._c.calls import run_cancellable
from ._c.checked import a_count, a_flag, a_path, a_text, some_texts
from ._c.errors import Error, make_error, refuse
from ._c.library import lib
from ._checkpoint import Checkpoint, CheckpointMetadata, ObjectMetadata, TensorMetadata, text_of
from ._modes import without_modes
from ._torch.flatten import Leaf, set_leaf
from ._torch.missing import nearest_names
from ._torch.objects import decode

PathLike = Union[str, "os.PathLike[str]"]
Entry = Union[TensorMetadata, ObjectMetadata]
Box = tuple[Optional[tuple[int, ...]], tuple[int, ...]]  # offsets (None: all of it), lengths

# Of a tensor that only torch can decode: quantized, or of a class of its own.
_NOT_DECODED = (Status.EUNSUPPORTED, Status.EUNSAFE)

# The dtypes that NumPy has, for use without torch.
_NUMPY = {
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
}


@without_modes
def load_metadata(path: PathLike) -> CheckpointMetadata:
    """The entries of the checkpoint ``path``, ours or torch's.  Reads no data, executes nothing.

    Errors: `Error`: ENOTFOUND, EUNCOMMITTED, ECORRUPT, EUNSAFE, EUNSUPPORTED, EIO.
    """
    with Checkpoint(path) as checkpoint:
        return checkpoint.describe()


@without_modes
def read(
    path: PathLike,
    name: Optional[str] = None,
    *,
    offsets: Optional[Sequence[int]] = None,
    lengths: Optional[Sequence[int]] = None,
    allow_pickle: bool = False,
) -> Any:
    """Read one value of the checkpoint ``path``, or all of it, without a template or ranks.

    With a ``name``: a tensor as a new contiguous ``torch.Tensor`` in host memory, or the box of it
    with ``lengths`` at ``offsets`` (in elements; give both or neither); or the value of an object.
    Without a name: the nested state, as lists and as dicts with their own keys (str and int).  It
    is ordered by name, and tensors that shared memory do not share it any more.

    Without torch, tensors are NumPy arrays; if NumPy lacks the dtype, or is not installed either,
    they are memoryviews of their bytes.

    Every byte that is read is checked.  Objects that are more than data are refused (EUNSAFE)
    unless ``allow_pickle``, which lets the checkpoint run code.

    Errors: `Error`: ENOTFOUND for an unknown name; those of `load_metadata`; ECORRUPT.  ValueError
    for a box that is not inside of the tensor.
    """
    path = a_path(path, "path")
    a_flag(allow_pickle, "allow_pickle")
    if name is not None:
        a_text(name, "name")
    with Checkpoint(path) as checkpoint:
        if name is None:
            if (offsets, lengths) != (None, None):
                raise ValueError("offsets and lengths are of one tensor: which name?")
            return _read_all(checkpoint, allow_pickle)
        saved = checkpoint.find(name)
        if saved is None:
            near = nearest_names(name, checkpoint.names())
            hint = f"; it has {' and '.join(map(repr, near))}" if near else ""
            message = f"'{path}' has no tensor or object '{name}'{hint}"
            raise make_error(message, status=Status.ENOTFOUND, tensor=name)
        if saved.is_object:
            if (offsets, lengths) != (None, None):
                raise ValueError(f"'{name}' is an object: it has no part at {offsets}")
            return decode(name, checkpoint.stored(name), allow_pickle=allow_pickle)
        box = _check_box(name, saved.shape, offsets, lengths)
        try:
            return _read_tensor(checkpoint, name, saved.dtype or "", box)
        except Error as problem:
            if problem.status not in _NOT_DECODED or box[0] is not None:
                raise
            return _read_as_torch_stored(checkpoint, name, allow_pickle, problem)


@without_modes
def read_file(path: PathLike, name: str) -> bytes:
    """The contents of the small file ``name`` of the checkpoint ``path``, checked by its hash.

    ``load_metadata(path).files`` lists them.  Errors: `Error`: ENOTFOUND: the checkpoint has no
    such file; ECORRUPT: it is missing or was changed; those of `load_metadata`.
    """
    with Checkpoint(a_path(path, "path")) as checkpoint:
        return checkpoint.file(name)


def _read_as_torch_stored(
    checkpoint: Checkpoint, name: str, allow_pickle: bool, problem: Error
) -> Any:
    """A tensor that only torch can decode; ``problem`` if it is another one, or without torch."""
    try:
        stored = checkpoint.stored(name)
    except Error:
        raise problem from None
    if importlib.util.find_spec("torch") is None:
        raise problem
    return decode(name, stored, allow_pickle=allow_pickle)


def _check_box(name: str, shape: tuple[int, ...], *box: Optional[Sequence[int]]) -> Box:
    """Offsets and lengths as integers.  TypeError, ValueError."""
    if box == (None, None):
        return None, shape
    try:
        offsets, lengths = (tuple(map(operator.index, part)) for part in box if part is not None)
    except ValueError:
        raise ValueError(f"'{name}': a part has offsets and lengths") from None
    except TypeError:
        raise TypeError(f"'{name}': offsets and lengths are lists of integers, not {box}") from None
    if not len(offsets) == len(lengths) == len(shape) or any(
        offset < 0 or length < 0 or offset + length > size
        for offset, length, size in zip(offsets, lengths, shape)
    ):
        raise ValueError(
            f"'{name}': {list(lengths)} at {list(offsets)} is not inside of {list(shape)}"
        )
    return offsets, lengths


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
    """Read tensors, and the stored bytes of objects, in one load by all threads."""
    import torch

    from ._engine import engine_alone
    from ._torch.state import StateDict
    from ._torch.targets import dtype_of

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
            yield _read_tensor(checkpoint, entry.name, entry.dtype, (None, entry.shape))
        else:
            yield checkpoint.stored(entry.name)


def _order(entry: Any) -> list[tuple[int, int, str]]:
    """The order of entries: by path, and integers by value."""
    return [(0, int(key), "") if isinstance(key, int) else (1, 0, key) for key in entry.path]


def _read_tensor(checkpoint: Checkpoint, name: str, dtype: str, box: Box) -> Any:
    """A torch.Tensor; without torch a NumPy array, or a memoryview of the bytes."""
    offsets, shape = box
    lengths = None if offsets is None else shape
    known = lib().sidestep_dtype_from_name(dtype.encode())
    size = prod(shape) * lib().sidestep_dtype_size(known)
    if known == abi.Dtype.DTYPE_NONE:
        refuse(name, f"saved with dtype {dtype}, which is not known here")
    made: Any
    if importlib.util.find_spec("torch") is not None:
        import torch

        from ._torch.targets import dtype_of

        made = torch.empty(shape, dtype=dtype_of(name, dtype))
        address = made.data_ptr() or None
    elif dtype in _NUMPY and importlib.util.find_spec("numpy") is not None:
        import numpy

        made = numpy.empty(shape, dtype=dtype)
        address = made.ctypes.data
    else:
        made = memoryview(bytearray(size))
        address = ctypes.addressof((ctypes.c_char * size).from_buffer(made)) if size else None
    checkpoint.read_box(name, offsets, lengths, address, size)
    return made


# ---------------------------------------------------------------- statistics


@dataclass(frozen=True)
class TensorStats:
    """Statistics of the elements of one tensor.

    elements        number of elements
    nan, inf        how many of them are NaN or infinite
    min, max        of all except NaN; None: there is none, or the dtype is complex or only bits
    mean            of the finite elements; None as above
    """

    elements: int
    nan: int
    inf: int
    min: Optional[float]
    max: Optional[float]
    mean: Optional[float]


@without_modes
def stats(
    path: PathLike, names: Optional[Iterable[str]] = None, *, threads: int = 0
) -> dict[str, TensorStats]:
    """Statistics of the tensors ``names`` (None: all) at ``path``, as in ``sidestep show --stats``.

    ``path``: whatever `sidestep.load` reads.  Every byte is read once, by several threads, in
    pieces, and checked.

    Errors: `Error`: ENOTFOUND for a name that is not there, EINVAL for an object's, EUNSUPPORTED
    for a dtype that has no numbers here; those of `sidestep.read`.
    """
    with Checkpoint(path) as checkpoint:
        if names is None:
            names = [name for name in checkpoint.names() if not checkpoint.is_object(name)]
        wanted = some_texts(names, "names")
        found = (abi.TensorStats * max(len(wanted), 1))()
        for one, name in zip(found, wanted):
            one.name = name
        options = abi.VerifyOptions(threads=a_count(threads, "threads"))
        function = lib().sidestep_checkpoint_stats
        arguments = checkpoint.handle, found, len(wanted), options
        run_cancellable("sidestep-stats", options, function, *arguments)
        return {text_of(name): _stats_of(one) for name, one in zip(wanted, found)}


def _stats_of(one: Any) -> TensorStats:
    least, most = (one.min, one.max) if one.has_range else (None, None)
    mean = one.mean if one.has_mean else None
    return TensorStats(one.element_count, one.nan_count, one.inf_count, least, most, mean)
