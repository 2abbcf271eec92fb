# SPDX-License-Identifier: BSD-3-Clause
"""The options of `Checkpointer` that few need, in groups."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Optional

from ._c.checked import a_flag
from ._c.errors import Error
from ._handle import SaveHandle
from ._options import Ways, check_compression, check_spread


@dataclass(frozen=True)
class SchedulePolicy:
    """When to save, besides ``interval``.  C: members of struct sidestep_series_options.

    mtbf      mean time between failures of the job, a timedelta.  The interval is computed from it
              and from the measured cost of saves
    max_lost  with ``mtbf``: the fraction of time that saves and repeated work may take, 0.02 for
              example
    busy      what to do if a save is due while the one before is under way: "wait" for that one,
              "skip" the new one, or "queue" it (copy it now, write it after that one)
    queue     how many saves may be queued at once: at most 8, each a copy of the state.  Another
              save waits
    """

    mtbf: Optional[datetime.timedelta] = None
    max_lost: float = 0.0
    busy: Literal["wait", "skip", "queue"] = "wait"
    queue: int = 1


@dataclass(frozen=True)
class RetentionPolicy:
    """What to keep, besides the last ``keep_last_n``.  C: struct sidestep_retention.

    keep_every  also keep checkpoints whose step is a multiple of it
    keep_best   also keep the best by a metric: ("loss", 3, "min")
    on_full     what to do if space is short for the next save: "fail" at once, "make_room" (delete
                all but the newest, as far as retention may), or None: try
    """

    keep_every: int = 0
    keep_best: Optional[tuple[str, int, str]] = None
    on_full: Optional[Literal["fail", "make_room"]] = None


@dataclass(frozen=True)
class PreemptionPolicy:
    """What happens when a signal announces the end of the job.

    grace_s    seconds that the job may live after the signal; None: 30, as with torchrun and Slurm.
               It ends earlier if the scheduler says that the job does (`environment`).  When it is
               over, nothing waits any more
    at_signal  "save": finish the save under way, then make a last one; "finish": only finish the
               save under way; "abort": give it up, and make no last one
    exit_code  of `Preempted`; None: 128 + the number of the signal, as in a shell
    """

    grace_s: Optional[float] = None
    at_signal: Literal["save", "finish", "abort"] = "save"
    exit_code: Optional[int] = None


@dataclass(frozen=True)
class FailurePolicy:
    """Which failures do not end the run.  C: members of struct sidestep_series_options.

    max_restarts  after this number of runs have resumed from a checkpoint without making progress,
                  a resume takes the checkpoint before it.  0: any number of runs
    max_failures  this number of saves in a row may fail in the background; they are logged and
                  counted.  The next save raises one more failure.  0: it raises the first one
    any_run       resume also from checkpoints of another run
    """

    max_restarts: int = 0
    max_failures: int = 0
    any_run: bool = False


@dataclass(frozen=True)
class SaveOptions:
    """How a checkpoint is saved.  C: options of the engine, and of a save.

    compress     "none", "zstd", "zstd:LEVEL", "planes" or "auto"; None: the value of
                 SIDESTEP_COMPRESS
    incremental  write tensors that do not change once; later checkpoints share the file by hard
                 links (docs/SERIES.md says what that costs and gains)
    spread_s     write evenly over this time, in seconds, unless somebody waits for the save; it
                 disturbs training least.  None: the value of SIDESTEP_SPREAD_MS, or at full speed.
                 See also `sidestep.paused`
    fence        copy tensors on CUDA devices during the next step: see `fence_optimizers`
    snapshot     "cow" (write-protect the memory and return), "copy" (copy it first) or "auto";
                 None: the value of SIDESTEP_SNAPSHOT.  `SaveHandle.progress()` says what was done
    io           "uring", "threads", "buffered" or "auto"; "uring:16" also sets the number of
                 requests in flight.  None: the value of SIDESTEP_IO
    user_faults  allow "cow" also where the machine allows only the kind of write protection that
                 cannot wait in system calls: then a read() into a tensor that is being saved fails.
                 None: the value of SIDESTEP_USER_FAULTS
    strict_objects  a save refuses objects that a load would refuse.  False: it warns
    """

    compress: Optional[str] = None
    incremental: bool = False
    spread_s: Optional[float] = None
    fence: bool = True
    snapshot: Optional[str] = None
    io: Optional[str] = None
    user_faults: Optional[bool] = None
    strict_objects: bool = False

    def check(self, *, series: bool = False) -> SaveOptions:
        """These options.  TypeError, ValueError: one is not valid, or needs a ``series``."""
        check_compression(self.compress)
        check_spread(self.spread_s)
        self.ways.check()
        for name in ("incremental", "fence", "strict_objects"):
            a_flag(getattr(self, name), name)
        if self.incremental and not series:
            raise ValueError("incremental: only a Checkpointer shares files with earlier saves")
        return self

    @property
    def ways(self) -> Ways:
        """Those that choose the engine."""
        return Ways(self.snapshot, self.io, self.user_faults)


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called on a thread of the package.  None of them delays the training or a
    save.  Those about saves are called one after the other, in the order in which saves end.

    on_staged, on_committed  called with the step and the handle
    on_failed                called with the step and the error
    on_deleted               called with the path
    """

    on_staged: Optional[Callable[[int, SaveHandle], object]] = None
    on_committed: Optional[Callable[[int, SaveHandle], object]] = None
    on_failed: Optional[Callable[[int, Error], object]] = None
    on_deleted: Optional[Callable[[str], object]] = None


GROUPS: dict[str, type[Any]] = {
    "schedule": SchedulePolicy,
    "retention": RetentionPolicy,
    "preemption": PreemptionPolicy,
    "failure": FailurePolicy,
    "options": SaveOptions,
    "callbacks": Callbacks,
}
EVENTS = ("on_staged", "on_committed", "on_failed", "on_deleted")
OF_SERIES = (
    *("mtbf", "max_lost", "busy", "keep_every", "keep_best", "on_full", "incremental"),
    *("max_restarts", "any_run"),
)
"""What becomes of struct sidestep_series_options."""


def values_of(groups: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the ``groups``, which come by their names; None: the defaults of that group.

    Errors: TypeError: a group is of another class.
    """
    values: dict[str, Any] = {}
    for name, kind in GROUPS.items():
        one = groups[name]
        values.update(
            {field.name: getattr(a_group(name, one), field.name) for field in fields(kind)}
        )
    return values


def a_group(name: str, given: Any) -> Any:
    """The group ``given`` as ``name``; None: its defaults.  TypeError: it is of another class."""
    kind = GROUPS[name]
    if given is not None and not isinstance(given, kind):
        raise TypeError(f"{name}={given!r} is not a sidestep.{kind.__name__}")
    return kind() if given is None else given


def save_options(given: Optional[SaveOptions], *, series: bool = False) -> SaveOptions:
    """The ``options`` of a save.  TypeError, ValueError: they are not valid, or need a series."""
    return a_group("options", given).check(series=series)  # type: ignore[no-any-return]
