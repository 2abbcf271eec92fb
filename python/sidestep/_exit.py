# SPDX-License-Identifier: BSD-3-Clause
"""The end of the interpreter: it waits for the saves in flight."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time

from ._c.errors import Error
from ._comm_base import timeout_s
from ._handle import in_flight

log = logging.getLogger("sidestep")


class _Ending:
    """How this process treats its saves when it ends."""

    def __init__(self) -> None:
        self.pid = 0
        self.drained = False
        self.given_up: set[int] = set()  # saves that are not waited for any more
        self.until = float("inf")  # by the clock of time.monotonic()


ending = _Ending()


def at_exit() -> None:
    """Once per process: children of multiprocessing do not run atexit's functions."""
    if ending.pid == os.getpid():
        return
    ending.pid = os.getpid()
    atexit.register(drain)
    if (util := sys.modules.get("multiprocessing.util")) is not None:
        util.Finalize(None, drain, exitpriority=100)


def end_within(seconds: float) -> None:
    """Limit how long the end of the interpreter waits for saves: to this many seconds from now."""
    ending.until = time.monotonic() + seconds


def drain() -> None:
    """Wait for the saves in flight, up to the deadline for silent ranks or the end of the job's
    grace time."""
    ending.drained = True
    try:
        until = min(ending.until, time.monotonic() + timeout_s())
    except Error:
        until = time.monotonic()
    pending = [handle for handle in in_flight() if id(handle) not in ending.given_up]
    for handle in pending:
        handle._follow()
    try:
        while pending and time.monotonic() < until:
            time.sleep(0.002)
            pending = [handle for handle in in_flight() if id(handle) not in ending.given_up]
    except KeyboardInterrupt:
        pass
    for handle in pending:
        ending.given_up.add(id(handle))
        log.error("the interpreter ends before the outcome of save '%s' is known", handle.path)
