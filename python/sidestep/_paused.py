# SPDX-License-Identifier: BSD-3-Clause
"""Parts of training that no save in the background may disturb."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ._engine import Engine, open_engines

_lock = threading.Lock()
_paused: set[Engine] = set()
_depth = 0


@contextmanager
def paused() -> Iterator[None]:
    """Let the background writes of all saves of this process stand still, after those in flight.

        with sidestep.paused():
            answer(request)

    A save that somebody waits for (`SaveHandle.result`, `wait`, the next save, the end) goes on,
    and so do those of engines that are first used meanwhile.  Blocks may be nested, and threads may
    have theirs side by side: writes go on when the last one is left.
    """
    global _depth
    with _lock:
        _depth += 1
        for engine in open_engines():
            engine.pause(True)
            _paused.add(engine)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            while _depth == 0 and _paused:
                _paused.pop().pause(False)
