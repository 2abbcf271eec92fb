# SPDX-License-Identifier: BSD-3-Clause
"""Switches Python's cycle collector off while the layout of a large state is made.

Some objects are made for each tensor, and all of them stay.  The collector would traverse the whole
process each time their number has grown by a quarter.  With 100,000 tensors, that takes two fifths
of the time of a load.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Inside, no cycles are collected."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
