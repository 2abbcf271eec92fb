# SPDX-License-Identifier: BSD-3-Clause
"""The library's state dict of this rank: built once per layout, then only updated.

A training loop saves the same names, shapes and placements every time.  Addresses may move, and a
few small objects change.  `StateDict.update` finds out in one pass what changed.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Optional

from .._c import abi
from .._c.abi import ErrorInfo, Status
from .._c.calls import call, when_gone
from .._c.errors import check, make_error, refuse
from .._c.library import lib
from . import device as _device
from .collecting import no_collection
from .compared import sample
from .fence import fences
from .flatten import Index, Leaf
from .kept import Kept
from .objects import SCALARS, Refused, encode, value_of
from .shards import Piece, Shards, dtype_number, is_loadable, reach, shards_of

log = logging.getLogger("sidestep")

_PLAIN, _DTENSOR, _OTHER, _OBJECT = range(4)
_INT64 = 1 << 63
_NOTHING: Mapping[int, int] = MappingProxyType({})


class _Entry:
    """What is known about one leaf: enough to see whether another value has the same layout."""

    cls: Any  # the type of the value
    kind: int
    # tensors
    dtype: Any
    shape: Any  # shape of the local tensor; of other leaves, the global shape
    strides: Any
    device: Any
    away: bool  # not in host memory
    direct: bool  # on a device from which the library copies it as it is
    turn: Optional[int]  # turn of a device tensor to which only fenced steps write; else None
    complex: bool
    lazy: bool  # its elements differ from its memory: it is saved row-major
    reach: int  # bytes of its storage from its first element on
    at: int  # its last known address ...
    size: int  # ... and the bytes of its storage
    requires_grad: bool
    flags: int
    box: Any  # offsets and lengths of a DTensor's
    host_bytes: int  # of a contiguous tensor in host memory; else 0
    spec: Any  # of a DTensor
    local_cls: Any
    pieces: list[tuple[Any, ...]]
    # objects
    index: int
    object_kind: int
    data: bytes
    value: Any  # the object itself if it never changes

    def remember_tensor(self, value: Any, shards: Shards) -> None:
        """Record the layout of ``value``, whose shards are known."""
        import torch

        self.cls = type(value)
        self.kind = _OTHER
        if self.cls is torch.Tensor or self.cls is torch.nn.Parameter:
            if not _describes_itself(value):
                self.kind, self.box = _PLAIN, None
                self._remember_local(value, value)
                return
        elif self.cls is _dtensor_class() and len(shards.pieces) == 1 and value._spec.tensor_meta:
            self.local_cls = type(value._local_tensor)
            if self.local_cls is torch.Tensor or self.local_cls is torch.nn.Parameter:
                self.kind = _DTENSOR
                self.spec = value._spec
                self.box = shards.pieces[0].offsets, shards.pieces[0].lengths
                self._remember_local(value, value._local_tensor)
                return
        self.shape, self.dtype, self.flags = shards.shape, shards.dtype, shards.flags
        self.pieces = [_piece_layout(piece) for piece in shards.pieces]

    def _remember_local(self, value: Any, local: Any) -> None:
        self.dtype, self.shape, self.strides = local.dtype, local.shape, local.stride()
        self.device, self.requires_grad = local.device, value.requires_grad
        self.away, self.complex = _is_away(local), local.dtype.is_complex
        self.lazy, self.reach = _is_lazy(local), reach(local)
        self.at = self.size = 0
        self.direct = self.away and not self.lazy and _device.is_direct(local)
        in_place = local.is_contiguous() and not self.away and not self.lazy
        self.host_bytes = local.numel() * local.itemsize if in_place else 0

    def lacks_memory(self, local: Any) -> bool:
        """Whether its storage was made too small for it."""
        if self.reach == 0:
            return False
        first = local.storage_offset() * local.itemsize
        return bool(local.untyped_storage().nbytes() < first + self.reach)

    def same_spec(self, spec: Any) -> bool:
        """Whether a DTensor with ``spec`` has the same boxes as the known one."""
        known = self.spec
        if (
            (spec.mesh is known.mesh or spec.mesh == known.mesh)
            and spec.placements == known.placements
            # To torches before 2.10, Shard and _StridedShard of one dimension are equal.
            and [*map(type, spec.placements)] == [*map(type, known.placements)]
            and spec.tensor_meta is not None
            and spec.tensor_meta.shape == known.tensor_meta.shape
        ):
            self.spec = spec
            return True
        return False

    def same_shards(self, shards: Shards) -> bool:
        """The same for a tensor of any other kind."""
        return (
            self.shape == shards.shape
            and self.dtype == shards.dtype
            and self.flags == shards.flags
            and self.pieces == [_piece_layout(piece) for piece in shards.pieces]
        )


def _piece_layout(piece: Piece) -> tuple[Any, ...]:
    tensor = piece.tensor
    strides, device = tensor.stride(), tensor.device
    return piece.offsets, piece.lengths, tensor.dtype, strides, device, _is_lazy(tensor)


def _describes_itself(tensor: Any) -> bool:
    """Whether a plain tensor may be torch's CheckpointableTensor."""
    attributes = tensor.__dict__
    return bool(attributes) and "global_shape" in attributes


