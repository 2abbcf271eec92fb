# SPDX-License-Identifier: BSD-3-Clause
"""Huge pages for the tensors of a training loop: with them, write protection is cheap."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ._c import abi
from ._c.calls import call
from ._c.library import lib
from ._modes import without_modes
from ._torch.flatten import flatten
from ._torch.save import call_stateful
from ._torch.state import StateDict


@dataclass(frozen=True)
class HugePages:
    """What `huge_pages` found and did.

    bytes       bytes of the state in stretches that huge pages can hold
    huge_bytes  how many of them are on huge pages now
    took_s      seconds that it took
    reason      why the others are not on huge pages, or ""
    """

    bytes: int
    huge_bytes: int
    took_s: float
    reason: str


@without_modes
def huge_pages(state_dict: dict[str, Any]) -> HugePages:
    """Put the tensors of ``state_dict``, a state as for `async_save`, on huge pages, as far as
    whole huge pages fit.  Addresses and contents stay.  Needs Linux 6.1.  Not collective.

    Optional: a background thread does the same between the first saves, while a processor is idle.
    Called once, after the model and the optimizer's state were made, and not between a save and its
    RELEASED, it is done before the first save.  Then `async_save` stops the loop for at most 1 ms
    per GiB instead of 20, and computing is often faster, too.  It takes 0.2 to 3 s per GiB that has
    to be moved.  Forked processes (workers of a ``DataLoader``) split huge pages; the background
    thread joins them again.
    """
    report = abi.HugePages()
    state = StateDict(flatten(call_stateful(state_dict)))
    call(lib().sidestep_state_dict_huge_pages, state.pointer, report)
    reason = os.strerror(report.sys_errno) if report.sys_errno else ""
    return HugePages(report.bytes, report.huge_bytes, report.took_ns / 1e9, reason)
