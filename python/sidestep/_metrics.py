# SPDX-License-Identifier: BSD-3-Clause
"""The costs of a save, as numbers for the logger of a framework."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Optional

from ._handle import SaveHandle

_MOST_NOTED = 16


def costs_of(save: SaveHandle) -> dict[str, float]:
    """The costs of a committed save on this rank.

    sidestep/stall_ms      how long the trainer was stopped, measured by the framework's adapter
    sidestep/background_s  time from the return of the call until the checkpoint existed
    sidestep/bytes         what this rank wrote
    """
    p = save.progress()
    stall_s = p.call_s if save.stall_s is None else save.stall_s
    return {
        "sidestep/stall_ms": stall_s * 1e3,
        "sidestep/background_s": p.write_s + p.commit_s,
        "sidestep/bytes": float(p.bytes_total),
    }


class Costs:
    """Reports each save once."""

    def __init__(self) -> None:
        self._noted: deque[SaveHandle] = deque(maxlen=_MOST_NOTED)
        self._told: weakref.WeakSet[SaveHandle] = weakref.WeakSet()

    def note(self, *saves: SaveHandle) -> None:
        """Add a save for `take` to report."""
        self._noted.extend(saves)

    def take(self) -> list[tuple[Optional[int], dict[str, float]]]:
        """Step and costs of the noted saves that are committed and not reported yet."""
        return list(self.of(self._noted))

    def of(self, saves: Iterable[SaveHandle]) -> Iterator[tuple[Optional[int], dict[str, float]]]:
        """Step and costs of those saves that are committed and not reported yet."""
        for save in saves:
            if save.done() and save not in self._told:
                self._told.add(save)
                if save.peek() is None:
                    yield save.step, costs_of(save)
