# SPDX-License-Identifier: BSD-3-Clause
"""The callbacks of a `Checkpointer`: what became of its saves, and what was deleted."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Optional

from ._errors import Error
from ._handle import SaveHandle, in_background
from ._series import Series

log = logging.getLogger("sidestep")


class Hooks:
    """None of them is called on a thread of the program: the training and the saves go on
    meanwhile.  Those about one save are called one after the other, in its order."""

    def __init__(
        self,
        staged: Optional[Callable[[int, SaveHandle], object]],
        committed: Optional[Callable[[int, SaveHandle], object]],
        failed: Optional[Callable[[int, Error], object]],
        deleted: Optional[Callable[[str], object]],
    ) -> None:
        self._staged, self._committed, self._failed = staged, committed, failed
        self._deleted = deleted
        self._telling = threading.RLock()

    def watch(self, step: int, handle: SaveHandle, prunes: Optional[Series]) -> None:
        """Tell of this save.  ``prunes``: the series that deletes after it; None: nothing is."""

        def staged() -> None:
            if self._staged is not None and handle.staged.peek() is None:
                self._staged(step, handle)

        def done() -> None:
            error = handle.peek()
            if isinstance(error, Error):
                if self._failed is not None:
                    self._failed(step, error)
                return
            if prunes is not None and self._deleted is not None:
                handle.tell(lambda: in_background(lambda: self.tell_deleted(prunes)))
            if self._committed is not None:
                self._committed(step, handle)

        handle.staged.add_done_callback(lambda _: handle.tell(staged))
        handle.add_done_callback(lambda _: handle.tell(done))

    def tell_deleted(self, series: Series) -> None:
        """What the library's own thread has deleted, or what is left for it to delete."""
        deleted = self._deleted
        if deleted is None:
            return
        with self._telling, contextlib.suppress(Error):  # close() waits; the next save comes again
            for path in series.prune().deleted:
                try:
                    deleted(path)
                except Exception:
                    log.exception("on_deleted of '%s'", path)
