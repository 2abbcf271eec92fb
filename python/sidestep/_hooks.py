# SPDX-License-Identifier: BSD-3-Clause
"""What a `Checkpointer` reports about its saves: callbacks, and the number of failures."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Optional

from ._c.errors import Error
from ._handle import SaveHandle, in_background
from ._series import Series

log = logging.getLogger("sidestep")


class Failures:
    """Counts failed saves in their order.  It counts when it is asked, because a caller that has
    waited for a save may ask before the callbacks of that save were called."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may ask, too
        self._waiting: list[SaveHandle] = []  # the oldest comes first
        self._total = 0
        self._in_a_row = 0

    def add(self, save: SaveHandle) -> None:
        """Add a save that has begun."""
        with self._lock:
            self._waiting.append(save)

    def count(self) -> tuple[int, int]:
        """The number of all failures, and of those since the last committed save."""
        with self._lock:
            while self._waiting and self._waiting[0].done():
                failed = isinstance(self._waiting.pop(0).peek(), Error)
                self._total += failed
                self._in_a_row = self._in_a_row + 1 if failed else 0
            return self._total, self._in_a_row


class Hooks:
    """The callbacks.  They run on threads of the package, while training and saves go on.

    Callbacks about saves are called one after the other: a save is staged before it ends, and saves
    end in the order of the calls.  The end of the interpreter waits for the callbacks.
    ``prunes``: the series that deletes on this rank, if there is one.
    """

    def __init__(
        self,
        staged: Optional[Callable[[int, SaveHandle], object]],
        committed: Optional[Callable[[int, SaveHandle], object]],
        failed: Optional[Callable[[int, Error], object]],
        deleted: Optional[Callable[[str], object]],
        prunes: Optional[Series],
    ) -> None:
        self._staged, self._committed, self._failed = staged, committed, failed
        self._deleted, self._prunes = deleted, prunes
        self._deleting = threading.RLock()
        self._lock = threading.Lock()  # of the next three
        self._open: deque[tuple[int, SaveHandle]] = deque()  # their end was not reported yet
        self._jobs: deque[tuple[Callable[[int, SaveHandle], None], int, SaveHandle]] = deque()
        self._runs = False

    def watch(self, step: int, handle: SaveHandle) -> None:
        """Report this save, and what is deleted after it."""
        handle._hold()
        handle.staged.add_done_callback(lambda _: self._stage(step, handle))
        with self._lock:
            self._open.append((step, handle))
        handle.add_done_callback(lambda _: self._end())

    def tell_deleted(self) -> None:
        """Report what the library's own thread has deleted; delete what is left."""
        deleted, series = self._deleted, self._prunes
        if series is None or not self._tells_of_deleted():
            return
        with self._deleting, contextlib.suppress(Error):  # close() waits; the next save asks again
            for path in series.prune():
                log.info("deleted '%s'", path)
                try:
                    if deleted is not None:
                        deleted(path)
                except Exception:
                    log.exception("on_deleted of '%s'", path)

    def _tells_of_deleted(self) -> bool:
        return self._deleted is not None or log.isEnabledFor(logging.INFO)

    def _tell_staged(self, step: int, handle: SaveHandle) -> None:
        if self._staged is not None and handle.staged.peek() is None:
            self._staged(step, handle)

    def _tell_end(self, step: int, handle: SaveHandle) -> None:
        try:
            error = handle.peek()
            if isinstance(error, Error):
                if self._failed is not None:
                    self._failed(step, error)
                return
            if self._prunes is not None and self._tells_of_deleted():
                in_background(self.tell_deleted)
            if self._committed is not None:
                self._committed(step, handle)
        finally:
            handle._let_go()

    def _stage(self, step: int, handle: SaveHandle) -> None:
        with self._lock:
            self._jobs.append((self._tell_staged, step, handle))
        self._start()

    def _end(self) -> None:
        """A save has ended: report it once all saves before it are reported."""
        with self._lock:
            while self._open and self._open[0][1].done():
                self._jobs.append((self._tell_end, *self._open.popleft()))
        self._start()

    def _start(self) -> None:
        with self._lock:
            if self._runs or not self._jobs:
                return
            self._runs = True
        in_background(self._run)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._runs = False
                    return
                tell, step, handle = self._jobs.popleft()
            try:
                tell(step, handle)
            except BaseException:
                log.exception("a callback of save '%s' raised", handle.path)
