# SPDX-License-Identifier: BSD-3-Clause
"""What a save's handle is to those who hold it: a future with stages and progress."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import re
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from saving import held_saves, load, save

import sidestep
from sidestep._comm import Comm
from sidestep._engine import Engine, engine_alone
from sidestep._handle import Progress, SaveHandle, in_flight


def values(n: int = 1000) -> dict[str, Any]:
    return {"model": {"w": torch.arange(n, dtype=torch.float32)}, "step": 3}


def test_it_is_a_future(tmp_path: Path) -> None:
    made: list[int] = []
    order: list[str] = []

    def make() -> str:
        made.append(1)
        return f"metadata {len(made)}"

    with held_saves() as go:
        handle = save(engine_alone(), tmp_path / "c", values(), result=make)
        assert isinstance(handle, concurrent.futures.Future)
        stages = (handle.staged, handle.released, handle.written, handle.committed)
        assert all(isinstance(stage, concurrent.futures.Future) for stage in stages)
        assert [stage.done() for stage in stages] == [True, True, False, False]
        assert handle.staging_completion is handle.staged
        assert handle.upload_completion.result is not None
        assert handle.running() and not handle.done()
        assert [stage.cancel() for stage in stages] == [False] * 4
        assert not any(stage.cancelled() for stage in stages)
        began = time.monotonic()
        assert handle.wait(0.05) is False
        with pytest.raises(concurrent.futures.TimeoutError):
            handle.result(timeout=0.05)
        with pytest.raises(concurrent.futures.TimeoutError):
            handle.exception(timeout=0.05)
        assert time.monotonic() - began < 5
        handle.add_done_callback(lambda future: order.append("first"))
        handle.add_done_callback(lambda future: order.append(future.result()))
        assert handle in in_flight()
        go.set()
        assert handle.wait() is True
    assert handle.result() == "metadata 1"
    assert handle.result(5) == "metadata 1" and made == [1]
    assert handle.exception() is None
    assert handle.written.result() is None and handle.staged.result() is None
    handle.add_done_callback(lambda future: order.append("late"))
    for _ in range(500):
        if handle not in in_flight():
            break
        time.sleep(0.01)
    assert order == ["first", "metadata 1", "late"] or order == ["first", "late", "metadata 1"]
    assert handle not in in_flight()
    target = torch.zeros(1000)
    load(engine_alone(), tmp_path / "c", {"model": {"w": target}})
    assert torch.equal(target, values()["model"]["w"])


def test_others_wait_for_it_as_for_any(tmp_path: Path) -> None:
    handles = [save(engine_alone(), tmp_path / f"c{i}", values(), result=str) for i in range(3)]
    done, pending = concurrent.futures.wait(handles, timeout=30)
    assert (len(done), len(pending)) == (3, 0)
    assert len(list(concurrent.futures.as_completed(handles, timeout=30))) == 3
    more = save(engine_alone(), tmp_path / "c3", values(), result=lambda: "m")

    async def waiting() -> list[Any]:
        first = await more
        rest = await asyncio.gather(*(asyncio.wrap_future(handle.written) for handle in handles))
        return [first, *rest]

    assert asyncio.run(waiting()) == ["m", None, None, None]


def test_await_can_be_given_up(tmp_path: Path) -> None:
    with held_saves() as go:
        handle = save(engine_alone(), tmp_path / "c", values())

        async def impatient() -> bool:
            async def waiting() -> None:
                await handle

            try:
                await asyncio.wait_for(waiting(), 0.05)
            except (asyncio.TimeoutError, TimeoutError):
                return True
            return False

        assert asyncio.run(impatient())
        assert not handle.done() and not handle.cancelled()
        go.set()
    handle.result(30)


def test_progress(tmp_path: Path) -> None:
    handle = save(engine_alone(), tmp_path / "c", values(250_000))
    early = handle.progress()
    assert isinstance(early, Progress)
    assert early.state in ("staged", "released", "written", "committed")
    assert early.bytes_staged >= 1_000_000
    assert early.call_s >= early.stage_s > 0
    handle.result(30)
    end = handle.progress()
    assert (end.state, len(end.save_id)) == ("committed", 32)
    assert end.bytes_written == end.bytes_total > 1_000_000
    assert end.write_s > 0 and end.commit_s > 0
    assert repr(handle) == f"<sidestep.SaveHandle {str(tmp_path / 'c')!r} committed>"
    again = save(engine_alone(), tmp_path / "c", values(250_000))
    again.result(30)
    assert again.progress().plan_reused and not end.plan_reused


def put_into_a_queue(tensor: torch.Tensor) -> None:
    queue = torch.multiprocessing.get_context("spawn").Queue()
    queue.put(tensor)
    until = time.monotonic() + 60
    while not tensor.is_shared() and time.monotonic() < until:  # by the thread of the queue
        time.sleep(0.001)
    queue.cancel_join_thread()


MOVES = {
    "share_memory_": (lambda tensor: tensor.share_memory_(), "moved to shared memory"),
    "queue": (put_into_a_queue, "moved to shared memory"),
    "resize_": (lambda tensor: tensor.untyped_storage().resize_(0), "resized or freed"),
}


@pytest.mark.parametrize("how", MOVES)
def test_memory_that_is_moved_before_released_is_named(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the storage that was moved is, and swapped tensors are none of them."""
    move, said = MOVES[how]
    state = {"first": torch.ones(1 << 20), "step": 1, "moved": torch.ones(16 << 20)}
    state["last"] = torch.ones(1 << 20)
    monkeypatch.setenv("SIDESTEP_COPY_AHEAD", "never")
    with Engine(Comm()) as engine:
        engine.pause(True)
        try:
            handle = save(engine, tmp_path / "c", state)
            held = handle.progress().snapshot == "cow" and not handle.released.done()
            if held:
                state["first"].data = torch.zeros(3)
                move(state["moved"])
        finally:
            engine.pause(False)
        error = handle.exception(60)
        if not held:
            pytest.skip(f"memory is not held here: {handle.progress().copy_reason}")
        assert isinstance(error, sidestep.Error) and error.tensor == "moved"
        assert f"the storage of tensor 'moved' has been {said}" in error.message
        assert "Wait for RELEASED" in error.message
        handle = save(engine, tmp_path / "c", {"last": state["last"]})
        handle.released.result(60)
        move(state["last"])
        assert handle.wait(60)


