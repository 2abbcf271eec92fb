# SPDX-License-Identifier: BSD-3-Clause
"""This rank's part of a tensor: boxes of the global tensor, and local tensors with their data.

Plain tensors, DTensors, ShardedTensors and objects with torch's checkpoint protocols become
`Shards`.  A tensor that cannot be stored as boxes of one dtype is refused by name.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Sequence
from math import prod
from typing import Any, NoReturn, Optional

from .._c.abi import TENSOR_REPLICATED, TENSOR_REQUIRES_GRAD, Dtype
from .._c.errors import refuse
from . import device as _device
from .tensor_classes import is_pickled, without_subclass

Numbers = tuple[int, ...]


class Piece:
    """One box of a tensor: ``offsets`` and ``lengths`` in elements of the global tensor.

    ``tensor``: the strided local tensor of shape ``lengths`` with the data, on any device.
    """

    __slots__ = ("lengths", "offsets", "tensor")

    def __init__(self, offsets: Numbers, lengths: Numbers, tensor: Any) -> None:
        self.offsets = offsets
        self.lengths = lengths
        self.tensor = tensor


class Shards:
    """A tensor of ``shape`` and torch dtype ``dtype``, of which this rank holds ``pieces``.

    ``pieces`` may be empty: a rank outside the mesh.  ``flags``: TENSOR_* of the header.
    It can be the value of a `Leaf`: a tensor whose boxes are known already.
    """

    __slots__ = ("dtype", "flags", "pieces", "shape")

    def __init__(self, shape: Numbers, dtype: Any, pieces: list[Piece], flags: int = 0) -> None:
        self.shape = shape
        self.dtype = dtype
        self.pieces = pieces
        self.flags = flags


def shards_of(name: str, value: Any, *, for_load: bool = False) -> Optional[Shards]:
    """The shards of the tensor ``value``; None if it is an object.

    ``for_load``: the pieces are to be written into.  Raises Error (EUNSUPPORTED) with the name
    for what cannot be saved: Partial placements, fake, meta and lazy tensors, dtypes the format
    does not have, and shards without one strided memory of their own (`tensor_classes`).
    """
    if type(value) is Shards:
        return value
    import torch

    is_tensor = isinstance(value, torch.Tensor)
    if is_tensor:
        dtensor = _loaded("torch.distributed.tensor", "DTensor")
        if dtensor is not None and isinstance(value, dtensor):
            return _of_dtensor(name, value, for_load)
    if hasattr(value, "__create_chunk_list__" if for_load else "__create_write_items__"):
        return _of_protocol(name, value, for_load)
    if not is_tensor:
        return None
    sharded = _loaded("torch.distributed._shard.sharded_tensor", "ShardedTensor")
    if sharded is not None and isinstance(value, sharded):
        return _of_sharded_tensor(name, value, sharded)
    if is_checkpointable(value):
        return _of_checkpointable(name, value)
    if is_pickled(value):
        return None
    local = local_tensor(name, value)
    shape = tuple(local.shape)
    return Shards(shape, local.dtype, [Piece((0,) * len(shape), shape, local)], _flags(value))


def _loaded(module: str, name: str) -> Any:
    """A class of a torch module, if that is imported; otherwise no value can be of this class."""
    return getattr(sys.modules.get(module), name, None)


def _flags(value: Any, replicated: bool = False) -> int:
    return (TENSOR_REQUIRES_GRAD if value.requires_grad else 0) | (
        TENSOR_REPLICATED if replicated else 0
    )


# ---------------------------------------------------------------- local tensors

_dtypes: dict[Any, int] = {}


def dtype_number(name: str, dtype: Any) -> int:
    """The library's number of a torch dtype."""
    if not _dtypes:
        import torch

        for known in Dtype:
            if hasattr(torch, known.name.lower()):
                _dtypes[getattr(torch, known.name.lower())] = int(known)
    number = _dtypes.get(dtype)
    if number is None:
        refuse(name, f"checkpoints have no dtype {dtype}; save .view(torch.uint8) or another dtype")
    return number