def _dtensor_class() -> Any:
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)


def _is_away(tensor: Any) -> bool:
    return not tensor.is_cpu


def _is_lazy(tensor: Any) -> bool:
    return bool(tensor.is_conj() or tensor.is_neg())


def _strides(tensor: Any, address: int) -> Any:
    """The strides in memory; None: row-major."""
    if not address or tensor.is_contiguous() or _is_lazy(tensor):
        return None
    return None if _is_away(tensor) and not _device.is_direct(tensor) else tensor.stride()


class _Memory:
    """Addresses of shards in the order of adding, and their storages, followed by other objects
    that must live as long."""

    __slots__ = ("_away", "_late", "addresses", "devices", "late", "storages")

    def __init__(self, late: Mapping[int, int] = _NOTHING) -> None:
        self.addresses: list[int] = []
        self.storages: list[Any] = []
        self.devices: set[int] = set()  # where the library reads by itself
        self.late = False  # a tensor is
        self._late = late
        self._away: list[tuple[int, Any]] = []

    def add(self, tensor: Any) -> Optional[int]:
        """Add a tensor on any device, or one whose elements differ from its memory.  Returns its
        turn if it may be copied late."""
        if _is_away(tensor) and not _device.is_direct(tensor):
            self._away.append((len(self.addresses), tensor))
            self.addresses.append(0)
            self.storages.append(None)  # its own is not read
            return None
        if _is_lazy(tensor):
            tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        storage = tensor.untyped_storage()
        self.addresses.append(tensor.data_ptr())
        self.storages.append(storage)
        return self.turn_of(storage, tensor.device) if _is_away(tensor) else None

    def turn_of(self, storage: Any, device: Any) -> Optional[int]:
        """The turn of a tensor that the library reads on its device, if it may be copied late."""
        self.devices.add(device.index)
        turn = self._late.get(storage.data_ptr())
        self.late = self.late or turn is not None
        return turn

    def fetch(self) -> None:
        """Copy tensors on devices into host memory."""
        if self._away:
            copies, lease = _device.buffers.copy([tensor for _, tensor in self._away])
            self.storages.append(lease)
            for (place, _), copy in zip(self._away, copies):
                self.addresses[place] = copy.data_ptr()


