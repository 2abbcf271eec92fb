# SPDX-License-Identifier: BSD-3-Clause
"""`Checkpointer`: manages the checkpoints of one run."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, Optional, Union

from . import _names
from ._c import abi
from ._c.abi import Status
from ._c.checked import a_count, a_function, a_number, a_path, a_step, absolute, one_of
from ._c.errors import Error
from ._convert import Final
from ._engine import engine_for
from ._environment import GRACE_S, environment, tell_about_job
from ._exit import end_within
from ._files import Files, set_files
from ._filling import agree_on_latest, check_request, fill_from, given_by, is_over_already, resume
from ._handle import FailedSave, SaveHandle, take_sticky, wait_for_turn, wait_until
from ._hooks import Failures, Hooks
from ._last_save import LastSave
from ._loaded import Loaded
from ._mirror import Mirror, attach, mirror_of_environment
from ._modes import without_modes
from ._option_groups import (
    EVENTS,
    OF_SERIES,
    Callbacks,
    FailurePolicy,
    PreemptionPolicy,
    RetentionPolicy,
    SaveOptions,
    SchedulePolicy,
    save_options,
    values_of,
)
from ._options import Interval, series_options
from ._parents import try_make_parents
from ._roots import latest, pin
from ._roots import tag as _tag
from ._series import Series, SeriesStatus, close_when_dropped
from ._signals import Preempted, Signals
from ._torch.fence import fence_optimizers
from ._torch.flatten import flatten

log = logging.getLogger("sidestep")

_STORAGE_IS_AWAY = (Status.EIO, Status.ENOSPC, Status.EPERM, Status.ENOTFOUND, Status.ETIMEDOUT)


class Checkpointer:
    """Manages the checkpoints of one run, under ``root``.  A context manager.  Creating it is
    collective, and so are all methods that save or load.

        with sidestep.Checkpointer("ckpt", interval=500, keep_last_n=3) as checkpoints:
            state = sidestep.TrainState(model, optimizer, scheduler)
            checkpoints.resume(state)
            while state.step < steps:
                train(...)
                state.step += 1
                if checkpoints.should_save(state.step):
                    checkpoints.save(state.step, state)

    interval     a number of steps, a timedelta, or (steps, timedelta): whichever comes first
    keep_last_n  how many of the newest checkpoints stay; None: all.  The newest valid one always
                 stays
    signals      these announce the end of the job: one last save, and then `Preempted`
    final        the format of ``save(final=True)``, a `Final`.  If each node has a directory for
                 itself, that needs a ``mirror``
    name         names of checkpoints: a template ("step_{step:08d}", "step-{step}.dcp"), or a
                 prefix in front of the step ("step-")
    mirror       a second place for the checkpoints, a `Mirror`: for a ``root`` on fast disks that
                 may be lost.  None: see SIDESTEP_MIRROR
    near         "per_node": ``root`` may be a directory that each node has for itself: then a
                 checkpoint is made of parts, which `resume` puts together (docs/LEVELS.md).
                 "shared": all ranks must see it.  None: "per_node" if there is a ``mirror``

    All other options come in groups, each of a class:
    schedule     `SchedulePolicy`: intervals by the rate of failures; saves that are due during a
                 save
    retention    `RetentionPolicy`: which other checkpoints stay; what to do if the disk is full
    preemption   `PreemptionPolicy`: what to do at a signal, and how much time there is
    failure      `FailurePolicy`: failures that do not end the run
    options      `SaveOptions`: compression, incremental saves, snapshots, the way to storage
    callbacks    `Callbacks`: functions that are called when a save or a deletion is done

        Checkpointer("ckpt", interval=500, retention=RetentionPolicy(keep_every=10000))

    process_group, no_dist: the ranks that take part, as of `sidestep.save`.
    """

    def __init__(
        self,
        root: Union[str, os.PathLike[str]],
        *,
        interval: Interval = None,
        keep_last_n: Optional[int] = None,
        signals: Iterable[Union[str, int]] = ("SIGTERM",),
        final: Optional[Final] = None,
        name: str = "step-",
        mirror: Optional[Mirror] = None,
        near: Optional[Literal["shared", "per_node"]] = None,
        schedule: Optional[SchedulePolicy] = None,
        retention: Optional[RetentionPolicy] = None,
        preemption: Optional[PreemptionPolicy] = None,
        failure: Optional[FailurePolicy] = None,
        options: Optional[SaveOptions] = None,
        callbacks: Optional[Callbacks] = None,
        process_group: Any = None,
        no_dist: bool = False,
    ) -> None:
        more = values_of(
            {
                "schedule": schedule,
                "retention": retention,
                "preemption": preemption,
                "failure": failure,
                "options": options,
                "callbacks": callbacks,
            }
        )
        self.root = absolute(a_path(root, "root"))
        mirror = mirror if mirror is not None else mirror_of_environment(self.root)
        self._failures = Failures()
        self._options = save_options(options, series=True)
        self._max_failures = a_count(more["max_failures"], "max_failures")
        given = more["grace_s"]
        self._grace_s = GRACE_S if given is None else a_number(given, "grace_s")
        if more["exit_code"] is not None:
            a_count(more["exit_code"], "exit_code", most=255)
        self._exit_code = more["exit_code"]
        for event in EVENTS:
            a_function(more[event], event)
        self._is_ending = False  # a signal came, here or on another rank
        self._is_late = False  # and the grace time is over
        self.environment = environment()
        self._at_signal = one_of("at_signal", more["at_signal"], ("save", "finish", "abort"))
        if self._options.fence:
            fence_optimizers()
        self._due = 0
        queue = a_count(more["queue"], "queue", least=1, most=abi.MAX_QUEUE)
        self._queue = queue if more["busy"] == "queue" else 0
        self._saves: list[SaveHandle] = []  # under way, or failed and not reported yet
        self._last: Optional[SaveHandle] = None
        self._last_step = -1
        self._resumed_step = -1
        self._engine = engine_for(process_group, no_dist=no_dist, ways=self._options.ways)
        _names.prepare()  # so that the first save need not, while the trainer waits
        self._engine.comm.ends_at = float("inf")
        self._signals = Signals(signals, self._asked_to_stop)
        series = series_options(
            interval=interval,
            check_s=min(5.0, self._grace_s / 4) if self._signals.numbers else 0.0,
            keep_last_n=keep_last_n,
            name=name,
            near="per_node" if near is None and mirror is not None else near,
            **{option: more[option] for option in OF_SERIES},
        )
        self._mirror = attach(mirror, series)
        self._last_save = LastSave(self.root, final, mirror, near)
        self._series = self._open(series)
        close_when_dropped(self, self._series, self._signals)
        deletes = self._series if series.retention and self._engine.rank == 0 else None
        staged, committed, failed, deleted = (more[event] for event in EVENTS)
        self._hooks = Hooks(staged, committed, failed, deleted, deletes)
        self._signals.install()

    def _open(self, options: Any) -> Series:
        """Errors: `Error`, on all ranks."""
        makes = self._engine.rank == 0 or options.flags & abi.SERIES_PER_NODE
        failure = try_make_parents(self.root) if makes else None  # then opening fails everywhere
        if self._engine.rank == 0:
            tell_about_job(self.environment, self._engine.size)
        try:
            series = Series(self._engine, self.root, options)
        except Error as refusal:
            raise refusal from failure
        return self._last_save.opened(series)

    @property
    def failures(self) -> int:
        """Saves that have failed in the background."""
        return self._failures.count()[0]

    @property
    def failures_in_a_row(self) -> int:
        return self._failures.count()[1]

    # -- when

    @without_modes
    def should_save(self, step: int) -> bool:
        """Whether to save now: the same answer on every rank, whatever their clocks say.

        Every rank calls it after the same steps, usually after each.  Most calls do not
        communicate; see sidestep_series_should_save() in sidestep_series.h.
        """
        was_stopping = self.stopping
        self._due = self._series.should_save(step)
        if self.stopping and not was_stopping:
            self._tell_of_signal(step)
            self._end_together()
        return self._due != 0

    @property
    def stopping(self) -> bool:
        """Whether all ranks have agreed that the run ends: the save that is due is the last one."""
        return bool(self._due & abi.DUE_STOP)

    def request_save(self) -> None:
        """Ask for a save, on any rank, from any thread or signal handler.  `should_save` soon says
        yes on all ranks."""
        self._series.request(abi.DUE_SAVE)

    def request_stop(self) -> None:
        """Ask for a last save and the end of the run, as a signal does."""
        self._series.request(abi.DUE_STOP)

    @without_modes
    def status(self) -> SeriesStatus:
        """The current interval, skipped saves, and the expected loss of time."""
        return self._series.status()

    # -- save

    @without_modes
    def save(
        self,
        step: int,
        state: Any,
        *,
        metrics: Optional[Mapping[str, float]] = None,
        tags: Sequence[str] = (),
        final: bool = False,
        files: Optional[Files] = None,
    ) -> SaveHandle:
        """Save ``state`` (a `TrainState`, any ``Stateful``, or a dict) as the checkpoint of
        ``step``, in the background: returns when the state may change again.  ``files``: as in
        `sidestep.save`.  ``final``: it returns when the checkpoint is committed, is at the mirror,
        if there is one, and is exported to the configured format, if there is one.  After a
        signal, the last save raises `Preempted` once it is committed.

        If an earlier save failed in the background, its error is raised here, before anything is
        done, unless ``max_failures`` allows the failure.  ``max_failures`` also allows a save
        that cannot begin because storage is away: then the returned handle has failed.

        If ``step`` is saved already, `Error` (EEXISTS).  The exception: ``final`` of the step that
        the last call saved exports that checkpoint.  A run that is over when it resumes must not
        call ``save``.
        """
        step = a_step(step)
        stopping = self.stopping
        if stopping and self._at_signal == "finish" and not final:
            self._stop(self._last)
        if stopping and self._at_signal == "abort" and not final:
            self._abort()
        if final and self._last is not None and step == self._last_step:
            return self._finish_last(self._last, metrics or {}, tags)
        failure: Optional[BaseException] = None
        prepared: Any = None
        try:
            self._allow_for_failure()
            self._series.note(step, metrics or {}, tags)
            prepared = self._engine.states.get(
                flatten(given_by(state)), strict_objects=self._options.strict_objects
            )
            set_files(prepared.pointer, files)
        except BaseException as reason:
            failure = reason
        try:
            handle = self._series.save_async(
                step,
                prepared,
                failure=failure,
                compress=self._options.compress,
                spread_s=self._options.spread_s,
                queue=self._queue,
            )
        except Error as error:
            # On this rank; or the run is over for another rank, which then has gone.
            is_over = error.status in (Status.ETIMEDOUT, Status.EPEER)
            if self._is_ending and failure is None and is_over:
                self._give_up(str(error))
            if final and failure is None and step == self._resumed_step:
                raise is_over_already(error, self._series.path_of(step)) from None
            if final or stopping or failure is not None or not self._may_fail(error):
                raise
            handle = FailedSave(self._engine, self._series.path_of(step), error, step)
        self._saves = [save for save in self._saves if save._is_open] + [handle]
        self._last, self._last_step, self._resumed_step = handle, step, -1
        self._failures.add(handle)
        self._hooks.watch(step, handle)
        if final:
            self._finish(handle)
        if stopping:
            self._stop(handle)
        return handle

    @without_modes
    def note(self, step: int, metrics: Mapping[str, float], tags: Sequence[str] = ()) -> None:
        """Add metrics or tags that are known later, the loss of an evaluation for example.  Rank
        0's values count; a metric replaces an earlier one of the same name.  Waits for the save of
        ``step`` if that is under way."""
        if self._engine.rank == 0:
            path = self._series.path_of(step)
            for save in [save for save in self._saves if save.path == path]:
                save.wait()
        self._series.note(step, metrics, tags)

    @without_modes
    def wait(self, timeout: Optional[float] = None) -> bool:
        """Wait until the save under way is committed.  False: it is not committed yet, and
        ``timeout``, or the grace time after a signal, is over."""
        until = float("inf") if timeout is None else time.monotonic() + timeout
        ends_at = self._engine.comm.waits_until
        return self._last is None or self._last._wait_until(lambda: min(until, ends_at()))

    @without_modes
    def pin(self, step: int, on: bool = True) -> None:
        """Protect a checkpoint from retention; ``on=False`` undoes it.  Not collective."""
        pin(self._series.path_of(step), on)

    @without_modes
    def tag(self, step: int, tag: str, on: bool = True) -> None:
        """Add a tag to a checkpoint, or remove it.  Not collective."""
        _tag(self._series.path_of(step), tag, on)

    # -- load

    @without_modes
    def latest(self) -> Optional[str]:
        """The path of the newest checkpoint that is whole, or None; see `sidestep.latest`.  If each
        node has a directory for itself: of the mirror; a part is no checkpoint."""
        return latest(self._last_save.root if self._series.is_per_node else self.root)

    @without_modes
    def resume(
        self,
        state: Any,
        *,
        step: Optional[int] = None,
        verify: str = "read",
        strict: bool = True,
        exact: bool = False,
        cast: Optional[str] = None,
    ) -> Optional[Loaded]:
        """Fill ``state`` from the newest valid checkpoint, and go on from there.  Returns None if
        there is no checkpoint yet.

        step    resume from this step.  Newer checkpoints are then left behind: no resume picks
                them, and a save of their step replaces them
        verify  what is checked before a checkpoint counts as valid: "structure" (files, sizes,
                names; no data), "read" (also every byte that this run reads) or "before" (every
                byte, before the first tensor is touched)
        strict  names that are missing, mismatched, or of a part of ``state`` and without a place
                in it are an error, before anything is touched.  Names that ``state.may_lack()``
                allows may be missing; ``load_state_dict`` does not get them.  (A `TrainState`
                allows what belongs to new ranks.)  False: such names are left as they are
        exact   names that a rank did not ask for are an error, too; else they are listed
        cast    "allow": tensors may get a narrower dtype; else that is an error if ``strict``

        The log names, as a warning, each checkpoint that was passed over and the reason.

        Errors: `Error` on all ranks, which lists what was rejected and why.  ECORRUPT: there are
        checkpoints, but none is valid.  EMISMATCH: none may be resumed from.  EPERM, EIO: one
        cannot be read now, and may be whole: make it readable, or give an older ``step``.  Those
        of `load`.
        """
        began = time.monotonic()
        how: dict[str, Any] = {"verify": verify, "strict": strict, "exact": exact, "cast": cast}
        check_request(state, how)
        step = None if step is None else a_step(step)
        self._last_step = -1  # perhaps of a line that was left behind
        wait_for_turn(self._saves, 0, self._engine.comm.waits_until)  # those of this line
        loaded = resume(self._series, state, step, **how)
        self._resumed_step = -1 if loaded is None else loaded.step
        if loaded is not None:
            where, seconds = self._series.loaded_path(loaded.step), time.monotonic() - began
            self._tell("resumed step %d from '%s' in %.3f s", loaded.step, where, seconds)
        return loaded

    @without_modes
    def load(
        self,
        into: Any,
        *,
        step: int = -1,
        verify: str = "read",
        strict: bool = True,
        exact: bool = False,
        cast: Optional[str] = None,
    ) -> Loaded:
        """Fill ``into`` from the checkpoint of ``step`` (-1: the newest that is whole).  The run
        does not go on from there, and nothing is written (if each node has a directory for
        itself, only what is put together until the next call).  Other arguments: see `resume`.

        Errors: `Error`: ENOTFOUND; EMISMATCH for names that ``strict`` and ``exact`` do not allow;
        those of `sidestep.load`.
        """
        how: dict[str, Any] = {"verify": verify, "strict": strict, "exact": exact, "cast": cast}
        check_request(into, how)
        step = a_step(step, least=-1)
        if self._series.is_per_node:  # then the parts are put together first
            wait_for_turn(self._saves, 0, self._engine.comm.waits_until)
            step = self._series.find(step)
        elif step < 0:
            step = agree_on_latest(self._series, self.latest)
        return fill_from(self._series, step, into, **how)

    # -- the end

    @without_modes
    def close(self) -> None:
        """Wait for the save under way, finish deletions, release the lock.

        With a `Mirror`, also send the newest checkpoint there; if that fails, rank 0 raises an
        `Error` that says so.  After a signal, it is given up at the end of the grace time.  (With
        ``after_exit``, a process that was left sends it.)

        Raises the error of a save that failed in the background, if it was not reported yet and
        ``max_failures`` does not allow it.  If a first signal comes meanwhile, the wait ends when
        the grace time is over, and `Preempted` is raised at the end.
        The second time, and in a child of fork(), nothing happens.
        """
        if not self._series.is_open:
            return
        before = self._signals.received
        try:
            self._close()
        finally:
            self._signals.remove()
        if self._signals.received != before:
            raise self._preempted()

    def _close(self) -> None:
        for handle in self._saves:
            handle._hurry()
            if not wait_until(handle, self._engine.comm.waits_until):
                self._give_up(f"save '{handle.path}' was not committed within the grace time")
        error = take_sticky(self._saves)
        self._hooks.tell_deleted()
        self._last_save.close(self._series, self._mirror, lambda: self._is_ending)
        last = "none" if self._last is None else self._last.step
        self._tell("stopped: '%s' is closed, the last step saved is %s", self.root, last)
        self._engine.comm.ends_at = float("inf")
        if error is not None and not self._may_go_on():
            raise error

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: Any, value: Optional[BaseException], trace: object) -> None:
        """Like `close`.  If the body raised, other ranks may not come here.  So the ranks do not
        communicate, and only a run of one rank releases the lock."""
        if self._series.is_of_parent:
            return
        if value is None or (isinstance(value, Preempted) and not self._is_late):
            self.close()
            return
        self._signals.remove()
        if self._is_late:
            return
        if self._last is not None:
            with contextlib.suppress(Exception):
                self._last.wait(self._grace_s)
        if self._engine.size == 1 and (self._last is None or self._last.done()):
            with contextlib.suppress(Exception):
                self._series.close()

    # -- inside

    def _tell(self, line: str, *values: object) -> None:
        """Write one line to the log, on rank 0."""
        log.log(logging.INFO if self._engine.rank == 0 else logging.DEBUG, line, *values)

    def _tell_of_signal(self, step: int) -> None:
        """Not called in the signal handler, which runs between any two instructions."""
        number = self._signals.received
        who = "another rank, or the program" if number is None else signal.Signals(number).name
        self._tell("%s asks for the end at step %d: at_signal=%r", who, step, self._at_signal)

    def _asked_to_stop(self) -> None:
        """Called in the signal handler."""
        self._end_in(self._grace_s)
        self._series.request(abi.DUE_STOP, self._signals.received or 0)

    def _end_in(self, seconds: float) -> None:
        """From now on nothing waits longer than this, or than the job lives."""
        self._is_ending = True
        left = max(0.0, min(seconds, self.environment.left_s()))
        self._engine.comm.ends_at = time.monotonic() + left
        self._engine.comm.reserve_s = left / 10 if self._engine.size > 1 else 0.0

    def _end_together(self) -> None:
        """End when the first rank that got a signal ends; the others learn of it now."""
        if not self._is_ending:
            self._end_in(self._grace_s)
        left = max(0.0, self._engine.comm.ends_at - time.monotonic())
        longest = 2**40
        self._end_in((longest - self._engine.max_of(longest - int(left * 1e3))) / 1e3)

    def _finish_last(self, handle: SaveHandle, metrics: Any, tags: Any) -> SaveHandle:
        """Finish a run whose last step was saved without ``final``."""
        from ._torch.load import agreed

        try:
            self._finish(handle)
        except Error:
            if handle.peek() is not None:
                self._last_step = -1  # the next call saves anew
            raise
        with agreed(self._engine, handle.path):
            self._series.note(self._last_step, metrics, tags)
        if self.stopping:
            self._stop(handle)
        return handle

    def _finish(self, handle: SaveHandle) -> None:
        """Wait for the commit, and for the mirror, and export to the configured format."""
        what = self._series, handle, self._last_step
        try:
            self._last_save.finish(*what, self._mirror, self._give_up)
        except Error as unsent:
            if not self._is_ending or unsent.status is not Status.ECANCELLED:
                raise
            log.warning("the grace time is over: %s", unsent)

    def _stop(self, handle: Optional[SaveHandle]) -> None:
        """End the run when the save under way is committed, or the grace time is over."""
        late, failure = False, None
        try:
            late = handle is not None and not handle._wait_until(self._engine.comm.waits_until)
        except Error as error:
            failure = error
        name = handle.path if handle is not None else self.root
        if self._is_on_any(late):
            self._give_up(f"save '{name}' was not committed within the grace time")
        if failure is not None:
            raise failure
        end_within(max(0.0, self._engine.comm.ends_at - time.monotonic()))
        raise self._preempted()

    def _abort(self) -> None:
        """End the run, and give up the save under way."""
        paths = [save.path for save in self._saves if not save.done()]
        for save in self._saves:
            save.abort()
        if self._is_on_any(bool(paths)):
            self._give_up(f"save '{', '.join(paths) or self.root}' is not waited for")
        raise self._preempted()

    def _is_on_any(self, mine: bool) -> bool:
        """True on every rank if ``mine`` is true on one, or if a rank does not come any more."""
        try:
            return self._engine.any_rank(mine)
        except Error as error:
            log.error("%s", error)
            return True

    def _give_up(self, what: str) -> NoReturn:
        """End this process without waiting for anything."""
        log.error("%s", what)
        for save in self._saves:
            save._hurry()  # threads in the idle class of the processor would end late
        self._is_late = True
        end_within(0.0)
        raise self._preempted()

    def _preempted(self) -> Preempted:
        number = self._signals.received
        code = self._exit_code
        if code is None:
            code = 128 + (number or (self._signals.numbers or [15])[0])
        return Preempted(number, code)

    # -- saves in the background

    def _may_go_on(self) -> bool:
        return self.failures_in_a_row <= self._max_failures

    def _may_fail(self, error: Error) -> bool:
        """Whether ``max_failures`` allows one more failure: storage was away when a save began."""
        return error.status in _STORAGE_IS_AWAY and self.failures_in_a_row < self._max_failures

    def _allow_for_failure(self) -> None:
        """Do not raise the failure of a save that ``max_failures`` allows: it was logged."""
        if self._max_failures == 0:
            return
        wait_for_turn(self._saves, self._queue, self._engine.comm.waits_until)
        if self._may_go_on():
            while take_sticky(self._saves) is not None:
                pass
