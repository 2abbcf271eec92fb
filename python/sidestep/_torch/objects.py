# SPDX-License-Identifier: BSD-3-Clause
"""Encodes Python objects to stored bytes, and decodes them without executing the checkpoint.

Plain data (None, bool, int, float, str, bytes, list, tuple, dict of exactly these types) goes to
the library as a pickle, which it decodes.  Everything else is stored as ``torch.save()`` makes it.
On a load, the library decodes plain data.  ``torch.load(weights_only=True)`` decodes the classes
below.  Any other object is loaded only if the caller allows it: `refused` says so at the save.
"""

from __future__ import annotations

import collections
import ctypes
import datetime
import enum
import functools
import io
import os
import pathlib
import pickle
import re
import struct
import sys
import threading
import types
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, NoReturn, Optional, cast

from .._c.abi import OBJECT_PICKLE, OBJECT_STORED, ErrorInfo, Status
from .._c.calls import call_for_bytes
from .._c.errors import Error, check, make_error
from .._c.library import lib

UNSAFE_VARIABLE = "SIDESTEP_UNSAFE_OBJECTS"
_PROTOCOL = 4
_INT64 = 1 << 63

SCALARS = frozenset((type(None), bool, int, float, str, bytes))
"""Types whose values never change, and which are plain data (but for very long integers)."""
_CONTAINERS = frozenset((list, tuple, dict))
_LARGE = 16 << 20
"""Bytes of a pickle from which torch encodes and decodes also plain data: the library would copy it
more often, and takes no pickle of more than 2 GiB."""


class Stored:
    """The value of a `Leaf`: an object whose stored bytes are known already."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class _PlainPickler(pickle.Pickler):
    """Fails at the first object that is not of a builtin type, and calls no ``__reduce__``."""

    def reducer_override(self, obj: Any) -> Any:
        raise _NotPlain


class _NotPlain(Exception):
    pass


class _Recorder(pickle.Pickler):
    """Notes what a pickle names, as far as objects of classes tell it."""

    seen: set[str]

    def reducer_override(self, obj: Any) -> Any:
        named: Any = obj if isinstance(obj, _NAMED) else type(obj)
        self.seen.add(_class_name(named))
        as_call = _AS_CALLS.get(named)
        return NotImplemented if as_call is None or named is obj else (named, as_call(obj))


_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)
# Of these, torch fills no instance safely, but makes one with all items at once.
_AS_CALLS: dict[Any, Callable[[Any], tuple[Any, ...]]] = {
    collections.deque: lambda items: (list(items), items.maxlen),
    collections.defaultdict: lambda items: (items.default_factory, dict(items)),
}


class Refused(NamedTuple):
    """An object that was encoded, and that `decode` refuses.  ``classes``: what it asks for."""

    name: str
    classes: tuple[str, ...]
    error: Error


def encode(name: str, value: Any, refused: Optional[list[Refused]] = None) -> tuple[int, bytes]:
    """(OBJECT_PICKLE or OBJECT_STORED, bytes) of the object ``value``.

    ``refused`` gets it if `decode` would refuse these bytes.
    Raises Error (EUNSUPPORTED) with the name if it cannot be pickled.
    """
    cls = type(value)
    if cls is Stored:
        if refused is not None:
            _try(name, value.data, None, refused)
        return OBJECT_STORED, value.data
    sure = cls in SCALARS and (
        value.isascii() if cls is str else cls is not int or -_INT64 <= value < _INT64
    )
    if sure:
        return OBJECT_PICKLE, pickle.dumps(value, _PROTOCOL)
    if cls in _CONTAINERS or cls in SCALARS:
        plain = _plain_pickle(value)
        if plain is not None:
            return OBJECT_PICKLE, plain
    data, seen = _torch_save(name, value)
    if refused is not None:
        _try(name, data, seen, refused)
    return OBJECT_STORED, data


def _plain_pickle(value: Any) -> Optional[bytes]:
    """The pickle of ``value`` if the library finds that it is plain data, and it is not large."""
    out = io.BytesIO()
    try:
        _PlainPickler(out, _PROTOCOL).dump(value)
    except (_NotPlain, RecursionError):
        return None
    handle = value_of(out.getvalue()) if out.tell() <= _LARGE else None
    if handle is None:
        return None
    lib().sidestep_value_free(handle)
    return out.getvalue()


def value_of(data: bytes) -> Optional[ctypes.c_void_p]:
    """The library's value of a pickle, owned by the caller; None: it is not plain data."""
    handle, err = ctypes.c_void_p(), ErrorInfo()
    status = lib().sidestep_value_from_pickle(data, len(data), handle, err)
    if status in (Status.EUNSUPPORTED, Status.ECORRUPT):
        return None
    check(status, err)
    return handle


