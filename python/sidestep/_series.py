# SPDX-License-Identifier: BSD-3-Clause
"""A series of the library, on the ranks of an engine: what `Checkpointer` is made of.

Its saves are the engine's: one is written at a time, whether of the series or not.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from . import _abi
from ._checked import a_step, metrics_of, some_texts
from ._dropped import close_left
from ._engine import Engine, LoadReport
from ._errors import Error, check, make_error
from ._handle import SaveHandle
from ._library import lib

if TYPE_CHECKING:
    from ._state import StateDict


@dataclass
class SeriesConfig:
    """What `sidestep_series_options` says; see the header."""

    keep_last: Optional[int] = None
    keep_every: int = 0
    keep_best: int = 0
    metric: Optional[str] = None
    best_is_max: bool = False
    interval_steps: int = 0
    interval_s: float = 0.0
    check_s: float = 0.0
    mtbf_s: float = 0.0
    max_lost: float = 0.0
    max_restarts: int = 0
    name: str = "step-{step}"
    flags: int = 0


@dataclass(frozen=True)
class SeriesStatus:
    """interval_s   between saves, as of now; 0: not by time
    skipped      saves that were left out, because the one before was under way
    queued       saves that started while another was under way
    agreements   of `should_save`
    lost         the part of time that is expected to be lost, where a rate of failures was given
    """

    interval_s: float
    skipped: int
    agreements: int
    lost: float
    queued: int = 0


@dataclass(frozen=True)
class Pruned:
    """What retention has deleted, and what it has kept, with the reason ("path: reason")."""

    deleted: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    bytes: int = 0


class Series:
    """``struct sidestep_series``.  Opening, saving, loading and closing are collective."""

    def __init__(self, engine: Engine, root: str, config: SeriesConfig) -> None:
        self.engine = engine
        self.root = root
        self._template = config.name.encode()
        self._pointer = ctypes.c_void_p()
        self._pid = os.getpid()
        self._pruning = threading.Lock()  # it is not closed meanwhile
        self._asking = threading.RLock()  # nor meanwhile; a signal handler may ask too
        self._asked = 0  # the step of the last `should_save`
        self._quiet_until = 0  # up to that step the answer is no
        options, _retention = _options(config)
        err = _abi.ErrorInfo()
        close_left()
        with engine.turn(f"open series '{root}'"), engine.comm.calling():
            status = lib().sidestep_series_open(
                engine.pointer,
                os.fsencode(root),
                ctypes.byref(options),
                ctypes.byref(self._pointer),
                ctypes.byref(err),
            )
        try:
            engine.check(status, err)
        except BaseException as problem:
            # An interrupt, when it was open already: nobody will close it.
            lib().sidestep_series_close(ctypes.byref(self._pointer), None)
            if isinstance(problem, Error) and problem.status == _abi.Status.ELOCKED:
                raise _in_use(root, problem) from None
            raise
        _all.add(self)

    @property
    def is_open(self) -> bool:
        """In this process, and not closed."""
        return bool(self._pointer) and not self.is_of_parent

    def _opened(self) -> ctypes.c_void_p:
        """RuntimeError: it is closed."""
        if not self._pointer:
            raise RuntimeError(f"the checkpoints in '{self.root}' are closed")
        return self._pointer

    @property
    def is_of_parent(self) -> bool:
        """This process is a child of fork(), and has no part in it."""
        return self._pid != os.getpid()

    def path_of(self, step: int) -> str:
        """Of the checkpoint of ``step``."""
        name, err = ctypes.create_string_buffer(256), _abi.ErrorInfo()
        check(lib().sidestep_name_of_step(self._template, a_step(step), name, err), err)
        return os.path.join(self.root, os.fsdecode(name.value))

    def step_of(self, path: str) -> Optional[int]:
        """Of the checkpoint with this name; None: it is none of this series'."""
        step, err = ctypes.c_uint64(), _abi.ErrorInfo()
        name = os.fsencode(os.path.basename(path))
        status = lib().sidestep_step_of_name(self._template, name, ctypes.byref(step), err)
        return step.value if status == _abi.Status.OK else None

    def save_async(
        self,
        step: int,
        state: Optional[StateDict],
        *,
        failure: Optional[BaseException] = None,
        compress: Optional[str] = None,
        spread_s: Optional[float] = None,
        queue: int = 0,
    ) -> SaveHandle:
        """As `Engine.save_async`, to ROOT/step-<step>."""
        return self.engine.save_async(
            self.path_of(step),
            state,
            step=step,
            failure=failure,
            series=self._opened(),
            compress=compress,
            spread_s=spread_s,
            queue=queue,
        )

    def load(
        self,
        state: Optional[StateDict],
        *,
        step: Optional[int] = None,
        partial: bool = False,
        strict: bool = False,
        verify: str = "read",
        failure: Optional[BaseException] = None,
    ) -> tuple[int, LoadReport, str]:
        """The step that was loaded, what was found, and what was passed over."""
        found = ctypes.c_uint64(step or 0)
        self._opened()
        rejected = ctypes.create_string_buffer(2048)

        def call(options: object, report: object, err: object) -> int:
            if step is not None:
                return int(
                    lib().sidestep_series_load_step(
                        self._pointer,
                        step,
                        state.pointer if state is not None else None,
                        options,
                        report,
                        err,
                    )
                )
            return int(
                lib().sidestep_series_load(
                    self._pointer,
                    state.pointer if state is not None else None,
                    options,
                    ctypes.byref(found),
                    report,
                    rejected,
                    err,
                )
            )

        report = self.engine.load(
            self.root,
            state,
            partial=partial,
            strict=strict,
            verify=verify,
            failure=failure,
            call=call,
        )
        return found.value, report, rejected.value.decode("utf-8", "replace")

    def should_save(self, step: int) -> int:
        """DUE_* bits, the same on every rank."""
        # Nothing follows from the step, and nobody talks.
        if type(step) is int and self._asked < step < self._quiet_until:
            self._asked = step
            return 0
        self._opened()
        step = a_step(step)
        due, err = ctypes.c_uint32(), _abi.ErrorInfo()
        engine = self.engine
        if engine.size == 1:
            check(lib().sidestep_series_should_save(self._pointer, step, due, err), err)
        else:
            with engine.turn("agree on a save"), engine.comm.calling():
                status = lib().sidestep_series_should_save(self._pointer, step, due, err)
            engine.check(status, err)
        self._asked = step
        self._quiet_until = lib().sidestep_series_quiet_until(self._pointer, step + 1)
        return due.value

    def request(self, what: int) -> None:
        """Ask for a save (DUE_SAVE) or the end (DUE_STOP).  Any thread, or a signal handler."""
        if self.is_of_parent:
            return
        with self._asking:
            if self._pointer:
                lib().sidestep_series_request(self._pointer, what)

    def note(self, step: int, metrics: Mapping[str, float], tags: Sequence[str]) -> None:
        """Metrics and tags of the checkpoint of ``step``.  Rank 0's count.  A word is one tag."""
        pairs = metrics_of(metrics or {})
        texts = some_texts([tags] if isinstance(tags, str) else tags or (), "tags")
        if not pairs and not texts:
            return
        self._opened()
        numbers = (_abi.Metric * max(1, len(pairs)))()
        for place, (name, value) in zip(numbers, pairs):
            place.name, place.value = name, value
        words = (ctypes.c_char_p * max(1, len(texts)))(*texts)
        err = _abi.ErrorInfo()
        status = lib().sidestep_series_note(
            self._pointer, a_step(step), numbers, len(pairs), words, len(texts), ctypes.byref(err)
        )
        check(status, err, rank=self.engine.rank)

    def prune(self) -> Pruned:
        """Delete what retention lets go.  On rank 0; any thread."""
        report, err = _abi.GcReport(), _abi.ErrorInfo()
        with self._pruning:
            if not self._pointer:
                return Pruned()
            status = lib().sidestep_series_prune(
                self._pointer, ctypes.byref(report), ctypes.byref(err)
            )
        check(status, err, rank=self.engine.rank)
        try:
            return Pruned(
                [os.fsdecode(report.removed[i]) for i in range(report.removed_count)],
                [os.fsdecode(report.kept[i]) for i in range(report.kept_count)],
                report.bytes,
            )
        finally:
            lib().sidestep_gc_report_release(ctypes.byref(report))

    def status(self) -> SeriesStatus:
        """Of `should_save`; times are rank 0's to know.  Any thread; all zero when it is closed."""
        status = _abi.sized(_abi.SeriesStatus)
        if not self.is_of_parent:
            with self._asking:
                lib().sidestep_series_status(self._pointer, ctypes.byref(status))
        return SeriesStatus(
            status.interval_ms / 1e3,
            status.skipped,
            status.agreements,
            status.lost,
            status.queued,
        )

    def close(self) -> None:
        """Wait for its saves, delete what is to be deleted, give the lock back."""
        if not self._pointer or self.is_of_parent:
            return
        self._quiet_until = 0
        err = _abi.ErrorInfo()
        engine = self.engine
        turn = engine.turn(f"close series '{self.root}'", closing=True)
        with turn, self._pruning, engine.comm.calling():
            with self._asking:
                pointer, self._pointer = self._pointer, ctypes.c_void_p()
            status = lib().sidestep_series_close(ctypes.byref(pointer), ctypes.byref(err))
        engine.check(status, err)


