# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint in a format that others read: safetensors, sharded as Hugging Face's libraries do
it, or one file of ``torch.save``.  Tensor by tensor: no more than one is in memory at a time.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from ._abi import Status
from ._checkpoint import Checkpoint
from ._errors import make_error

if TYPE_CHECKING:
    import torch

_SAFE_NAMES = {  # torch's dtypes as safetensors spells them
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
}
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20}
_UNITS["GIB"] = 1 << 30


@dataclass(frozen=True)
class Final:
    """The format of the last checkpoint of a run.

    format          "safetensors": a directory with ``model.safetensors``, or several files and
                    ``model.safetensors.index.json``; "torch": one file, for ``torch.load``
    path            relative to the root of the checkpoints; None: "final" or "final.pt"
    only            names that begin with this and a dot are taken, without it; None: all tensors
    dtype           floating-point tensors are converted to it; None: as they are
    max_shard_size  of a file of safetensors: bytes, or "5GB"
    """

    format: Literal["safetensors", "torch"] = "safetensors"
    path: Optional[str] = None
    only: Optional[str] = "model"
    dtype: Optional[torch.dtype] = None
    max_shard_size: Union[int, str] = "5GB"

    def path_in(self, root: str) -> str:
        """Where it goes."""
        return os.path.join(root, self.path or ("final.pt" if self.format == "torch" else "final"))

    @property
    def shard_bytes(self) -> int:
        """``max_shard_size`` as a number."""
        if isinstance(self.max_shard_size, int):
            return self.max_shard_size
        text = self.max_shard_size.strip().upper().replace(" ", "")
        digits = text.rstrip("KMGTIB")
        unit = text[len(digits) :]
        if unit not in _UNITS or not digits.isdigit():
            raise ValueError(f"max_shard_size={self.max_shard_size!r} is no size")
        return int(digits) * _UNITS[unit]


@dataclass(frozen=True)
class _Item:
    """A tensor to be written."""

    name: str  # in the checkpoint
    key: str  # in the result
    shape: tuple[int, ...]
    saved: torch.dtype
    dtype: torch.dtype
    bytes: int


def export(
    checkpoint: Union[str, os.PathLike[str]],
    path: Union[str, os.PathLike[str]],
    final: Optional[Final] = None,
) -> None:
    """Write the tensors of ``checkpoint`` (of ours or torch's) to ``path`` in another format.

    Durable when it returns; until then nothing is at ``path`` (or what was there before).  Every
    byte that is read is checked.  By this process alone.

    Errors: `Error`: EMISMATCH if no tensor is meant, EUNSUPPORTED for a dtype that the format does
    not have, and those of `sidestep.read`.
    """
    final = final or Final(only=None)
    path = os.path.abspath(os.fspath(path))
    tmp = f"{path}.tmp-{secrets.token_hex(4)}"
    with Checkpoint(os.fspath(checkpoint)) as source:
        items = list(_items(source, final))
        if not items:
            only = f" that begin with '{final.only}.'" if final.only else ""
            raise make_error(
                f"export '{os.fspath(checkpoint)}': there are no tensors{only}",
                status=Status.EMISMATCH,
            )
        try:
            if final.format == "torch":
                _write_torch(source, items, tmp)
            else:
                _write_safetensors(source, items, tmp, final.shard_bytes)
            _put(tmp, path)
        finally:
            if os.path.isdir(tmp):
                shutil.rmtree(tmp, ignore_errors=True)
            elif os.path.exists(tmp):
                os.unlink(tmp)


def _items(source: Checkpoint, final: Final) -> Iterator[_Item]:
    import torch

    from ._load import dtype_of

    start = f"{final.only}." if final.only else ""
    for name in source.names():
        saved = source.find(name)
        if saved is None or saved.is_object or not name.startswith(start):
            continue
        dtype = stored = dtype_of(name, saved.dtype)
        if final.dtype is not None and dtype.is_floating_point:
            dtype = final.dtype
        shape = tuple(saved.shape)
        count = 1
        for length in shape:
            count *= length
        size = count * torch.empty(0, dtype=dtype).element_size()
        yield _Item(name, name[len(start) :], shape, stored, dtype, size)


