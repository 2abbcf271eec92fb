# SPDX-License-Identifier: BSD-3-Clause
"""A key-value store of torch whose calls end in time.

If the host of a TCPStore is cut off from the network, a call returns after a quarter of an hour, if
at all, whatever its timeout is.  So a thread makes the calls, and is abandoned when one of them
takes too long.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Optional

__all__ = ["BoundedStore", "Unanswered"]

_LOOK_S = 0.1  # between two looks at whether it is time to give up


class Unanswered(Exception):
    """The store did not answer in time, this time or before."""


class _Call:
    """One call of the store, and its result."""

    def __init__(self, run: Callable[..., Any], *arguments: Any) -> None:
        self._run = run
        self._arguments = arguments
        self._result: Any = None
        self._error: Optional[BaseException] = None
        self.is_done = threading.Lock()  # acquired until then
        self.is_done.acquire()

    def make(self) -> None:
        try:
            self._result = self._run(*self._arguments)
        except BaseException as error:
            self._error = error
        self.is_done.release()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


class BoundedStore:
    """Wraps ``store``.  A call that began at ``begin`` returns, or raises `Unanswered`, soon after
    ``until(begin)``.  Both times are those of time.monotonic()."""

    def __init__(self, store: Any, until: Callable[[float], float]) -> None:
        self._store = store
        self._until = until
        self._calls: queue.SimpleQueue[Optional[_Call]] = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self.is_silent = False

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask(self._store.check, keys))

    def get(self, key: str) -> bytes:
        return bytes(self._ask(self._store.get, key))

    def set(self, key: str, value: bytes) -> None:
        self._ask(self._store.set, key, value)

    def delete_key(self, key: str) -> None:
        self._ask(self._store.delete_key, key)

    def close(self) -> None:
        """Release the store."""
        if self._thread is not None:
            self._calls.put(None)
            if not self.is_silent:
                self._thread.join()
        self._store = self._thread = None

    def _ask(self, run: Callable[..., Any], *arguments: Any) -> Any:
        if self._thread is None:
            self._thread = threading.Thread(
                target=_make_calls, args=(self._calls,), name="sidestep-board", daemon=True
            )
            self._thread.start()
        began = time.monotonic()
        call = _Call(run, *arguments)
        self._calls.put(call)
        while self.is_silent or not call.is_done.acquire(timeout=_LOOK_S):
            self.is_silent = self.is_silent or time.monotonic() > self._until(began)
            if self.is_silent:
                raise Unanswered("the key-value store of the ranks does not answer")
        return call.result()


def _make_calls(calls: queue.SimpleQueue[Optional[_Call]]) -> None:
    while True:
        call = calls.get()
        if call is None:
            return
        call.make()
        del call  # and what it refers to
