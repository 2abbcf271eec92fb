# SPDX-License-Identifier: BSD-3-Clause
"""Failures of the library as exceptions, and exceptions as failures of the library.

Where torch is loaded, an `Error` is also a CheckpointException of torch.distributed.checkpoint, so
that handlers written for stock DCP catch it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno as errnos
import functools
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, Optional

from .abi import ErrorInfo, Status

_MESSAGE_BYTES, _WHERE_BYTES = ErrorInfo.message.size, ErrorInfo.where.size  # with the NUL

Failures = Mapping[int, "tuple[BaseException, traceback.StackSummary]"]


class Error(Exception):
    """A save or load failed, or a checkpoint is damaged or does not fit.

    status   the reason, to branch on: a `Status`
    errno    the kernel's error number; 0 if the kernel was not involved
    rank     the rank that failed; None: this one
    tensor   name of the tensor or object, if one is known
    file     path or name of the file, if one is known
    where    place in the library's source, for bug reports; may be ""
    message  what was being done, to what, and why it failed
    failures the ranks that failed, as in stock DCP: {rank: (exception, traceback)}
    """

    def __init__(
        self,
        message: str,
        *,
        status: Status = Status.EINVAL,
        errno: int = 0,
        rank: Optional[int] = None,
        tensor: Optional[str] = None,
        file: Optional[str] = None,
        where: str = "",
        failures: Optional[Failures] = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.errno, self.rank = message, status, errno, rank
        self.tensor, self.file, self.where = tensor, file, where
        self._failures = dict(failures or {})

    @property
    def failures(self) -> dict[int, tuple[BaseException, traceback.StackSummary]]:
        """The ranks that are known to have failed: {rank: (exception, traceback)}."""
        return self._failures

    def __str__(self) -> str:
        parts = [status_name(self.status)]
        if self.errno:
            name = errnos.errorcode.get(self.errno, f"errno {self.errno}")
            parts += [name] if name not in parts else []
        if self.rank is not None:
            parts.append(f"rank {self.rank}")
        if self.where:
            parts.append(self.where)
        return f"{self.message} [{', '.join(parts)}]"

    def __reduce__(self) -> tuple[Callable[..., Error], tuple[dict[str, Any]]]:
        details = {name: getattr(self, name) for name in ("message", *_COPIED)}
        failures = {rank: _portable(*pair) for rank, pair in self._failures.items()}
        return _unpickled, ({**details, "status": int(self.status), "failures": failures},)


_COPIED = ("status", "errno", "rank", "tensor", "file", "where")


def status_name(status: int) -> str:
    """The name of a status, "ENOSPC"; a number if only a newer version knows it."""
    try:
        return Status(status).name
    except ValueError:
        return f"status {int(status)}"


def check(status: int, err: ErrorInfo, *, rank: Optional[int] = None) -> None:
    """Raise the failure that a call of the library returned, if any.

    ``rank``: the rank of this process, for ``failures``.
    """
    if status:
        raise error_of(status, err, rank=rank)


# Functions that messages of the library name, and their names in Python.
_WORDS = {"sidestep_series_load()": "resume()", "sidestep_series_load_step()": "resume(step=...)"}


def error_of(status: int, err: ErrorInfo, *, rank: Optional[int] = None) -> Error:
    """The exception for ``status`` and ``err``."""
    message = err.message.decode("utf-8", "replace")
    for in_c, in_python in _WORDS.items():
        message = message.replace(in_c, in_python)
    tensor, file = _subjects(message)
    return make_error(
        message or f"the library failed with {status_name(status)}",
        status=_status(status),
        errno=err.sys_errno,
        rank=err.rank if err.rank >= 0 else None,
        tensor=tensor,
        file=file,
        where=err.where.decode("utf-8", "replace"),
        own_rank=rank,
    )


def make_error(message: str, *, own_rank: Optional[int] = None, **details: Any) -> Error:
    """An `Error`.  If torch is loaded, it is also torch's CheckpointException.

    ``details`` are those of `Error`.  ``failures`` defaults to the rank that failed.
    """
    if not details.get("failures"):
        ranks = (details.get("rank"), own_rank, 0)
        culprit = next(rank for rank in ranks if rank is not None)
        reason = Error(message, **{**details, "failures": None})
        stack = _plain(traceback.extract_stack(sys._getframe(1)))
        details["failures"] = {culprit: (reason, stack)}
    return _error_class()(message, **details)


def reworded(error: Error, message: str, **details: Any) -> Error:
    """``error`` with another message and, if given, other ``details``."""
    return make_error(message, **{**{name: getattr(error, name) for name in _COPIED}, **details})


def refuse(name: str, why: str, status: Status = Status.EUNSUPPORTED) -> NoReturn:
    """Raise an error about one tensor or object."""
    raise make_error(f"'{name}': {why}", status=status, tensor=name)


def error_of_os(doing: str, error: OSError) -> Error:
    """An OSError during ``doing``, in the form of the library's errors."""
    file = error.filename if isinstance(error.filename, str) else None
    message = f"{doing}: {error.strerror or error}"
    return make_error(message, status=status_of(error), errno=error.errno or 0, file=file)


def error_info(exception: BaseException, doing: str = "") -> ErrorInfo:
    """``exception`` for ``options.failure``, through which the library reports it to every rank.

    ``doing``: what the library puts in front, "save 'x'".  It is removed here if the message begins
    with it.
    """
    info = ErrorInfo(rank=-1, status=int(status_of(exception)) or int(Status.EINVAL))
    if isinstance(exception, Error):
        info.sys_errno = exception.errno
        info.rank = -1 if exception.rank is None else exception.rank
        info.where = _cut(exception.where, _WHERE_BYTES)
        text = exception.message.removeprefix(f"{doing}: ")
    else:
        if isinstance(exception, OSError) and isinstance(exception.errno, int):
            info.sys_errno = exception.errno
        text = _sentence(exception)
    info.message = _cut(text, _MESSAGE_BYTES)
    return info