def _read(source: Checkpoint, item: _Item) -> Any:
    """The bytes of a tensor, as they are to be written."""
    import torch

    tensor = torch.empty(item.shape, dtype=item.saved)
    size = tensor.numel() * tensor.element_size()
    source.read_box(item.name, None, None, tensor.data_ptr() if size else None, size)
    return tensor.to(item.dtype).contiguous().reshape(-1).view(torch.uint8).numpy().data


# ---------------------------------------------------------------- safetensors


def _shards(items: list[_Item], limit: int) -> list[list[_Item]]:
    """In order; a tensor that is larger than the limit is alone in its file."""
    shards: list[list[_Item]] = [[]]
    used = 0
    for item in items:
        if shards[-1] and used + item.bytes > limit:
            shards.append([])
            used = 0
        shards[-1].append(item)
        used += item.bytes
    return shards


def _write_safetensors(source: Checkpoint, items: list[_Item], folder: str, limit: int) -> None:
    os.mkdir(folder)
    shards = _shards(items, limit)
    where: dict[str, str] = {}
    for i, shard in enumerate(shards):
        name = "model.safetensors"
        if len(shards) > 1:
            name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        with open(os.path.join(folder, name), "xb") as file:
            file.write(_header(shard))
            for item in shard:
                file.write(_read(source, item))
                where[item.key] = name
            _sync(file)
    if len(shards) > 1:
        index = {
            "metadata": {"total_size": sum(item.bytes for item in items)},
            "weight_map": where,
        }
        with open(os.path.join(folder, "model.safetensors.index.json"), "x") as text:
            json.dump(index, text, indent=2, sort_keys=True)
            _sync(text)


def _header(items: list[_Item]) -> bytes:
    """Its length in 8 bytes, and JSON, padded so that the data is aligned."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for item in items:
        dtype = str(item.dtype).rpartition(".")[2]
        if dtype not in _SAFE_NAMES:
            raise make_error(
                f"'{item.name}': safetensors have no {dtype}",
                status=Status.EUNSUPPORTED,
                tensor=item.name,
            )
        header[item.key] = {
            "dtype": _SAFE_NAMES[dtype],
            "shape": list(item.shape),
            "data_offsets": [at, at + item.bytes],
        }
        at += item.bytes
    data = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    data += b" " * (-len(data) % 8)
    return len(data).to_bytes(8, "little") + data


# ---------------------------------------------------------------- torch.save


def _write_torch(source: Checkpoint, items: list[_Item], path: str) -> None:
    """torch lays the file out without touching the data; then that is put in its places, and its
    CRC32 beside it, so that other readers of zip files find it right too."""
    import torch

    with torch.serialization.skip_data():
        torch.save({item.key: torch.empty(item.shape, dtype=item.dtype) for item in items}, path)
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
        members = archive.infolist()
    reader: Any = torch._C.PyTorchFileReader(path)
    places = {f"data/{i}": reader.get_record_offset(f"data/{i}") for i in range(len(items))}
    del reader
    with open(path, "r+b") as file:
        for member in members:
            file.seek(start)
            entry = struct.unpack("<4s6H3L5H2L", file.read(46))
            key = member.filename.partition("/")[2]
            if key in places:
                item = items[int(key[len("data/") :])]
                data = _read(source, item)
                file.seek(places[key])
                file.write(data)
                crc = struct.pack("<L", zlib.crc32(data))
                file.seek(start + 16)  # in the directory
                file.write(crc)
                if member.flag_bits & 8:  # and behind the data
                    file.seek(places[key] + item.bytes + 4)
                    file.write(crc)
                else:
                    file.seek(member.header_offset + 14)
                    file.write(crc)
            start += 46 + entry[10] + entry[11] + entry[12]
        _sync(file)


# ---------------------------------------------------------------- durability


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(tmp: str, path: str) -> None:
    """In the place of what an earlier export left there: that moves aside until this is there."""
    old = f"{path}.old-{secrets.token_hex(4)}"
    if os.path.isdir(tmp):
        _sync_folder(tmp)
    if os.path.isdir(tmp) and os.path.lexists(path):
        os.rename(path, old)
    os.rename(tmp, path)
    _sync_folder(os.path.dirname(path))
    if os.path.isdir(old):
        shutil.rmtree(old)
    elif os.path.lexists(old):
        os.unlink(old)
