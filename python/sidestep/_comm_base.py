# SPDX-License-Identifier: BSD-3-Clause
"""The common part of all ways to talk to other ranks: callbacks that a signal cannot interrupt,
deadlines that name the silent ranks, and exceptions that are carried past the C code.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

from ._bounded_store import BoundedStore, Unanswered
from ._c import abi
from ._c.errors import Error, make_error
from ._replaced_handlers import ReplacedHandlers

DEFAULT_TIMEOUT_S = 600.0
PULSE_S = 1.0  # seconds between two checks whether another rank has given up
ROLL_CALL_S = 3.0  # after a failure, how long ranks have to say that they are there
GRACE_S = 5.0  # how long an agreement may go on after Ctrl-C


def timeout_s() -> float:
    """The deadline for silent ranks in seconds: $SIDESTEP_TIMEOUT, or 600."""
    text = os.environ.get("SIDESTEP_TIMEOUT", "")
    try:
        seconds = float(text) if text else DEFAULT_TIMEOUT_S
    except ValueError:
        seconds = -1.0
    if not 0.001 <= seconds <= 1e9:
        raise make_error(f"SIDESTEP_TIMEOUT is '{text}', not a number of seconds")
    return seconds


class AgreementError(Exception):
    """The ranks could not agree.  ``rank`` is the one that failed; -1: unknown."""

    def __init__(self, text: str, *, status: abi.Status = abi.Status.EPEER, rank: int = -1):
        super().__init__(text)
        self.status = status
        self.rank = rank


class PeerFailure(AgreementError):
    """Another rank has given up.  ``is_reason``: because of a failure of its own."""

    def __init__(self, text: str, rank: int, is_reason: bool) -> None:
        super().__init__(text, rank=rank)
        self.is_reason = is_reason


class _Signals(ReplacedHandlers):
    """While the library runs on the main thread: Python's signal handlers run at once, but what
    they raise waits until the call has returned.

    An exception that a handler raises at the first instruction of a callback could not be caught
    by the callback, and ctypes would then give the library an undefined result.
    """

    def __init__(self) -> None:
        super().__init__()
        self.raised: Optional[BaseException] = None
        self.count = 0
        self.since = 0.0

    def _handle(self, number: int, frame: Any) -> None:
        try:
            self._old[number](number, frame)
        except BaseException as raised:
            self.raised = self.raised or raised
            self.since = self.since or time.monotonic()
            self.count += 1

    def break_off(self) -> None:
        """Raise the exception that was held back: at the second signal, or after some seconds."""
        if self.raised is None:
            return
        if self.count > 1 or time.monotonic() - self.since > GRACE_S:
            raise self.raised


class Comm:
    """This rank's end of a group of ranks; the library gets `struct`.

    rank, size   of this process in the group
    struct       struct sidestep_comm; valid as long as this object lives
    name         how it talks, for messages

    ends_at      when all waiting ends, by the clock of time.monotonic(); infinity: never
    reserve_s    waiting for storage ends this long before ``ends_at``, so that the ranks have time
                 to agree on the outcome

    A Comm that has failed once stays failed: its ranks are no longer in step.  This class alone is
    a group of one rank.
    """

    name = "alone"

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        timeout: Optional[float] = None,
        open_store: Optional[Callable[[], Any]] = None,
    ) -> None:
        """``open_store``: opens a key-value store that only this object uses."""
        self.rank = rank
        self.size = size
        self.timeout = timeout_s() if timeout is None else timeout
        self.failed: Optional[str] = None
        self.ends_at = float("inf")
        self.reserve_s = 0.0
        self._open_store = open_store
        self._opened_store: Optional[BoundedStore] = None
        self._carried: Optional[BaseException] = None
        self._signals = _Signals()
        self._op = 0
        self._what = ""
        self._began = self._looked = 0.0
        self.struct = abi.Comm(rank=rank, size=size)
        if size > 1:
            self._set_callbacks(weakref.ref(self))

    def _set_callbacks(self, me: Callable[[], Optional[Comm]]) -> None:
        def callback(kind: Any, name: str) -> Any:
            def run(_context: Any, *arguments: Any) -> int:
                comm = me()
                return 1 if comm is None else comm._run(getattr(comm, name), *arguments)

            return kind(run)

        self.struct.all_reduce_max = callback(abi.AllReduceMax, "_all_reduce_max")
        self.struct.broadcast = callback(abi.Broadcast, "_broadcast")
        self.struct.gather = callback(abi.Gather, "_gather")
        self.struct.scatter = callback(abi.Scatter, "_scatter")

    # -- what the engine uses

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Surrounds every call of the library that may call back."""
        self._signals = _Signals()
        self._signals.hold()
        try:
            yield
        finally:
            self._signals.release()
            self._let_go()

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Surrounds a call by a signal handler in the middle of another one: what that one has kept
        to be raised stays.  Only for a group of one rank."""
        kept = self._signals, self._carried
        self._signals, self._carried = _Signals(), None
        try:
            yield
        finally:
            self._signals, self._carried = kept

    def raise_carried(self, doing: str = "") -> None:
        """Raise the exception that a callback of the last call kept.  ``doing``: how the message
        begins.

        What a signal handler raised (usually KeyboardInterrupt) is raised as it is.  A failure of
        the group becomes an `Error`, with the backend's exception as its cause.
        """
        held, self._signals.raised = self._signals.raised, None
        carried, self._carried = self._carried, None
        if held is not None:
            raise held
        if carried is None:
            return
        if not isinstance(carried, Exception):
            raise carried
        raise self._error(carried, doing) from carried

    def drop_broken(self) -> None:
        """Forget the failure of the group: the caller has a better reason to raise."""
        if isinstance(self._carried, Exception):
            self._carried = None

    def close(self) -> None:
        """End its use: calls of the library that still use it fail at once."""
        self.failed = self.failed or "its engine is closed"

    def max_all(self, numbers: list[int]) -> list[int]:
        """The element-wise maximum over all ranks, of numbers below 2**64.  Call it within
        `calling()`; `raise_carried()` then raises what went wrong."""
        words = (ctypes.c_uint64 * len(numbers))(*numbers)
        if self.size > 1:
            self._run(self._all_reduce_max, words, len(numbers))
        return list(words)

    def waits_until(self) -> float:
        """When waiting for storage ends, by time.monotonic()."""
        return self.ends_at - self.reserve_s

    def give_up(self, reason: str) -> None:
        """Tell the other ranks that this one does not take part, and why.  Not collective."""
        if self.size > 1 and self.failed is None:
            self.failed = reason
            self._tell_others(f"rank {self.rank}: {reason}", is_reason=True)

    def _error(self, carried: Exception, doing: str) -> Error:
        status, rank = abi.Status.EPEER, None
        if isinstance(carried, Unanswered):
            status = abi.Status.ETIMEDOUT
        if isinstance(carried, AgreementError):
            status, rank = carried.status, carried.rank if carried.rank >= 0 else None
        text = f"{doing}: {self.failed}" if doing else str(self.failed)
        return make_error(text, status=status, rank=rank, own_rank=self.rank)

    # -- callbacks

    def _run(self, action: Callable[..., None], *arguments: Any) -> int:
        """Run one collective.  Returns 1 if it failed: the exception is kept, the others know."""
        try:
            if self.failed is not None:
                raise AgreementError(self.failed)
            self._op += 1
            self._what = action.__name__.strip("_")
            self._began = self._looked = time.monotonic()
            action(*arguments)
            return 0
        except BaseException as problem:
            self._fail(problem)
            return 1

    def _fail(self, problem: BaseException) -> None:
        self._carried = self._carried or problem
        if self.failed is not None:
            return
        told = self._failure_of_peer() if isinstance(problem, Exception) else None
        if told is not None and not isinstance(problem, PeerFailure):
            told.__cause__ = problem  # a connection that broke because another rank went away
            problem = self._carried = told
        if isinstance(problem, PeerFailure):
            self.failed = str(problem)
        else:
            self.failed = f"rank {self.rank}: {self._what} over {self.name}: {_sentence(problem)}"
            self._tell_others(self.failed, is_reason=not isinstance(problem, Exception))
        if not isinstance(problem, Exception) or (
            isinstance(problem, PeerFailure) and problem.is_reason
        ):
            return
        absent = self._roll_call()
        if absent:
            self.failed += f"; {_ranks(absent)} did not come"
            status = problem.status if isinstance(problem, AgreementError) else abi.Status.EPEER
            self._carried = AgreementError(self.failed, status=status, rank=absent[0])
            self._carried.__cause__ = problem
        elif self._opened_store is not None and self._opened_store.is_silent:
            self.failed += (
                "; the key-value store of the ranks does not answer, either: "
                f"was {socket.gethostname()} cut off from the network?"
            )

    # -- waiting

    def _pulse(self) -> None:
        """Called between two slices of a wait.  Raises if waiting has become useless."""
        self._signals.break_off()
        now = time.monotonic()
        if now - self._began > self.timeout:
            raise AgreementError(f"not done after {self.timeout:g} s", status=abi.Status.ETIMEDOUT)
        if now > self.ends_at:
            raise AgreementError("the grace time is over", status=abi.Status.ETIMEDOUT)
        if now - self._looked > PULSE_S:
            self._looked = now
            self._say_here()
            told = self._failure_of_peer()
            if told is not None:
                raise told

    def _roll_call(self) -> list[int]:
        """The ranks that do not report within a few seconds that they are as far as this one."""
        until = min(time.monotonic() + ROLL_CALL_S, self.ends_at)
        self._say_here()
        absent = [rank for rank in range(self.size) if rank != self.rank]
        try:
            while True:
                absent = [rank for rank in absent if self._seen(rank) < self._op]
                if not absent or time.monotonic() > until:
                    return absent
                time.sleep(0.05)
        except Exception:
            return []  # the store is gone: nothing is known of any rank

    # -- the store: what ranks tell each other outside of the collectives

    def _bounded_store(self) -> Any:
        """A `BoundedStore` over a key-value store that only this object uses; or None."""
        if self._opened_store is None and self._open_store is not None:
            self._opened_store = BoundedStore(self._open_store(), self._answers_until)
        return self._opened_store

    def _answers_until(self, began: float) -> float:
        """When to give up a call of the store that began at this time."""
        return min(max(began + ROLL_CALL_S, self._began + self.timeout), self.ends_at)

    def _let_go(self) -> None:
        """Close the store after a call, so that no socket is open when the group is destroyed."""
        if self._opened_store is not None:
            self._opened_store.close()
        self._opened_store = None

    def _tell_others(self, text: str, *, is_reason: bool) -> None:
        try:
            store = self._bounded_store()
            if store is not None and not store.check(["failed"]):
                store.set("failed", f"{self.rank} {int(is_reason)}\n{text}".encode())
        except Exception:
            pass  # their deadline will tell them

    def _failure_of_peer(self) -> Optional[PeerFailure]:
        try:
            store = self._bounded_store()
            if store is None or not store.check(["failed"]):
                return None
            head, _, text = bytes(store.get("failed")).decode("utf-8", "replace").partition("\n")
            rank, is_reason = head.split()
            return PeerFailure(text, int(rank), is_reason == "1")
        except Exception:
            return None  # the collective itself will say what is wrong

    def _say_here(self) -> None:
        try:
            store = self._bounded_store()
            if store is not None:
                store.set(f"at/{self.rank}", str(self._op).encode())
        except Exception:
            pass

    def _seen(self, rank: int) -> int:
        """The number of the collective in which ``rank`` was last seen."""
        store = self._bounded_store()
        if store is None:
            return self._op
        return int(store.get(f"at/{rank}")) if store.check([f"at/{rank}"]) else -1

    # -- collectives, on addresses

    def _all_reduce_max(self, values: Any, count: int) -> None:
        raise NotImplementedError

    def _broadcast(self, buffer: int, length: int, root: int) -> None:
        raise NotImplementedError

    def _gather(self, send: int, length: int, into: int, lengths: Any) -> None:
        raise NotImplementedError

    def _scatter(self, send: int, lengths: Any, into: int, length: int) -> None:
        raise NotImplementedError


def _sentence(problem: BaseException) -> str:
    text = str(problem)
    if isinstance(problem, (AgreementError, Unanswered)):
        return text
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _ranks(ranks: list[int]) -> str:
    listed = ", ".join(str(rank) for rank in ranks[:16])
    more = f" and {len(ranks) - 16} more" if len(ranks) > 16 else ""
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}{more}"
