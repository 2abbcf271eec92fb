# SPDX-License-Identifier: BSD-3-Clause
"""The tensors that a load fills: their memory, which may be shared, and copies to it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from .._c.abi import Status
from .._c.errors import make_error, refuse
from .flatten import Leaf, set_leaf
from .shards import copy_into, reach, shards_of

if TYPE_CHECKING:
    import torch


class Target(NamedTuple):
    """A local tensor, and the tensor that the library fills: the same one, or one to copy from."""

    name: str
    tensor: Any
    source: Any


def dtype_of(name: str, text: Optional[str]) -> torch.dtype:
    """torch's dtype of this name.  `Error` (EUNSUPPORTED) if this torch has none."""
    import torch

    dtype = getattr(torch, text or "", None)
    if not isinstance(dtype, torch.dtype):
        refuse(name, f"saved with dtype {text}, which torch {torch.__version__} does not have")
    return dtype


def copy_to_targets(targets: list[Target]) -> None:
    """Copy the loaded values to their tensors, and tell autograd that these have changed."""
    import torch

    devices = set()
    changed = [target.tensor for target in targets if target.source is target.tensor]
    filled = {_place(tensor) for tensor in changed}
    overlapping = _overlapping(targets) if len(changed) < len(targets) else []
    saved = [t.tensor.clone() if t.source is t.tensor else t.source for t in overlapping]
    with torch.no_grad():
        for target in targets:
            if target.source is target.tensor:
                continue
            place = _place(target.tensor)
            if place in filled:  # tied: the library has compared those that it fills
                _check_tied(target.name, target.tensor, target.source)
                continue
            filled.add(place)
            _copy(target.name, target.tensor, target.source)
            if target.tensor.device.type != "cpu":
                devices.add(target.tensor.device)
        for target, source in zip(overlapping, saved):
            _check_tied(target.name, target.tensor, source)
    _bump_versions(changed)
    for device in devices:
        torch.get_device_module(device).synchronize(device)


def _copy(name: str, target: torch.Tensor, source: torch.Tensor) -> None:
    """``target.copy_(source)``, also where both are expanded tensors."""
    strides = target.stride()
    for dim, length in enumerate(target.shape):
        if strides[dim] == 0 and length > 1:
            first = source.narrow(dim, 0, 1)
            if not _same_bytes(first.expand_as(source), source):
                why = (
                    "elements of the target share memory (an expanded tensor), but the saved ones "
                    "differ; load into a .clone() of it"
                )
                refuse(name, why, Status.EMISMATCH)
            target, source = target.narrow(dim, 0, 1), first
    copy_into(target, source, non_blocking=True)


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """A key for memory: equal for two tensors with the same elements in the same memory."""
    if not tensor.numel():
        return (id(tensor),)
    size, strides = tensor.shape, tensor.stride()
    return tensor.device, tensor.data_ptr(), size, strides, tensor.is_conj(), tensor.is_neg()


def _overlapping(targets: list[Target]) -> list[Target]:
    """Targets in host memory that may share memory with another one.

    Without those that the library fills itself: it has compared them.
    """
    host = [target for target in targets if target.tensor.device.type == "cpu"]
    found: list[Target] = []
    group: list[Target] = []  # each begins before the end of the previous ones
    end = 0
    for target in sorted(host, key=lambda target: target.tensor.data_ptr()):
        begin = target.tensor.data_ptr()
        if begin >= end:
            found += group if _may_differ(group) else []
            group = []
        group.append(target)
        end = max(end, begin + reach(target.tensor))
    return found + group if _may_differ(group) else found


def _may_differ(group: list[Target]) -> bool:
    copied = any(target.source is not target.tensor for target in group)
    return copied and len({_place(target.tensor) for target in group}) > 1