def local_tensor(name: str, value: Any) -> Any:
    """``value`` as a strided torch.Tensor with memory of its own, or a refusal."""
    import torch

    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
        value = without_subclass(name, value)
    if _is_transformed(torch, value):
        refuse(
            name,
            "a tensor of a torch.func transform (vmap, grad) has no memory of its own; save outside"
            " of the function that is transformed",
        )
    if value.is_quantized:
        refuse(name, "a quantized tensor; save .dequantize(), or .int_repr() and its scale")
    if value.layout is not torch.strided:
        refuse(name, f"a tensor with layout {value.layout}; save .to_dense(), or its parts")
    if value.is_nested:
        refuse(name, "a nested tensor; save its .values() and .offsets(), or .to_padded_tensor()")
    if value.device.type == "meta":
        refuse(name, "a tensor on the meta device has no data; materialize it (to_empty()) first")
    if value.dtype not in _dtypes:
        dtype_number(name, value.dtype)
    needed = reach(value)
    if needed:
        needed += value.storage_offset() * value.itemsize
        there = value.untyped_storage().nbytes()
        if there < needed:
            refuse(
                name,
                f"its storage was resized to {there} bytes, and its elements reach to {needed}; "
                "have its memory back first (FSDP: get_state_dict(), or summon_full_params())",
            )
    return value


def _is_transformed(torch: Any, value: Any) -> bool:
    transforms = getattr(torch._C, "_functorch", None)
    is_wrapped = getattr(transforms, "is_functorch_wrapped_tensor", None)
    return is_wrapped is not None and bool(is_wrapped(value))


def reach(tensor: Any) -> int:
    """The bytes from the first element of a strided ``tensor`` to the end of its last one; its
    storage must have them.  0 for devices whose storages are not checked."""
    if tensor.numel() == 0 or tensor.device.type not in ("cpu", "cuda"):
        return 0
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    return int((last + 1) * tensor.itemsize)


def is_host(tensor: Any) -> bool:
    """Whether the library can use the memory of a strided ``tensor`` in place."""
    return tensor.device.type == "cpu" and not tensor.is_conj() and not tensor.is_neg()


def is_writable(tensor: Any) -> bool:
    """Whether the library can write into it: `is_host`, and no two elements share memory."""
    return is_host(tensor) and not _overlaps(tensor)


def is_loadable(tensor: Any) -> bool:
    """Whether a load can write into it: like `is_writable`, also for devices of the library."""
    if tensor.device.type == "cpu":
        return is_writable(tensor)
    lazy = tensor.is_conj() or tensor.is_neg()
    return _device.is_direct(tensor) and not lazy and not _overlaps(tensor)


def copy_into(target: Any, source: Any, **how: bool) -> None:
    """``target.copy_(source)``, also where the target was made in inference mode."""
    import torch

    with torch.inference_mode(target.is_inference()), torch.no_grad():
        target.copy_(source, **how)


def _overlaps(tensor: Any) -> bool:
    strides = tensor.stride()
    return 0 in strides and any(n > 1 and stride == 0 for n, stride in zip(tensor.shape, strides))


# ---------------------------------------------------------------- DTensor


class Mesh:
    """Facts about a DeviceMesh that every DTensor needs, computed once."""

    __slots__ = ("boxes", "coordinate", "shape", "spans_world")

    def __init__(self, mesh: Any) -> None:
        import torch.distributed as dist

        coordinate = mesh.get_coordinate()
        self.shape: Numbers = tuple(mesh.shape)
        self.coordinate: Optional[Numbers] = None if coordinate is None else tuple(coordinate)
        # Only then are all that can list a box replicas of this DTensor: another mesh, of another
        # stage say, may hold a tensor of the same name with bytes of its own.
        self.spans_world: bool = dist.is_initialized() and mesh.size() == dist.get_world_size()
        self.boxes: dict[Any, list[tuple[Numbers, Numbers]]] = {}  # of strided placements


_meshes: dict[int, tuple[Any, Mesh]] = {}


def mesh_of(mesh: Any) -> Mesh:
    """The `Mesh` of a DeviceMesh, cached for as long as that lives."""
    key = id(mesh)
    known = _meshes.get(key)
    if known is not None and known[0]() is mesh:
        return known[1]
    ours = Mesh(mesh)
    _meshes[key] = (weakref.ref(mesh, lambda _: _meshes.pop(key, None)), ours)
    return ours


def _of_dtensor(name: str, value: Any, for_load: bool) -> Optional[Shards]:
    local = value._local_tensor
    if hasattr(local, "__create_chunk_list__" if for_load else "__create_write_items__"):
        return _of_protocol(name, value, for_load)
    spec = value._spec
    mesh = mesh_of(spec.mesh)
    shape = tuple(value.shape)
    replicated = check_placements(name, spec.placements, mesh, len(shape))
    flags = _flags(value, replicated and mesh.spans_world)
    if mesh.coordinate is None:
        return Shards(shape, value.dtype, [], flags)
    local = local_tensor(name, local)
    box = box_of(shape, spec.placements, mesh.shape, mesh.coordinate)
    if box is not None:
        offsets, lengths = box
        if tuple(local.shape) != lengths and not (local.numel() == 0 and prod(lengths) == 0):
            _refuse_shape(name, local, shape, spec, lengths)
        return Shards(shape, local.dtype, [Piece(offsets, lengths, local)], flags)
    boxes = _strided_boxes(name, shape, spec, mesh)
    lengths = _check_strided(name, local, shape, spec, boxes)
    return Shards(shape, local.dtype, _cut(local, boxes, lengths), flags)