def _torch_save(name: str, value: Any) -> tuple[bytes, frozenset[str]]:
    """What torch.save() writes of ``value``, and what its pickle names."""
    import torch

    out = io.BytesIO()
    recorder: Any = type("Pickler", (_Recorder,), {"seen": set()})
    module: Any = types.SimpleNamespace(__name__="pickle", Pickler=recorder)
    try:
        torch.save(value, out, pickle_module=module)
    except Exception as error:
        reason = f"a {_class_name(type(value))} cannot be pickled: {error}"
        raise _error(name, reason, Status.EUNSUPPORTED) from error
    return out.getvalue(), frozenset(recorder.seen)


_readable: set[tuple[Any, ...]] = set()  # what `_try` has found to be accepted


def _try(name: str, stored: bytes, seen: Optional[frozenset[str]], refused: list[Refused]) -> None:
    """Find out whether `decode` accepts ``stored``: once for all objects that name the same."""
    import torch

    allowed: list[Any] = getattr(torch.serialization, "get_safe_globals", list)()
    key = seen, *map(id, allowed)
    if seen is not None and key in _readable:
        return
    asked = _asked_for(stored)
    try:
        if asked:
            _refuse(name, asked, "")
        if len(stored) <= _LARGE:  # torch appends to lists only, for example
            _load_safe(name, stored)
    except Error as error:
        refused.append(Refused(name, tuple(asked), error))
        return
    _readable.add(key)


def _error(name: str, reason: str, status: Status) -> Error:
    return make_error(f"object '{name}': {reason}", status=status, tensor=name)


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def decode(name: str, stored: bytes, *, allow_pickle: bool = False) -> Any:
    """The object whose stored bytes are ``stored``; ``name`` is for messages.

    ``allow_pickle`` (or SIDESTEP_UNSAFE_OBJECTS=1 in the environment) lets the checkpoint run code
    of its choice.  Without it, Error (EUNSAFE) says which classes the object asks for; with it,
    or for bytes that are damaged, Error says what went wrong.
    """
    pickled = _pickle_of_archive(stored)
    handle = value_of(pickled) if pickled is not None else None
    if handle is not None:
        try:  # What is unpickled was written by the library, of a value that names no class.
            return pickle.loads(call_for_bytes(lib().sidestep_value_to_pickle, handle))
        finally:
            lib().sidestep_value_free(handle)
    if allow_pickle or os.environ.get(UNSAFE_VARIABLE, "0") not in ("", "0"):
        return _load_unsafe(name, stored)
    return _load_safe(name, stored)


_END = struct.Struct("<4s4xHHII2x")  # end record: entries here, in all, size and place of the list
_CENTRAL = struct.Struct("<4s6xH4xLLLHHH8xL")
_LOCAL = struct.Struct("<4s22xHH")


def _pickle_of_archive(stored: bytes) -> Optional[bytes]:
    """The pickle in an archive of torch.save() that has no tensors; None if it has another shape.

    The library has checked the bytes.  An archive of another shape is left to torch.  zipfile takes
    ten times as long, and a state may have thousands of objects.
    """
    try:
        magic, _, count, _, at = _END.unpack_from(stored, len(stored) - _END.size)
        if magic != b"PK\5\6":
            return None
        for _ in range(count):
            magic, method, _, size, full, name, extra, comment, local = _CENTRAL.unpack_from(
                stored, at
            )
            at += _CENTRAL.size
            if magic != b"PK\1\2":
                return None
            if stored[at : at + name].endswith(b"/data.pkl"):
                magic, name, extra = _LOCAL.unpack_from(stored, local)
                start = local + _LOCAL.size + name + extra
                plain = magic == b"PK\3\4" and method == 0 and size == full
                data = stored[start : start + size]
                return data if plain and len(data) == size else None
            at += name + extra + comment
    except struct.error:
        pass
    return None


def _location() -> Optional[str]:
    """Where to put tensors inside of objects: on the device that they were on, if it exists."""
    import torch

    accelerator = getattr(torch, "accelerator", torch.cuda)
    return None if accelerator.is_available() else "cpu"


def _load_unsafe(name: str, stored: bytes) -> Any:
    import torch

    try:
        return torch.load(io.BytesIO(stored), map_location=_location(), weights_only=False)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise _error(name, reason, Status.EUNSUPPORTED) from error


_lock = threading.RLock()  # held because torch's list of allowed classes belongs to the process


def _load_safe(name: str, stored: bytes) -> Any:
    import torch

    try:
        with _lock, _allowing():
            return torch.load(io.BytesIO(stored), map_location=_location(), weights_only=True)
    except pickle.UnpicklingError as error:
        _refuse(name, _asked_for(stored) or _named_in(str(error)), str(error))
    except Exception as error:
        raise _error(name, f"{type(error).__name__}: {error}", Status.ECORRUPT) from error


