# SPDX-License-Identifier: BSD-3-Clause
"""Engines: one for each group of ranks, made on first use and closed with the group; and forks.

One thread at a time uses an engine; the others wait for their turn here.  Only the thread that has
its turn talks to other ranks.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from ._c import abi
from ._c.calls import objects_checked, texts
from ._c.checked import words_of
from ._c.errors import Error, check, error_info, make_error, reworded
from ._c.library import lib
from ._comm import comm_of
from ._comm_base import Comm, timeout_s
from ._exit import at_exit, ending
from ._handle import SaveHandle, in_background, take_sticky, wait_for_turn
from ._options import COPY_AHEAD, REPLICAS, Ways, choice, compression, number, spread_ms
from ._torch.compared import Differences
from ._torch.device import streams_of
from ._torch.fence import fences

if TYPE_CHECKING:
    from ._torch.state import StateCache, StateDict

log = logging.getLogger("sidestep")

_VERIFY = words_of(abi.VerifyMode, "VERIFY_")
_ANY = Ways()
LoadCall = Callable[[Any, Any, Any], int]  # options, report, error: a status


@dataclass
class LoadReport:
    """What a load found, on this rank.

    bytes_loaded  placed in the caller's tensors
    bytes_read    read from storage
    missing       names in the state, not in the checkpoint
    unexpected    names in the checkpoint, not in the state of this rank
    mismatched    "name: saved float32 [2,3], wanted float32 [3,3]"
    """

    bytes_loaded: int = 0
    bytes_read: int = 0
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)


IN_THE_MIDDLE = (
    "called from a signal handler or a callback, in the middle of another call on the same ranks; "
    "have the handler only note the signal, and save after the step, as Checkpointer does with "
    "signals=[...]"
)


class Engine:
    """The library's engine for the ranks of ``comm``.

    rank, size   of this process among them
    comm         how they talk
    states       the layouts of the last saves, to be used again

    Opening is collective.  `engine_for()` returns the engine of a process group.
    """

    def __init__(self, comm: Comm, *, pool_bytes: int = 0, ways: Ways = _ANY) -> None:
        """``pool_bytes``: staging memory if the environment does not set it; 0: as needed."""
        self.comm = comm
        self._ways = ways
        self._pool_bytes = pool_bytes
        self.rank = comm.rank
        self.size = comm.size
        self._pid = os.getpid()
        self._pointer = ctypes.c_void_p()
        self._lock = threading.RLock()  # a signal handler may save in the middle of a call
        self._user: Optional[int] = None  # the thread that has the lock
        self._states = threading.local()  # a state must not change between get() and the save
        self.compares = False  # the next save compares the values of ranks
        self._differences = Differences(comm.rank, comm.size)
        self._saves: list[SaveHandle] = []  # under way, or failed and not reported yet
        try:
            self._open()
        except BaseException as problem:
            comm.give_up(f"open engine: {type(problem).__name__}: {problem}")
            raise
        at_exit()

    def _open(self) -> None:
        options = abi.EngineOptions()
        options.comm = ctypes.pointer(self.comm.struct)
        options.threads = number("SIDESTEP_THREADS")
        options.pool_bytes = number("SIDESTEP_POOL_BYTES") or self._pool_bytes
        self._ways.set_in(options)
        options.copy_ahead = choice("SIDESTEP_COPY_AHEAD", COPY_AHEAD)
        options.replicas = choice("SIDESTEP_REPLICAS", REPLICAS)
        options.write_bytes_per_second = number("SIDESTEP_WRITE_BYTES_PER_SECOND")
        if number("SIDESTEP_KEEP_PACE") != 0:
            options.flags |= abi.ENGINE_KEEP_PACE
        cpus = os.environ.get("SIDESTEP_BACKGROUND_CPUS")
        options.background_cpus = cpus.encode() if cpus else None
        options.timeout_ms = max(1, int(timeout_s() * 1000))
        events = os.environ.get("SIDESTEP_EVENTS")
        if events:
            options.event_path = os.fsencode(events.replace("{rank}", str(self.rank)))
        options.metrics_path = os.fsencode(os.environ.get("SIDESTEP_METRICS", "")) or None
        self.call(lib().sidestep_engine_open, self._pointer, options)

    # -- what others use

    @property
    def states(self) -> StateCache:
        """The layouts that this thread has saved.  Until `save_async` has begun a save of one, they
        are lent: a signal handler that saves meanwhile gets others."""
        from ._torch.state import StateCache

        return vars(self._states).pop("cache", None) or StateCache()

    def _take_back(self, state: Optional[StateDict]) -> None:
        if state is not None and state.home is not None:
            self._states.cache = state.home

    @property
    def pointer(self) -> ctypes.c_void_p:
        """struct sidestep_engine *, for the thread whose turn it is."""
        return self._pointer

    @property
    def usable(self) -> bool:
        """False if it is closed, if its ranks are out of step, or in a child of its process."""
        return bool(self._pointer) and self.comm.failed is None and os.getpid() == self._pid

    def save_async(
        self,
        path: str | os.PathLike[str],
        state: Optional[StateDict],
        *,
        step: Optional[int] = None,
        no_replace: bool = False,
        failure: Optional[BaseException] = None,
        result: Optional[Callable[[], Any]] = None,
        series: Optional[ctypes.c_void_p] = None,
        compress: Optional[str] = None,
        spread_s: Optional[float] = None,
        still: bool = False,
        queue: int = 0,
        told_as: Optional[str] = None,
        began: Optional[float] = None,
    ) -> SaveHandle:
        """Save ``state`` as the directory ``path``; returns once its tensors may be modified.

        Collective.  If an earlier save failed and nobody asked for its outcome, its error is raised
        now, before anything is done, unless an exception is being handled already.

        failure   why this rank cannot take part.  It is raised here; all other ranks raise an
                  `Error` that names this rank and the reason
        result    makes the value of the handle's result(), on first use
        series    save as the checkpoint of ``step`` of this series, at ``path``
        compress  None: the value of SIDESTEP_COMPRESS, or "none"
        spread_s  write evenly over this time unless somebody waits; None: the value of
                  SIDESTEP_SPREAD_MS, or at full speed
        still     nobody modifies the tensors meanwhile.  They are copied only as they are written.
                  When that is done, this returns, or raises what a signal handler has raised
        queue     how many earlier saves may still be under way; it waits for the others
        told_as   the path in the log line of the commit; None: ``path``
        began     when the trainer began to wait, by time.monotonic(); None: with this call
        """
        doing = f"save '{os.fspath(path)}'"
        with self.turn(doing, nests=series is None):
            called = time.monotonic()
            interrupted = self._wait_for_turn(queue)
            before_s = time.monotonic() - called, called - (called if began is None else began)
            failure = interrupted or failure or self._sticky()
            if failure is not None and self.size == 1:
                raise failure
            # The handle's thread asks for the outcome, and `_sticky` reports it.
            options = abi.SaveOptions(queue=queue, flags=abi.SAVE_NOT_STICKY)
            if step is not None:
                options.has_step, options.step = True, step
            options.flags |= abi.SAVE_NO_REPLACE * no_replace | abi.SAVE_STILL * still
            try:
                options.compress, options.compress_level = compression(compress)
                options.spread_ms = spread_ms(spread_s)
            except Error as wrong:
                if self.size == 1:
                    raise
                failure = failure or wrong
            if failure is not None:
                options.failure = ctypes.pointer(error_info(failure, doing))
            if interrupted is not None:
                options.flags = abi.SAVE_NOWAIT
            how = {"result": result, "before_s": before_s, "told_as": told_as}
            return self._start(path, state, options, failure, how, series, still)

    def load(
        self,
        path: str | os.PathLike[str],
        state: Optional[StateDict],
        *,
        partial: bool = False,
        strict: bool = False,
        verify: str = "read",
        failure: Optional[BaseException] = None,
        call: Optional[LoadCall] = None,
        check_objects: Optional[Callable[[], None]] = None,
    ) -> LoadReport:
        """Fill ``state`` from the checkpoint ``path``.  Collective; ``failure`` as in `save_async`.
        ``call``: another function of the library that loads.  ``check_objects`` is called when the
        objects are loaded, and before a tensor is touched; all ranks have one, or none.  What it
        raises is raised here, and fails the load on all ranks.

        partial  missing and mismatched names are reported, and are no error
        strict   names of the checkpoint that the state lacks are an error
        verify   "read": check what is read; "before": check everything before the first tensor is
                 touched; "structure": check no hashes of data
        """
        doing = f"load '{os.fspath(path)}'"
        with self.turn(doing, nests=call is None):
            failure = failure or self._sticky()
            if failure is None and verify not in _VERIFY:
                failure = ValueError(f"verify={verify!r} is none of {', '.join(_VERIFY)}")
            if failure is not None and self.size == 1:
                raise failure
            options = abi.LoadOptions(flags=abi.LOAD_PARTIAL * partial | abi.LOAD_STRICT * strict)
            if failure is not None:
                options.failure = ctypes.pointer(error_info(failure, doing))
            else:
                options.verify = _VERIFY[verify]
            with objects_checked(check_objects, options, doing):
                return self._load(path, state, options, failure, call)

    def any_rank(self, mine: bool) -> bool:
        """True on every rank if ``mine`` is true on any.  Collective."""
        return self.max_of(int(mine)) != 0

    def max_of(self, mine: int) -> int:
        """The largest of the ranks' numbers, which are below 2**64.  Collective."""
        return self.maxima([mine])[0]

    def maxima(self, mine: list[int]) -> list[int]:
        """The same for each place of a list, which is as long on all ranks."""
        if self.size == 1:
            return mine
        with self.turn("agree"):
            with self.comm.calling():
                words = self.comm.max_all(mine)
            self.comm.raise_carried("agree")
            return words

    def pause(self, paused: bool) -> None:
        """Pause background writes, or resume them; see `sidestep.paused`.  Any thread."""
        if os.getpid() != self._pid:
            return
        call = lib().sidestep_engine_pause if paused else lib().sidestep_engine_resume
        with self.turn("pause", closing=True):
            if self._pointer:
                call(self._pointer)

    def close(self) -> None:
        """Wait for a save in flight, stop the threads, free the staging memory.

        Not collective, unlike the library's function, because the group may be gone.
        """
        if os.getpid() != self._pid:
            return
        self.comm.close()
        with self.turn("close", closing=True):
            for save in self._saves:
                save.reach()
            if self._pointer:
                with self.comm.calling():
                    lib().sidestep_engine_close(self._pointer, None)
            self._states = threading.local()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- inside

    @contextmanager
    def turn(self, doing: str, *, closing: bool = False, nests: bool = False) -> Iterator[None]:
        """Wait until other threads are done with the engine, then keep them out.  Ctrl-C ends the
        wait.

        nests  a signal handler may do this in the middle of another call of its thread.  It cannot
               if there are other ranks: these do not call in the same order
        """
        if os.getpid() != self._pid:
            raise make_error(
                f"{doing}: the engine belongs to process {self._pid}, which forked this one",
                status=abi.Status.EFORKED,
            )
        me = threading.get_ident()
        if self._user == me and not (nests and self.size == 1):
            raise make_error(f"{doing}: {IN_THE_MIDDLE}", status=abi.Status.EBUSY)
        with self._lock:
            if not self._pointer and not closing:
                raise make_error(f"{doing}: the engine is closed", own_rank=self.rank)
            before, self._user = self._user, me
            try:
                with self.comm.set_aside() if before == me else nullcontext():
                    yield
            finally:
                self._user = before

    def _wait_for_turn(self, queue: int) -> Optional[BaseException]:
        """Wait until the engine can take a save.  Returns the exception that interrupted the
        wait: the other ranks wait for this one, and must be told."""
        try:
            if wait_for_turn(self._saves, queue, self.comm.waits_until):
                return None
        except BaseException as interrupted:
            return interrupted
        return make_error(
            "the grace time is over, and an earlier save is still under way",
            status=abi.Status.ETIMEDOUT,
            own_rank=self.rank,
        )

    def _sticky(self) -> Optional[BaseException]:
        """The error of an earlier save that was not reported yet.

        None while another exception is being handled: this one would hide it.  The next call raises
        it.
        """
        if sys.exc_info()[1] is not None:
            return None
        error = take_sticky(self._saves)
        if error is None:
            return None
        message = f"the save before this one failed: {error.message}"
        sticky = reworded(error, message, failures=error.failures)
        sticky.__cause__ = error
        return sticky

    def _start(
        self,
        path: str | os.PathLike[str],
        state: Optional[StateDict],
        options: abi.SaveOptions,
        failure: Optional[BaseException],
        how: dict[str, Any],
        series: Optional[ctypes.c_void_p],
        still: bool,
    ) -> SaveHandle:
        save, err = ctypes.c_void_p(), abi.ErrorInfo()
        handle: Optional[SaveHandle] = None
        pointer = state.pointer if state is not None else None
        devices = frozenset(state.devices) if state is not None else frozenset()
        late = state is not None and state.late
        if devices:
            options.streams = streams_of(devices)
            options.stream_count = len(devices)
        rest = options, save, err
        with self.comm.calling():
            if self.compares:
                self.compares = False
                self._differences.find(state, self.comm.max_all)
            if series is not None:
                status = lib().sidestep_series_save_async(series, options.step, pointer, *rest)
            else:
                status = lib().sidestep_save_async(self._pointer, os.fsencode(path), pointer, *rest)
            if status == abi.Status.OK:
                keep = state.take_storages() if state is not None else None
                how = {**how, "keep": keep, "step": options.step if options.has_step else None}
                handle = SaveHandle(self, save, os.fspath(path), devices=devices, **how)
                self._remember(handle)
                self._differences.tell(handle)
                if late:  # before anything can interrupt us: optimizer steps must wait for it
                    fences.add(handle)
                if still:  # and so must a caller that is interrupted
                    handle._hurry()
                    handle.staged.reach()
        self._take_back(state)  # the library has read its addresses
        self.check(status, err, failure)
        assert handle is not None
        if devices and not fences.on:
            handle.staged.reach()  # callers of DCP expect that
        if ending.drained:
            handle.reach()
        return handle

    def _remember(self, handle: SaveHandle) -> None:
        """Add ``handle``, and drop the saves that have ended.  A signal handler may do so, too."""
        self._saves.append(handle)
        for save in list(self._saves):
            if not save._is_open and save in self._saves:
                self._saves.remove(save)

    def _load(
        self,
        path: str | os.PathLike[str],
        state: Optional[StateDict],
        options: abi.LoadOptions,
        failure: Optional[BaseException],
        call: Optional[LoadCall],
    ) -> LoadReport:
        found = abi.LoadReport()
        pointer = state.pointer if state is not None else None
        if state is not None and state.devices:
            options.streams = streams_of(state.devices)
            options.stream_count = len(state.devices)
        try:
            if call is not None:
                self.call(call, options, found, failure=failure)
            else:
                where = self._pointer, os.fsencode(path), pointer
                self.call(lib().sidestep_load, *where, options, found, failure=failure)
            return LoadReport(
                found.bytes_loaded,
                found.bytes_read,
                list(texts(found.missing, found.missing_count)),
                list(texts(found.unexpected, found.unexpected_count)),
                list(texts(found.mismatched, found.mismatched_count)),
            )
        finally:
            lib().sidestep_load_report_release(found)

    def call(self, function: Any, *arguments: Any, failure: Optional[BaseException] = None) -> None:
        """Call a function of the library that talks to other ranks; `check` what it reports."""
        err = abi.ErrorInfo()
        with self.comm.calling():
            status = function(*arguments, err)
        self.check(status, err, failure)

    def check(
        self, status: int, err: abi.ErrorInfo, failure: Optional[BaseException] = None
    ) -> None:
        """Raise the first of: a signal, this rank's failure, that of the group, any other."""
        if failure is not None:
            self.comm.drop_broken()
        self.comm.raise_carried(err.message.decode("utf-8", "replace"))
        if failure is not None:
            raise failure
        check(status, err, rank=self.rank)