_all: weakref.WeakSet[Series] = weakref.WeakSet()


def _in_use(root: str, error: Error) -> Error:
    """``error``, with what to do if it is this process that has the root."""
    mine = any(one.is_open and os.path.realpath(one.root) == os.path.realpath(root) for one in _all)
    if not mine:
        return error
    return make_error(
        f"{error.message}, which is this process: close the Checkpointer that has it open before "
        "you make another one (leaving its with block, or del, does that, too)",
        status=error.status,
        errno=error.errno,
        rank=error.rank,
        where=error.where,
    )


def _options(config: SeriesConfig) -> tuple[_abi.SeriesOptions, _abi.Retention]:
    """The retention is returned to be kept alive."""
    options, retention = _abi.sized(_abi.SeriesOptions), _abi.sized(_abi.Retention)
    if config.keep_last is not None:
        retention.keep_last = config.keep_last
        retention.keep_every = config.keep_every
        retention.keep_best = config.keep_best
        retention.metric = config.metric.encode() if config.metric else None
        retention.flags = _abi.RETENTION_MAX if config.best_is_max else 0
        options.retention = ctypes.pointer(retention)
    options.name = config.name.encode()
    options.flags = config.flags
    options.max_restarts = config.max_restarts
    options.interval_steps = config.interval_steps
    options.interval_ms = int(config.interval_s * 1000)
    options.check_ms = max(1, int(config.check_s * 1000)) if config.check_s else 0
    options.mtbf_ms = int(config.mtbf_s * 1000)
    options.max_lost = config.max_lost
    return options, retention