class StateDict:
    """A ``sidestep_state_dict`` and the Python side of it.

    pointer   the handle, as a c_void_p
    storages  what must live until the save is RELEASED, or the load has returned, and
    addresses of the shards.  update() puts other lists in their place and never changes the old
              ones.
    names     of the leaves
    devices   CUDA devices that tensors lie on, which the library copies from and to
    late      some of them may be copied late: `fence`
    home      the cache that it is from
    refused   the objects that were encoded last, and that a load will refuse

    ``for_load``: tensors are written into, so each must be host memory that is (`is_writable`);
    objects are asked for, not given.  Raises Error with the name of a leaf that cannot be taken.
    """

    def __init__(
        self, leaves: Sequence[Leaf], *, for_load: bool = False, late: Mapping[int, int] = _NOTHING
    ) -> None:
        self.home: Optional[StateCache] = None
        self.storages: list[Any] = []
        self.addresses: list[int] = []
        self.devices: set[int] = set()
        self.late = False
        self.for_load = for_load
        self.refused: list[Refused] = []
        self.names = [leaf.name for leaf in leaves]
        self._paths = [leaf.path for leaf in leaves]
        self._entries: list[_Entry] = []
        self._handle = ctypes.c_void_p()
        self._usable = False
        call(lib().sidestep_state_dict_new, self._handle)
        when_gone(self, _free, self._handle, os.getpid())
        with no_collection():
            _Builder(self._handle, for_load, self.refused).build(leaves, self, late)
        self._usable = True

    @property
    def pointer(self) -> ctypes.c_void_p:
        if not self._usable:
            raise RuntimeError("the addresses of this state dict are not valid any more")
        return self._handle

    def take_storages(self) -> Kept:
        """Hand over the storages, which must live until RELEASED.  update() must follow."""
        kept = Kept(self._shard_names, self.addresses, self.storages)
        self.storages = []
        self._usable = False
        return kept

    def _shard_names(self) -> Iterator[str]:
        """The name of each shard's tensor, in order of adding."""
        for name, entry in zip(self.names, self._entries):
            if entry.kind != _OBJECT:
                yield from [name] * (len(entry.pieces) if entry.kind == _OTHER else 1)

    def samples(self, most: int) -> Iterator[tuple[str, bytes, list[bytes], bytes]]:
        """(name, box, data, mesh) of what other ranks may have, too: objects, plain tensors and
        DTensors.  ``data``: of tensors, at most ``most`` bytes at each end."""
        at = 0
        for name, entry in zip(self.names, self._entries):
            if entry.kind == _OBJECT:
                yield name, b"", [entry.data[:most], entry.data[-most:]], b""
                continue
            if entry.kind in (_PLAIN, _DTENSOR) and entry.host_bytes:
                data = sample(self.addresses[at], entry.host_bytes, most)
                mesh = entry.spec.mesh.mesh.tolist() if entry.kind == _DTENSOR else ""
                yield name, repr(entry.box).encode(), data, repr(mesh).encode()
            at += len(entry.pieces) if entry.kind == _OTHER else 1

    def stored(self, name: str) -> Optional[bytes]:
        """After a load: the stored bytes of an object, for `_objects.decode`."""
        length = ctypes.c_size_t()
        data = lib().sidestep_state_dict_bytes(self._handle, name.encode("utf-8"), length)
        return None if data is None else ctypes.string_at(data, length.value)

    def update(self, leaves: Sequence[Leaf], late: Mapping[int, int] = _NOTHING) -> bool:
        """Take other values of the same layout.  False, and no change, if the layout differs.

        Names, paths, shapes, dtypes, strides, placements, devices and flags make up the layout.
        Raises Error if the library fails half-way; then the state cannot be used any more.
        """
        if self.for_load or len(leaves) != len(self._entries):
            return False
        if [leaf.name for leaf in leaves] != self.names:
            return False
        if [leaf.path for leaf in leaves] != self._paths:
            return False
        memory = _Memory(late)
        self.refused = []
        try:
            objects = self._match(leaves, memory)
        except RuntimeError:  # sparse and nested tensors have no strides
            objects = None
        if objects is None:
            return False
        self._usable = False
        self._apply(memory, objects)
        self._usable = True
        return True

    def _match(
        self, leaves: Sequence[Leaf], memory: _Memory
    ) -> Optional[list[tuple[_Entry, Any, int, bytes]]]:
        """Collect addresses and the objects that changed; None if the layout differs."""
        changed: list[tuple[_Entry, Any, int, bytes]] = []
        address, keep = memory.addresses.append, memory.storages.append
        for leaf, entry in zip(leaves, self._entries):
            value, kind = leaf.value, entry.kind
            if kind == _PLAIN:
                if type(value) is not entry.cls or _describes_itself(value):
                    return None
                local = value
            elif kind == _DTENSOR:
                if type(value) is not entry.cls:
                    return None
                spec = value._spec
                if spec is not entry.spec and not entry.same_spec(spec):
                    return None
                local = value._local_tensor
                if type(local) is not entry.local_cls:
                    return None
            elif kind == _OBJECT:
                if value is not entry.value or type(value) not in SCALARS:
                    if type(value) not in SCALARS and shards_of(leaf.name, value) is not None:
                        return None
                    object_kind, data = encode(leaf.name, value, self.refused)
                    if data != entry.data or object_kind != entry.object_kind:
                        changed.append((entry, value, object_kind, data))
                continue
            else:
                shards = shards_of(leaf.name, value)
                if shards is None or not entry.same_shards(shards):
                    return None
                for piece in shards.pieces:
                    if memory.add(piece.tensor) != entry.turn:
                        return None
                continue
            if (
                local.dtype is not entry.dtype
                or local.shape != entry.shape
                or local.device != entry.device
                or local.stride() != entry.strides
                or value.requires_grad is not entry.requires_grad
                or (local.is_neg() or (entry.complex and local.is_conj())) is not entry.lazy
            ):
                return None
            if (entry.away and not entry.direct) or entry.lazy:
                if entry.lacks_memory(local) or memory.add(local) != entry.turn:
                    return None
                continue
            storage = local.untyped_storage()
            at, size = local.data_ptr(), storage.nbytes()
            if at != entry.at or size != entry.size:
                if entry.lacks_memory(local):
                    return None
                entry.at, entry.size = at, size
            if entry.direct and memory.turn_of(storage, entry.device) != entry.turn:
                return None
            address(at)
            keep(storage)
        return changed

    def _apply(self, memory: _Memory, changed: list[tuple[_Entry, Any, int, bytes]]) -> None:
        memory.fetch()
        addresses = (ctypes.c_void_p * len(memory.addresses))(*memory.addresses)
        call(lib().sidestep_state_dict_set_data, self._handle, addresses, len(addresses))
        if changed:
            objects = (abi.Object * len(changed))()
            for place, (entry, _, kind, data) in zip(objects, changed):
                place.index, place.bytes, place.length = entry.index, data, len(data)
                place.kind = kind
            call(lib().sidestep_state_dict_set_objects, self._handle, objects, len(objects))
        for entry, value, kind, data in changed:
            entry.object_kind, entry.data = kind, data
            entry.value = value if type(value) in SCALARS else entry
        self.storages, self.addresses = memory.storages, memory.addresses
        self.devices, self.late = memory.devices, memory.late


