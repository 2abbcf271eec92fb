# SPDX-License-Identifier: BSD-3-Clause
"""`SaveHandle`: a future of the checkpoint, with a future for each stage of the save.

One thread for each save in flight waits in C, without the GIL, and completes the futures in order.
"""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import contextlib
import ctypes
import logging
import math
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Optional

from ._c import abi
from ._c.abi import SaveState
from ._c.errors import Error, error_of
from ._c.library import lib
from ._modes import without_modes
from ._progress import Progress as Progress
from ._progress import progress_of, size_text, state_name
from ._torch.device import streams_of
from ._torch.kept import Kept, with_cause

log = logging.getLogger("sidestep")
_LAST_TURN = 0xFFFFFFFF
SLICE_S = 0.2  # one slice of a wait; its deadline may change in between


class _Condition(_thread.RLock):  # type: ignore[misc]
    """The part of `threading.Condition` that a `concurrent.futures.Future` needs, interrupt-safe.

    The ``with`` of `threading.Condition` runs Python code with the lock held: an interrupt there
    leaves it locked, and the future never completes.  The lock's own ``with`` is one step of the
    interpreter.
    """

    def __init__(self) -> None:
        self._waiters = threading.Condition(self)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Like `threading.Condition.wait`."""
        return self._waiters.wait(timeout)

    def notify_all(self) -> None:
        """Like `threading.Condition.notify_all`."""
        self._waiters.notify_all()


class _Stage(concurrent.futures.Future[Any]):
    """A future that the library completes.  It cannot be cancelled.  Once somebody has asked for
    its failure, no later save raises that."""

    def __init__(self, owner: Optional[SaveHandle] = None) -> None:
        super().__init__()
        self._owner = owner
        self._renew()
        self.set_running_or_notify_cancel()

    def _renew(self) -> None:
        """Make new locks, even if somebody holds the old ones."""
        self._condition = _Condition()  # type: ignore[assignment]
        gate = self._gate = threading.Lock()
        gate.acquire()
        super().add_done_callback(lambda _: gate.release())

    def cancel(self) -> bool:
        """Returns False: a save that has begun ends on all ranks or on none."""
        return False

    @without_modes
    def result(self, timeout: Optional[float] = None) -> Any:
        self._ask(timeout)
        try:
            return super().result()
        finally:
            self._told()

    @without_modes
    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        self._ask(timeout)
        try:
            return super().exception()
        finally:
            self._told()

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """As in `concurrent.futures`.  ``fn`` runs on a thread of the package once the stage is
        reached, or at once.  On that thread, whatever it raises is logged, SystemExit too."""
        super().add_done_callback(_contained(fn))

    def _ask(self, timeout: Optional[float]) -> None:
        self._hurry()
        if not self.reach(timeout):
            raise concurrent.futures.TimeoutError

    def reach(self, timeout: Optional[float] = None) -> bool:
        """Wait for it without asking for the result; returns whether it is done.

        An interrupt here does not keep the future from being completed: at worst the gate stays
        shut, which delays other waiters by one slice.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not self.done():
            left = until - time.monotonic()
            if left <= 0:
                return False
            if self._gate.acquire(timeout=min(left, SLICE_S)):
                self._gate.release()
        return True

    def _hurry(self) -> None:
        """Somebody waits: the library no longer gives way to training."""
        if not self.done() and self._owner is not None:
            self._owner._hurry()

    def _told(self) -> None:
        """Note that the failure, if there is one, was reported."""
        if self.done() and self.peek() is not None and self._owner is not None:
            self._owner._was_told = True

    def peek(self) -> Optional[BaseException]:
        """The exception; None if there is none, or not yet.  Does not count as reported."""
        return super().exception() if self.done() else None

    def complete(self, error: Optional[BaseException], value: Any = None) -> None:
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)


def _contained(fn: Callable[[Any], object]) -> Callable[[Any], object]:
    """Wraps a callback, so that it cannot end the thread that others wait for."""

    def run(future: Any) -> None:
        try:
            fn(future)
        except Exception:
            raise  # for the log of concurrent.futures
        except BaseException:
            if not isinstance(threading.current_thread(), _Waiter):
                raise
            log.exception("a callback of a save raised")

    return run


