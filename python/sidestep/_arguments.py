# SPDX-License-Identifier: BSD-3-Clause
"""What the arguments of `Checkpointer` mean to the library, and which make no sense."""

from __future__ import annotations

import datetime
from typing import Any, Optional, Union

from . import _abi
from ._checked import MAX_STEP, a_count, a_function, a_number, a_text, one_of
from ._options import COMPRESSIONS, is_spread, parse_compression
from ._series import SeriesConfig

Interval = Union[int, datetime.timedelta, tuple[int, datetime.timedelta], None]


def series_config(
    *,
    interval: Interval,
    check_s: float,
    mtbf: Optional[datetime.timedelta],
    max_lost: float,
    busy: str,
    keep_last_n: Optional[int],
    keep_every: int,
    keep_best: Optional[tuple[str, int, str]],
    on_full: Optional[str],
    incremental: bool,
    max_restarts: int,
    any_run: bool,
    name: str,
) -> SeriesConfig:
    """Of these arguments.  ValueError, TypeError: of the first that makes no sense."""
    if mtbf is not None and not isinstance(mtbf, datetime.timedelta):
        raise TypeError("mtbf: a datetime.timedelta")
    steps, seconds = _steps_and_seconds(interval)
    a_text(name, "name")
    config = SeriesConfig(
        keep_last=None if keep_last_n is None else a_count(keep_last_n, "keep_last_n"),
        keep_every=a_count(keep_every, "keep_every", most=MAX_STEP),
        interval_steps=steps,
        interval_s=seconds,
        check_s=check_s,
        mtbf_s=a_number(mtbf.total_seconds(), "mtbf") if mtbf is not None else 0.0,
        max_lost=a_number(max_lost, "max_lost"),
        max_restarts=a_count(max_restarts, "max_restarts"),
        name=name if "{" in name else name + "{step}",
        flags=_flags(busy, on_full, any_run, incremental),
    )
    if keep_best is not None:
        if not isinstance(keep_best, tuple) or len(keep_best) != 3:
            raise ValueError(f"keep_best={keep_best!r} is no (metric, number, 'min' or 'max')")
        metric, number, best = keep_best
        config.metric = a_text(metric, "keep_best: the metric").decode()
        config.keep_best = a_count(number, "keep_best")
        config.best_is_max = one_of("keep_best", best, ("min", "max")) == "max"
        if keep_last_n is None:
            raise ValueError("keep_best without keep_last_n keeps all")
    return config


def how_saved(
    final: Any,
    compress: Optional[str],
    spread_s: Optional[float],
    max_failures: int,
    grace_s: Optional[float],
    exit_code: Optional[int],
) -> None:
    """ValueError, TypeError: what would fail only when something is saved, perhaps at the end."""
    from ._export import Final

    if final is not None and not isinstance(final, Final):
        raise TypeError(f"final={final!r} is no sidestep.Final")
    if compress is not None and parse_compression(compress) is None:
        raise ValueError(f"compress={compress!r} is none of: {COMPRESSIONS}")
    if spread_s is not None and not is_spread(spread_s):
        raise ValueError(f"spread_s={spread_s!r} is no number of seconds to spread a save over")
    a_count(max_failures, "max_failures")
    if grace_s is not None:
        a_number(grace_s, "grace_s")
    if exit_code is not None:
        a_count(exit_code, "exit_code", most=255)


def functions(**arguments: Any) -> None:
    """TypeError: one of these arguments cannot be called."""
    for name, function in arguments.items():
        a_function(function, name)


def places(busy: str, queue: int) -> int:
    """How many saves may be queued."""
    queue = a_count(queue, "queue", least=1, most=_abi.MAX_QUEUE)
    return queue if busy == "queue" else 0


def _steps_and_seconds(interval: Interval) -> tuple[int, float]:
    """0: none of these."""
    steps, seconds = 0, 0.0
    for one in interval if isinstance(interval, tuple) else (interval,):
        if isinstance(one, datetime.timedelta):
            seconds = a_number(one.total_seconds(), "interval")
        elif isinstance(one, int):
            steps = a_count(one, "interval", most=MAX_STEP)
        elif one is not None:
            raise TypeError("interval: steps as an int, a datetime.timedelta, or a tuple of both")
    return steps, seconds


def _flags(busy: str, on_full: Optional[str], any_run: bool, incremental: bool) -> int:
    by_busy = {"wait": 0, "skip": _abi.SERIES_SKIP_BUSY, "queue": 0}
    by_space = {
        None: 0,
        "fail": _abi.SERIES_CHECK_SPACE,
        "make_room": _abi.SERIES_MAKE_ROOM,
    }
    flags = _abi.SERIES_REQUESTS
    flags |= by_busy[one_of("busy", busy, by_busy)]
    flags |= by_space[one_of("on_full", on_full, by_space)]
    flags |= _abi.SERIES_INCREMENTAL if incremental else 0
    return flags | (_abi.SERIES_ANY_RUN if any_run else 0)
