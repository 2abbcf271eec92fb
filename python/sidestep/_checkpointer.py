# SPDX-License-Identifier: BSD-3-Clause
"""`Checkpointer`: the checkpoints of one run, which look after themselves."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Optional, Union

from . import _names
from ._c import abi
from ._c.abi import Status
from ._c.checked import (
    a_count,
    a_flag,
    a_function,
    a_number,
    a_path,
    a_state,
    a_step,
    absolute,
    one_of,
)
from ._c.errors import Error
from ._convert import Final, export
from ._engine import engine_for
from ._environment import GRACE_S, environment, tell_about_job
from ._exit import end_within
from ._filling import (
    Loaded,
    agree_on_latest,
    check_target,
    fill_from,
    go_back,
    go_on,
    is_over_already,
)
from ._groups import (
    EVENTS,
    OF_SERIES,
    AtEnd,
    Callbacks,
    How,
    Retention,
    Trouble,
    When,
    values_of,
)
from ._handle import FailedSave, SaveHandle, take_sticky, wait_for_turn, wait_until
from ._hooks import Failures, Hooks
from ._options import Interval, Ways, check_compression, check_spread, series_options
from ._parents import try_make_parents
from ._roots import latest, pin
from ._roots import tag as _tag
from ._series import Series, SeriesStatus, close_when_dropped
from ._signals import Preempted, Signals
from ._torch.fence import fence_optimizers
from ._torch.flatten import flatten, is_stateful

log = logging.getLogger("sidestep")


_STORAGE_IS_AWAY = (Status.EIO, Status.ENOSPC, Status.EPERM, Status.ENOTFOUND, Status.ETIMEDOUT)


class Checkpointer:
    """The checkpoints of one run, under ``root``.  All of its methods that save or load are
    collective, and so is making one; it is a context manager.

        with sidestep.Checkpointer("ckpt", interval=500, keep_last_n=3) as checkpoints:
            state = sidestep.TrainState(model, optimizer, scheduler)
            checkpoints.resume(state)
            while state.step < steps:
                train(...)
                state.step += 1
                if checkpoints.should_save(state.step):
                    checkpoints.save(state.step, state)

    interval     steps (int), a timedelta, or both, (steps, timedelta): whichever comes first
    keep_last_n  so many of the newest stay; None: all.  The newest that is valid is never deleted
    signals      what announces the end of the job: one last save, and then `Preempted`
    final        the format of ``save(final=True)``, a `Final`
    name         of a checkpoint, with the step in it ("step_{step:08d}", "step-{step}.dcp"), or
                 without, and then it comes last ("step-")

    All others come in groups, of which each has a class with the same defaults:

    when         `When`: intervals by the rate of failures; a save that is due while one is written
    retention    `Retention`: what else stays; a full disk
    at_end       `AtEnd`: what a signal means, and how long there is for it
    trouble      `Trouble`: failures that are gone on from
    how          `How`: compression, incremental saves, snapshots, the way to storage
    callbacks    `Callbacks`: functions to be called when a save or a deletion is done

        Checkpointer("ckpt", interval=500, retention=Retention(keep_every=10000))

    process_group, no_dist: the ranks that take part, as of `sidestep.save`.  The options of the
    groups may still be given without them, with a DeprecationWarning.
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
        when: Optional[When] = None,
        retention: Optional[Retention] = None,
        at_end: Optional[AtEnd] = None,
        trouble: Optional[Trouble] = None,
        how: Optional[How] = None,
        callbacks: Optional[Callbacks] = None,
        process_group: Any = None,
        no_dist: bool = False,
        **old: Any,
    ) -> None:
        groups = {"when": when, "retention": retention, "at_end": at_end, "trouble": trouble}
        known = Checkpointer.__init__.__kwdefaults__ or ()
        more = values_of({**groups, "how": how, "callbacks": callbacks}, old, known)
        self.root = absolute(a_path(root, "root"))
        self._failures = Failures()
        if final is not None and not isinstance(final, Final):
            raise TypeError(f"final={final!r} is no sidestep.Final")
        check_compression(more["compress"])
        check_spread(more["spread_s"])
        self._final, self._compress, self._spread_s = final, more["compress"], more["spread_s"]
        self._max_failures = a_count(more["max_failures"], "max_failures")
        given = more["grace_s"]
        self._grace_s = GRACE_S if given is None else a_number(given, "grace_s")
        if more["exit_code"] is not None:
            a_count(more["exit_code"], "exit_code", most=255)
        self._exit_code = more["exit_code"]
        for event in EVENTS:
            a_function(more[event], event)
        self._is_ending = False  # a signal came, or another rank told
        self._is_late = False  # and the grace time is over
        self.environment = environment()
        self._at_signal = one_of("at_signal", more["at_signal"], ("save", "finish", "abort"))
        if a_flag(more["fence"], "fence"):
            fence_optimizers()
        self._due = 0
        queue = a_count(more["queue"], "queue", least=1, most=abi.MAX_QUEUE)
        self._queue = queue if more["busy"] == "queue" else 0
        self._saves: list[SaveHandle] = []  # that are under way, or failed and nobody was told
        self._last: Optional[SaveHandle] = None
        self._last_step = -1
        self._resumed_step = -1
        ways = Ways(more["snapshot"], more["io"], more["user_faults"]).check()
        self._engine = engine_for(process_group, no_dist=no_dist, ways=ways)
        _names.prepare()  # else the first save does, while the trainer waits
        self._engine.comm.ends_at = float("inf")
        self._signals = Signals(signals, self._asked_to_stop)
        options = series_options(
            interval=interval,
            check_s=min(5.0, self._grace_s / 4) if self._signals.numbers else 0.0,
            keep_last_n=keep_last_n,
            name=name,
            **{option: more[option] for option in OF_SERIES},
        )
        self._series = self._open(options)
        close_when_dropped(self, self._series, self._signals)
        deletes = self._series if options.retention and self._engine.rank == 0 else None
        staged, committed, failed, deleted = (more[event] for event in EVENTS)
        self._hooks = Hooks(staged, committed, failed, deleted, deletes)
        self._signals.install()

    def _open(self, options: Any) -> Series:
        """Errors: `Error`, on all ranks."""
        failure: Optional[Error] = None
        if self._engine.rank == 0:
            failure = try_make_parents(self.root)  # then opening fails on all ranks
            tell_about_job(self.environment, self._engine.size)
        try:
            return Series(self._engine, self.root, options)
        except Error as refusal:
            raise refusal from failure

    @property
    def failures(self) -> int:
        """Saves that have failed in the background."""
        return self._failures.count()[0]

    @property
    def failures_in_a_row(self) -> int:
        return self._failures.count()[1]

    # -- when

    def should_save(self, step: int) -> bool:
        """Whether to save now: the same answer on every rank, whatever their clocks say.

        To be called by every rank after the same steps, usually each.  Most calls do not
        communicate; see sidestep_series_should_save() in sidestep.h.
        """
        was_stopping = self.stopping
        self._due = self._series.should_save(step)
        if self.stopping and not was_stopping:
            self._tell_of_signal(step)
            self._end_together()
        return self._due != 0

    @property
    def stopping(self) -> bool:
        """All ranks have agreed that the run ends: the save that is due is the last one."""
        return bool(self._due & abi.DUE_STOP)

    def request_save(self) -> None:
        """Ask for a save, on any rank, from any thread or signal handler: soon `should_save` says
        yes on all."""
        self._series.request(abi.DUE_SAVE)

    def request_stop(self) -> None:
        """The same, for a last save and the end, as a signal does."""
        self._series.request(abi.DUE_STOP)

    def status(self) -> SeriesStatus:
        """The interval as of now, what was skipped, what is expected to be lost."""
        return self._series.status()

    # -- save

    def save(
        self,
        step: int,
        state: Any,
        *,
        metrics: Optional[Mapping[str, float]] = None,
        tags: Sequence[str] = (),
        final: bool = False,
    ) -> SaveHandle:
        """Save ``state`` (a `TrainState`, any ``Stateful``, or a dict) as the checkpoint of
        ``step``, in the background: returns when the state may change again.

        ``final``: returns when it is committed and, where a format was configured, exported to it.
        After a signal the last save raises `Preempted` once it is committed.
        An earlier save that failed in the background is raised here, before anything is done,
        unless ``max_failures`` allows for it.  It allows also for storage that is away now: the
        handle that is returned has failed then.
        ``step`` was saved: `Error` (EEXISTS); by the last call, and now ``final``: it is exported.
        So a run that is over when it resumes has to leave its last save out.
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
            prepared = self._prepared(state)
        except BaseException as reason:
            failure = reason
        try:
            handle = self._series.save_async(
                step,
                prepared,
                failure=failure,
                compress=self._compress,
                spread_s=self._spread_s,
                queue=self._queue,
            )
        except Error as error:
            # Of this rank, or it is over for another one, which is gone then.
            is_over = error.status in (Status.ETIMEDOUT, Status.EPEER)
            if self._is_ending and failure is None and is_over:
                self._give_up(str(error))
            if final and failure is None and step == self._resumed_step:
                raise is_over_already(error, self._series.path_of(step)) from None
            if final or stopping or failure is not None or not self._may_fail(error):
                raise
            handle = FailedSave(self._engine, self._series.path_of(step), error, step)
        self._saves = [save for save in self._saves if save.is_open] + [handle]
        self._last, self._last_step, self._resumed_step = handle, step, -1
        self._failures.add(handle)
        self._hooks.watch(step, handle)
        if final:
            self._finish(handle)
        if stopping:
            self._stop(handle)
        return handle

    def note(self, step: int, metrics: Mapping[str, float], tags: Sequence[str] = ()) -> None:
        """What became known of a checkpoint later: a loss of its evaluation, say.  Rank 0's word
        counts; a metric replaces the one of its name.  Waits for the save of ``step``, if that is
        under way."""
        if self._engine.rank == 0:
            path = self._series.path_of(step)
            for save in [save for save in self._saves if save.path == path]:
                save.wait()
        self._series.note(step, metrics, tags)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Until the save under way, if there is one, is committed; False: not yet, and ``timeout``
        or the grace time after a signal is over."""
        until = float("inf") if timeout is None else time.monotonic() + timeout
        ends_at = self._engine.comm.waits_until
        return self._last is None or self._last.wait_until(lambda: min(until, ends_at()))

    def pin(self, step: int, on: bool = True) -> None:
        """Protect a checkpoint from retention, or no longer.  Not collective."""
        pin(self._series.path_of(step), on)

    def tag(self, step: int, tag: str, on: bool = True) -> None:
        """Put a tag on a checkpoint, or take it away.  Not collective."""
        _tag(self._series.path_of(step), tag, on)

    # -- load

    def latest(self) -> Optional[str]:
        """The path of the newest checkpoint that is whole, or None; see `sidestep.latest`."""
        return latest(self.root)

    def resume(
        self,
        state: Any,
        *,
        step: Optional[int] = None,
        verify: str = "read",
        strict: bool = True,
        exact: bool = False,
    ) -> Optional[Loaded]:
        """Fill ``state`` from the newest checkpoint that is valid, and go on from there; None if
        there is none yet.

        step    from that one.  Once it is loaded, newer ones are of a line that has ended: no
                resume picks them, and a save of their step replaces them
        verify  what is checked before a checkpoint counts as valid: "structure" (files, sizes,
                names; no data), "read" (and what this run reads of it) or "before" (everything,
                first)
        strict  missing and mismatched names are an error, before anything is touched; but for those
                that ``state.may_lack()`` (its ``load_state_dict`` does not get them), as a
                `TrainState` does what belongs to new ranks.  False: such names are left as they
                are, and listed
        exact   so are names that a rank did not ask for; else they are listed

        What was passed over is logged as a warning, with the reason.

        Errors: `Error` on all ranks, with what was rejected and why: ECORRUPT if there are
        checkpoints but none is valid; EMISMATCH if none may be resumed from; EPERM, EIO if one
        cannot be read now, which does not mean that it is damaged (make it readable, or give an
        older ``step``); those of `load`.
        """
        began = time.monotonic()
        check_target(state)
        step = None if step is None else a_step(step)
        self._last_step = -1  # of another line, perhaps
        wait_for_turn(self._saves, 0, self._engine.comm.waits_until)  # they are of this line
        how: dict[str, Any] = {"verify": verify, "strict": strict, "exact": exact}
        if step is None:
            loaded = go_on(self._series, state, **how)
        else:
            loaded = go_back(self._series, step, state, **how)
        self._resumed_step = -1 if loaded is None else loaded.step
        if loaded is not None:
            where, seconds = self._series.path_of(loaded.step), time.monotonic() - began
            self._tell("resumed step %d from '%s' in %.3f s", loaded.step, where, seconds)
        return loaded

    def load(
        self,
        into: Any,
        *,
        step: int = -1,
        verify: str = "read",
        strict: bool = True,
        exact: bool = False,
    ) -> Loaded:
        """Fill ``into`` from the checkpoint of ``step`` (-1: the newest that is whole), without
        going on from there: nothing is written.  The rest as in `resume`.

        Errors: `Error`: ENOTFOUND; EMISMATCH for names that ``strict`` and ``exact`` do not allow;
        those of `sidestep.load`.
        """
        check_target(into)
        step = a_step(step, least=-1)
        if step < 0:
            step = agree_on_latest(self._series, self.latest)
        return fill_from(self._series, step, into, verify=verify, strict=strict, exact=exact)

    # -- the end

    def close(self) -> None:
        """Wait for what is under way, finish what is to be deleted, give the lock back.

        Raises what a save in the background has failed with, if nobody was told, and
        ``max_failures`` does not allow for it.  A signal that comes meanwhile, the first one, ends
        the wait when the grace time is over, and raises `Preempted` when all is done.
        In a child of fork() nothing happens: all of it is its parent's.
        """
        if self._series.is_of_parent:
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
            handle.hurry()
            if not wait_until(handle, self._engine.comm.waits_until):
                self._give_up(f"save '{handle.path}' was not committed within the grace time")
        error = take_sticky(self._saves)
        self._hooks.tell_deleted()
        self._series.close()
        last = "none" if self._last is None else self._last.step
        self._tell("stopped: '%s' is closed, the last step saved is %s", self.root, last)
        self._engine.comm.ends_at = float("inf")
        if error is not None and not self._may_go_on():
            raise error

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: Any, value: Optional[BaseException], trace: object) -> None:
        """As `close`.  Where the body raised, other ranks may not come here: nothing is agreed, and
        only a single rank gives the lock back."""
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
        """One line of the log, on rank 0."""
        log.log(logging.INFO if self._engine.rank == 0 else logging.DEBUG, line, *values)

    def _tell_of_signal(self, step: int) -> None:
        """Not in the handler of the signal, which runs between any two instructions."""
        number = self._signals.received
        who = "another rank, or the program" if number is None else signal.Signals(number).name
        self._tell("%s asks for the end at step %d: at_signal=%r", who, step, self._at_signal)

    def _asked_to_stop(self) -> None:
        """In the handler of a signal."""
        self._end_in(self._grace_s)
        self._series.request(abi.DUE_STOP)

    def _end_in(self, seconds: float) -> None:
        """From now on: nothing is waited for any longer than so, nor than the job lives."""
        self._is_ending = True
        left = max(0.0, min(seconds, self.environment.left_s()))
        self._engine.comm.ends_at = time.monotonic() + left
        self._engine.comm.reserve_s = left / 10 if self._engine.size > 1 else 0.0

    def _end_together(self) -> None:
        """When the first of those does who were told: the others learn of it now."""
        if not self._is_ending:
            self._end_in(self._grace_s)
        left = max(0.0, self._engine.comm.ends_at - time.monotonic())
        longest = 2**40
        self._end_in((longest - self._engine.max_of(longest - int(left * 1e3))) / 1e3)

    def _prepared(self, state: Any) -> Any:
        from ._torch.save import call_stateful

        if is_stateful(state):
            values = state.state_dict()
            a_state(values, f"what {type(state).__qualname__}.state_dict() returns")
        else:
            values = call_stateful(state)
        return self._engine.states.get(flatten(values))

    def _finish_last(self, handle: SaveHandle, metrics: Any, tags: Any) -> SaveHandle:
        """The end of a run whose last step was saved as any other."""
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
        """Committed, and in the format that was asked for."""
        from ._torch.load import agreed

        together = agreed(self._engine, handle.path, Exception)
        with together if self._final is not None else contextlib.nullcontext():
            if not handle.wait_until(self._engine.comm.waits_until):
                self._give_up(f"save '{handle.path}' was not committed within the grace time")
            if self._final is not None and self._engine.rank == 0:
                export(handle.path, self._final.path_in(self.root), self._final)

    def _stop(self, handle: Optional[SaveHandle]) -> None:
        """The end of the run: what is under way is committed, or the grace time is over."""
        late, failure = False, None
        try:
            late = handle is not None and not handle.wait_until(self._engine.comm.waits_until)
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
        """The end of the run, without what is under way."""
        paths = [save.path for save in self._saves if not save.done()]
        for save in self._saves:
            save.abort()
        if self._is_on_any(bool(paths)):
            self._give_up(f"save '{', '.join(paths) or self.root}' is not waited for")
        raise self._preempted()

    def _is_on_any(self, mine: bool) -> bool:
        """True on every rank if ``mine`` is on one, or one of them does not come any more."""
        try:
            return self._engine.any_rank(mine)
        except Error as error:
            log.error("%s", error)
            return True

    def _give_up(self, what: str) -> NoReturn:
        """This process ends without waiting for anything."""
        log.error("%s", what)
        for save in self._saves:
            save.hurry()  # threads in the idle class of the processor would end late
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
        """Storage was away when a save began, and ``max_failures`` allows for one more failure."""
        return error.status in _STORAGE_IS_AWAY and self.failures_in_a_row < self._max_failures

    def _allow_for_failure(self) -> None:
        """A failed save that may be gone on from is not raised by the next: it was logged."""
        if self._max_failures == 0:
            return
        wait_for_turn(self._saves, self._queue, self._engine.comm.waits_until)
        if self._may_go_on():
            while take_sticky(self._saves) is not None:
                pass