# ---------------------------------------------------------------- one engine per group


class _Slot:
    """The engine of one process group (None: of this process alone), with one choice of `Ways`."""

    def __init__(self, group: Any, ways: Ways, orphans: deque[Engine]) -> None:
        self.ways = ways
        self.lock = threading.RLock()  # held while the engine is opened, which is collective
        self.is_opening = False
        self.orphans = orphans
        self.group = None if group is None else weakref.ref(group, self._group_is_gone)
        self.engine: Optional[Engine] = None
        self.generation = 0

    def _group_is_gone(self, _: Any) -> None:
        # This may run in the middle of anything: another call closes the engine.  Or it runs at
        # the end of the interpreter, when the globals of this module are None.
        if self.engine is not None:
            self.engine.comm.close()
            self.orphans.append(self.engine)
            self.engine = None

    def is_stale(self) -> bool:
        return self.group is not None and self.group() is None

    def get(self, group: Any) -> Engine:
        with self.lock:
            if self.engine is not None and not self.engine.usable:
                self.orphans.append(self.engine)
                self.engine = None
                self.generation += 1
            if self.engine is None:
                comm = Comm()
                if group is not None:
                    corner = "" if self.ways == _ANY else f"{self.ways}/"
                    comm = comm_of(group, generation=self.generation, corner=corner)
                if self.is_opening and comm.size > 1:
                    raise make_error(IN_THE_MIDDLE, status=abi.Status.EBUSY)
                self.is_opening = True
                try:
                    engine = Engine(comm, ways=self.ways)
                    engine.compares = True
                except BaseException:
                    self.generation += comm.size > 1
                    raise
                finally:
                    self.is_opening = False
                if self.engine is None:
                    self.engine = engine
                else:  # a signal handler has opened one meanwhile
                    self.orphans.append(engine)
            return self.engine


