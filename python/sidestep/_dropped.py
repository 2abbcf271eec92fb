# SPDX-License-Identifier: BSD-3-Clause
"""What becomes of a series whose `Checkpointer` is dropped without close(): a ResourceWarning says
so, and the root is given back, where nobody else has a part in that.

A finalizer runs in the middle of anything, so it closes nothing itself: that waits for saves, and
takes locks that its thread may hold.  A thread that is idle does it, or whoever opens the next one.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

from ._gone import when_gone
from ._handle import hand_over

if TYPE_CHECKING:
    from ._series import Series
    from ._signals import Signals

log = logging.getLogger("sidestep")

_left: deque[Series] = deque()  # its append() and popleft() are atomic: any thread's collection
_closing = threading.Lock()


def close_when_dropped(owner: Any, series: Series, signals: Signals) -> None:
    """``owner`` has opened ``series``, and installs ``signals``."""
    when_gone(owner, _leave, series, signals)


def _leave(series: Series, signals: Signals) -> None:
    if not series.is_open:
        return
    signals.remove()
    alone = series.engine.size == 1
    if alone:  # closing is collective
        _left.append(series)
        hand_over(close_left)
    warnings.warn(
        f"a Checkpointer of '{series.root}' was dropped without close(); "
        + ("it is closed now" if alone else "its ranks keep the root locked until they end"),
        ResourceWarning,
        stacklevel=3,
    )


def close_left() -> None:
    """Close what was dropped.  Waits for its saves.  Any thread, in the middle of nothing."""
    with _closing:
        while _left:
            series = _left.popleft()
            try:
                series.close()
            except Exception as error:
                log.error("close '%s', which was dropped: %s", series.root, error)


def _after_fork_in_child() -> None:
    """What was left is the parent's."""
    global _closing
    _left.clear()
    _closing = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
