# SPDX-License-Identifier: BSD-3-Clause
"""A save in flight, as its caller holds it: a future of the checkpoint, with its stages as futures.

One thread per save in flight waits in C, without the GIL, and sets the futures in order; it is the
only one that touches the library's handle, but for `progress()`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Optional

from . import _abi
from ._abi import SaveState
from ._device import streams_of
from ._errors import Error, error_of
from ._library import lib

log = logging.getLogger("sidestep")
_LAST_TURN = 0xFFFFFFFF


@dataclass(frozen=True)
class Progress:
    """How far a save is on this rank, and what it cost.  Sizes in bytes, times in seconds; the time
    of a phase that has not ended is 0.

    state          "staging", "staged", "released", "written", "committed", "aborted", "unknown"
    bytes_total    what this rank writes
    call_s         the trainer was stopped, of which
    wait_s         ... for an earlier save
    plan_s         ... to agree and to plan
    pool_s         ... to allocate staging memory (first save)
    stage_s        ... to copy
    write_s        in the background, until this rank's bytes were durable
    commit_s       in the background, from then until the checkpoint existed (rank 0)
    plan_reused    the layout was that of the save before
    streamed       staging memory was short: part of the state was written during the call
    volatile       the storage does not survive power loss (tmpfs and the like)
    direct_io      written past the page cache
    io_depth       requests in flight, at most, while it was written (once written)
    snapshot       "cow" if memory was write-protected instead of copied, else "copy"
    cow_bytes      write-protected; copied in the background
    copy_bytes     copied during the call
    copy_reason    why anything large was copied, or ""
    release_s      in the background, until all was copied and memory might be freed
    faults         writes of the program that had to wait for a copy, of which
    faults_waited  ... for one that was under way already
    fault_bytes    copied because of them
    fault_s        how long they waited, all threads together
    fault_max_s    the longest of them
    faults_disk    faults that had to wait for room in the staging memory
    pool_bytes     of staging memory, that were needed at once (known once written)
    ahead_bytes    copied in the background, ahead of the disk
    live_bytes     written straight from the tensors, without a copy
    raw_bytes      with compression, once written: of what was compressed or tried, ...
    stored_bytes   ... what it takes
    encode_s       all threads together
    gains          the same by dtype ("objects" for these): (raw bytes, stored bytes, seconds)
    device_bytes   copied from devices, by their own copy engines; of which
    fenced_bytes   ... late: beside the next forward and backward
    device_s       from the beginning of the call until they were copied
    fence_s        the host waited in fences
    pageable       staging memory could not be pinned, so these copies were slow
    pin_reason     why, or ""
    linked_bytes   of bytes_total: shared with an earlier checkpoint, not written (once written)
    link_reason    why what could have been shared was written, or ""
    huge_bytes     after it: put on huge pages again, which forked processes had split ...
    huge_s         ... in this time of a background thread
    """

    state: str
    save_id: str
    bytes_total: int
    bytes_staged: int
    bytes_written: int
    call_s: float
    wait_s: float
    plan_s: float
    pool_s: float
    stage_s: float
    write_s: float
    commit_s: float
    plan_reused: bool
    streamed: bool
    volatile: bool
    direct_io: bool
    io_depth: int
    snapshot: str
    cow_bytes: int
    copy_bytes: int
    copy_reason: str
    release_s: float
    faults: int
    faults_waited: int
    fault_bytes: int
    fault_s: float
    fault_max_s: float
    faults_disk: int
    pool_bytes: int
    ahead_bytes: int
    live_bytes: int
    raw_bytes: int
    stored_bytes: int
    encode_s: float
    gains: dict[str, tuple[int, int, float]]
    device_bytes: int
    fenced_bytes: int
    device_s: float
    fence_s: float
    pageable: bool
    pin_reason: str
    linked_bytes: int
    link_reason: str
    huge_bytes: int
    huge_s: float


def _state_name(state: int) -> str:
    return SaveState(state).name[len("SAVE_") :].lower()


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def _progress_of(info: _abi.SaveInfo, waited_s: float) -> Progress:
    return Progress(
        state=_state_name(info.state),
        save_id=info.save_id.decode("ascii", "replace"),
        bytes_total=info.bytes_total,
        bytes_staged=info.bytes_staged,
        bytes_written=info.bytes_written,
        call_s=info.call_ns / 1e9 + waited_s,
        wait_s=info.wait_ns / 1e9 + waited_s,
        plan_s=info.plan_ns / 1e9,
        pool_s=info.pool_ns / 1e9,
        stage_s=info.stage_ns / 1e9,
        write_s=info.write_ns / 1e9,
        commit_s=info.commit_ns / 1e9,
        plan_reused=bool(info.flags & _abi.SAVE_PLAN_REUSED),
        streamed=bool(info.flags & _abi.SAVE_STREAMED),
        volatile=bool(info.flags & _abi.SAVE_VOLATILE),
        direct_io=bool(info.flags & _abi.SAVE_DIRECT_IO),
        io_depth=info.io_depth,
        snapshot="cow" if info.snapshot == _abi.Snapshot.SNAPSHOT_COW else "copy",
        cow_bytes=info.cow_bytes,
        copy_bytes=info.copy_bytes,
        copy_reason=info.copy_reason.decode("utf-8", "replace"),
        release_s=info.release_ns / 1e9,
        faults=info.faults,
        faults_waited=info.faults_waited,
        fault_bytes=info.fault_bytes,
        fault_s=info.fault_ns / 1e9,
        fault_max_s=info.fault_max_ns / 1e9,
        faults_disk=info.faults_disk,
        pool_bytes=info.pool_bytes,
        ahead_bytes=info.ahead_bytes,
        live_bytes=info.live_bytes,
        raw_bytes=info.raw_bytes,
        stored_bytes=info.stored_bytes,
        encode_s=info.encode_ns / 1e9,
        gains=_gains(info),
        device_bytes=info.device_bytes,
        fenced_bytes=info.fenced_bytes,
        device_s=info.device_ns / 1e9,
        fence_s=info.fence_ns / 1e9,
        pageable=bool(info.flags & _abi.SAVE_PAGEABLE),
        pin_reason=info.pin_reason.decode("utf-8", "replace"),
        linked_bytes=info.linked_bytes,
        link_reason=info.link_reason.decode("utf-8", "replace"),
        huge_bytes=info.huge_bytes,
        huge_s=info.huge_ns / 1e9,
    )


def _gains(info: _abi.SaveInfo) -> dict[str, tuple[int, int, float]]:
    gains = {}
    for number, gain in enumerate(info.gains):
        if gain.raw_bytes:
            name = lib().sidestep_dtype_name(number).decode() if number else "objects"
            gains[name] = gain.raw_bytes, gain.stored_bytes, gain.encode_ns / 1e9
    return gains


class _Stage(concurrent.futures.Future[Any]):
    """A future that the library completes: it cannot be cancelled, and whoever asks it for the
    outcome of a save has been told of its failure."""

    def __init__(self, owner: Optional[SaveHandle] = None) -> None:
        super().__init__()
        self._owner = owner
        self.set_running_or_notify_cancel()

    def cancel(self) -> bool:
        """False: a save that has begun is finished on all ranks, or on none."""
        return False

    def result(self, timeout: Optional[float] = None) -> Any:
        self._hurry()
        try:
            return super().result(timeout)
        finally:
            self._told()

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        self._hurry()
        try:
            return super().exception(timeout)
        finally:
            self._told()

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """As in `concurrent.futures`.  Runs on the package's thread once the stage is reached, or
        at once.  There, whatever it raises is logged, SystemExit too."""
        super().add_done_callback(_Contained(fn))

    def _hurry(self) -> None:
        """Somebody waits: the library need not give way to training any more."""
        if not self.done() and self._owner is not None:
            self._owner.hurry()

    def _told(self) -> None:
        """The outcome was given to somebody, if there is one that failed."""
        if self.done() and self.peek() is not None and self._owner is not None:
            self._owner._was_told = True

    def peek(self) -> Optional[BaseException]:
        """The exception, without having asked for it; None if not done."""
        return super().exception() if self.done() else None

    def pending(self) -> bool:
        return not self.done()

    def settle(self, error: Optional[BaseException], value: Any = None) -> None:
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)


class _Contained:
    """A callback that cannot end the thread that others wait for."""

    def __init__(self, fn: Callable[[Any], object]) -> None:
        self._fn = fn

    def __call__(self, future: Any) -> None:
        try:
            self._fn(future)
        except Exception:
            raise  # concurrent.futures logs it
        except BaseException:
            if not isinstance(threading.current_thread(), _Waiter):
                raise
            log.exception("a callback of a save raised")


class SaveHandle(_Stage):
    """A save: a `concurrent.futures.Future` of the checkpoint's metadata, done when committed.

    Besides a future's methods, and each a future too:
    staged     the tensors may be modified
    released   their memory may be freed or resized
    written    this rank's bytes are durable
    committed  the checkpoint exists (this object)
    staging_completion, upload_completion: stock DCP's names for `staged` and `committed`

    `await handle` waits for it in asyncio.  An error that nobody asks for is raised by the next
    save or load on the same ranks.  Any thread may use it; in a child of fork() it is done, with an
    `Error` that says so.
    """

    def __init__(
        self,
        engine: Any,
        pointer: ctypes.c_void_p,
        path: str,
        *,
        keep: Any = None,
        result: Optional[Callable[[], Any]] = None,
        waited_s: float = 0.0,
        devices: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__()
        self._devices = devices
        self._owner = self
        self.path = path
        self.staged = _Stage(self)
        self.released = _Stage(self)
        self.written = _Stage(self)
        self._engine: Any = engine  # the library's save must not outlive it
        self._pointer = pointer
        self._keep = keep
        self._make_result = result
        self._result_lock = threading.Lock()
        self._result_made: list[Any] = []
        self._lock = threading.Lock()
        self._waited_s = waited_s
        self._was_told = False
        self._info = _abi.sized(_abi.SaveInfo)
        _in_flight[id(self)] = self
        self._poll()
        for state, stage in self._stages()[:2]:
            if self._info.state >= state and self._info.state <= SaveState.SAVE_COMMITTED:
                self._reach(state, stage)
        in_background(self._watch)

    # -- what callers use

    @property
    def committed(self) -> SaveHandle:
        return self

    @property
    def staging_completion(self) -> Any:
        return self.staged

    @property
    def upload_completion(self) -> SaveHandle:
        return self

    def result(self, timeout: Optional[float] = None) -> Any:
        """The checkpoint's metadata, once it is committed.

        Raises `Error` if there is no checkpoint, or if nobody can tell (status EUNKNOWN);
        concurrent.futures.TimeoutError after ``timeout`` seconds (the save goes on).
        """
        value = super().result(timeout)
        if self._make_result is None:
            return value
        with self._result_lock:
            if not self._result_made:
                self._result_made.append(self._make_result())
            return self._result_made[0]

    def wait(self, timeout: Optional[float] = None) -> bool:
        """True once it is committed, False if it is not after ``timeout`` seconds.

        Raises `Error` if it has failed.  Ctrl-C ends the wait, not the save.
        """
        self._hurry()
        if not concurrent.futures.wait([self], timeout).done:
            return False
        super().result()
        return True

    def hurry(self) -> None:
        """From now on at full priority and speed, as if somebody waited for it."""
        with self._lock:
            if self._pointer:
                lib().sidestep_save_hurry(self._pointer)

    def fence(self, stream: Any = None) -> None:
        """Work that is submitted to ``stream`` from now on waits, on the device, until what this
        save copies from CUDA devices was copied.  ``stream``: a ``torch.cuda.Stream``; None: the
        current one of each device that has a part in it.

        The host waits only where a stream cannot: a graph is being captured on it, the state is
        larger than the staging memory, or the driver refused.
        """
        self.fence_until(None, stream)

    def fence_until(self, turn: Optional[int], stream: Any = None) -> None:
        """The same, but only for what optimizers write to up to ``turn`` (`_fence`); None: all."""
        if self.staged.done() or not self._devices:
            return
        last = _LAST_TURN if turn is None else turn
        if stream is None:
            streams = list(streams_of(self._devices))
        else:
            streams = [_abi.Stream(stream.device_index, 0, stream.cuda_stream)]
        for one in streams:
            err = _abi.ErrorInfo()
            with self._lock:
                status = 0
                if self._pointer:
                    status = lib().sidestep_fence_until(self._pointer, one, last, ctypes.byref(err))
            if status:
                log.warning("%s: waiting instead", err.message.decode("utf-8", "replace"))
                concurrent.futures.wait([self.staged])

    def progress(self) -> Progress:
        """How far it is, now.  Does not wait for storage."""
        self._poll()
        return _progress_of(self._info, self._waited_s)

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        state = _state_name(self._info.state)
        return f"<sidestep.SaveHandle {self.path!r} {state}>"

    # -- what the engine uses

    def wait_for_turn(self) -> None:
        """Until this rank's engine can take the next save.  Interruptible."""
        last = self if self._engine.rank == 0 else self.written
        self._hurry()
        concurrent.futures.wait([last])

    def take_sticky(self) -> Optional[Error]:
        """Its error, if nobody was told; once."""
        error = self.peek()
        if not isinstance(error, Error) or self._was_told:
            return None
        self._was_told = True
        return error

    # -- the waiter

    def _stages(self) -> list[tuple[SaveState, _Stage]]:
        return [
            (SaveState.SAVE_STAGED, self.staged),
            (SaveState.SAVE_RELEASED, self.released),
            (SaveState.SAVE_WRITTEN, self.written),
        ]

    def _poll(self) -> None:
        with self._lock:
            if self._pointer:
                lib().sidestep_save_poll(self._pointer, ctypes.byref(self._info))

    def _reach(self, state: SaveState, stage: _Stage) -> None:
        if state == SaveState.SAVE_RELEASED:
            self._keep = None
        stage.settle(None)

    def _watch(self) -> None:
        """Follow the save to its end.  On a waiter's thread."""
        error: Optional[Error] = None
        for state, stage in self._stages():
            if stage.pending():
                error = error or self._await(state)
                if error is None:
                    self._reach(state, stage)
                else:
                    stage.settle(error)
        error = error or self._await(SaveState.SAVE_COMMITTED)
        self._keep = None
        self._finish()
        self._report(error)
        try:
            self.settle(error)  # and run the callbacks, for which exit waits too
        finally:
            _in_flight.pop(id(self), None)

    def _await(self, state: SaveState) -> Optional[Error]:
        err = _abi.ErrorInfo()
        status = lib().sidestep_save_watch(self._pointer, int(state), -1, ctypes.byref(err))
        return error_of(status, err, rank=self._engine.rank) if status else None

    def _finish(self) -> None:
        self._poll()
        with self._lock:
            # Its verdict is known already; what is left is to give the handle back.
            lib().sidestep_save_finish(ctypes.byref(self._pointer), None, None)

    def _report(self, error: Optional[Error]) -> None:
        """The one line per save."""
        p = _progress_of(self._info, self._waited_s)
        if error is not None:
            log.error("rank %d: %s", self._engine.rank, error)
            return
        rate = f", {p.bytes_total / p.write_s / 1e9:.2f} GB/s" if p.write_s else ""
        log.log(
            logging.INFO if self._engine.rank == 0 else logging.DEBUG,
            "save '%s': rank %d held the trainer %.3f s (waiting %.3f, planning %.3f, allocating "
            "%.3f, copying %.3f), wrote %s in %.3f s%s, committed %.3f s later%s",
            self.path,
            self._engine.rank,
            p.call_s,
            p.wait_s,
            p.plan_s,
            p.pool_s,
            p.stage_s,
            _size(p.bytes_total),
            p.write_s,
            rate,
            p.commit_s,
            " (storage that a power loss empties)" if p.volatile else "",
        )

    def _after_fork(self) -> None:
        """In the child: nobody will ever complete it, and the parent's callbacks stay there."""
        error = Error(  # and not torch's: an import has no place here
            f"save '{self.path}' belongs to process {os.getppid()}, which forked this one",
            status=_abi.Status.EFORKED,
        )
        self._pointer = ctypes.c_void_p()
        self._lock = threading.Lock()
        self._result_lock = threading.Lock()
        self._was_told = True
        for stage in (self.staged, self.released, self.written, self):
            stage._condition = threading.Condition()
            stage._waiters.clear()
            stage._done_callbacks.clear()  # type: ignore[attr-defined]
            if stage.pending():
                stage.set_exception(error)


# ---------------------------------------------------------------- the threads that wait


class _Waiter(threading.Thread):
    """Waits for one save after the other; as many as saves were ever in flight at once."""

    def __init__(self) -> None:
        super().__init__(name="sidestep-wait", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            job = self.jobs.get()
            try:
                job()
            except BaseException:
                log.exception("in the background")
            del job
            _idle.append(self)


_idle: deque[_Waiter] = deque()
_in_flight: dict[int, SaveHandle] = {}


def in_background(job: Callable[[], None]) -> None:
    """Run it on a thread that waits; here, if the interpreter starts no more threads."""
    try:
        waiter = _idle.pop()
    except IndexError:
        waiter = _Waiter()
        try:
            waiter.start()
        except RuntimeError:
            job()
            return
    waiter.jobs.put(job)


def in_flight() -> list[SaveHandle]:
    """The saves of this process that have not ended."""
    return list(_in_flight.values())


def _after_fork_in_child() -> None:
    _idle.clear()
    handles = in_flight()
    _in_flight.clear()
    for handle in handles:
        handle._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
