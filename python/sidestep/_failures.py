# SPDX-License-Identifier: BSD-3-Clause
"""How many saves of a `Checkpointer` have failed in the background."""

from __future__ import annotations

import threading

from ._errors import Error
from ._handle import SaveHandle


class Failures:
    """Counts what became of saves, in their order, and when it is asked: whoever has waited for a
    save may ask before its callbacks were called."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may ask, too
        self._waiting: list[SaveHandle] = []  # the oldest comes first
        self._total = 0
        self._in_a_row = 0

    def add(self, save: SaveHandle) -> None:
        """One that has begun."""
        with self._lock:
            self._waiting.append(save)

    def count(self) -> tuple[int, int]:
        """All of them, and those since the last save that was committed."""
        with self._lock:
            while self._waiting and self._waiting[0].done():
                failed = isinstance(self._waiting.pop(0).peek(), Error)
                self._total += failed
                self._in_a_row = self._in_a_row + 1 if failed else 0
            return self._total, self._in_a_row
