# SPDX-License-Identifier: BSD-3-Clause
"""A condition variable that an interrupt of the main thread does not leave locked."""

from __future__ import annotations

import _thread
import threading
from typing import Optional


class Condition(_thread.RLock):  # type: ignore[misc]
    """What `concurrent.futures.Future` needs of `threading.Condition`, whose ``with`` runs Python
    code with the lock held: an interrupt there leaves it locked, and the thread that completes the
    future waits for good.  The lock's own ``with`` is one step of the interpreter."""

    def __init__(self) -> None:
        self._waiters = threading.Condition(self)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """As `threading.Condition.wait`."""
        return self._waiters.wait(timeout)

    def notify_all(self) -> None:
        """As `threading.Condition.notify_all`."""
        self._waiters.notify_all()
