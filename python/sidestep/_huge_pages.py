# SPDX-License-Identifier: BSD-3-Clause
"""Huge pages for the tensors of a training loop: what makes write protection cheap."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

from . import _abi
from ._errors import check
from ._flatten import flatten
from ._library import lib
from ._save import call_stateful
from ._state import StateDict


@dataclass(frozen=True)
class HugePages:
    """What `huge_pages` found and did.

    bytes       of the state, in stretches that huge pages can hold
    huge_bytes  of them on huge pages now
    took_s      seconds that it took
    reason      why the others are not, or ""
    """

    bytes: int
    huge_bytes: int
    took_s: float
    reason: str


def huge_pages(state_dict: dict[str, Any]) -> HugePages:
    """Put the tensors of ``state_dict``, a state as `async_save` takes it, on huge pages, as far as
    whole ones fit.  Neither addresses nor contents change.

    Once, after the model and the optimizer's state were made: then `async_save` holds the loop for
    1 ms per GiB at most instead of 20, and computing is often faster, too.  Not while a save has
    not RELEASED the state.  What forked processes (workers of a ``DataLoader``) split is put
    together again in the background, between two saves.
    0.2 to 3 s per GiB that has to be moved, nothing for what is on huge pages already.  Needs Linux
    6.1.  Not collective.
    """
    state = StateDict(flatten(call_stateful(state_dict)))
    report = _abi.sized(_abi.HugePages)
    err = _abi.ErrorInfo()
    check(
        lib().sidestep_state_dict_huge_pages(state.pointer, ctypes.byref(report), err),
        err,
    )
    return HugePages(
        bytes=report.bytes,
        huge_bytes=report.huge_bytes,
        took_s=report.took_ns / 1e9,
        reason=os.strerror(report.sys_errno) if report.sys_errno else "",
    )
