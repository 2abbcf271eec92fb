# SPDX-License-Identifier: BSD-3-Clause
"""Switches Python's cycle collector off while the layout of a large state is made or compared.

Some objects are made for each tensor.  The collector would traverse the whole process each time
their number has grown by a quarter: with 100,000 tensors, that takes two fifths of the time of a
load.  With 10,000, one such traversal is longer than the whole call of a save.
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
