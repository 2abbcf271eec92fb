# SPDX-License-Identifier: BSD-3-Clause
"""Runs something at one of the places where the interpreter looks for signals."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def at_place(
    job: Callable[[], Any],
    place: int,
    action: Callable[[], None],
    is_ours: Callable[[str], bool],
) -> tuple[Any, bool]:
    """Run ``job``, and ``action`` at the ``place``-th such place in the files that ``is_ours``
    accepts by their paths.  Returns what the job did, and whether it came so far.  The interpreter
    looks for signals when a function begins, when one that is not Python's returns, and when a loop
    goes back."""
    left, before = place, dict[Any, str]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "opcode":
            was = before.get(frame, "")
            before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if was.startswith(("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE")):
                left -= 1
                if left == 0:
                    action()
        elif event == "return":
            before[frame.f_back] = ""
        return trace

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        if not is_ours(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        return trace

    before_it = sys.gettrace()
    sys.settrace(enter)
    try:
        done = job()
    finally:
        sys.settrace(before_it)
    return done, left <= 0