def _refuse(name: str, classes: list[str], message: str) -> NoReturn:
    """Raise an error that says which ``classes`` the object asks for, and what to do."""
    opt_in = f"set {UNSAFE_VARIABLE}=1, or pass allow_pickle=True to sidestep.Reader() or read()"
    if classes:
        line = ", ".join(re.sub(r"^(__main__|builtins)\.", "", name) for name in classes)
        reason = (
            f"needs {', '.join(classes)}: reading it could run code of the checkpoint's choice.  "
            f"If these are harmless, call torch.serialization.add_safe_globals([{line}]) before "
            f"the load; if you trust who wrote it, {opt_in}"
        )
        raise make_error(f"object '{name}' {reason}", status=Status.EUNSAFE, tensor=name)
    first = message.split("WeightsUnpickler error:")[-1].strip().splitlines() or ["unreadable"]
    unsafe = f"it is not a pickle that can be read safely: {first[0]}"
    reason = f"{unsafe}; if you trust who wrote it, {opt_in}"
    raise _error(name, reason, Status.EUNSAFE)


def _asked_for(stored: bytes) -> list[str]:
    """The names of classes and functions that the pickle asks for and must not have."""
    import torch

    listed = getattr(torch.serialization, "get_unsafe_globals_in_checkpoint", None)
    if listed is not None:
        try:
            with _lock, _allowing():
                return sorted(listed(io.BytesIO(stored)))
        except Exception:  # an old format: torch.load() has its own message
            pass
    return []


def _named_in(message: str) -> list[str]:
    """The class that an older torch names in its message."""
    words = r"(?:[Uu]nsupported (?:global|class):?(?! GLOBAL)|GLOBAL) ([\w.]+)"
    return re.findall(words, message)[:1]


_names: dict[str, Any] = {}  # full name in a pickle -> class or function


def _allowing() -> AbstractContextManager[Any]:
    """A context in which torch's restricted unpickler also accepts our classes."""
    import torch

    if not _names or ("numpy" in sys.modules and "numpy.ndarray" not in _names):
        _names.update(_builtin_names())
        _names.update(_numpy_names())
    own_names = [thing for name, thing in _names.items() if name == _class_name(thing)]
    context: Any = getattr(torch.serialization, "safe_globals", None)
    if context is None:  # torch 2.4 only adds to its list
        torch.serialization.add_safe_globals(own_names)
        return nullcontext()
    if not _takes_names():
        return cast(AbstractContextManager[Any], context(own_names))
    return cast(AbstractContextManager[Any], context([(t, name) for name, t in _names.items()]))


class _Probe:
    """A class that no torch allows of its own accord."""


@functools.cache
def _takes_names() -> bool:
    """Whether this torch lets a class be allowed by another name than its own; from 2.6 on."""
    import torch

    archive = io.BytesIO()
    torch.save(_Probe(), archive)
    archive.seek(0)
    try:
        with torch.serialization.safe_globals([(_Probe, f"{__name__}._Probe")]):
            torch.load(archive, weights_only=True)
    except Exception:
        return False
    return True


def _builtin_names() -> dict[str, Any]:
    """Classes of the standard library that hold data: making one runs nothing else."""
    things = [
        collections.OrderedDict,
        collections.defaultdict,
        collections.Counter,
        collections.deque,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        datetime.timezone,
        pathlib.PosixPath,
        pathlib.PurePosixPath,
        io.BytesIO,
    ]
    names: dict[str, Any] = {f"{t.__module__}.{t.__qualname__}": t for t in things}
    names["pathlib._local.PosixPath"] = pathlib.PosixPath  # written by Python 3.13
    names["pathlib._local.PurePosixPath"] = pathlib.PurePosixPath
    for thing in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset):
        names[f"builtins.{thing.__name__}"] = thing
        names[f"__builtin__.{thing.__name__}"] = thing
    names["builtins.getattr"] = names["__builtin__.getattr"] = _member_of_enum
    return names


def _member_of_enum(cls: Any, name: Any) -> enum.Enum:
    """The only allowed use of "getattr": some Pythons (3.11.2) write members of enums with it."""
    if not (isinstance(cls, enum.EnumMeta) and isinstance(name, str) and name in cls.__members__):
        raise pickle.UnpicklingError(f"getattr of {cls!r}, which is not a member of an enum")
    return cast(enum.Enum, cls.__members__[name])


def _numpy_names() -> dict[str, Any]:
    """Arrays, scalars and dtypes of NumPy, by the names of its versions 1 and 2."""
    try:
        import numpy
    except ImportError:
        return {}
    core = sys.modules.get("numpy._core.multiarray") or sys.modules["numpy.core.multiarray"]
    names: dict[str, Any] = {"numpy.ndarray": numpy.ndarray, "numpy.dtype": numpy.dtype}
    for package in ("numpy._core", "numpy.core"):
        names[f"{package}.multiarray._reconstruct"] = core._reconstruct
        names[f"{package}.multiarray.scalar"] = core.scalar
    for code in "?bhilqBHILQefdgFDGSUVO":
        cls = type(numpy.dtype(code))
        names[f"{cls.__module__}.{cls.__qualname__}"] = cls
    for unit in ("datetime64", "timedelta64"):
        cls = type(numpy.dtype(unit))
        names[f"{cls.__module__}.{cls.__qualname__}"] = cls
    return names