def _refuse_shape(name: str, local: Any, shape: Numbers, spec: Any, lengths: Numbers) -> NoReturn:
    refuse(
        name,
        f"the local tensor has shape {list(local.shape)}, but the DTensor of shape {list(shape)} "
        f"with placements {tuple(spec.placements)} puts {list(lengths)} on this rank; if "
        "the shape is right, cut it like torch.chunk(), as distribute_tensor() does; else give "
        "DTensor.from_local() its shape= and stride=",
    )


_SHARD, _REPLICATE, _STRIDED = range(3)
_placements: dict[type, int] = {}


def check_placements(name: str, placements: Sequence[Any], mesh: Mesh, ndim: int) -> bool:
    """Whether other ranks of the mesh hold the same box.  Refuses placements without boxes."""
    replicated = False
    for size, placement in zip(mesh.shape, placements):
        kind = _placements.get(type(placement))
        if kind is None:
            kind = _placement_kind(name, placement)
        if kind == _REPLICATE:
            replicated = replicated or size > 1
        elif not -ndim <= placement.dim < ndim:
            refuse(name, f"placement {placement} of a tensor with {ndim} dimensions")
    return replicated


def _placement_kind(name: str, placement: Any) -> int:
    from torch.distributed.tensor.placement_types import Partial, Replicate, Shard, _StridedShard

    cls = type(placement)
    if isinstance(placement, Partial):
        refuse(name, f"{placement!r} placement: a DTensor with no value yet; redistribute it first")
    if issubclass(cls, _StridedShard):
        kind = _STRIDED
    elif cls is Shard:
        kind = _SHARD
    elif cls is Replicate:
        kind = _REPLICATE
    else:
        refuse(name, f"a DTensor with a placement that is not known here: {placement!r}")
    _placements[cls] = kind
    return kind


