# SPDX-License-Identifier: BSD-3-Clause
"""Calls of the library: raises failures, and copies and frees what the library allocates."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

from .abi import CheckObjects, ErrorInfo, LoadOptions, OnProgress, Status
from .errors import Error, check, error_info
from .library import lib

log = logging.getLogger("sidestep")


def call(function: Any, *arguments: Any, rank: Optional[int] = None) -> None:
    """Call a function whose last parameter is the error, and raise its failure.

    ``rank``: this process's own, if it is one of several.
    """
    err = ErrorInfo()
    check(function(*arguments, err), err, rank=rank)


def call_for_bytes(function: Any, *arguments: Any) -> bytes:
    """The same for a function that allocates bytes: its parameters end in (data, length, err)."""
    data, length = ctypes.c_void_p(), ctypes.c_size_t()
    call(function, *arguments, data, length)
    try:
        return ctypes.string_at(data, length.value)
    finally:
        lib().sidestep_bytes_free(data)


def texts(array: Any, count: int) -> tuple[str, ...]:
    """The first ``count`` strings of an array of the library's."""
    return tuple(map(os.fsdecode, array[:count]))


def run_cancellable(name: str, options: Any, function: Any, *arguments: Any) -> None:
    """`call` in a thread called ``name``, for calls that take long: an interrupt of this thread
    cancels it by ``options.cancel``, and is raised when it has ended."""
    options.cancel = ctypes.pointer(ctypes.c_bool(False))
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call(function, *arguments)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    except BaseException:
        options.cancel.contents.value = True
        thread.join()
        raise
    if failed:
        raise failed[0]


def report_progress(options: Any, progress: Optional[Callable[[int, int], None]]) -> None:
    """Make the library call ``progress(done, total)``, through ``options.on_progress``.  What that
    raises is logged."""
    if progress is None:
        return

    def tell(context: Optional[int], done: int, total: int) -> None:
        try:
            progress(done, total)
        except Exception:
            log.exception("the progress callback failed")

    options.on_progress = OnProgress(tell)


def when_gone(
    owner: Any, function: Callable[..., object], *arguments: Any
) -> weakref.finalize[Any, Any]:
    """Call ``function(*arguments)`` once ``owner`` is collected: on any thread, between any two
    instructions.  ``arguments`` must not refer to ``owner``.

    It is not called at the end of the interpreter, when modules are half gone: the process frees
    everything then.
    """
    made = weakref.finalize(owner, function, *arguments)
    made.atexit = False
    return made


@contextmanager
def objects_checked(
    look: Optional[Callable[[], None]], options: LoadOptions, doing: str
) -> Iterator[None]:
    """Surrounds a load that calls ``look`` when the objects are there."""
    raised: list[BaseException] = []

    def check_objects(_: object, err: Any) -> int:
        assert look is not None
        try:
            look()
            return int(Status.OK)
        except BaseException as failure:
            raised.append(failure)
            err[0] = error_info(failure, doing)
            return int(err[0].status)

    if look is not None:
        options.check_objects = CheckObjects(check_objects)
    try:
        yield
    except Error:
        if raised:
            raise raised[0] from raised[0].__cause__
        raise
