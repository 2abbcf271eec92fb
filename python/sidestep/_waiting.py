# SPDX-License-Identifier: BSD-3-Clause
"""Whether the adapters for frameworks wait for each save.  Programs need that if they look at a
checkpoint right after the call that saves it."""

from __future__ import annotations

import os

WAIT = "SIDESTEP_WAIT"


def waits() -> bool:
    """Whether SIDESTEP_WAIT=1 is set, for example by ``sidestep.run --wait``."""
    return os.environ.get(WAIT, "0") not in ("", "0")
