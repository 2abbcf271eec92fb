# SPDX-License-Identifier: BSD-3-Clause
"""A series of the library, on the ranks of an engine: `Checkpointer` builds on it.

An engine writes one save at a time, of the series or not.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from ._c import abi
from ._c.calls import call, texts, when_gone
from ._c.checked import a_step, metrics_of, some_texts
from ._c.errors import Error, reworded
from ._c.library import lib
from ._engine import Engine, LoadReport
from ._handle import SaveHandle, hand_over

if TYPE_CHECKING:
    from ._signals import Signals
    from ._torch.state import StateDict

log = logging.getLogger("sidestep")


@dataclass(frozen=True)
class SeriesStatus:
    """interval_s   current interval between saves; 0: not by time
    skipped      saves that were left out because the one before was under way
    queued       saves that started while another was under way
    agreements   how often `should_save` made the ranks agree
    lost         with a rate of failures: the fraction of time that is expected to be lost
    """

    interval_s: float
    skipped: int
    agreements: int
    lost: float
    queued: int = 0


class Series:
    """``struct sidestep_series``.  Opening, saving, loading and closing are collective."""

    def __init__(self, engine: Engine, root: str, options: abi.SeriesOptions) -> None:
        self.engine = engine
        self.root = root
        self._template = options.name
        self._pointer = ctypes.c_void_p()
        self._pid = os.getpid()
        self._pruning = threading.Lock()  # held so that it is not closed meanwhile
        self._asking = threading.RLock()  # for its status; a signal handler may ask, too
        self._asked = 0  # the step of the last `should_save`
        self._quiet_until = 0  # before that step the answer is no
        close_left()
        try:
            with engine.turn(f"open series '{root}'"):
                where = engine.pointer, os.fsencode(root)
                engine.call(lib().sidestep_series_open, *where, options, self._pointer)
        except BaseException as problem:
            # An interrupt when it was open already: close it, nobody else will.
            lib().sidestep_series_close(self._pointer, None)
            if isinstance(problem, Error) and problem.status == abi.Status.ELOCKED:
                raise _in_use(root, problem) from None
            raise
        status = self._ask()
        self.directories: int = status.directories
        self.leads = bool(status.leads)  # of the ranks that see its directory, it is the lowest
        if self.is_per_node and engine.rank == 0:
            text = "%s: %d ranks see %d directories; each gets its ranks' part of a checkpoint"
            log.info(text, root, engine.size, self.directories)
        _all.add(self)

    @property
    def is_open(self) -> bool:
        """Whether it is open in this process."""
        return bool(self._pointer) and not self.is_of_parent

    @property
    def is_of_parent(self) -> bool:
        """Whether it belongs to the parent of this process."""
        return self._pid != os.getpid()

    def _opened(self) -> ctypes.c_void_p:
        """RuntimeError: it is closed."""
        if not self._pointer:
            raise RuntimeError(f"the checkpoints in '{self.root}' are closed")
        return self._pointer

    def path_of(self, step: int) -> str:
        """The path of the checkpoint of ``step``."""
        name = ctypes.create_string_buffer(256)
        call(lib().sidestep_name_of_step, self._template, a_step(step), name)
        return os.path.join(self.root, os.fsdecode(name.value))

    def place_of(self, step: int) -> str:
        """Where it can be loaded: after `load`, where its parts were put together."""
        path = ctypes.create_string_buffer(4096)
        call(lib().sidestep_series_path, self._opened(), a_step(step), path)
        return os.fsdecode(path.value)

    def find(self, step: int) -> int:
        """Find the checkpoint of ``step`` (-1: the newest that is whole), without going on from it.
        Returns its step; `place_of` leads to it.  Collective."""
        found = ctypes.c_uint64()
        with self.engine.turn("find a checkpoint"):
            self.engine.call(lib().sidestep_series_find, self._opened(), step, found)
        return found.value

    def loaded_path(self, step: int) -> str:
        """For people: the path of the checkpoint of ``step``, which was just loaded: that of the
        mirror, if it was loaded from there, and not where parts were put together."""
        path, place = self.path_of(step), self.place_of(step)
        return place if os.path.basename(place) == os.path.basename(path) else path

    def step_of(self, path: str) -> Optional[int]:
        """The step of the checkpoint with this name; None: this series has no such name."""
        step, name = ctypes.c_uint64(), os.fsencode(os.path.basename(path))
        status = lib().sidestep_step_of_name(self._template, name, step, None)
        return step.value if status == abi.Status.OK else None

    def save_async(self, step: int, state: Optional[StateDict], **options: Any) -> SaveHandle:
        """Like `Engine.save_async`, for the checkpoint of ``step``."""
        path, series = self.path_of(step), self._opened()
        return self.engine.save_async(path, state, step=step, series=series, **options)

    def load(
        self, state: StateDict, *, step: Optional[int] = None, **options: Any
    ) -> tuple[int, LoadReport, str]:
        """Like `Engine.load`, from the checkpoint of ``step`` or from the newest valid one.

        Returns the step that was loaded, what was found, and what was passed over.
        """
        found, rejected = ctypes.c_uint64(step or 0), ctypes.create_string_buffer(2048)
        self._opened()

        def load(options: Any, report: Any, err: Any) -> int:
            series, pointer = self._pointer, state.pointer
            if step is not None:
                function = lib().sidestep_series_load_step
                return int(function(series, step, pointer, options, report, err))
            function = lib().sidestep_series_load
            return int(function(series, pointer, options, found, report, rejected, err))

        report = self.engine.load(self.root, state, call=load, **options)
        return found.value, report, rejected.value.decode("utf-8", "replace")

    def should_save(self, step: int) -> int:
        """DUE_* bits, the same on every rank."""
        # Before that step, nothing follows from the step, and the ranks do not communicate.
        if type(step) is int and self._asked < step < self._quiet_until:
            self._asked = step
            return 0
        self._opened()
        step = a_step(step)
        due, function = ctypes.c_uint32(), lib().sidestep_series_should_save
        if self.engine.size == 1:
            call(function, self._pointer, step, due)
        else:
            with self.engine.turn("agree on a save"):
                self.engine.call(function, self._pointer, step, due)
        self._asked = step
        self._quiet_until = lib().sidestep_series_quiet_until(self._pointer, step + 1)
        return due.value

    def request(self, what: int, number: int = 0) -> None:
        """Ask for a save (DUE_SAVE) or the end (DUE_STOP).  Any thread, or a signal handler.
        ``number``: the signal that asks"""
        if self.is_of_parent:
            return
        with self._asking:
            if self._pointer:
                lib().sidestep_series_request(self._pointer, what | number << 8)

    def note(self, step: int, metrics: Mapping[str, float], tags: Sequence[str]) -> None:
        """Add metrics and tags to the checkpoint of ``step``.  Rank 0's count; a str is a tag."""
        pairs = metrics_of(metrics or {})
        words = some_texts([tags] if isinstance(tags, str) else tags or (), "tags")
        if not pairs and not words:
            return
        self._opened()
        call(
            lib().sidestep_series_note,
            self._pointer,
            a_step(step),
            (abi.Metric * max(1, len(pairs)))(*(abi.Metric(*pair) for pair in pairs)),
            len(pairs),
            (ctypes.c_char_p * max(1, len(words)))(*words),
            len(words),
            rank=self.engine.rank,
        )

    def flush(self) -> None:
        """Wait until the mirror, if there is one, has the newest checkpoint.  Collective."""
        with self.engine.turn("send the newest checkpoint to the mirror"):
            self.engine.call(lib().sidestep_series_flush, self._opened())

    def exported(self, step: int, path: str) -> None:
        """Tell in the events that ``step`` was exported to ``path``."""
        self._opened()
        call(lib().sidestep_series_exported, self._pointer, a_step(step), os.fsencode(path))

    def prune(self) -> tuple[str, ...]:
        """Delete what retention does not keep.  Returns the paths.  On rank 0; any thread."""
        report = abi.GcReport()
        try:
            with self._pruning:
                if self._pointer:
                    function = lib().sidestep_series_prune
                    call(function, self._pointer, report, rank=self.engine.rank)
            return texts(report.removed, report.removed_count)
        finally:
            lib().sidestep_gc_report_release(report)

    def status(self) -> SeriesStatus:
        """Only rank 0 knows times.  Any thread; all zero when it is closed."""
        now = self._ask()
        interval_s = now.interval_ms / 1e3
        return SeriesStatus(interval_s, now.skipped, now.agreements, now.lost, now.queued)

    def _ask(self) -> abi.SeriesStatus:
        now = abi.SeriesStatus()
        if not self.is_of_parent:
            with self._asking:
                lib().sidestep_series_status(self._pointer, now)
        return now

    @property
    def is_per_node(self) -> bool:
        """Whether each node has a directory for itself, so that checkpoints are made of parts."""
        return self.directories > 1

    def close(self) -> None:
        """Wait for its saves, finish deletions, release the lock."""
        if not self._pointer or self.is_of_parent:
            return
        self._quiet_until = 0
        with self.engine.turn(f"close series '{self.root}'", closing=True), self._pruning:
            with self._asking:
                pointer, self._pointer = self._pointer, ctypes.c_void_p()
            self.engine.call(lib().sidestep_series_close, pointer)