class _Registry:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.slots: dict[tuple[int, Ways], _Slot] = {}
        self.orphans: deque[Engine] = deque()
        self.inherited: weakref.WeakSet[Any] = weakref.WeakSet()

    def slot(self, group: Any, ways: Ways) -> _Slot:
        with self.lock:
            for key in [key for key, slot in self.slots.items() if slot.is_stale()]:
                del self.slots[key]
            key = 0 if group is None else id(group), ways
            slot = self.slots.setdefault(key, _Slot(group, ways, self.orphans))
        while self.orphans:
            in_background(self.orphans.popleft().close)
        return slot


_registry = _Registry()


def open_engines() -> list[Engine]:
    """The engines of this process that `engine_for` has opened."""
    with _registry.lock:
        return [slot.engine for slot in _registry.slots.values() if slot.engine is not None]


def engine_for(
    process_group: Any = None, *, no_dist: bool = False, ways: Optional[Ways] = None
) -> Engine:
    """The engine of a process group.  Each group has one engine for each choice of ``ways``, with
    threads and memory of its own.  The first call for an engine is collective.

    ``process_group`` None: the default group; or this process alone, if torch.distributed is not
    initialized or with ``no_dist``.  Like stock DCP, raises ValueError on a rank outside of the
    group.
    """
    group = None if no_dist else _group_of(process_group)
    return _registry.slot(group, ways or _ANY).get(group)


def engine_alone() -> Engine:
    """The engine of this process alone."""
    return engine_for(no_dist=True)


def _group_of(process_group: Any) -> Any:
    if process_group is None and "torch" not in sys.modules:
        return None
    import torch.distributed as dist

    if process_group is None and not (dist.is_available() and dist.is_initialized()):
        return None
    group = dist.group.WORLD if process_group is None else process_group
    if group == dist.GroupMember.NON_GROUP_MEMBER or dist.get_rank(group) < 0:
        raise ValueError("Invalid process group specified: this rank is not a member of it")
    if group in _registry.inherited:
        raise make_error(
            f"the process group belongs to process {os.getppid()}, which forked this one",
            status=abi.Status.EFORKED,
        )
    return group


# ---------------------------------------------------------------- fork


def _after_fork_in_child() -> None:
    """Engines and groups belong to the parent.  What this process opens is its own."""
    global _registry
    _leaked.append(_registry)  # keep them: nothing of the parent may be destroyed here
    _registry = _Registry()
    ending.drained = False
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    if distributed is not None:
        for group in list(distributed._world.pg_map):
            _registry.inherited.add(group)


_leaked: list[Any] = []
os.register_at_fork(after_in_child=_after_fork_in_child)