class SaveHandle(_Stage):
    """A save: a `concurrent.futures.Future` of the checkpoint's metadata, done when committed.

    Besides the methods of a future, it has a future for each stage:
    staged     the tensors may be modified
    released   their memory may be freed or resized
    written    this rank's bytes are durable
    committed  the checkpoint exists (this object)
    staging_completion, upload_completion: stock DCP's names for `staged` and `committed`

    `await handle` waits for it in asyncio.  If nobody asks for an error, the next save or load on
    the same ranks raises it.  Any thread may use a handle.  In a child of fork() it is done, with
    an `Error` that says so.
    """

    def __init__(
        self,
        engine: Any,
        pointer: ctypes.c_void_p,
        path: str,
        *,
        keep: Optional[Kept] = None,
        result: Optional[Callable[[], Any]] = None,
        before_s: tuple[float, float] = (0.0, 0.0),
        devices: frozenset[int] = frozenset(),
        step: Optional[int] = None,
        told_as: Optional[str] = None,
    ) -> None:
        self._set_up(engine, path, step, pointer)
        self._told_as = told_as or path
        self._devices = devices
        self._keep = keep
        self._make_result = result
        self._before_s = before_s
        _in_flight[id(self)] = self
        self._poll()
        for state, stage in self._stages()[:2]:
            if self._info.state >= state and self._info.state <= SaveState.SAVE_COMMITTED:
                self._reach(state, stage)
        self._follow()

    def _follow(self) -> None:
        """Have it followed, if it is not: a handler may have raised in the constructor."""
        in_background(self._watch)

    def _set_up(
        self, engine: Any, path: str, step: Optional[int], pointer: ctypes.c_void_p
    ) -> None:
        """Set all fields, for a save that no thread watches yet."""
        _Stage.__init__(self, self)
        self.path = self._told_as = path
        self.step = step
        self.stall_s: Optional[float] = None  # with the work of an adapter
        self.staged = _Stage(self)
        self.released = _Stage(self)
        self.written = _Stage(self)
        self._engine: Any = engine  # kept alive: the save of the library must not outlive it
        self._pointer = pointer
        self._devices = frozenset()
        self._keep = None
        self._make_result = None
        self._result_lock = threading.RLock()
        self._result_made: list[Any] = []
        self._users: dict[object, None] = {}  # calls that use the pointer
        self._watching = threading.Lock()  # who gets it follows the save; it is never released
        self._to_finish = [pointer] if pointer else []  # who takes it gives it back
        self._is_over = not pointer
        self._before_s = 0.0, 0.0  # of `progress_of`
        self._was_told = False
        self._holding = threading.RLock()
        self._holds = 1  # the thread that watches it
        self._info = abi.SaveInfo()

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

    @without_modes
    def result(self, timeout: Optional[float] = None) -> Any:
        """The checkpoint's metadata, once it is committed.

        Raises `Error` if there is no checkpoint, or if that is not known (status EUNKNOWN);
        concurrent.futures.TimeoutError after ``timeout`` seconds (the save goes on).
        """
        value = super().result(timeout)
        if self._make_result is None:
            return value
        with self._result_lock:
            if not self._result_made:
                self._result_made.append(self._make_result())
            return self._result_made[0]

    @without_modes
    def wait(self, timeout: Optional[float] = None) -> bool:
        """True once it is committed, False if it is not after ``timeout`` seconds.

        Raises `Error` if it has failed.  Ctrl-C ends the wait, not the save.
        """
        self._hurry()
        if not self.reach(timeout):
            return False
        super().result()
        return True

    def _wait_until(self, ends_at: Callable[[], float]) -> bool:
        """Like `wait`, until a time that may be moved forward meanwhile."""
        self._hurry()
        if not wait_until(self, ends_at):
            return False
        super().result()
        return True

    def _hurry(self) -> None:
        """Go on at full priority and speed, as if somebody waited for it."""
        self._use(lib().sidestep_save_hurry)

    @without_modes
    def abort(self) -> None:
        """Give the save up soon: nothing is committed, what was at its path stays, and ``result()``
        raises `Error` with status EABORTED.  It is too late, and has no effect, once this rank's
        shards are written; on rank 0, once the commit has begun.  One rank is enough.  Does not
        wait."""
        self._use(lib().sidestep_save_cancel)

    @without_modes
    def fence(self, stream: Any = None) -> None:
        """Make work that is submitted to ``stream`` from now on wait, on the device, until this
        save has copied its tensors from CUDA devices.  ``stream``: a ``torch.cuda.Stream``; None:
        the current stream of each device that holds such tensors.

        The host waits only where a stream cannot: a graph is being captured on it, the state is
        larger than the staging memory, or the driver refuses.
        """
        self._fence_until(None, stream)

    def _fence_until(self, turn: Optional[int], stream: Any = None) -> None:
        """Like `fence`, for the tensors of optimizers up to ``turn`` (`Fences`); None: for all."""
        if self.staged.done() or not self._devices:
            return
        last = _LAST_TURN if turn is None else turn
        if stream is None:
            streams = list(streams_of(self._devices))
        else:
            streams = [abi.Stream(stream.device_index, 0, stream.cuda_stream)]
        for one in streams:
            err = abi.ErrorInfo()
            if self._use(lib().sidestep_fence_until, one, last, err):
                log.warning("%s: waiting instead", err.message.decode("utf-8", "replace"))
                self.staged.reach()

    @without_modes
    def progress(self) -> Progress:
        """How far the save is now.  Does not wait for storage."""
        self._poll()
        return progress_of(self._info, *self._before_s)

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        state = state_name(self._info.state)
        return f"<sidestep.SaveHandle {self.path!r} {state}>"

    # -- what the engine uses

    def _wait_for_turn(self, ends_at: Optional[Callable[[], float]] = None) -> bool:
        """Wait until this rank's engine can take the next save, or until ``ends_at`` (as in
        `_wait_until`).  Interruptible."""
        self._hurry()
        return wait_until(self._turn, ends_at or (lambda: float("inf")))

    @property
    def _has_turned(self) -> bool:
        """Whether this rank's engine is done with it."""
        return self._turn.done()

    @property
    def _turn(self) -> _Stage:
        return self if self._engine.rank == 0 else self.written

    @property
    def _is_open(self) -> bool:
        """Whether it is under way, or has failed and nobody was told."""
        return not self.done() or (self.peek() is not None and not self._was_told)

    def _take_sticky(self) -> Optional[Error]:
        """Its error if nobody was told yet.  From then on it counts as told."""
        error = self.peek()
        if not isinstance(error, Error) or self._was_told:
            return None
        self._was_told = True
        return error

    def _hold(self) -> None:
        """Let the end of the interpreter also wait until `_let_go`."""
        with self._holding:
            self._holds += 1
            _in_flight[id(self)] = self

    def _let_go(self) -> None:
        """Undo one `_hold`."""
        with self._holding:
            self._holds -= 1
            if self._holds == 0:
                _in_flight.pop(id(self), None)

    # -- the waiter

    def _stages(self) -> list[tuple[SaveState, _Stage]]:
        return [
            (SaveState.SAVE_STAGED, self.staged),
            (SaveState.SAVE_RELEASED, self.released),
            (SaveState.SAVE_WRITTEN, self.written),
        ]

    def _poll(self) -> None:
        self._use(lib().sidestep_save_poll, self._info)

    def _use(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the library with the save, unless that was given back.

        No lock is held: a signal handler that saves may run in here, and waits for the thread that
        gives the save back.
        """
        user = object()
        try:
            self._users[user] = None
            return None if self._is_over else function(self._pointer, *arguments)
        finally:
            self._users.pop(user, None)
            self._give_back()

    def _give_back(self) -> None:
        """Give the save back to the library, once it is over and nobody uses it."""
        if not self._is_over or self._users:
            return
        with contextlib.suppress(IndexError):  # somebody else does
            self._to_finish.pop()
            # The outcome is known already.
            lib().sidestep_save_finish(self._pointer, None, None)

    def _reach(self, state: SaveState, stage: _Stage) -> None:
        if state == SaveState.SAVE_RELEASED:
            self._keep = None
        stage.complete(None)

    def _watch(self) -> None:
        """Follow the save to its end, unless another thread does.  On a waiter's thread."""
        if not self._watching.acquire(blocking=False):
            return
        error: Optional[Error] = None
        for state, stage in self._stages():
            if not stage.done():
                error = error or self._await(state)
                if error is None:
                    self._reach(state, stage)
                else:
                    stage.complete(error)
        error = error or self._await(SaveState.SAVE_COMMITTED)
        self._keep = None
        self._finish()
        self._report(error)
        try:
            self.complete(error)  # and run the callbacks; exit waits for them, too
        finally:
            self._let_go()

    def _await(self, state: SaveState) -> Optional[Error]:
        err = abi.ErrorInfo()
        status = lib().sidestep_save_watch(self._pointer, int(state), -1, err)
        if not status:
            return None
        return with_cause(error_of(status, err, rank=self._engine.rank), self._keep)

    def _finish(self) -> None:
        self._poll()
        self._is_over = True
        self._give_back()

    def _report(self, error: Optional[Error]) -> None:
        """Log what became of this save."""
        p = progress_of(self._info, *self._before_s)
        if error is not None:
            log.error("rank %d: %s", self._engine.rank, error)
            return
        rank = self._engine.rank
        log.log(
            logging.INFO if rank == 0 else logging.DEBUG,
            "saved %s'%s': training waited %.1f ms, %.3f s in the background, %s of rank %d%s%s",
            "" if self.step is None else f"step {self.step} as ",
            self._told_as,
            max(p.call_s, self.stall_s or 0.0) * 1e3,
            p.write_s + p.commit_s,
            size_text(p.bytes_total),
            rank,
            " (storage that a power loss empties)" if p.volatile else "",
            f" (less staging memory than the state: {p.pool_reason})" if p.pool_reason else "",
        )
        log.debug(
            "save '%s', rank %d: waiting %.3f s, planning %.3f, allocating %.3f, copying %.3f, "
            "writing %.3f (%.2f GB/s), committing %.3f; snapshot by %s%s",
            self.path,
            rank,
            p.wait_s,
            p.plan_s,
            p.pool_s,
            p.stage_s,
            p.write_s,
            p.bytes_total / p.write_s / 1e9 if p.write_s else 0.0,
            p.commit_s,
            p.snapshot,
            f" ({p.copy_reason})" if p.copy_reason else "",
        )

    def _after_fork(self) -> None:
        """In a child of fork(): no thread completes it here.  Callbacks run only in the parent."""
        text = f"save '{self.path}' belongs to process {os.getppid()}, which forked this one"
        # Not torch's class: nothing may be imported here.
        error = Error(text, status=abi.Status.EFORKED)
        self._is_over = True
        self._users.clear()
        self._to_finish.clear()
        self._result_lock = threading.RLock()
        self._holding = threading.RLock()
        self._was_told = True
        for stage in (self.staged, self.released, self.written, self):
            stage._waiters.clear()
            stage._done_callbacks.clear()  # type: ignore[attr-defined]
            stage._renew()
            if not stage.done():
                stage.complete(error)


class FailedSave(SaveHandle):
    """A save that failed before it was under way, in the form of one that failed later."""

    def __init__(self, engine: Any, path: str, error: Error, step: int) -> None:
        self._set_up(engine, path, step, ctypes.c_void_p())
        self._holds = 0
        log.error("rank %d: %s", engine.rank, error)
        for stage in (self.staged, self.released, self.written, self):
            stage.complete(error)


def wait_for_turn(
    saves: Sequence[SaveHandle], queue: int = 0, ends_at: Optional[Callable[[], float]] = None
) -> bool:
    """Wait until an engine is done with ``saves`` (the oldest comes first), except the last
    ``queue``.  Returns False if it is not by ``ends_at`` (as in `_wait_until`)."""
    waiting = [save for save in saves if not save._has_turned]
    return all(save._wait_for_turn(ends_at) for save in waiting[: max(0, len(waiting) - queue)])


def wait_until(stage: _Stage, ends_at: Callable[[], float]) -> bool:
    """Wait for ``stage`` until ``ends_at``, by the clock of time.monotonic().  A signal may move
    that time forward meanwhile.  Returns whether the stage is done."""
    while True:
        left = ends_at() - time.monotonic()
        if stage.reach(min(SLICE_S, left)):
            return True
        if left <= 0:
            return False


def take_sticky(saves: Sequence[SaveHandle]) -> Optional[Error]:
    """The first error of these saves of which nobody was told.  From then on it counts as told."""
    return next((error for error in (save._take_sticky() for save in saves) if error), None)


# ---------------------------------------------------------------- the threads that wait


class _Waiter(threading.Thread):
    """A thread that waits for one save after the other.  There are as many waiters as there were
    ever saves in flight at once."""

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
    """Run ``job`` on a waiter; on this thread if the interpreter starts no more threads."""
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


def hand_over(job: Callable[[], None]) -> None:
    """Run ``job`` on an idle waiter, if there is one.  It starts no thread and takes no lock, so it
    may be called between any two instructions."""
    try:
        waiter = _idle.pop()
    except IndexError:
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
