# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint opened for reading, without an engine: what it holds, and the bytes of it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from . import _abi
from ._checked import a_path, a_text
from ._errors import check
from ._flatten import Index
from ._gone import when_gone
from ._library import lib


@dataclass(frozen=True)
class ChunkMetadata:
    """One stored box of a tensor.  ``offsets`` and ``lengths`` count elements, the rest bytes."""

    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    file: str
    file_offset: int
    file_bytes: int
    transform: str | None
    """``"stream.zstd/1"`` if the bytes are compressed."""


@dataclass(frozen=True)
class TensorMetadata:
    """A stored tensor."""

    name: str
    path: tuple[str | int, ...]
    """Keys from the root of the nested state: str, int, or ``Index`` for a place in a list."""
    dtype: str
    """torch's name: ``"bfloat16"``."""
    shape: tuple[int, ...]
    bytes: int
    chunks: tuple[ChunkMetadata, ...]


@dataclass(frozen=True)
class ObjectMetadata:
    """A stored object: anything but a tensor."""

    name: str
    path: tuple[str | int, ...]
    bytes: int
    """As stored."""
    file: str


@dataclass(frozen=True)
class CheckpointMetadata:
    """What a checkpoint holds."""

    path: str
    format: str
    """``"dcp"`` (torch's) or ``"sidestep"`` (the same with our footers and manifest)."""
    save_id: str | None
    step: int | None
    world_size: int | None
    """Ranks that wrote it."""
    bytes: int
    """Of its files."""
    tensors: dict[str, TensorMetadata]
    objects: dict[str, ObjectMetadata]
    damage: str | None = None
    """What is wrong with its files: missing, cut short, of another save; None: nothing that their
    sizes and ids tell."""
    unread: str | None = None
    """Which of its files cannot be read now, and may be whole; None: none."""


@dataclass(frozen=True)
class Saved:
    """As much of an entry as a load wants to know."""

    is_object: bool
    dtype: str | None
    shape: tuple[int, ...]


def text_of(value: bytes | None) -> str:
    """A name as Python has it."""
    return (value or b"").decode("utf-8", "surrogateescape")


def _first_of(text: bytes | None, count: int) -> str | None:
    """The first of ``count``, and how many more there are."""
    if text is None:
        return None
    return text_of(text) + (f"; and {count - 1} more" if count > 1 else "")


def _shape(entry: Any) -> tuple[int, ...]:
    return tuple(entry.shape[: entry.ndim]) if entry.ndim else ()


def _path_of(entry: Any) -> tuple[str | int, ...]:
    items: list[str | int] = []
    for i in range(entry.path_length):
        item = entry.path[i]
        if item.key is not None:
            items.append(text_of(item.key))
        elif item.flags & _abi.PATH_INT_KEY:
            items.append(int(item.index))
        else:
            items.append(Index(item.index))
    return tuple(items) or (text_of(entry.name),)


def _chunk_of(chunk: Any, ndim: int) -> ChunkMetadata:
    return ChunkMetadata(
        tuple(chunk.offsets[:ndim]) if ndim else (),
        tuple(chunk.lengths[:ndim]) if ndim else (),
        text_of(chunk.file),
        chunk.file_offset,
        chunk.file_bytes,
        text_of(chunk.transform) if chunk.transform else None,
    )


def _close(handle: ctypes.c_void_p) -> None:
    """No-op if it was closed already."""
    lib().sidestep_checkpoint_close(ctypes.byref(handle))


class Checkpoint:
    """The checkpoint ``path``, ours or torch's, as a context manager.

    Errors: ``Error``: ENOTFOUND, EUNCOMMITTED, ECORRUPT, EUNSAFE, EUNSUPPORTED, EIO.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._handle = ctypes.c_void_p()
        err = _abi.ErrorInfo()
        check(
            lib().sidestep_checkpoint_open(
                os.fsencode(a_path(path, "path")), ctypes.byref(self._handle), ctypes.byref(err)
            ),
            err,
        )
        when_gone(self, _close, self._handle)

    def close(self) -> None:
        """Close its files."""
        _close(self._handle)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def _entries(self) -> Iterator[Any]:
        library = lib()
        for i in range(library.sidestep_checkpoint_count(self._handle)):
            yield library.sidestep_checkpoint_entry(self._handle, i).contents

    def names(self) -> list[str]:
        """Of all tensors and objects, sorted."""
        return [text_of(entry.name) for entry in self._entries()]

    @property
    def handle(self) -> ctypes.c_void_p:
        """The library's."""
        return self._handle

    def is_object(self, name: str) -> bool:
        """Whether what is stored under ``name`` is no tensor."""
        found = self.find(name)
        return found is not None and found.is_object

    def find(self, name: str) -> Saved | None:
        """What is stored under ``name``."""
        try:
            data = a_text(name, "name")
        except ValueError:  # no checkpoint has such a name
            return None
        found = lib().sidestep_checkpoint_find(self._handle, data)
        if not found:
            return None
        entry = found.contents
        dtype = None if entry.dtype_name is None else text_of(entry.dtype_name)
        return Saved(bool(entry.is_object), dtype, _shape(entry))

    def describe(self) -> CheckpointMetadata:
        """All there is to know without reading data."""
        info = _abi.sized(_abi.CheckpointInfo)
        status = lib().sidestep_checkpoint_info(self._handle, ctypes.byref(info))
        check(status, _abi.ErrorInfo())
        tensors: dict[str, TensorMetadata] = {}
        objects: dict[str, ObjectMetadata] = {}
        for entry in self._entries():
            name, path = text_of(entry.name), _path_of(entry)
            if entry.is_object:
                file = text_of(entry.chunks[0].file) if entry.chunk_count else ""
                objects[name] = ObjectMetadata(name, path, entry.bytes, file)
                continue
            chunks = tuple(_chunk_of(entry.chunks[i], entry.ndim) for i in range(entry.chunk_count))
            dtype = text_of(entry.dtype_name)
            tensors[name] = TensorMetadata(name, path, dtype, _shape(entry), entry.bytes, chunks)
        return CheckpointMetadata(
            text_of(info.path),
            text_of(info.format),
            text_of(info.save_id) or None,
            info.step if info.step >= 0 else None,
            info.world_size or None,
            info.bytes,
            tensors,
            objects,
            _first_of(info.damage, info.damaged_count),
            _first_of(info.unread, info.unread_count),
        )

    def read_box(
        self,
        name: str,
        offsets: Sequence[int] | None,
        lengths: Sequence[int] | None,
        address: int | None,
        size: int,
    ) -> None:
        """Put a box of a tensor, row-major, into ``size`` bytes at ``address``, all checked."""

        def array(values: Sequence[int] | None) -> Any:
            return None if values is None else (ctypes.c_int64 * max(len(values), 1))(*values)

        err = _abi.ErrorInfo()
        check(
            lib().sidestep_checkpoint_read_tensor(
                self._handle,
                a_text(name, "name"),
                array(offsets),
                array(lengths),
                address,
                size,
                ctypes.byref(err),
            ),
            err,
        )

    def stored(self, name: str) -> bytes:
        """The stored bytes of an object: a ``torch.save()`` file."""
        data = ctypes.c_void_p()
        length = ctypes.c_size_t()
        err = _abi.ErrorInfo()
        check(
            lib().sidestep_checkpoint_read_bytes(
                self._handle,
                a_text(name, "name"),
                ctypes.byref(data),
                ctypes.byref(length),
                ctypes.byref(err),
            ),
            err,
        )
        try:
            return ctypes.string_at(data, length.value)
        finally:
            lib().sidestep_bytes_free(ctypes.byref(data))
