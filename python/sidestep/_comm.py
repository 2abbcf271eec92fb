# SPDX-License-Identifier: BSD-3-Clause
"""The library's collectives (struct sidestep_comm) over torch.distributed, on host memory alone.

The agreement of a save must not wait for a device, so it goes over the CPU backend of a process
group (`GroupComm`), or, where there is none (NCCL alone), over the key-value store of the group
(`StoreComm`).  Both are driven by the thread that calls the library and by no other; calls of the
store itself are made on a thread of `_bounded_store.py`.
"""

from __future__ import annotations

import array
import ctypes
import datetime
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Optional, Union

from ._comm_base import AgreementError, Comm

__all__ = ["Comm", "GroupComm", "StoreComm", "comm_of"]

SLICE = datetime.timedelta(milliseconds=200)  # one slice of a wait; in between, signal handlers run
GATHER_BYTES = 64 << 20  # of all ranks together, in one round of a gather or scatter
STORE_BYTES = 1 << 20  # of one value; TCPStore takes 8 MiB at most

# gloo's threads let go of the tensors of a collective a moment after it has ended.  If that is the
# last reference while the interpreter ends, torch aborts the process.  So the last ones stay, and
# this list outlives the interpreter.
_last_tensors: deque[Any] = deque(maxlen=8)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_last_tensors))
_LAST_BYTES = 1 << 20  # size of a tensor that stays

_SIGN = 1 << 63


# ---------------------------------------------------------------- over a CPU backend


