# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint opened for reading, without an engine: its contents and its bytes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._c import abi
from ._c.calls import call, call_for_bytes, when_gone
from ._c.checked import a_path, a_text
from ._c.errors import check
from ._c.library import lib
from ._torch.flatten import Index


@dataclass(frozen=True)
class ChunkMetadata:
    """One stored box of a tensor.  ``offsets`` and ``lengths`` count elements, the rest bytes.

    transform  if the bytes are compressed: the codec, "stream.zstd/1" for example
    """

    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    file: str
    file_offset: int
    file_bytes: int
    transform: str | None


@dataclass(frozen=True)
class TensorMetadata:
    """A stored tensor.

    path   keys from the root of the nested state: str, int, or ``Index`` for a place in a list
    dtype  torch's name: "bfloat16"
    """

    name: str
    path: tuple[str | int, ...]
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    chunks: tuple[ChunkMetadata, ...]


@dataclass(frozen=True)
class ObjectMetadata:
    """A stored object: anything but a tensor.  ``bytes``: as stored."""

    name: str
    path: tuple[str | int, ...]
    bytes: int
    file: str


@dataclass(frozen=True)
class FileMetadata:
    """A small file of a checkpoint.

    bytes   its size
    rank    that gave it to the save
    sha256  of its contents, in hexadecimal
    """

    name: str
    bytes: int
    rank: int
    sha256: str


@dataclass(frozen=True)
class CheckpointMetadata:
    """What a checkpoint holds.

    format      "dcp" (torch's) or "sidestep" (the same with our footers and manifest)
    world_size  ranks that wrote it
    bytes       of its files
    damage      what is wrong with its files (missing, cut short, of another save); None: sizes and
                ids show no damage
    unread      which of its files cannot be read now, and may be whole; None: none
    files       the small files that were given to the save
    """

    path: str
    format: str
    save_id: str | None
    step: int | None
    world_size: int | None
    bytes: int
    tensors: dict[str, TensorMetadata]
    objects: dict[str, ObjectMetadata]
    damage: str | None = None
    unread: str | None = None
    files: dict[str, FileMetadata] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """What a load needs to know about an entry.  ``bytes``: not compressed."""

    is_object: bool
    dtype: str | None
    shape: tuple[int, ...]
    bytes: int


def text_of(value: bytes | None) -> str:
    """A name as a Python str."""
    return (value or b"").decode("utf-8", "surrogateescape")


def _first_of(text: bytes | None, count: int) -> str | None:
    """The first of ``count`` texts, and the number of the others."""
    if text is None:
        return None
    return text_of(text) + (f"; and {count - 1} more" if count > 1 else "")


def _path_of(entry: Any) -> tuple[str | int, ...]:
    items: list[str | int] = []
    for item in entry.path[: entry.path_length]:
        if item.key is not None:
            items.append(text_of(item.key))
        else:
            items.append(item.index if item.flags & abi.PATH_INT_KEY else Index(item.index))
    return tuple(items) or (text_of(entry.name),)


def _numbers(array: Any, count: int) -> tuple[int, ...]:
    return tuple(array[:count]) if count else ()


def _chunk_of(chunk: Any, ndim: int) -> ChunkMetadata:
    return ChunkMetadata(
        _numbers(chunk.offsets, ndim),
        _numbers(chunk.lengths, ndim),
        text_of(chunk.file),
        chunk.file_offset,
        chunk.file_bytes,
        text_of(chunk.transform) if chunk.transform else None,
    )


def _close(handle: ctypes.c_void_p) -> None:
    """Does nothing if it is closed already."""
    lib().sidestep_checkpoint_close(handle)