def test_storages_are_let_go(tmp_path: Path) -> None:
    handle = save(engine_alone(), tmp_path / "c", values())
    handle.released.result(30)
    assert handle._keep is None
    handle.result(30)
    engine_alone()._saves.clear()
    there = weakref.ref(handle)
    del handle
    for _ in range(200):
        gc.collect()
        if there() is None:
            break
        time.sleep(0.01)
    assert there() is None


def test_one_line_a_save(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sidestep")
    save(engine_alone(), tmp_path / "c", values(250_000)).result(30)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "sidestep"]
    pattern = (
        r"saved '.*/c': training waited \d+\.\d ms, \d+\.\d+ s in the background, "
        r"1\.\d+ MB of rank 0"
    )
    assert re.fullmatch(pattern + r"( \(storage that a power loss empties\))?", line), line


def test_callbacks_that_raise(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ordinary exceptions, sys.exit() and KeyboardInterrupt: logged, and the rest goes on."""
    ran: list[int] = []

    def raising(problem: BaseException) -> Any:
        def callback(future: Any) -> None:
            ran.append(threading.get_ident())
            raise problem

        return callback

    with held_saves() as go:
        handle = save(engine_alone(), tmp_path / "c", values())
        for problem in (ValueError("one"), SystemExit(3), KeyboardInterrupt()):
            handle.add_done_callback(raising(problem))
        handle.add_done_callback(lambda future: ran.append(threading.get_ident()))
        go.set()
        assert handle.wait(30)
    for _ in range(500):
        if len(ran) == 4:
            break
        time.sleep(0.01)
    assert len(ran) == 4 and threading.get_ident() not in ran
    text = caplog.text
    assert "ValueError: one" in text and "SystemExit: 3" in text and "KeyboardInterrupt" in text
    with pytest.raises(SystemExit):  # done already: it runs here, and is the caller's
        handle.add_done_callback(raising(SystemExit(4)))
    save(engine_alone(), tmp_path / "d", values()).result(30)


def test_a_save_that_is_given_up(tmp_path: Path) -> None:
    """The checkpoint before it stays, and the next save knows nothing of it."""
    save(engine_alone(), tmp_path / "c", values()).result(30)
    with sidestep.paused():
        large = {"model": {"w": torch.zeros(4_000_000)}, "step": 4}
        handle = save(engine_alone(), tmp_path / "c", large)
        handle.abort()
        with pytest.raises(sidestep.Error, match="the program gave it up") as caught:
            handle.result(30)
    assert caught.value.status.name == "EABORTED"
    handle.abort()  # nothing to do
    assert sidestep.read(tmp_path / "c", "step") == 3
    handle = save(engine_alone(), tmp_path / "c", {**values(), "step": 5})
    handle.wait(30)
    handle.abort()  # too late
    handle.result()
    assert sidestep.read(tmp_path / "c", "step") == 5


def test_a_callback_may_save(tmp_path: Path) -> None:
    """On the same engine, and wait for it."""
    nested: list[Any] = []

    def callback(future: Any) -> None:
        nested.append(save(engine_alone(), tmp_path / "d", values()).wait(30))

    save(engine_alone(), tmp_path / "c", values()).add_done_callback(callback)
    for _ in range(1000):
        if nested:
            break
        time.sleep(0.01)
    assert nested == [True]
    assert (tmp_path / "d" / ".metadata").exists()


INTERRUPTED = """
import os, signal, sys, threading, time
import torch
from saving import held_saves, save
from sidestep._engine import engine_alone

engine, path = engine_alone(), sys.argv[1]
values = {"w": torch.ones(10)}
with held_saves() as go:
    first = save(engine, path + "/a", values)
    waits = [first.result, first.wait, first.exception, first.written.result,
             lambda: save(engine, path + "/b", values), lambda: save(engine, path + "/b", values)]
    for wait in waits:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        try:
            wait()
        except KeyboardInterrupt:
            assert time.monotonic() - began < 5
            print("interrupted", flush=True)
        timer.join()
    assert not first.done()
    go.set()
first.result(30)
save(engine, path + "/b", values).result(30)
print(sorted(os.listdir(path)))
"""


def test_ctrl_c_ends_waits_and_nothing_else(tmp_path: Path) -> None:
    """In result(), wait(), exception(), and in a save that waits for the one before."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["interrupted"] * 6 + ["['a', 'b']"]


FAILS = """
import logging, resource, signal, sys
import torch
from saving import save
from sidestep._engine import engine_alone
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
engine, path = engine_alone(), sys.argv[1]
save(engine, path, {"w": torch.ones(10)}).result(30)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
handle = save(engine, path, {"w": torch.ones(1_000_000)})
import sidestep
for ask in (handle.result, handle.wait, handle.written.result):
    try:
        ask()
    except sidestep.Error as error:
        print("ERROR", error.status.name, handle.exception() is error)
print("staged", handle.staged.exception(), handle.progress().state)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
save(engine, path, {"w": torch.ones(10)}).result(30)
"""


def test_a_save_that_fails(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILS, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("ERROR ")] == ["ERROR ENOSPC True"] * 3, lines
    (staged,) = [line for line in lines if line.startswith("staged")]
    assert staged.endswith(" aborted")  # without an error, if somebody looked in between
    (logged,) = [line for line in lines if line.startswith("ERROR:sidestep:")]
    assert "File too large" in logged and "ENOSPC, EFBIG" in logged
    assert len([line for line in lines if "training waited" in line]) == 2


def test_threads_are_reused(tmp_path: Path) -> None:
    for i in range(20):
        save(engine_alone(), tmp_path / "c", values(10 + i % 2)).result(30)
    waiters = [thread for thread in threading.enumerate() if thread.name == "sidestep-wait"]
    assert 1 <= len(waiters) <= 8
    assert all(thread.daemon for thread in waiters)


def test_polling_while_it_ends(tmp_path: Path) -> None:
    """progress() from other threads, while the handle is given back."""
    stop = threading.Event()
    handles: list[SaveHandle] = []
    seen: list[str] = []

    def poll() -> None:
        while not stop.is_set():
            for handle in list(handles):
                seen.append(handle.progress().state)

    pollers = [threading.Thread(target=poll, daemon=True) for _ in range(3)]
    for poller in pollers:
        poller.start()
    for _ in range(15):
        handles.append(save(engine_alone(), tmp_path / "c", values()))
    handles[-1].result(30)
    stop.set()
    for poller in pollers:
        poller.join(30)
    assert "committed" in seen and len(seen) > 15
    assert {handle.progress().state for handle in handles} == {"committed"}
