# SPDX-License-Identifier: BSD-3-Clause
"""The callbacks of a `Checkpointer`: what became of its saves, and what was deleted."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Optional

from ._errors import Error
from ._handle import SaveHandle, in_background
from ._series import Series

log = logging.getLogger("sidestep")


class _Watched(NamedTuple):
    step: int
    handle: SaveHandle


class Hooks:
    """None of them is called on a thread of the program: the training and the saves go on
    meanwhile.  Those about saves are called one after the other: each save is staged before it has
    ended, and they end in the order of the calls.  The end of the interpreter waits for them.
    ``prunes``: the series that deletes on this rank, if any does."""

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
        self._open: deque[_Watched] = deque()  # have not ended, as far as was told
        self._jobs: deque[tuple[Callable[[_Watched], None], _Watched]] = deque()
        self._runs = False

    def watch(self, step: int, handle: SaveHandle) -> None:
        """Tell of this save, and of what is deleted after it."""
        save = _Watched(step, handle)
        handle.hold()
        handle.staged.add_done_callback(lambda _: self._stage(save))
        with self._lock:
            self._open.append(save)
        handle.add_done_callback(lambda _: self._end())

    def tell_deleted(self) -> None:
        """What the library's own thread has deleted, or what is left for it to delete."""
        deleted, series = self._deleted, self._prunes
        if deleted is None or series is None:
            return
        with self._deleting, contextlib.suppress(Error):  # close() waits; the next save comes again
            for path in series.prune().deleted:
                try:
                    deleted(path)
                except Exception:
                    log.exception("on_deleted of '%s'", path)

    def _tell_staged(self, save: _Watched) -> None:
        if self._staged is not None and save.handle.staged.peek() is None:
            self._staged(save.step, save.handle)

    def _tell_end(self, save: _Watched) -> None:
        try:
            error = save.handle.peek()
            if isinstance(error, Error):
                if self._failed is not None:
                    self._failed(save.step, error)
                return
            if self._deleted is not None and self._prunes is not None:
                in_background(self.tell_deleted)
            if self._committed is not None:
                self._committed(save.step, save.handle)
        finally:
            save.handle.let_go()

    def _stage(self, save: _Watched) -> None:
        with self._lock:
            self._jobs.append((self._tell_staged, save))
        self._start()

    def _end(self) -> None:
        """One has ended: it is told of when those before it have, too."""
        with self._lock:
            while self._open and self._open[0].handle.done():
                self._jobs.append((self._tell_end, self._open.popleft()))
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
                tell, save = self._jobs.popleft()
            try:
                tell(save)
            except BaseException:
                log.exception("a callback of save '%s' raised", save.handle.path)
