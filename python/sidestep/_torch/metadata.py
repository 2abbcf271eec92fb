# SPDX-License-Identifier: BSD-3-Clause
"""torch's ``Metadata`` of a checkpoint: read on first use, without executing the pickle.

``.metadata`` is a pickle.  The unpickler here knows DCP's own classes, under every name that a
version of torch gave them.  Any other class becomes an inert ``Opaque``.  Programs attach objects
of their own to ``.metadata``; these must neither make it unreadable nor be imported.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import os
import pathlib
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from .._c.abi import Status
from .._c.calls import call_for_bytes
from .._c.checked import absolute, is_url
from .._c.errors import Error, error_of_os
from .._c.library import lib

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata

_FILE = ".metadata"
_MAX_BYTES = 2 << 30  # of it, as the library reads
_DCP = "torch.distributed.checkpoint.metadata"
_OLD = "torch.distributed._shard.sharded_tensor.metadata"  # of TensorProperties before torch 2.3
# A subclass of Metadata, which Megatron-core before 0.16 saves.
_MEGATRONS = ("megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata")
_PLAIN_CLASSES = (
    "Metadata",
    "TensorStorageMetadata",
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "StorageMeta",
    "MetadataIndex",
)
_PRIVATE = "_sidestep"  # of a lazy one: where to read from, in its __dict__


class Opaque:
    """An object of a class that is not DCP's: the parts that the pickle gives it."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.class_name = name
        self.arguments = arguments
        self.state: Any = None
        self.items: list[Any] = []

    def __repr__(self) -> str:
        return f"<{self.class_name}, not imported>"

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def append(self, item: Any) -> None:
        """An item of a list or set."""
        self.items.append(item)

    add = append

    def extend(self, items: Any) -> None:
        """Items of a list."""
        self.items.extend(items)