def status_of(exception: BaseException) -> Status:
    """The status that fits a Python exception best."""
    if isinstance(exception, Error):
        return exception.status
    if isinstance(exception, OSError) and exception.errno in _STATUS_OF_ERRNO:
        return _STATUS_OF_ERRNO[exception.errno]
    if type(exception).__name__ == "OutOfMemoryError":  # torch's, a RuntimeError
        return Status.ENOMEM
    for kinds, status in _STATUS_OF_CLASS:
        if isinstance(exception, kinds):
            return status
    return Status.EPEER  # other ranks see a peer that failed


_STATUS_OF_ERRNO = {
    errnos.ENOSPC: Status.ENOSPC,
    errnos.EDQUOT: Status.ENOSPC,
    errnos.EFBIG: Status.ENOSPC,
    errnos.EROFS: Status.EPERM,
    errnos.EBUSY: Status.EBUSY,
    errnos.ENOMEM: Status.ENOMEM,
    # The same as in the library (src/base/error.c).
    errnos.ENOTDIR: Status.ENOTFOUND,
    errnos.ENOTEMPTY: Status.EEXISTS,
    errnos.ENAMETOOLONG: Status.EINVAL,
    errnos.ELOOP: Status.EUNSAFE,
    errnos.EXDEV: Status.EUNSAFE,
}
# The first match counts.
_STATUS_OF_CLASS: list[tuple[tuple[type[BaseException], ...], Status]] = [
    ((MemoryError,), Status.ENOMEM),
    ((KeyboardInterrupt, SystemExit, GeneratorExit), Status.ECANCELLED),
    ((asyncio.CancelledError, concurrent.futures.CancelledError), Status.ECANCELLED),
    ((TimeoutError, asyncio.TimeoutError, concurrent.futures.TimeoutError), Status.ETIMEDOUT),
    ((FileNotFoundError,), Status.ENOTFOUND),
    ((FileExistsError,), Status.EEXISTS),
    ((PermissionError,), Status.EPERM),
    ((OSError,), Status.EIO),
    ((NotImplementedError,), Status.EUNSUPPORTED),
    ((ValueError, TypeError, LookupError, AttributeError), Status.EINVAL),
]


def _sentence(exception: BaseException) -> str:
    """The last line of a stack trace; only the class if the exception cannot be printed."""
    try:
        text = str(exception)
    except Exception:
        text = ""
    name = type(exception).__name__
    return f"{name}: {text}" if text else name


def _cut(text: str, size: int) -> bytes:
    """UTF-8 that fits into ``size`` bytes with the NUL, cut between characters."""
    data = text.replace("\0", "\\0").encode("utf-8", "backslashreplace")[: size - 1]
    return data.decode("utf-8", "ignore").encode("utf-8")


def _status(number: int) -> Status:
    try:
        return Status(number)
    except ValueError:
        return Status.EINVAL


# The tensor or object that a message names.
_TENSOR = re.compile(r"\b(?:tensor|object) '([^']+)'")
# The beginning of a message about one tensor.
_ALONE = re.compile(r"(?:^|: )'([^'/]+)'(?: in file '[^']+')?: ")
_FILE = re.compile(
    r"\b(?:write|read|open|create|reserve|sync|rename|remove|link|stat|truncate|file)"
    r"(?: [^':]*)? '([^']+)'"
)


def _subjects(message: str) -> tuple[Optional[str], Optional[str]]:
    """The (tensor, file) that the message names."""
    file = _FILE.search(message)
    tensor = _TENSOR.search(message) or _ALONE.search(message)
    name = tensor and tensor.group(1)
    if name and name.endswith((".distcp", ".metadata")):
        return None, file.group(1) if file else name
    return name, file and file.group(1)


def _error_class() -> type[Error]:
    """`Error`, or `TorchError` where torch is loaded and can do distributed checkpoints."""
    if sys.modules.get("torch") is None:
        return Error
    try:
        return torch_error_class()
    except Exception:  # a torch without distributed, or an interpreter that is ending
        return Error


@functools.cache
def torch_error_class() -> type[Error]:
    """`Error` that also is torch's CheckpointException.  Imports torch."""
    from torch.distributed.checkpoint.api import CheckpointException

    class TorchError(Error, CheckpointException):
        __doc__ = Error.__doc__

    TorchError.__name__ = TorchError.__qualname__ = "Error"
    TorchError.__module__ = "sidestep"
    return TorchError


def _unpickled(details: dict[str, Any]) -> Error:
    """Undo `Error.__reduce__`, perhaps in another process."""
    message = details.pop("message")
    details["status"] = _status(details["status"])
    return _error_class()(message, **details)


def _plain(stack: Iterable[traceback.FrameSummary]) -> traceback.StackSummary:
    """Frames without code objects, which some Pythons keep there and which cannot be pickled."""
    frames = [(frame.filename, frame.lineno or 0, frame.name, frame.line) for frame in stack]
    return traceback.StackSummary.from_list(frames)


def _portable(exception: BaseException, stack: Any) -> tuple[BaseException, traceback.StackSummary]:
    """A failure that can be pickled, if need be only its text."""
    try:
        pickle.loads(pickle.dumps(exception))
    except Exception:
        exception = RuntimeError(_sentence(exception))
    return exception, _plain(stack or [])
