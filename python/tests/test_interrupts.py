# SPDX-License-Identifier: BSD-3-Clause
"""An interrupt of who waits for a save, at each place where the interpreter looks for signals."""

from __future__ import annotations

import dis
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import sidestep
from sidestep._handle import SaveHandle

FILES = ("sidestep/_handle.py", "sidestep/_condition.py", "futures/_base.py", "threading.py")


def interrupt(job: Callable[[], object], place: int) -> bool:
    """Run ``job`` and interrupt it at the ``place``-th such place, in files that have to do with
    waiting; whether it came so far.  The interpreter looks for signals when a function begins,
    when one that is not Python's returns, and when a loop goes back."""
    left, before = place, dict[Any, str]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "opcode":
            was = before.get(frame, "")
            before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if was.startswith(("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE")):
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
        elif event == "return":
            before[frame.f_back] = ""
        return trace

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        if not frame.f_code.co_filename.endswith(FILES):
            return None
        frame.f_trace_opcodes = True
        return trace

    before_it = sys.gettrace()
    sys.settrace(enter)
    try:
        job()
    except KeyboardInterrupt:
        return True
    except TimeoutError:
        return False
    finally:
        sys.settrace(before_it)
    return False


def is_free(lock: Any) -> bool:
    """For another thread."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    return found[0]


def test_the_rig_sees_what_stays_locked() -> None:
    def use(condition: threading.Condition) -> None:
        with condition:
            condition.notify_all()

    conditions = [threading.Condition(threading.Lock()) for _ in range(100)]
    hit = [interrupt(lambda c=condition: use(c), i + 1) for i, condition in enumerate(conditions)]
    assert any(hit) and not all(hit)
    assert not all(is_free(condition) for condition in conditions)


@pytest.mark.parametrize(
    "job",
    [
        lambda handle: handle.wait(0.001),
        lambda handle: handle.result(0.001),
        lambda handle: handle.written.exception(0.001),
        lambda handle: handle.add_done_callback(lambda _: None),
        lambda handle: handle.done(),
    ],
    ids=["wait", "result", "written", "callback", "done"],
)
def test_the_save_ends_and_others_learn_of_it(
    tmp_path: Path, job: Callable[[SaveHandle], object]
) -> None:
    state, place, came_so_far = {"w": torch.zeros(100)}, 0, True
    while came_so_far:
        place += 1
        with sidestep.paused():
            handle = sidestep.async_save(state, checkpoint_id=tmp_path / "saved")
            came_so_far = interrupt(lambda: job(handle), place)  # noqa: B023
        learnt: list[bool] = []
        other = threading.Thread(target=lambda: learnt.append(handle.wait()), daemon=True)  # noqa: B023
        other.start()
        until = time.monotonic() + 60
        while not learnt and time.monotonic() < until:
            time.sleep(0.001)
        assert learnt == [True], f"place {place}"
    assert place > 1
