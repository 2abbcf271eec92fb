# SPDX-License-Identifier: BSD-3-Clause
"""`paused`: stops background writes during a part of training."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ._engine import Engine, open_engines

_lock = threading.RLock()
_paused: set[Engine] = set()
_depth = 0


@contextmanager
def paused() -> Iterator[None]:
    """Stop the background writes of all saves of this process, after those in flight.

        with sidestep.paused():
            answer(request)

    A save that somebody waits for goes on (`SaveHandle.result`, `wait`, the next save, the end).
    So do saves of engines that are first used meanwhile.  Blocks may be nested, and several threads
    may have blocks at once: writes go on when the last block ends.
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
