# SPDX-License-Identifier: BSD-3-Clause
"""`Checkpointer`: the checkpoints of one run, which look after themselves."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from . import _abi
from ._abi import Status
from ._engine import end_within, engine_for
from ._environment import GRACE_S, environment
from ._errors import Error, make_error
from ._fence import fence_optimizers
from ._flatten import flatten, is_stateful
from ._handle import SaveHandle, in_background
from ._series import Series, SeriesConfig, SeriesStatus
from ._signals import Preempted, Signals

if TYPE_CHECKING:
    from ._export import Final

log = logging.getLogger("sidestep")

Interval = Union[int, float, datetime.timedelta, None]


@dataclass(frozen=True)
class Loaded:
    """What `Checkpointer.load` and `Checkpointer.resume` found.

    step        of the checkpoint
    path        of it
    missing     names in the state that the checkpoint lacks (they were allowed to)
    unexpected  names in the checkpoint that this rank did not ask for
    mismatched  "name: saved float32 [2,3], wanted float32 [3,3]"
    rejected    newer checkpoints that were passed over, and why; "" if there are none
    """

    step: int
    path: str
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)
    rejected: str = ""


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

    When to save:
    interval        steps (int), or a timedelta
    mtbf            the job fails about that often (timedelta): the interval follows from it, and
                    from what saves are measured to cost
    max_lost        with it: the part of the time that saves and repeated work may take, 0.02 say
    busy            a save is due while the one before is under way: "wait" for it, or "skip" it
    signals         what announces the end of the job: one last save, and then `Preempted`
    grace_s         how long after a signal the job is allowed to live; None: 30, as with torchrun
                    and Slurm.  Never longer than until the scheduler ends the job, where it says
                    when (`environment`).  When it is over, nothing is waited for any more
    at_signal       "save", or "finish": only what is under way
    exit_code       of `Preempted`; None: 128 and the number of the signal, as a shell would say

    What to keep:
    keep_last_n     the newest; None: all.  The newest that is valid is never deleted
    keep_every      and those whose step is a multiple of it
    keep_best       and the best by a metric: ("loss", 3, "min")
    on_full         space is short for the next one: "fail" at once, "make_room" (all but the
                    newest may go), or None: try
    incremental     tensors that do not change are written once, and later checkpoints share the
                    file by hard links (docs/SERIES.md says what that costs and what it is worth)

    What to do about trouble:
    max_restarts    so many runs may resume from a checkpoint and come to nothing; then the one
                    before it has its turn.  0: any number
    max_failures    so many saves in a row may fail in the background, and are logged and counted;
                    the next failure is raised by the save after it.  0: the first one is
    any_run         resume also from what another run made
    spread_s        written evenly over so many seconds, unless somebody waits for the save: to be
                    done before the next one, with the least disturbance.  None: as fast as it goes.
                    See also `sidestep.paused`
    fence           tensors on CUDA devices are copied beside the next step: `fence_optimizers`

    on_staged, on_committed (each with step and handle), on_failed (with step and error), on_deleted
    (with path) are called on a thread of the package; none of them holds the training up.
    ``final``: the format of ``save(final=True)``, a `Final`.
    """

    def __init__(
        self,
        root: Union[str, os.PathLike[str]],
        *,
        interval: Interval = None,
        mtbf: Optional[datetime.timedelta] = None,
        max_lost: float = 0.0,
        busy: Literal["wait", "skip"] = "wait",
        signals: Iterable[Union[str, int]] = ("SIGTERM",),
        grace_s: Optional[float] = None,
        at_signal: Literal["save", "finish"] = "save",
        exit_code: Optional[int] = None,
        keep_last_n: Optional[int] = None,
        keep_every: int = 0,
        keep_best: Optional[tuple[str, int, str]] = None,
        on_full: Optional[Literal["fail", "make_room"]] = None,
        incremental: bool = False,
        max_restarts: int = 0,
        max_failures: int = 0,
        any_run: bool = False,
        fence: bool = True,
        name: str = "step-",
        final: Optional[Final] = None,
        compress: Optional[str] = None,
        spread_s: Optional[float] = None,
        process_group: Any = None,
        no_dist: bool = False,
        on_staged: Optional[Callable[[int, SaveHandle], object]] = None,
        on_committed: Optional[Callable[[int, SaveHandle], object]] = None,
        on_failed: Optional[Callable[[int, Error], object]] = None,
        on_deleted: Optional[Callable[[str], object]] = None,
    ) -> None:
        self.root = os.path.abspath(os.fspath(root))
        self.failures = 0
        self.failures_in_a_row = 0
        self._final = final
        self._compress = compress
        self._spread_s = spread_s
        self._grace_s = GRACE_S if grace_s is None else grace_s
        self._is_late = False
        self.environment = environment()
        self._at_signal = at_signal
        self._exit_code = exit_code
        self._max_failures = max_failures
        if fence:
            fence_optimizers()
        self._hooks = (on_staged, on_committed, on_failed, on_deleted)
        self._due = 0
        self._last: Optional[SaveHandle] = None
        self._last_step = -1
        self._engine = engine_for(process_group, no_dist=no_dist)
        self._signals = Signals(signals, self._asked_to_stop)
        config = SeriesConfig(
            keep_last=keep_last_n,
            keep_every=keep_every,
            interval_steps=interval if isinstance(interval, int) else 0,
            interval_s=_seconds(interval),
            check_s=min(5.0, self._grace_s / 4) if self._signals.numbers else 0.0,
            mtbf_s=mtbf.total_seconds() if mtbf is not None else 0.0,
            max_lost=max_lost,
            max_restarts=max_restarts,
            prefix=name,
            flags=_flags(busy, on_full, any_run, incremental),
        )
        if keep_best is not None:
            config.metric, config.keep_best, best = keep_best
            config.best_is_max = {"min": False, "max": True}[best]
            if config.keep_last is None:
                raise ValueError("keep_best without keep_last_n keeps all")
        self._prunes = config.keep_last is not None
        if self._engine.rank == 0:
            _make_parents(self.root)
            self._tell_about_job()
        self._series = Series(self._engine, self.root, config)
        self._signals.install()

    # -- when

    def should_save(self, step: int) -> bool:
        """Whether to save now: the same answer on every rank, whatever their clocks say.

        To be called by every rank after the same steps, usually each.  Most calls do not
        communicate; see sidestep_series_should_save() in sidestep.h.
        """
        self._due = self._series.should_save(step)
        return self._due != 0

    @property
    def stopping(self) -> bool:
        """All ranks have agreed that the run ends: the save that is due is the last one."""
        return bool(self._due & _abi.DUE_STOP)

    def request_save(self) -> None:
        """Ask for a save, on any rank, from any thread or signal handler: soon `should_save` says
        yes on all."""
        self._series.request(_abi.DUE_SAVE)

    def request_stop(self) -> None:
        """The same, for a last save and the end, as a signal does."""
        self._series.request(_abi.DUE_STOP)

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
        unless ``max_failures`` allows for it.
        """
        stopping = self.stopping
        if stopping and self._at_signal == "finish" and not final:
            self._stop(self._last)
        failure: Optional[BaseException] = None
        prepared: Any = None
        try:
            self._allow_for_failure()
            self._series.note(step, metrics or {}, tags)
            prepared = self._prepared(state)
        except BaseException as reason:
            failure = reason
        handle = self._series.save_async(
            step, prepared, failure=failure, compress=self._compress, spread_s=self._spread_s
        )
        self._last, self._last_step = handle, step
        self._watch(step, handle)
        if final:
            self._finish(handle)
        if stopping:
            self._stop(handle)
        return handle

    def note(self, step: int, metrics: Mapping[str, float], tags: Sequence[str] = ()) -> None:
        """What became known of a checkpoint later: a loss of its evaluation, say.  Rank 0's word
        counts.  Waits for the save of ``step``, if that is under way."""
        if self._engine.rank == 0 and self._last is not None and self._last_step == step:
            self._last.wait()
        self._series.note(step, metrics, tags)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Until the save under way, if there is one, is committed; False: not yet."""
        return self._last is None or self._last.wait(timeout)

    def pin(self, step: int, on: bool = True) -> None:
        """Protect a checkpoint from retention, or no longer.  Not collective."""
        from ._marks import pin

        pin(self._series.path_of(step), on)

    def tag(self, step: int, tag: str, on: bool = True) -> None:
        """Put a tag on a checkpoint, or take it away.  Not collective."""
        from ._marks import tag as put

        put(self._series.path_of(step), tag, on)

    # -- load

    def latest(self) -> Optional[str]:
        """The path of the newest checkpoint that is whole, or None; see `sidestep.latest`."""
        from ._latest import latest

        return latest(self.root)

    def resume(
        self, state: Any, *, step: Optional[int] = None, verify: str = "read", strict: bool = False
    ) -> Optional[Loaded]:
        """Fill ``state`` from the newest checkpoint that is valid, and go on from there; None if
        there is none yet.

        ``step``: from that one.  Newer ones are then of a line that has ended: no resume picks
        them, and a save of their step replaces them.
        ``verify``: "read" (what is read), "before" (everything, first) or "structure".
        ``strict``: names that only the checkpoint has are an error.

        Errors: `Error` on all ranks, with what was rejected and why: ECORRUPT if there are
        checkpoints but none is valid; EMISMATCH if none may be resumed from; those of `load`.
        """
        while True:
            try:
                found, _, rejected = self._series.load(
                    _nothing(), step=step, verify=_choice(verify), partial=True
                )
            except Error as error:
                if error.status == Status.ENOTFOUND and step is None:
                    return None
                raise
            try:
                return self._fill(found, state, strict, rejected)
            except Error as error:
                if error.status != Status.ECORRUPT or step is not None or verify == "before":
                    raise
                log.warning("%s; looking for an older one", error)
                verify = "before"  # and the damaged ones are set aside

    def load(self, into: Any, *, step: int = -1, strict: bool = False) -> Loaded:
        """Fill ``into`` from the checkpoint of ``step`` (-1: the newest that is whole), without
        going on from there: nothing is written.

        Errors: `Error`: ENOTFOUND; EMISMATCH for names that are missing or, with ``strict``,
        unexpected; those of `sidestep.load`.
        """
        if step < 0:
            step = self._agree_on_latest()
        return self._fill(step, into, strict, "")

    # -- the end

    def close(self) -> None:
        """Wait for what is under way, finish what is to be deleted, give the lock back.

        Raises what a save in the background has failed with, if nobody was told.
        """
        self._signals.remove()
        error: Optional[Error] = None
        if self._last is not None:
            with contextlib.suppress(Error):
                self._last.wait()
            error = self._last.take_sticky()
        if self._prunes and self._engine.rank == 0:
            self._tell_deleted()
        self._series.close()
        if error is not None and not self._may_go_on():
            raise error

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: Any, value: Optional[BaseException], trace: object) -> None:
        """As `close`.  Where the body raised, other ranks may not come here: nothing is agreed."""
        if value is None or (isinstance(value, Preempted) and not self._is_late):
            self.close()
            return
        self._signals.remove()
        if self._is_late:
            return
        if self._last is not None:
            with contextlib.suppress(Exception):
                self._last.wait(self._grace_s)

    # -- inside

    def _tell_about_job(self) -> None:
        """What looks wrong about how the job was launched, and what restarts there were."""
        env = self.environment
        if env.restarts:
            log.info("this job was restarted %d times", env.restarts)
        if self._engine.size == 1 and (env.world_size or 1) > 1 and env.launcher != "slurm":
            log.warning(
                "%s started %d processes, but torch.distributed is not initialized: each of them "
                "takes itself for the only one",
                env.launcher,
                env.world_size,
            )

    def _asked_to_stop(self) -> None:
        self._series.request(_abi.DUE_STOP)

    def _prepared(self, state: Any) -> Any:
        from ._save import call_stateful

        values = state.state_dict() if is_stateful(state) else call_stateful(state)
        return self._engine.states.get(flatten(values))

    def _fill(self, step: int, state: Any, strict: bool, rejected: str) -> Loaded:
        from ._load import fill

        path = self._series.path_of(step)
        whole: MutableMapping[str, Any] = state
        if is_stateful(state):
            whole = _Whole(state)
        report = fill(whole, path, engine=self._engine, optional=_optional(state))
        if is_stateful(state):
            state.load_state_dict(dict(whole))
        if strict and self._engine.any_rank(bool(report.unexpected)):
            names = ", ".join(report.unexpected[:8])
            raise make_error(
                f"load '{path}': names that the state lacks: {names}", status=Status.EMISMATCH
            )
        return Loaded(step, path, report.missing, report.unexpected, report.mismatched, rejected)

    def _agree_on_latest(self) -> int:
        """Rank 0's choice, on all ranks: the words are 1 above the step, 0 for none."""
        mine = 0
        if self._engine.rank == 0:
            path = self.latest()
            name = os.path.basename(path) if path is not None else ""
            digits = name[len(self._series.prefix) :]
            if name.startswith(self._series.prefix) and digits.isdigit():
                mine = int(digits) + 1
        chosen = self._engine.max_of(mine)
        if chosen == 0:
            raise make_error(f"there is no checkpoint in '{self.root}'", status=Status.ENOTFOUND)
        return chosen - 1

    def _finish(self, handle: SaveHandle) -> None:
        """Committed, and in the format that was asked for."""
        handle.wait()
        if self._final is None:
            return
        failure: Optional[BaseException] = None
        if self._engine.rank == 0:
            from ._export import export

            try:
                export(handle.path, self._final.path_in(self.root), self._final)
            except Exception as reason:
                failure = reason
        if self._engine.any_rank(failure is not None):
            raise failure or make_error(
                f"rank 0 could not export '{handle.path}'", status=Status.EIO, rank=0
            )

    def _stop(self, handle: Optional[SaveHandle]) -> None:
        """The end of the run: what is under way is committed, or the grace time is over, and then
        this process ends without waiting for it."""
        left = min(self._signals.left_s(self._grace_s), self.environment.left_s())
        is_late = handle is not None and not handle.wait(left)
        if is_late and handle is not None:
            log.error("save '%s' was not committed within the grace time", handle.path)
        self._is_late = self._engine.any_rank(is_late)
        end_within(0.0 if self._is_late else max(0.0, self._signals.left_s(self._grace_s)))
        number = self._signals.received
        code = self._exit_code
        if code is None:
            code = 128 + (number or (self._signals.numbers or [15])[0])
        raise Preempted(number, code)

    # -- saves in the background

    def _watch(self, step: int, handle: SaveHandle) -> None:
        on_staged, on_committed, on_failed, _ = self._hooks

        def done(_: Any) -> None:
            error = handle.peek()
            if isinstance(error, Error):
                self.failures += 1
                self.failures_in_a_row += 1
                if on_failed is not None:
                    on_failed(step, error)
                return
            self.failures_in_a_row = 0
            if on_committed is not None:
                on_committed(step, handle)
            if self._prunes and self._engine.rank == 0:
                in_background(self._tell_deleted)

        if on_staged is not None:
            callback = on_staged
            handle.staged.add_done_callback(lambda _: callback(step, handle))
        handle.add_done_callback(done)

    def _tell_deleted(self) -> None:
        """What the library's own thread has deleted, or what is left for it to delete."""
        on_deleted = self._hooks[3]
        if on_deleted is None:
            return
        with contextlib.suppress(Error):  # the next save comes here again
            for path in self._series.prune().deleted:
                on_deleted(path)

    def _may_go_on(self) -> bool:
        return self.failures_in_a_row <= self._max_failures

    def _allow_for_failure(self) -> None:
        """A failed save that may be gone on from is not raised by the next: it was logged."""
        if self._last is None or self._max_failures == 0:
            return
        self._last.wait_for_turn()
        if self._may_go_on():
            self._last.take_sticky()