def box_of(
    shape: Numbers, placements: Sequence[Any], mesh_shape: Numbers, coordinate: Numbers
) -> Optional[tuple[Numbers, Numbers]]:
    """Offsets and lengths of the box at ``coordinate`` of a mesh; None with strided placements.

    The placements are applied from left to right, each cutting as torch.chunk() does.  An empty
    box lies at the end of the tensor.
    """
    offsets = [0] * len(shape)
    lengths = list(shape)
    for placement, count, place in zip(placements, mesh_shape, coordinate):
        kind = _placements[type(placement)]
        if kind == _REPLICATE:
            continue
        if kind == _STRIDED:
            return None
        dim = placement.dim
        length = lengths[dim]
        chunk = -(-length // count)
        start = min(chunk * place, length)
        lengths[dim] = min(chunk, length - start)
        offsets[dim] = offsets[dim] + start if lengths[dim] else shape[dim]
    return tuple(offsets), tuple(lengths)


# ---------------------------------------------------------------- strided placements

Runs = list[tuple[int, int]]  # (first, length) in the global tensor, in local order


def _add_run(runs: Runs, start: int, length: int) -> None:
    """Append a run, or lengthen the last one if the new run continues it."""
    if runs and sum(runs[-1]) == start:
        runs[-1] = runs[-1][0], runs[-1][1] + length
    else:
        runs.append((start, length))


def cut_runs(runs: Runs, first: int, length: int) -> Runs:
    """Elements ``first`` to ``first + length`` of ``runs``, counted locally."""
    out: Runs = []
    for start, count in runs:
        begin, end = max(first, 0), min(first + length, count)
        if begin < end:
            _add_run(out, start + begin, end - begin)
        first -= count
    return out


def strided_runs(runs: Runs, factor: int, count: int, place: int) -> Runs:
    """_StridedShard: cut into ``factor`` parts, each into ``count``; the ``place``-th of each."""
    size = sum(length for _, length in runs)
    part = -(-size // factor)
    out: Runs = []
    for i in range(factor):
        start = min(part * i, size)
        length = min(part, size - start)
        chunk = -(-length // count)
        begin = min(chunk * place, length)
        for run in cut_runs(runs, start + begin, min(chunk, length - begin)):
            _add_run(out, *run)
    return out


def runs_of(
    shape: Numbers, placements: Sequence[Any], mesh_shape: Numbers, coordinate: Numbers
) -> list[Runs]:
    """For each dimension, which elements of the global tensor are at ``coordinate``."""
    dims: list[Runs] = [[(0, length)] if length else [] for length in shape]
    for placement, count, place in zip(placements, mesh_shape, coordinate):
        kind = _placements[type(placement)]
        if kind == _REPLICATE:
            continue
        runs = dims[placement.dim]
        factor = int(placement.split_factor) if kind == _STRIDED else 1
        dims[placement.dim] = strided_runs(runs, factor, count, place)
    return dims


def _strided_boxes(
    name: str, shape: Numbers, spec: Any, mesh: Mesh
) -> list[tuple[Numbers, Numbers]]:
    key = (shape, tuple(spec.placements))
    boxes = mesh.boxes.get(key)
    if boxes is None:
        assert mesh.coordinate is not None
        dims = runs_of(shape, spec.placements, mesh.shape, mesh.coordinate)
        boxes = [((), ())]
        for runs, length in zip(dims, shape):
            boxes = [
                ((*offsets, start), (*lengths, count))
                for offsets, lengths in boxes
                for start, count in runs or [(length, 0)]
            ]
        _agree_with_torch(name, shape, spec, dims)
        if len(mesh.boxes) > 10_000:
            mesh.boxes.clear()
        mesh.boxes[key] = boxes
    return boxes


def _agree_with_torch(name: str, shape: Numbers, spec: Any, dims: list[Runs]) -> None:
    """Versions of torch differ in the meaning of _StridedShard: check against this one."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    lengths, offsets = compute_local_shape_and_global_offset(shape, spec.mesh, spec.placements)
    ours = [sum(count for _, count in runs) for runs in dims]
    first = [runs[0][0] if runs else length for runs, length in zip(dims, shape)]
    if list(lengths) != ours or (0 not in ours and list(offsets) != first):
        refuse(
            name,
            f"placements {tuple(spec.placements)} put {ours} at {first} on this rank, but "
            f"this version of torch says {list(lengths)} at {list(offsets)}",
        )


def _lengths_by_offset(boxes: list[tuple[Numbers, Numbers]], ndim: int) -> list[dict[int, int]]:
    """The lengths in each dimension, in the order of the boxes in the local tensor."""
    found: list[dict[int, int]] = [{} for _ in range(ndim)]
    for offsets, lengths in boxes:
        for dim, offset, length in zip(found, offsets, lengths):
            dim[offset] = length
    return found


def _check_strided(
    name: str, local: Any, shape: Numbers, spec: Any, boxes: list[tuple[Numbers, Numbers]]
) -> Numbers:
    """The lengths of the local tensor that ``boxes`` make up."""
    whole = tuple(sum(dim.values()) for dim in _lengths_by_offset(boxes, len(shape)))
    if tuple(local.shape) != whole and not (local.numel() == 0 and prod(whole) == 0):
        _refuse_shape(name, local, shape, spec, whole)
    return whole


def _cut(local: Any, boxes: list[tuple[Numbers, Numbers]], whole: Numbers) -> list[Piece]:
    """Views of ``local`` for ``boxes``, which it contains in the order of their offsets."""
    if len(boxes) == 1 or prod(whole) == 0:
        return [Piece(boxes[0][0], boxes[0][1], local)]
    places: list[dict[int, int]] = []  # offset -> place in the local tensor
    for dim in _lengths_by_offset(boxes, len(whole)):
        places.append(dict(zip(dim, itertools.accumulate(dim.values(), initial=0))))
    pieces = []
    for offsets, lengths in boxes:
        view = local
        for axis, (offset, length) in enumerate(zip(offsets, lengths)):
            view = view.narrow(axis, places[axis][offset], length)
        pieces.append(Piece(offsets, lengths, view))
    return pieces


# ---------------------------------------------------------------- other protocols


def is_checkpointable(value: Any) -> bool:
    """Whether it is torch's CheckpointableTensor (2.14): a local tensor that lists its shards."""
    return hasattr(value, "global_shape") and all(
        hasattr(value, key) for key in ("global_offsets", "local_offsets", "local_sizes")
    )


def _of_checkpointable(name: str, value: Any) -> Shards:
    """Boxes of ``local_sizes`` at ``global_offsets``, and their views at ``local_offsets``.

    A local tensor of fewer dimensions holds rows: the leading dimensions of the sizes merged.
    """
    local = local_tensor(name, value)
    shape = tuple(value.global_shape)
    pieces = []
    lists = (value.global_offsets, value.local_offsets, value.local_sizes)
    if len({len(numbers) for numbers in lists}) != 1:
        refuse(name, "global_offsets, local_offsets and local_sizes differ in length")
    for offsets, places, lengths in zip(*lists):
        offsets, lengths = tuple(offsets), tuple(lengths)
        _check_inside(name, offsets, lengths, shape)
        merged = len(lengths) - local.dim()
        if merged > 0:
            rows = prod(lengths[: merged + 1])
            _check_inside(name, tuple(places[:1]), (rows,), tuple(local.shape[:1]))
            view = local.narrow(0, places[0], rows).view(lengths)
        else:
            _check_inside(name, tuple(places), lengths, tuple(local.shape))
            view = local
            for dim, (place, length) in enumerate(zip(places, lengths)):
                view = view.narrow(dim, place, length)
        pieces.append(Piece(offsets, lengths, view))
    return Shards(shape, local.dtype, pieces, _flags(value))


def _check_inside(name: str, offsets: Numbers, lengths: Numbers, shape: Numbers) -> None:
    if not len(offsets) == len(lengths) == len(shape) or any(
        offset < 0 or length < 0 or offset + length > size
        for offset, length, size in zip(offsets, lengths, shape)
    ):
        refuse(name, f"a shard of {list(lengths)} at {list(offsets)} is not in {list(shape)}")


def _of_sharded_tensor(name: str, value: Any, sharded: type) -> Shards:
    """ShardedTensor; one that is the only shard of another (FSDP1 over another) is flattened."""
    shape = tuple(value.metadata().size)
    flags = TENSOR_REQUIRES_GRAD if value.metadata().tensor_properties.requires_grad else 0
    pieces = []
    for shard in value.local_shards():
        offsets, tensor = tuple(shard.metadata.shard_offsets), shard.tensor
        lengths = tuple(shard.metadata.shard_sizes)
        if isinstance(tensor, sharded):
            inner = tensor.local_shards()  # type: ignore[attr-defined]
            if len(inner) != 1:
                refuse(name, f"a ShardedTensor inside of another has {len(inner)} local shards")
            offsets = tuple(map(sum, zip(offsets, inner[0].metadata.shard_offsets)))
            lengths, tensor = tuple(inner[0].metadata.shard_sizes), inner[0].tensor
        local = local_tensor(name, tensor)
        if tuple(local.shape) != lengths and not (local.numel() == 0 and prod(lengths) == 0):
            refuse(name, f"a shard of {list(lengths)} has a tensor of {list(local.shape)}")
        pieces.append(Piece(offsets, lengths, local))
    dtype = pieces[0].tensor.dtype if pieces else value.metadata().tensor_properties.dtype
    return Shards(shape, dtype, pieces, flags)


def _of_protocol(name: str, value: Any, for_load: bool) -> Optional[Shards]:
    """An object with ``__create_write_items__`` (save) or ``__create_chunk_list__`` (load)."""
    import torch
    from torch.distributed.checkpoint.metadata import MetadataIndex
    from torch.distributed.checkpoint.planner import WriteItemType
    from torch.distributed.checkpoint.utils import find_tensor_shard

    boxes: list[tuple[Any, Numbers, Numbers]] = []
    flags = 0
    if for_load:
        shape = tuple(value.size())
        for i, chunk in enumerate(value.__create_chunk_list__()):
            index = MetadataIndex(name, chunk.offsets, i)
            boxes.append((index, tuple(chunk.offsets), tuple(chunk.sizes)))
    else:
        items = value.__create_write_items__(name, value)
        is_object = all(item.type == WriteItemType.BYTE_IO for item in items)
        if is_object and (items or not isinstance(value, torch.Tensor)):
            return None
        shape = tuple(items[0].tensor_data.size) if items else tuple(value.size())
        for item in items:
            if item.index.fqn != name or item.tensor_data is None:
                refuse(name, f"its __create_write_items__() made an item for '{item.index.fqn}'")
            chunk = item.tensor_data.chunk
            boxes.append((item.index, tuple(chunk.offsets), tuple(chunk.sizes)))
            flags = TENSOR_REQUIRES_GRAD if item.tensor_data.properties.requires_grad else 0
    if boxes and not isinstance(value, torch.Tensor):
        refuse(name, f"a {type(value).__qualname__} describes tensors, but is not a torch.Tensor")
    pieces = []
    for index, offsets, lengths in boxes:
        local = local_tensor(name, find_tensor_shard(value, index))
        if tuple(local.shape) != lengths:
            refuse(name, f"its shard {index} has shape {list(local.shape)}, not {list(lengths)}")
        pieces.append(Piece(offsets, lengths, local))
    return Shards(shape, pieces[0].tensor.dtype if pieces else value.dtype, pieces, flags)