class _Encoding:
    """Stands for a member of torch's _MEM_FORMAT_ENCODING.  Unlike the member it is immutable."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = int(value)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("state for a member of an enum")

    def __eq__(self, other: object) -> bool:
        return bool(self._value == getattr(other, "value", None))

    def __hash__(self) -> int:
        return hash(self._value)


class _Sealed(type):
    """What a pickle gets instead of a class: it can make instances, and nothing else.

    A pickle may set attributes of any object that it can name.  On a real class that would change
    the whole process.
    """

    def __setattr__(cls, name: str, value: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"the file changes the class {cls.__name__}")


def _sealed(name: str, make: Callable[..., Any]) -> type:
    return _Sealed(name, (), {"__slots__": (), "__new__": lambda cls, *args: make(*args)})


def _bare(cls: type) -> Callable[..., Any]:
    """Makes instances of a dataclass without fields, as unpickling needs them."""

    def make(*args: Any) -> Any:
        if args:
            raise pickle.UnpicklingError(f"arguments for the class {cls.__name__}")
        return object.__new__(cls)

    return make


def _properties() -> type:
    """As ``TensorProperties``, which an instance becomes with its state.  A newer torch may have
    saved more: 2.15 added the strides, and an older one cannot take them."""
    from torch.distributed.checkpoint.metadata import TensorProperties

    class Properties(TensorProperties):
        def __setstate__(self, state: Any) -> None:
            self.__class__ = TensorProperties  # type: ignore[assignment]
            self.__setstate__(state[: len(dataclasses.fields(TensorProperties))])

    return Properties


def _path(*parts: Any) -> Any:
    return pathlib.Path(*map(str, parts))


@functools.lru_cache(maxsize=1)
def _known() -> dict[tuple[str, str], Any]:
    import torch
    from torch.distributed.checkpoint import filesystem, metadata
    from torch.serialization import _get_layout

    known: dict[tuple[str, str], Any] = {
        ("torch", "Size"): _sealed("Size", torch.Size),
        ("torch.serialization", "_get_layout"): _sealed("_get_layout", _get_layout),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _sealed(
            "_StorageInfo", _bare(filesystem._StorageInfo)
        ),
        (_DCP, "_MEM_FORMAT_ENCODING"): _sealed("_MEM_FORMAT_ENCODING", _Encoding),
        (_OLD, "MEM_FORMAT_ENCODING"): _sealed("MEM_FORMAT_ENCODING", _Encoding),
        ("collections", "OrderedDict"): _sealed("OrderedDict", OrderedDict),
        ("copyreg", "__newobj__"): _sealed("__newobj__", lambda cls, *args: cls(*args)),
    }
    for name in _PLAIN_CLASSES:
        if hasattr(metadata, name):
            known[_DCP, name] = _sealed(name, _bare(getattr(metadata, name)))
    known[_DCP, "TensorProperties"] = _sealed("TensorProperties", _bare(_properties()))
    known[_OLD, "TensorProperties"] = known[_DCP, "TensorProperties"]
    known[_MEGATRONS] = known[_DCP, "Metadata"]
    for module in ("pathlib", "pathlib._local"):
        for name in ("Path", "PosixPath", "WindowsPath"):
            known[module, name] = _sealed(name, _path)
    encodings = {"TORCH_CONTIGUOUS_FORMAT": 0, "TORCH_CHANNELS_LAST": 1, "TORCH_PRESERVE_FORMAT": 2}
    # Some interpreters pickle a member of an enum as getattr(class, name).
    for module in ("builtins", "__builtin__"):
        known[module, "getattr"] = _sealed("getattr", lambda _, name: _Encoding(encodings[name]))
    return known


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _known().get((module, name))
        if found is not None:
            return found
        if module == "torch":
            import torch

            dtype = getattr(torch, name, None)
            if isinstance(dtype, torch.dtype):
                return dtype
        full = f"{module}.{name}"
        return _sealed(full, lambda *args: Opaque(full, args))

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("a persistent id, which .metadata never has")


def unpickle(data: bytes) -> Metadata:
    """The ``Metadata`` in the bytes of a ``.metadata``.

    Errors: whatever unpickling raises for bytes that are none; ``pickle.UnpicklingError``.
    """
    from torch.distributed.checkpoint.metadata import Metadata

    made = _Unpickler(io.BytesIO(data)).load()
    if type(made) is not Metadata or not isinstance(vars(made).get("state_dict_metadata"), dict):
        raise pickle.UnpicklingError(f"it holds {type(made).__name__}, no Metadata")
    return made


def file_id(path: str | os.PathLike[str]) -> tuple[int, ...] | None:
    """Identifies the .metadata of ``path``: one that replaces it differs.  None: there is none."""
    try:
        stat = os.stat(os.path.join(path, _FILE))
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _read(path: str, file_name: str) -> bytes:
    if is_url(path):
        return call_for_bytes(
            lib().sidestep_read_file, os.fsencode(path), os.fsencode(file_name), _MAX_BYTES
        )
    file = os.path.join(path, file_name)
    try:
        return pathlib.Path(file).read_bytes()
    except OSError as error:
        raise error_of_os(f"read '{file}'", error) from error


def read_metadata(path: str | os.PathLike[str], *, file_name: str = _FILE) -> Metadata:
    """The ``Metadata`` in ``path``/.metadata, as ``FileSystemReader(path).read_metadata()`` has it
    (without the id that each reader gives itself).  Nothing in the file is executed or imported.

    Errors: ``Error``: ENOTFOUND, EPERM, EIO; ECORRUPT if the file is damaged.
    """
    from torch.distributed.checkpoint.metadata import StorageMeta

    file = f"{os.fspath(path)}/{file_name}"
    data = _read(os.fspath(path), file_name)
    try:
        metadata = unpickle(data)
    except Exception as error:
        message = f"'{file}' is not a metadata file: {error or type(error).__name__}"
        raise Error(message, status=Status.ECORRUPT, file=file) from error
    if getattr(metadata, "storage_meta", None) is None:
        metadata.storage_meta = StorageMeta()
    return metadata


def _fill(lazy: Any) -> None:
    """Read it, and make it a plain ``Metadata``.  Fields that the program has set stay."""
    from torch.distributed.checkpoint.metadata import Metadata

    values = vars(lazy)
    source = values.get(_PRIVATE)
    if source is None:
        return
    path, save_id = source
    read = read_metadata(path)
    found = getattr(read.storage_meta, "save_id", None)
    if save_id is not None and found is not None and found != save_id:
        message = f"'{path}' has been replaced: it is the save {found} now, no longer {save_id}"
        raise Error(message, status=Status.ENOTFOUND, file=str(path))
    for name, value in vars(read).items():
        values.setdefault(name, value)
    lazy.__class__ = Metadata
    values.pop(_PRIVATE, None)


@functools.cache
def _lazy_class() -> Any:
    from torch.distributed.checkpoint.metadata import Metadata

    class LazyMetadata(Metadata):
        """A Metadata that is read from the checkpoint on first use, and is a plain one then."""

        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("__"):
                _fill(self)
            return object.__getattribute__(self, name)  # another thread may have read it meanwhile

        def __eq__(self, other: object) -> bool:
            _fill(self)
            return bool(self == other)

        __hash__ = None  # type: ignore[assignment]

        def __repr__(self) -> str:
            _fill(self)
            return repr(self)

        def __reduce_ex__(self, protocol: Any) -> Any:
            _fill(self)
            return self.__reduce_ex__(protocol)

    return LazyMetadata


def lazy_metadata(path: str | os.PathLike[str], *, save_id: str | None = None) -> Metadata:
    """A ``torch.distributed.checkpoint.metadata.Metadata`` of the checkpoint ``path``.

    Making it reads nothing; the first use of a field reads ``path``/.metadata.  Pickled or copied,
    it becomes a plain ``Metadata``.  With ``save_id`` (32 hexadecimal digits), it refuses a
    checkpoint of another save that has replaced this one.

    Errors, on first use: those of ``read_metadata``; ``Error`` (ENOTFOUND) for another save.
    """
    made: Metadata = object.__new__(_lazy_class())
    vars(made)[_PRIVATE] = (absolute(os.fspath(path)), save_id)
    return made
