# SPDX-License-Identifier: BSD-3-Clause
"""Options of the library, parsed from arguments and environment variables."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from ctypes import pointer
from dataclasses import dataclass
from numbers import Real
from typing import Any, Optional, Union

from ._c import abi
from ._c.checked import MAX_STEP, a_count, a_flag, a_number, a_text, one_of, words_of
from ._c.errors import make_error

Interval = Union[int, datetime.timedelta, tuple[int, datetime.timedelta], None]

_IO, _SNAPSHOT = words_of(abi.Io, "IO_"), words_of(abi.Snapshot, "SNAPSHOT_")
_COMPRESS = words_of(abi.Compress, "COMPRESS_")
COPY_AHEAD = words_of(abi.CopyAhead, "COPY_AHEAD_")
REPLICAS = words_of(abi.Replicas, "REPLICAS_")
_ZSTD_LEVELS = 19
_IOS = f"{', '.join(_IO)}, nor one with ':' and a number"
_COMPRESSIONS = f"{', '.join(_COMPRESS)}, zstd:1 to zstd:{_ZSTD_LEVELS}"


# ---------------------------------------------------------------- the environment


def number(variable: str) -> int:
    """The number in the environment variable ``variable``; 0: it is not set."""
    text = os.environ.get(variable, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        unit = " of bytes, such as 67108864 for 64 MiB" if "_BYTES" in variable else ""
        raise make_error(f"{variable} is '{text}', not a number{unit}")
    return int(text)


def choice(variable: str, choices: Mapping[str, int]) -> int:
    """The choice in the environment variable ``variable``; the first if it is not set."""
    text = os.environ.get(variable) or next(iter(choices))
    if text not in choices:
        raise make_error(f"{variable} is '{text}', none of: {', '.join(choices)}")
    return choices[text]


# ---------------------------------------------------------------- engines


@dataclass(frozen=True)
class Ways:
    """How an engine takes snapshots and moves bytes; None: the value of the environment variable.

    snapshot     "auto", "cow" or "copy"; SIDESTEP_SNAPSHOT
    io           "auto", "uring", "threads" or "buffered"; "uring:16" also sets the number of
                 requests in flight; SIDESTEP_IO
    user_faults  allow "cow" also where the machine allows only the kind of write protection that
                 cannot wait in system calls: then a read() into a tensor that is being saved fails;
                 SIDESTEP_USER_FAULTS
    """

    snapshot: Optional[str] = None
    io: Optional[str] = None
    user_faults: Optional[bool] = None

    def check(self) -> Ways:
        """TypeError, ValueError: an argument is not valid."""
        if self.user_faults is not None:
            a_flag(self.user_faults, "user_faults")
        if self.snapshot is not None:
            one_of("snapshot", self.snapshot, list(_SNAPSHOT))
        if self.io is not None and _parse(self.io, _IO, _IO, 999) is None:
            raise ValueError(f"io={self.io!r} is none of: {_IOS}")
        return self

    def set_in(self, options: abi.EngineOptions) -> None:
        """Set the options of an engine.  `Error`: an environment variable is not valid."""
        asked = number("SIDESTEP_USER_FAULTS") != 0
        if asked if self.user_faults is None else self.user_faults:
            options.flags |= abi.ENGINE_USER_MODE_FAULTS
        if self.snapshot is None:
            options.snapshot = choice("SIDESTEP_SNAPSHOT", _SNAPSHOT)
        else:
            options.snapshot = _SNAPSHOT[self.snapshot]
        text = self.io if self.io is not None else os.environ.get("SIDESTEP_IO") or "auto"
        found = _parse(text, _IO, _IO, 999)
        if found is None:
            raise make_error(f"SIDESTEP_IO is '{text}', none of: {_IOS}")
        options.io, options.io_depth = found[0], found[1] or number("SIDESTEP_IO_DEPTH")


def _parse(
    text: Any, words: Mapping[str, int], numbered: Mapping[str, int], most: int
) -> Optional[tuple[int, int]]:
    """The library's number of a word, and the number behind its colon (0: there is none).  None:
    ``text`` is not valid.

    ``numbered``: the words that may have a number, from 1 to ``most``.
    """
    name, colon, digits = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name not in words:
        return None
    if not colon:
        return words[name], 0
    good = name in numbered and digits.isascii() and digits.isdigit() and len(digits) < 4
    return (words[name], int(digits)) if good and 1 <= int(digits) <= most else None


# ---------------------------------------------------------------- saves


def compression(wanted: Optional[str]) -> tuple[int, int]:
    """The library's number of ``wanted`` (None: of SIDESTEP_COMPRESS), and the level of zstd (0:
    none).  `Error`: it is not valid."""
    text = wanted if wanted is not None else os.environ.get("SIDESTEP_COMPRESS") or "none"
    found = _parse(text, _COMPRESS, {"zstd": 0}, _ZSTD_LEVELS)
    if found is None:
        said = f"SIDESTEP_COMPRESS is '{text}'," if wanted is None else f"compress={text!r} is"
        raise make_error(f"{said} none of: {_COMPRESSIONS}")
    return found


def check_compression(wanted: Optional[str]) -> None:
    """ValueError: it is not valid."""
    if wanted is not None and _parse(wanted, _COMPRESS, {"zstd": 0}, _ZSTD_LEVELS) is None:
        raise ValueError(f"compress={wanted!r} is none of: {_COMPRESSIONS}")


def _is_spread(seconds: Any) -> bool:
    return isinstance(seconds, Real) and 0 <= float(seconds) < 1e9


def spread_ms(seconds: Optional[float]) -> int:
    """The time to spread a save over, in ms: ``seconds``, or SIDESTEP_SPREAD_MS if None."""
    if seconds is None:
        return number("SIDESTEP_SPREAD_MS")
    if not _is_spread(seconds):
        raise make_error(f"{seconds!r} is not a number of seconds to spread a save over")
    return round(seconds * 1000)


def check_spread(seconds: Optional[float]) -> None:
    """ValueError: it is not a number of seconds."""
    if seconds is not None and not _is_spread(seconds):
        raise ValueError(f"spread_s={seconds!r} is not a number of seconds to spread a save over")


# ---------------------------------------------------------------- series


def series_options(
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
    near: Optional[str] = None,
) -> abi.SeriesOptions:
    """Options from arguments of `Checkpointer`.  ValueError, TypeError: one is not valid."""
    if mtbf is not None and not isinstance(mtbf, datetime.timedelta):
        raise TypeError("mtbf: a datetime.timedelta")
    options = abi.SeriesOptions(flags=_series_flags(busy, on_full, any_run, incremental))
    if one_of("near", near, (None, "shared", "per_node")) == "per_node":
        options.flags |= abi.SERIES_PER_NODE
    options.interval_steps, seconds = _steps_and_seconds(interval)
    options.interval_ms = int(seconds * 1000)
    options.check_ms = max(1, int(check_s * 1000)) if check_s else 0
    options.mtbf_ms = int(a_number(mtbf.total_seconds(), "mtbf") * 1000) if mtbf is not None else 0
    options.max_lost = a_number(max_lost, "max_lost")
    options.max_restarts = a_count(max_restarts, "max_restarts")
    text = a_text(name, "name")
    options.name = text if b"{" in text else text + b"{step}"
    retention = abi.Retention(keep_every=a_count(keep_every, "keep_every", most=MAX_STEP))
    if keep_best is not None:
        if not isinstance(keep_best, tuple) or len(keep_best) != 3:
            raise ValueError(f"keep_best={keep_best!r} is not a (metric, number, 'min' or 'max')")
        metric, count, best = keep_best
        retention.metric = a_text(metric, "keep_best: the metric")
        retention.keep_best = a_count(count, "keep_best")
        if one_of("keep_best", best, ("min", "max")) == "max":
            retention.flags = abi.RETENTION_MAX
        if keep_last_n is None:
            raise ValueError("keep_best without keep_last_n keeps all")
    if keep_last_n is not None:
        if keep_last_n == 0:
            raise ValueError("keep_last_n=0: the newest always stays, so 1 is the least; None: all")
        retention.keep_last = a_count(keep_last_n, "keep_last_n")
        options.retention = pointer(retention)
    return options


def _steps_and_seconds(interval: Interval) -> tuple[int, float]:
    """The steps and the seconds of an interval; 0: not given."""
    steps, seconds = 0, 0.0
    for one in interval if isinstance(interval, tuple) else (interval,):
        if isinstance(one, datetime.timedelta):
            seconds = a_number(one.total_seconds(), "interval")
        elif isinstance(one, int) and not isinstance(one, bool):
            steps = a_count(one, "interval", most=MAX_STEP)
        elif one is not None:
            raise TypeError("interval: steps as an int, a datetime.timedelta, or a tuple of both")
    if interval is not None and steps == 0 and seconds == 0:
        raise ValueError("interval: 0 would never save; without an interval, saves are on request")
    return steps, seconds


def _series_flags(busy: str, on_full: Optional[str], any_run: bool, incremental: bool) -> int:
    by_busy = {"wait": 0, "skip": abi.SERIES_SKIP_BUSY, "queue": 0}
    by_space = {None: 0, "fail": abi.SERIES_CHECK_SPACE, "make_room": abi.SERIES_MAKE_ROOM}
    return (
        abi.SERIES_REQUESTS
        | by_busy[one_of("busy", busy, by_busy)]
        | by_space[one_of("on_full", on_full, by_space)]
        | abi.SERIES_INCREMENTAL * a_flag(incremental, "incremental")
        | abi.SERIES_ANY_RUN * a_flag(any_run, "any_run")
    )
