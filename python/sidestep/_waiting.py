# SPDX-License-Identifier: BSD-3-Clause
"""Whether the adapters for frameworks wait for each save: for programs that look at a checkpoint as
soon as the call that saves it has returned."""

from __future__ import annotations

import os

WAIT = "SIDESTEP_WAIT"


def waits() -> bool:
    """As the environment says: SIDESTEP_WAIT=1, or ``sidestep.run --wait``."""
    return os.environ.get(WAIT, "0") not in ("", "0")