class Checkpoint:
    """The checkpoint ``path``, ours or torch's, as a context manager.

    Errors: ``Error``: ENOTFOUND, EUNCOMMITTED, ECORRUPT, EUNSAFE, EUNSUPPORTED, EIO.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.handle = ctypes.c_void_p()
        call(lib().sidestep_checkpoint_open, os.fsencode(a_path(path, "path")), self.handle)
        when_gone(self, _close, self.handle)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        _close(self.handle)

    def _entries(self) -> Iterator[Any]:
        library = lib()
        for i in range(library.sidestep_checkpoint_count(self.handle)):
            yield library.sidestep_checkpoint_entry(self.handle, i).contents

    def names(self) -> list[str]:
        """The names of all tensors and objects, sorted."""
        return [text_of(entry.name) for entry in self._entries()]

    def is_object(self, name: str) -> bool:
        """Whether ``name`` is an object, not a tensor."""
        found = self.find(name)
        return found is not None and found.is_object

    def _found(self, name: str) -> Any:
        try:
            data = a_text(name, "name")
        except ValueError:  # no checkpoint has such a name
            return None
        found = lib().sidestep_checkpoint_find(self.handle, data)
        return found.contents if found else None

    def path(self, name: str) -> tuple[str | int, ...]:
        """The path of ``name``, which it has: see `TensorMetadata`."""
        return _path_of(self._found(name))

    def find(self, name: str) -> Saved | None:
        """The entry ``name``; None if there is none."""
        entry = self._found(name)
        if entry is None:
            return None
        dtype = None if entry.dtype_name is None else text_of(entry.dtype_name)
        shape = _numbers(entry.shape, entry.ndim)
        return Saved(bool(entry.is_object), dtype, shape, entry.bytes)

    def describe(self) -> CheckpointMetadata:
        """Everything that is known without reading data."""
        info = abi.CheckpointInfo()
        check(lib().sidestep_checkpoint_info(self.handle, info), abi.ErrorInfo())
        tensors: dict[str, TensorMetadata] = {}
        objects: dict[str, ObjectMetadata] = {}
        for entry in self._entries():
            name, path = text_of(entry.name), _path_of(entry)
            if entry.is_object:
                file = text_of(entry.chunks[0].file) if entry.chunk_count else ""
                objects[name] = ObjectMetadata(name, path, entry.bytes, file)
                continue
            chunks = entry.chunks[: entry.chunk_count]
            tensors[name] = TensorMetadata(
                name,
                path,
                text_of(entry.dtype_name),
                _numbers(entry.shape, entry.ndim),
                entry.bytes,
                tuple(_chunk_of(chunk, entry.ndim) for chunk in chunks),
            )
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
            {file.name: file for file in self._files()},
        )

    def _listed(self) -> Iterator[Any]:
        library = lib()
        for i in range(library.sidestep_checkpoint_file_count(self.handle)):
            yield library.sidestep_checkpoint_file(self.handle, i).contents

    def _files(self) -> Iterator[FileMetadata]:
        for file in self._listed():
            if not file.is_alias:
                name, sha256 = text_of(file.name), text_of(file.sha256)
                yield FileMetadata(name, file.bytes, file.rank, sha256)

    def file_names(self) -> list[str]:
        """The names of the small files."""
        return [file.name for file in self._files()]

    def aliases(self) -> list[str]:
        """The names that lead to the checkpoint itself."""
        return [text_of(file.name) for file in self._listed() if file.is_alias]

    def read_box(
        self,
        name: str,
        offsets: Sequence[int] | None,
        lengths: Sequence[int] | None,
        address: int | None,
        size: int,
    ) -> None:
        """Read a box of a tensor, row-major and verified, into ``size`` bytes at ``address``."""

        def array(values: Sequence[int] | None) -> Any:
            return None if values is None else (ctypes.c_int64 * max(len(values), 1))(*values)

        box = array(offsets), array(lengths)
        read = lib().sidestep_checkpoint_read_tensor
        call(read, self.handle, a_text(name, "name"), *box, address, size)

    def file(self, name: str) -> bytes:
        """The contents of a small file."""
        read = lib().sidestep_checkpoint_read_file
        return call_for_bytes(read, self.handle, a_text(name, "name"))

    def stored(self, name: str) -> bytes:
        """The stored bytes of an object: a ``torch.save()`` file."""
        read = lib().sidestep_checkpoint_read_bytes
        return call_for_bytes(read, self.handle, a_text(name, "name"))