def _free(handle: ctypes.c_void_p, pid: int) -> None:
    if os.getpid() == pid:  # else it is the parent's
        lib().sidestep_state_dict_free(handle)


class _Builder:
    """Adds leaves to a new state dict, with one call of the library for each shard or object."""

    def __init__(self, handle: ctypes.c_void_p, for_load: bool, refused: list[Refused]) -> None:
        self.handle = handle
        self.refused = refused
        self.for_load = for_load
        self.lib = lib()
        self.err = ErrorInfo()
        self.tensor = abi.Tensor()
        self.arrays: list[Any] = [(ctypes.c_int64 * abi.MAX_NDIM)() for _ in range(4)]
        self.path = (abi.PathItem * abi.MAX_PATH_ITEMS)()
        pointer = ctypes.POINTER(ctypes.c_int64)
        self.pointers = [ctypes.cast(array, pointer) for array in self.arrays]

    def build(self, leaves: Sequence[Leaf], state: StateDict, late: Mapping[int, int]) -> None:
        """Look at all leaves, copy from devices, then add all in order."""
        memory = _Memory(late)
        found: list[Optional[Shards]] = []
        turns: list[Optional[int]] = []
        for leaf in leaves:
            cls = type(leaf.value)
            shards = (
                None if cls in SCALARS else shards_of(leaf.name, leaf.value, for_load=self.for_load)
            )
            found.append(shards)
            for piece in shards.pieces if shards is not None else ():
                if self.for_load and not is_loadable(piece.tensor):
                    why = "a load cannot write into this memory directly"
                    refuse(leaf.name, why, Status.EINVAL)
                turns.append(memory.add(piece.tensor))
        memory.fetch()
        at, objects = 0, 0
        for leaf, shards in zip(leaves, found):
            entry = _Entry()
            name, length = self.set_path(leaf)
            if shards is None:
                entry.index, objects = objects, objects + 1
                self.add_object(leaf, name, length, entry)
            else:
                end = at + len(shards.pieces)
                # All or none of a tensor: update() could not tell its pieces apart.
                one = set(turns[at:end])
                entry.turn = one.pop() if len(one) == 1 else None
                self.add_tensor(
                    leaf, name, length, shards, memory.addresses[at:end], turn=entry.turn
                )
                at = end
                if not self.for_load:  # a load asks once
                    entry.remember_tensor(leaf.value, shards)
            state._entries.append(entry)
        state.storages, state.addresses = memory.storages, memory.addresses
        state.devices, state.late = memory.devices, memory.late

    def set_path(self, leaf: Leaf) -> tuple[bytes, int]:
        """Fill ``path``.  Returns the name and the number of items for the library."""
        if not leaf.name:
            raise make_error("the state dict has the key '': a value needs a name; rename the key")
        name = _utf8(leaf.name, leaf.name)
        path = leaf.path
        if len(path) == 1 and type(path[0]) is not int:
            return name, 0
        if len(path) > abi.MAX_PATH_ITEMS:
            raise make_error(f"'{leaf.name[:200]}' is nested deeper than {abi.MAX_PATH_ITEMS}")
        for item, key in zip(self.path, path):
            cls = type(key)
            if cls is Index:
                item.key, item.index, item.flags = None, key, 0
            elif cls is int and -_INT64 <= key < _INT64:
                item.key, item.index, item.flags = None, key, abi.PATH_INT_KEY
            else:
                item.key, item.index, item.flags = _utf8(leaf.name, str(key)), 0, 0
        return name, len(path)

    def add_tensor(
        self,
        leaf: Leaf,
        name: bytes,
        path_length: int,
        shards: Shards,
        addresses: list[int],
        *,
        turn: Optional[int],
    ) -> None:
        """One call for each piece."""
        tensor, arrays, pointers = self.tensor, self.arrays, self.pointers
        ndim = len(shards.shape)
        if ndim > abi.MAX_NDIM:
            raise make_error(f"'{leaf.name}': {ndim} dimensions; the limit is {abi.MAX_NDIM}")
        tensor.name, tensor.ndim = name, ndim
        tensor.dtype = dtype_number(leaf.name, shards.dtype)
        tensor.flags = shards.flags | (abi.TENSOR_FENCED if turn is not None else 0)
        tensor.turn = turn or 0
        tensor.path_length, tensor.path = path_length, self.path
        arrays[0][:ndim] = shards.shape
        tensor.shape = pointers[0]
        for piece, address in zip(shards.pieces, addresses):
            if piece.tensor.dtype != shards.dtype:
                both = f"{shards.dtype} and {piece.tensor.dtype}"
                refuse(leaf.name, f"its shards have dtypes {both}; make them one")
            arrays[1][:ndim] = piece.offsets
            arrays[2][:ndim] = piece.lengths
            tensor.offsets, tensor.lengths = pointers[1], pointers[2]
            strides = _strides(piece.tensor, address)
            if strides is not None:
                arrays[3][:ndim] = strides
            tensor.strides = pointers[3] if strides is not None else None
            tensor.data = address
            status = self.lib.sidestep_state_dict_add_tensor(self.handle, tensor, self.err)
            if status:
                check(status, self.err)

    def add_object(self, leaf: Leaf, name: bytes, path_length: int, entry: _Entry) -> None:
        """A value, stored bytes, or (to be loaded) nothing."""
        entry.kind, entry.cls = _OBJECT, type(leaf.value)
        path = self.path if path_length else None
        value: Optional[ctypes.c_void_p] = None
        if not self.for_load:
            entry.object_kind, entry.data = encode(leaf.name, leaf.value, self.refused)
            entry.value = leaf.value if entry.cls in SCALARS else entry
            if entry.object_kind == abi.OBJECT_STORED:
                add = self.lib.sidestep_state_dict_add_bytes
                call(add, self.handle, name, path, path_length, entry.data, len(entry.data))
                return
            value = value_of(entry.data)
        try:
            add = self.lib.sidestep_state_dict_add_value
            call(add, self.handle, name, path, path_length, value)
        except BaseException:
            if value is not None:  # it is taken on success
                self.lib.sidestep_value_free(value)
            raise