class _Whole(dict):  # type: ignore[type-arg]
    """The state dict of one Stateful, without a name in front."""

    def __init__(self, state: Any) -> None:
        super().__init__(state.state_dict())


def _optional(state: Any) -> Callable[[str], bool]:
    """What a checkpoint may lack, if any part of the state says so."""
    parts = [state] if is_stateful(state) else list(state.values())
    asked = [part.may_lack for part in parts if hasattr(part, "may_lack")]
    return lambda name: any(may_lack(name) for may_lack in asked)


def _nothing() -> Any:
    from ._state import StateDict

    return StateDict([], for_load=True)


def _choice(verify: str) -> str:
    """What is read is checked when it is read."""
    return "before" if verify == "before" else "structure"


def _seconds(interval: Interval) -> float:
    if isinstance(interval, datetime.timedelta):
        return interval.total_seconds()
    if isinstance(interval, float):
        raise TypeError("interval: steps as an int, or a datetime.timedelta")
    return 0.0


def _flags(busy: str, on_full: Optional[str], any_run: bool, incremental: bool) -> int:
    flags = _abi.SERIES_REQUESTS
    flags |= {"wait": 0, "skip": _abi.SERIES_SKIP_BUSY}[busy]
    flags |= {None: 0, "fail": _abi.SERIES_CHECK_SPACE, "make_room": _abi.SERIES_MAKE_ROOM}[on_full]
    flags |= _abi.SERIES_INCREMENTAL if incremental else 0
    return flags | (_abi.SERIES_ANY_RUN if any_run else 0)


def _make_parents(root: str) -> None:
    from ._plugins import make_parents

    with contextlib.suppress(OSError):  # opening will say so, to all ranks
        make_parents(root)