class GroupComm(Comm):
    """Talks over the CPU backend of a process group (usually gloo), with CPU tensors of its own.

    These tensors never share memory with the library: after a collective was broken off, the
    backend may still write to its tensor.
    """

    name = "the group's CPU backend"

    def __init__(
        self, group: Any, generation: Union[int, str] = 0, timeout: Optional[float] = None
    ) -> None:
        self._group = weakref.ref(group)
        opens = _opener(self._group, generation)
        super().__init__(group.rank(), group.size(), timeout, opens)

    def _pg(self) -> Any:
        return _alive(self._group)

    def _options(self, kind: str, **fields: Any) -> Any:
        import torch.distributed as dist

        options = getattr(dist, kind)()
        # Our deadline comes first: the backend's own breaks all connections of the group.
        options.timeout = datetime.timedelta(seconds=self.timeout + 60)
        for name, value in fields.items():
            setattr(options, name, value)
        return options

    def _finish(self, work: Any, *tensors: Any) -> None:
        """Wait in slices for ``work``, which uses ``tensors``."""
        _last_tensors.extend(tensor for tensor in tensors if tensor.nbytes <= _LAST_BYTES)
        while True:
            try:
                work.wait(SLICE)
                return
            except RuntimeError:
                if work.is_completed():
                    work.wait()  # its own exception; none if it ended a moment ago
                    return
            self._pulse()

    def _max(self, numbers: list[int]) -> list[int]:
        import torch
        import torch.distributed as dist

        # gloo and others compare 64-bit numbers as signed ones.
        words = array.array("q", [number - _SIGN for number in numbers])
        options = self._options("AllreduceOptions", reduceOp=dist.ReduceOp.MAX)
        tensor = torch.frombuffer(words, dtype=torch.int64)
        self._finish(self._pg().allreduce([tensor], options), tensor)
        return [word + _SIGN for word in words]

    def _all_reduce_max(self, values: Any, count: int) -> None:
        for i, number in enumerate(self._max(values[:count])):
            values[i] = number

    def _broadcast(self, buffer: int, length: int, root: int) -> None:
        options = self._options("BroadcastOptions", rootRank=root, rootTensor=0)
        for at in range(0, length, GATHER_BYTES):
            piece = bytearray(min(GATHER_BYTES, length - at))
            if self.rank == root:
                piece[:] = ctypes.string_at(buffer + at, len(piece))
            tensor = _tensor(piece)
            self._finish(self._pg().broadcast([tensor], options), tensor)
            if self.rank != root:
                _put(buffer + at, piece)

    def _turns(self, length: int) -> Iterator[tuple[int, int]]:
        """(offset, bytes) of the pieces in which the longest part of any rank except 0 is sent."""
        (longest,) = self._max([0 if self.rank == 0 else length])
        step = max(65536, GATHER_BYTES // self.size)
        for at in range(0, longest, step):
            yield at, min(step, longest - at)

    def _gather(self, send: int, length: int, into: int, lengths: Any) -> None:
        options = self._options("GatherOptions", rootRank=0)
        starts = _starts(lengths, self.size) if self.rank == 0 else []
        if self.rank == 0:
            ctypes.memmove(into, send, length)
        for at, step in self._turns(length):
            mine = bytearray(step)
            if self.rank != 0 and at < length:
                part = ctypes.string_at(send + at, min(step, length - at))
                mine[: len(part)] = part
            theirs = [bytearray(step) for _ in starts]
            tensors = [[_tensor(part) for part in theirs]] if theirs else []
            self._finish(self._pg().gather(tensors, [_tensor(mine)], options))
            for rank in range(1, len(starts)):
                size = min(step, max(0, lengths[rank] - at))
                _put(into + starts[rank] + at, theirs[rank], size)
        self._max([0])  # all learn whether everybody has come this far

    def _scatter(self, send: int, lengths: Any, into: int, length: int) -> None:
        options = self._options("ScatterOptions", rootRank=0)
        starts = _starts(lengths, self.size) if self.rank == 0 else []
        if self.rank == 0:
            ctypes.memmove(into, send, length)
        for at, step in self._turns(length):
            mine = bytearray(step)
            parts = [bytearray(step) for _ in starts]
            for rank in range(1, len(starts)):
                size = min(step, max(0, lengths[rank] - at))
                parts[rank][:size] = ctypes.string_at(send + starts[rank] + at, size)
            tensors = [[_tensor(part) for part in parts]] if parts else []
            self._finish(self._pg().scatter([_tensor(mine)], tensors, options))
            if self.rank != 0 and at < length:
                _put(into + at, mine, min(step, length - at))
        self._max([0])


def _starts(lengths: Any, size: int) -> list[int]:
    """The offset of the part of each rank."""
    starts = [0]
    for rank in range(size - 1):
        starts.append(starts[-1] + lengths[rank])
    return starts


def _tensor(piece: bytearray) -> Any:
    """uint8 [len(piece)], sharing the memory of ``piece``."""
    import torch

    return torch.frombuffer(piece, dtype=torch.uint8)


def _put(address: int, piece: bytearray, size: Optional[int] = None) -> None:
    size = len(piece) if size is None else size
    if size > 0:
        ctypes.memmove(address, (ctypes.c_char * len(piece)).from_buffer(piece), size)


# ---------------------------------------------------------------- over a key-value store


class StoreComm(Comm):
    """Talks over a key-value store alone (TCPStore, FileStore, HashStore).  Slower, but it never
    disturbs a device or the collectives of the program.

    All data passes through rank 0.  No key is used twice.  A key with one reader is deleted by that
    reader.  A key with many readers is deleted by its writer, once a later collective has shown
    that all have read it.

    ``store`` may have other users: all keys begin with ``prefix``.
    """

    name = "a key-value store"

    def __init__(
        self, store: Any, rank: int, size: int, prefix: str, timeout_s: Optional[float] = None
    ) -> None:
        super().__init__(rank, size, timeout_s, lambda: _prefixed(prefix, store))
        self._old_keys: list[str] = []

    # -- values of any size under a key

    def _set(self, key: str, value: bytes) -> list[str]:
        """Publish a value.  Returns the keys to be deleted later."""
        store = self._bounded_store()
        names = [key]
        for i, at in enumerate(range(STORE_BYTES, len(value), STORE_BYTES), 1):
            names.append(f"{key}/{i}")
            store.set(names[-1], value[at : at + STORE_BYTES])
        store.set(key, len(value).to_bytes(8, "little") + value[:STORE_BYTES])
        return names

    def _get(self, key: str, *, delete: bool = False) -> bytes:
        """Wait until the key is there."""
        store = self._bounded_store()
        pause = 0.0002
        while not store.check([key]):
            time.sleep(pause)
            pause = min(pause * 1.5, max(0.005, self.size * 5e-5))
            self._pulse()
        names = [key]
        value = bytes(store.get(key))
        length, parts = int.from_bytes(value[:8], "little"), [value[8:]]
        for i in range(1, -(-length // STORE_BYTES)):
            names.append(f"{key}/{i}")
            parts.append(bytes(store.get(names[-1])))
        if delete:
            self._delete(names)
        return b"".join(parts)

    def _delete(self, names: list[str]) -> None:
        store = self._bounded_store()
        try:
            for name in names:
                store.delete_key(name)
        except RuntimeError:
            pass  # a store that cannot delete

    # -- collectives

    def _max(self, numbers: list[int]) -> list[int]:
        op = self._step()
        words = array.array("Q", numbers)
        if self.rank == 0:
            for rank in range(1, self.size):
                theirs = array.array("Q", self._get(f"{op}/{rank}", delete=True))
                words = array.array("Q", map(max, words, theirs))
            names = self._set(op, words.tobytes())
        else:
            self._set(f"{op}/{self.rank}", words.tobytes())
            words = array.array("Q", self._get(op))
            names = []
        # All ranks have entered this collective, so all have read what came before.
        self._delete(self._old_keys)
        self._old_keys = names
        return list(words)

    def _step(self) -> str:
        """The key of the next exchange: equal on all ranks, because all make the same exchanges."""
        self._exchanges += 1
        return str(self._exchanges)

    _exchanges = 0

    def _all_reduce_max(self, values: Any, count: int) -> None:
        for i, number in enumerate(self._max(values[:count])):
            values[i] = number

    def _broadcast(self, buffer: int, length: int, root: int) -> None:
        op = self._step()
        if self.rank == root:
            self._old_keys += self._set(op, ctypes.string_at(buffer, length))
        else:
            _put(buffer, bytearray(self._get(op)), length)

    def _gather(self, send: int, length: int, into: int, lengths: Any) -> None:
        op = self._step()
        if self.rank != 0:
            self._set(f"{op}/{self.rank}", ctypes.string_at(send, length))
        else:
            ctypes.memmove(into, send, length)
            for rank, start in enumerate(_starts(lengths, self.size)):
                if rank != 0:
                    part = self._get(f"{op}/{rank}", delete=True)
                    _put(into + start, _of_size(part, lengths[rank], rank))
        self._max([0])  # all learn whether rank 0 has everything

    def _scatter(self, send: int, lengths: Any, into: int, length: int) -> None:
        op = self._step()
        if self.rank != 0:
            _put(into, _of_size(self._get(f"{op}/{self.rank}", delete=True), length, 0))
        else:
            ctypes.memmove(into, send, length)
            for rank, start in enumerate(_starts(lengths, self.size)):
                if rank != 0:
                    self._set(f"{op}/{rank}", ctypes.string_at(send + start, lengths[rank]))
        self._max([0])


class GroupStoreComm(StoreComm):
    """Talks over the store of a process group."""

    name = "the group's key-value store"

    def __init__(
        self, group: Any, generation: Union[int, str] = 0, timeout: Optional[float] = None
    ) -> None:
        super().__init__(None, group.rank(), group.size(), "", timeout)
        self._open_store = _opener(weakref.ref(group), generation)


def _alive(group: Any) -> Any:
    """The process group of a weak reference."""
    found = group()
    if found is None:
        raise AgreementError("the process group was destroyed")
    return found


def _of_size(part: bytes, length: int, rank: int) -> bytearray:
    if len(part) != length:
        raise AgreementError(f"{len(part)} bytes from rank {rank}, which were to be {length}")
    return bytearray(part)


# ---------------------------------------------------------------- choosing


def group_store(group: Any) -> Any:
    """The key-value store of a process group."""
    from torch.distributed import distributed_c10d

    try:
        return group.get_group_store()
    except (AttributeError, RuntimeError):
        return distributed_c10d._get_process_group_store(group)


def _prefixed(prefix: str, store: Any) -> Any:
    """The keys of ``store`` that begin with ``prefix``."""
    from torch.distributed.distributed_c10d import PrefixStore

    return PrefixStore(prefix, store)


def _opener(group: Any, generation: Union[int, str]) -> Callable[[], Any]:
    """Returns a function that opens the library's part of the group's store, for one attempt."""

    def opens() -> Any:
        found = _alive(group)
        return _prefixed(f"sidestep/{found.group_name}/{generation}", group_store(found))

    return opens


def has_cpu_backend(group: Any) -> bool:
    """Whether collectives of CPU tensors work on ``group``."""
    import torch

    try:
        group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return False
    return True


def comm_of(
    process_group: Any, *, generation: int = 0, timeout: Optional[float] = None, corner: str = ""
) -> Comm:
    """A `Comm` for ``process_group``: over its CPU backend if it has one, else over its store.

    ``generation`` counts the attempts on this group, equally on all ranks.  After a failure the
    ranks are out of step in the backend, so the store takes over.  ``corner`` tells apart the
    engines of one group.  Communicates nothing yet.
    """
    if process_group.size() == 1:
        return Comm()
    if generation == 0 and has_cpu_backend(process_group):
        return GroupComm(process_group, f"{corner}{generation}", timeout)
    return GroupStoreComm(process_group, f"{corner}{generation}", timeout)