_all: weakref.WeakSet[Series] = weakref.WeakSet()


def _in_use(root: str, error: Error) -> Error:
    """``error``, with advice if this very process has the root open."""
    root = os.path.realpath(root)
    if not any(one.is_open and os.path.realpath(one.root) == root for one in _all):
        return error
    return reworded(
        error,
        f"{error.message}, which is this process: close the Checkpointer that has it open before "
        "you make another one (leaving its with block, or del, does that, too)",
    )


# ---------------------------------------------------------------- dropped without close()

# A finalizer may run in the middle of anything.  It closes nothing itself, because closing waits
# for saves and takes locks that its thread may hold.  An idle thread, or the next opening, closes.
_left: deque[Series] = deque()  # its append() and popleft() are atomic: any thread's collection
_closing = threading.Lock()


def close_when_dropped(owner: Any, series: Series, signals: Signals) -> None:
    """When ``owner`` is dropped and has not closed ``series``, warn (ResourceWarning).  If the run
    has one rank, also release the root."""
    when_gone(owner, _leave, series, signals)


def _leave(series: Series, signals: Signals) -> None:
    if not series.is_open:
        return
    signals.remove()
    alone = series.engine.size == 1  # closing is collective
    if alone:
        _left.append(series)
        hand_over(close_left)
    warnings.warn(
        f"a Checkpointer of '{series.root}' was dropped without close(); "
        + ("it is closed now" if alone else "its ranks keep the root locked until they end"),
        ResourceWarning,
        stacklevel=3,
    )


def close_left() -> None:
    """Close what was dropped.  Waits for its saves."""
    with _closing:
        while _left:
            series = _left.popleft()
            try:
                series.close()
            except Exception as error:
                log.error("close '%s', which was dropped: %s", series.root, error)


def _after_fork_in_child() -> None:
    """Forget what was dropped: it belongs to the parent."""
    global _closing
    _left.clear()
    _closing = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
