# SPDX-License-Identifier: BSD-3-Clause
"""An interrupt of who waits for a save, at each place where the interpreter looks for signals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from places import at_place

import sidestep
from sidestep._handle import SaveHandle

FILES = ("sidestep/_handle.py", "sidestep/_condition.py", "futures/_base.py", "threading.py")


def interrupt(job: Callable[[], object], place: int) -> bool:
    """Run ``job`` and interrupt it at the ``place``-th place where the interpreter looks for
    signals, in files that have to do with waiting; whether it came so far."""

    def stop() -> None:
        raise KeyboardInterrupt

    try:
        at_place(job, place, stop, lambda path: path.endswith(FILES))
    except KeyboardInterrupt:
        return True
    except TimeoutError:
        return False
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
