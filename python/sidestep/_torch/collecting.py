# SPDX-License-Identifier: BSD-3-Clause
"""Keeps Python's cycle collector away while the layout of a large state is made.

Some objects are made for each tensor, and all of them stay.  The collector would go through all of
the process each time their number has grown by a quarter: of 100,000 tensors, two fifths of the
time of a load.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Inside, no cycles are collected, if any would be."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