def _check_tied(name: str, target: torch.Tensor, source: torch.Tensor) -> None:
    """``target`` was filled under another name: raise an Error if this name has another value."""
    wanted = source.to(target.dtype).to(target.device)
    if not _same_bytes(target.resolve_conj().resolve_neg(), wanted):
        raise make_error(
            f"'{name}' shares memory with another tensor of the state, and what was saved of the "
            "two differs; load into tensors of their own",
            status=Status.EMISMATCH,
            tensor=name,
        )


def _same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    # Not view(-1), which keeps the stride of a single element.
    flat = [tensor.contiguous().as_strided((tensor.numel(),), (1,)) for tensor in (a, b)]
    return bool(torch.equal(flat[0].view(torch.uint8), flat[1].view(torch.uint8)))


def _bump_versions(tensors: list[torch.Tensor]) -> None:
    """Tell autograd that ``tensors`` have changed: a backward() with old values then fails."""
    try:
        from torch.autograd.graph import increment_version
    except ImportError:  # an older torch
        return
    for tensor in tensors:
        if not tensor.is_inference():
            increment_version(tensor)


# ---------------------------------------------------------------- shared memory, meta tensors


def memory_of(leaf: Leaf) -> Optional[tuple[Any, ...]]:
    """A key for the memory of a whole tensor on this rank, also of an empty one and on the device
    "meta"; None: no tensor."""
    shards = shards_of(leaf.name, leaf.value, for_load=True)
    if shards is None:
        return None
    pieces = [(piece.offsets, piece.lengths, *_in_storage(piece.tensor)) for piece in shards.pieces]
    return (tuple(shards.shape), *pieces)


def _in_storage(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The storage of a tensor, and its place in there."""
    place = tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
    return tensor.untyped_storage()._cdata, *place, tensor.is_conj(), tensor.is_neg()


def materialize(state: MutableMapping[Any, Any], leaves: list[Leaf]) -> None:
    """Give memory to the meta tensors in ``state`` and in ``leaves``."""
    import torch

    given: dict[Any, Any] = {}  # tied tensors stay tied
    for leaf in leaves:
        value = leaf.value
        if isinstance(value, torch.Tensor) and value.device.type == "meta":
            leaf.value = _with_memory(leaf.name, value, given)
            set_leaf(state, leaf.path, leaf.value)


def materialized(name: str, value: torch.Tensor) -> torch.Tensor:
    """``value``; or a tensor like it with memory if it is a meta tensor."""
    return _with_memory(name, value, {}) if value.device.type == "meta" else value


def _with_memory(name: str, value: torch.Tensor, given: dict[Any, Any]) -> torch.Tensor:
    """A tensor with memory for a meta tensor; ``given``: those of other meta tensors."""
    from torch.distributed._shard.sharded_tensor.api import ShardedTensor
    from torch.distributed.tensor import DTensor

    if isinstance(value, ShardedTensor):
        refuse(name, f"Found unsupported type {type(value)} for meta device loading.")
    local = value.to_local() if isinstance(value, DTensor) else value
    memory = value.size(), _in_storage(local)
    if memory not in given:
        given[memory] = _like(value, local), value  # which keeps its storage, and so its key
    made: torch.Tensor = given[memory][0]
    return made


def _like(value: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """A tensor like ``value``, whose local tensor is ``local``, with memory on a device."""
    import torch
    from torch.distributed.tensor import DTensor

    if not isinstance(value, DTensor):
        return torch.empty_like(value, device=_default_device(None))
    device = _default_device(value.device_mesh.device_type)
    return DTensor.from_local(
        torch.empty_like(local, device=device),
        device_mesh=value.device_mesh,
        placements=value.placements,
        shape=value.size(),
        stride=value.stride(),
    )


def _default_device(kind: Optional[str]) -> torch.device:
    """Where torch puts a meta tensor: the device of the default process group, or the host."""
    import warnings

    import torch
    import torch.distributed as dist

    if kind is None and dist.is_available() and dist.is_initialized():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = dist.distributed_c10d._get_pg_default_device().type
    if kind is None or kind == "cpu":
        return torch.device("cpu")
    return torch.device(kind, torch.get_device_module(kind).current_device())
