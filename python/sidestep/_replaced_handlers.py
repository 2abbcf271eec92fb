# SPDX-License-Identifier: BSD-3-Clause
"""Replaces the program's signal handlers for a while: during calls of the library, and imports."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# The signals for which a program may have a handler.
_NUMBERS = sorted(int(number) for number in signal.valid_signals())


class ReplacedHandlers:
    """The handlers that are written in Python, from `hold` to `release`: `_handle` runs instead.
    Only on the main thread, where Python runs them."""

    def __init__(self) -> None:
        self._old: dict[int, Any] = {}

    def hold(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            if callable(handler) and not isinstance(handler, signal.Handlers):
                self._old[number] = handler
                signal.signal(number, self._handle)

    def release(self) -> None:
        for number, handler in self._old.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def _handle(self, number: int, frame: Any) -> None:
        raise NotImplementedError


class _Later(ReplacedHandlers):
    """Notes the signals."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[int] = []

    def _handle(self, number: int, frame: Any) -> None:
        self.came.append(number)


@contextmanager
def handlers_wait() -> Iterator[None]:
    """Signals that come inside are handled afterwards: a handler that saves needs modules that are
    imported whole."""
    later = _Later()
    later.hold()
    try:
        yield
    finally:
        later.release()
        for number in later.came:
            signal.raise_signal(number)