def _utf8(name: str, text: str) -> bytes:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data = b"\0"
    if b"\0" in data:
        raise make_error(f"{name!r}: the key {text!r} holds what a name cannot: NUL or a surrogate")
    return data


class StateCache:
    """The states of the last layouts."""

    LIMIT = 4

    def __init__(self) -> None:
        self._states: list[StateDict] = []

    def get(self, leaves: Sequence[Leaf], *, strict_objects: bool = False) -> StateDict:
        """A state of ``leaves``: a known one with new contents, or a new one.

        Warns of objects that a load will refuse; ``strict_objects`` makes them an Error (EUNSAFE).
        Valid until the next call.  Raises the errors of `StateDict`.
        """
        with no_collection():
            state = self._known_or_new(leaves)
        state.home = self
        if state.refused:
            _tell_of_refused(state.refused, strict_objects)
        return state

    def _known_or_new(self, leaves: Sequence[Leaf]) -> StateDict:
        late = fences.late_storages()
        for state in self._states:
            try:
                same = state.update(leaves, late)
            except BaseException:
                if not state._usable:
                    self._states.remove(state)
                raise
            if same:
                break
        else:
            state = StateDict(leaves, late=late)
        self._states = [state] + [other for other in self._states if other is not state]
        del self._states[self.LIMIT :]
        return state


_told: set[tuple[str, ...]] = set()  # classes of which was warned


def _tell_of_refused(refused: Sequence[Refused], strict: bool) -> None:
    """Warn once for each combination of classes, or raise."""
    if strict:
        raise refused[0].error
    for first in refused:
        key = first.classes or (first.name,)
        if key in _told:
            continue
        _told.add(key)
        more = [repr(other.name) for other in refused if other.classes == first.classes][1:]
        also = f", and {', '.join(more[:8])}" if more and first.classes else ""
        log.warning("saved, but loads will refuse it%s: %s", also, first.error.message)
