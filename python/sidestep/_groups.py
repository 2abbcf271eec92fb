# SPDX-License-Identifier: BSD-3-Clause
"""The options of `Checkpointer` that few need, in groups: when, retention, at_end, trouble, how,
callbacks.  And their old spelling, as arguments of `Checkpointer` itself.
"""

from __future__ import annotations

import datetime
import difflib
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Optional

from ._c.errors import Error
from ._handle import SaveHandle


@dataclass(frozen=True)
class When:
    """When to save, beside ``interval``.  C: members of struct sidestep_series_options.

    mtbf      the job fails about that often (timedelta): the interval follows from it, and from
              what saves are measured to cost
    max_lost  with it: the part of the time that saves and repeated work may take, 0.02 say
    busy      a save is due while the one before is under way: "wait" for it, "skip" it, or "queue"
              it: it is copied, and written after that
    queue     so many may be queued at once (8 at most; each is a copy of the state); then the next
              one waits
    """

    mtbf: Optional[datetime.timedelta] = None
    max_lost: float = 0.0
    busy: Literal["wait", "skip", "queue"] = "wait"
    queue: int = 1


@dataclass(frozen=True)
class Retention:
    """What to keep, beside ``keep_last_n``.  C: struct sidestep_retention.

    keep_every  also those whose step is a multiple of it
    keep_best   also the best by a metric: ("loss", 3, "min")
    on_full     space is short for the next one: "fail" at once, "make_room" (all but the newest may
                go), or None: try
    """

    keep_every: int = 0
    keep_best: Optional[tuple[str, int, str]] = None
    on_full: Optional[Literal["fail", "make_room"]] = None


@dataclass(frozen=True)
class AtEnd:
    """What happens when a signal announces the end of the job.

    grace_s    how long after the signal the job is allowed to live; None: 30, as with torchrun and
               Slurm.  Never longer than until the scheduler ends the job, where it says when
               (`environment`).  When it is over, nothing is waited for any more
    at_signal  "save": what is under way is finished, and then a last one; "finish": only what is
               under way; "abort": nothing is waited for, and no last one made
    exit_code  of `Preempted`; None: 128 and the number of the signal, as a shell would say
    """

    grace_s: Optional[float] = None
    at_signal: Literal["save", "finish", "abort"] = "save"
    exit_code: Optional[int] = None


@dataclass(frozen=True)
class Trouble:
    """What to do about trouble.  C: members of struct sidestep_series_options.

    max_restarts  so many runs may resume from a checkpoint and come to nothing; then the one before
                  it has its turn.  0: any number
    max_failures  so many saves in a row may fail in the background, and are logged and counted; the
                  next failure is raised by the save after it.  0: the first one is
    any_run       resume also from what another run made
    """

    max_restarts: int = 0
    max_failures: int = 0
    any_run: bool = False


@dataclass(frozen=True)
class How:
    """How a checkpoint is saved.  C: options of the engine, and of a save.

    compress     "none", "zstd", "zstd:LEVEL", "planes", "auto"; None: as SIDESTEP_COMPRESS says
    incremental  tensors that do not change are written once, and later checkpoints share the file
                 by hard links (docs/SERIES.md says what that costs and what it is worth)
    spread_s     written evenly over so many seconds, unless somebody waits for the save: to be done
                 before the next one, with the least disturbance.  None: as fast as it goes.  See
                 also `sidestep.paused`
    fence        tensors on CUDA devices are copied beside the next step: `fence_optimizers`
    snapshot     "cow" (write-protect memory and return), "copy" (it, first) or "auto"; None: what
                 SIDESTEP_SNAPSHOT says.  `SaveHandle.progress()` tells what was done
    io           "uring", "threads" or "buffered", with ":16" for so many requests in flight, or
                 "auto"; None: what SIDESTEP_IO says
    user_faults  "cow" also where the machine allows only the kind that cannot wait in system calls:
                 a read() into a tensor that is being saved then fails.  None: what
                 SIDESTEP_USER_FAULTS says
    """

    compress: Optional[str] = None
    incremental: bool = False
    spread_s: Optional[float] = None
    fence: bool = True
    snapshot: Optional[str] = None
    io: Optional[str] = None
    user_faults: Optional[bool] = None


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called on a thread of the package; none of them holds the training up, nor
    a save.  Those about saves are called one after the other, in the order in which saves end.

    on_staged, on_committed  with step and handle
    on_failed                with step and error
    on_deleted               with the path
    """

    on_staged: Optional[Callable[[int, SaveHandle], object]] = None
    on_committed: Optional[Callable[[int, SaveHandle], object]] = None
    on_failed: Optional[Callable[[int, Error], object]] = None
    on_deleted: Optional[Callable[[str], object]] = None


GROUPS: dict[str, type[Any]] = {
    "when": When,
    "retention": Retention,
    "at_end": AtEnd,
    "trouble": Trouble,
    "how": How,
    "callbacks": Callbacks,
}
EVENTS = ("on_staged", "on_committed", "on_failed", "on_deleted")
OF_SERIES = (
    *("mtbf", "max_lost", "busy", "keep_every", "keep_best", "on_full", "incremental"),
    *("max_restarts", "any_run"),
)
"""What becomes of struct sidestep_series_options."""

_GROUP_OF = {one.name: group for group, kind in GROUPS.items() for one in fields(kind)}


def values_of(
    given: Mapping[str, Any], old: Mapping[str, Any], arguments: Iterable[str] = ()
) -> dict[str, Any]:
    """All options of the groups by their names.

    given      by name of the group; None: its defaults
    old        options that were given as arguments of `Checkpointer`
    arguments  those that it has

    Errors: TypeError: an option that there is not, one of a group that was given, too, or a group
    that is none.  A DeprecationWarning names what is old.
    """
    values: dict[str, Any] = {}
    for group, kind in GROUPS.items():
        one = given[group]
        if one is not None and not isinstance(one, kind):
            raise TypeError(f"{group}={one!r} is no sidestep.{kind.__name__}")
        values.update({field.name: getattr(one or kind(), field.name) for field in fields(kind)})
    for name in old:
        if name not in _GROUP_OF:
            near = difflib.get_close_matches(name, [*arguments, *_GROUP_OF], 1)
            raise TypeError(
                f"Checkpointer() got an unexpected keyword argument {name!r}"
                + (f". Did you mean {near[0]!r}?" if near else "")
            )
        if given[_GROUP_OF[name]] is not None:
            raise TypeError(f"{name}= is an option of {_GROUP_OF[name]}=, which is given, too")
    if old:
        warnings.warn(_new_spelling(old), DeprecationWarning, stacklevel=3)
    return {**values, **old}


def _new_spelling(old: Mapping[str, Any]) -> str:
    groups: dict[str, list[str]] = {}
    for name, value in old.items():
        groups.setdefault(_GROUP_OF[name], []).append(f"{name}={value!r}")
    new = (
        f"{group}=sidestep.{GROUPS[group].__name__}({', '.join(options)})"
        for group, options in groups.items()
    )
    return f"write Checkpointer(..., {', '.join(new)}); the next release drops the old spelling"
