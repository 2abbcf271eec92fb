# SPDX-License-Identifier: BSD-3-Clause
"""Options of the library as users write them: the environment's words, and their numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Optional

from . import _abi
from ._errors import make_error

IO: dict[str, int] = {
    "auto": _abi.Io.IO_AUTO,
    "uring": _abi.Io.IO_URING,
    "threads": _abi.Io.IO_THREADS,
    "buffered": _abi.Io.IO_BUFFERED,
}

SNAPSHOT = {
    "auto": _abi.Snapshot.SNAPSHOT_AUTO,
    "copy": _abi.Snapshot.SNAPSHOT_COPY,
    "cow": _abi.Snapshot.SNAPSHOT_COW,
}

COMPRESS = {
    "none": _abi.Compress.COMPRESS_NONE,
    "zstd": _abi.Compress.COMPRESS_ZSTD,
    "planes": _abi.Compress.COMPRESS_PLANES,
    "auto": _abi.Compress.COMPRESS_AUTO,
}

COPY_AHEAD = {
    "auto": _abi.CopyAhead.COPY_AHEAD_AUTO,
    "always": _abi.CopyAhead.COPY_AHEAD_ALWAYS,
    "never": _abi.CopyAhead.COPY_AHEAD_NEVER,
}


def number(variable: str) -> int:
    """What the environment says in ``variable``; 0: nothing."""
    text = os.environ.get(variable, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise make_error(f"{variable} is '{text}', not a number")
    return int(text)


def is_spread(seconds: Any) -> bool:
    """Is this a time to spread a save over?"""
    return isinstance(seconds, Real) and 0 <= float(seconds) < 1e9


def milliseconds(variable: str, seconds: Optional[float]) -> int:
    """``seconds``, or the milliseconds that the environment says in ``variable``."""
    if seconds is None:
        return number(variable)
    if not is_spread(seconds):
        raise make_error(f"{seconds!r} is no number of seconds to spread a save over")
    return round(seconds * 1000)


ZSTD_LEVELS = 19
COMPRESSIONS = f"none, zstd, zstd:1 to zstd:{ZSTD_LEVELS}, planes, auto"


def parse_compression(text: Any) -> Optional[tuple[int, int]]:
    """The library's number of ``"planes"`` or ``"zstd:3"``, and the level (0: none).

    None: it is neither, or no text.
    """
    if not isinstance(text, str):
        return None
    name, colon, level = text.partition(":")
    if not colon:
        return (COMPRESS[text], 0) if text in COMPRESS else None
    if name != "zstd" or not (level.isascii() and level.isdigit() and len(level) < 4):
        return None
    return (COMPRESS[name], int(level)) if 1 <= int(level) <= ZSTD_LEVELS else None


def compression(wanted: Optional[str]) -> tuple[int, int]:
    """The same of ``wanted``, or of what SIDESTEP_COMPRESS says; an `Error` if it is neither."""
    text = wanted if wanted is not None else os.environ.get("SIDESTEP_COMPRESS") or "none"
    found = parse_compression(text)
    if found is None:
        said = f"SIDESTEP_COMPRESS is '{text}'," if wanted is None else f"compress={text!r} is"
        raise make_error(f"{said} none of: {COMPRESSIONS}")
    return found


@dataclass(frozen=True)
class Ways:
    """How an engine holds the state still and moves its bytes, where the caller says it; None: as
    the environment does.

    snapshot     "auto", "cow" or "copy"; SIDESTEP_SNAPSHOT
    io           "auto", "uring", "threads" or "buffered", or one of them with the number of
                 requests in flight, as "uring:16"; SIDESTEP_IO
    user_faults  write-protect also where the machine allows only what cannot wait in system calls:
                 a read() into a tensor that is being saved then fails; SIDESTEP_USER_FAULTS
    """

    snapshot: Optional[str] = None
    io: Optional[str] = None
    user_faults: Optional[bool] = None

    def set_in(self, options: _abi.EngineOptions) -> None:
        """`Error`: a word means nothing."""
        options.snapshot = (
            choice("SIDESTEP_SNAPSHOT", SNAPSHOT)
            if self.snapshot is None
            else SNAPSHOT[self.snapshot]
        )
        options.io, options.io_depth = io(self.io)
        asked = number("SIDESTEP_USER_FAULTS") != 0
        if asked if self.user_faults is None else self.user_faults:
            options.flags |= _abi.ENGINE_USER_MODE_FAULTS

    def check(self) -> Ways:
        """ValueError: a word of the caller's means nothing."""
        if self.snapshot is not None and self.snapshot not in list(SNAPSHOT):
            raise ValueError(f"snapshot={self.snapshot!r} is none of: {', '.join(SNAPSHOT)}")
        if self.io is not None and _parse_io(self.io) is None:
            raise ValueError(f"io={self.io!r} is none of: {IOS}")
        return self


def choice(variable: str, choices: Mapping[str, int]) -> int:
    """Which of ``choices`` the environment names in ``variable``; nothing: the first."""
    text = os.environ.get(variable) or next(iter(choices))
    if text not in choices:
        raise make_error(f"{variable} is '{text}', none of: {', '.join(choices)}")
    return choices[text]


IOS = f"{', '.join(IO)}, nor one with ':' and a number"


def _parse_io(text: Any) -> Optional[tuple[int, Optional[int]]]:
    """The library's number of "uring" or "uring:16", and how many requests; None: it is neither, or
    no text."""
    if not isinstance(text, str):
        return None
    name, colon, depth = text.partition(":")
    good = depth.isascii() and depth.isdigit() and len(depth) < 4 and int(depth) > 0
    if name not in IO or (colon and not good):
        return None
    return IO[name], int(depth) if colon else None


def io(wanted: Optional[str] = None) -> tuple[int, int]:
    """The same of ``wanted``, or of what SIDESTEP_IO says; how many requests (0: nothing)."""
    text = wanted if wanted is not None else os.environ.get("SIDESTEP_IO") or "auto"
    found = _parse_io(text)
    if found is None:
        raise make_error(f"SIDESTEP_IO is '{text}', none of: {IOS}")
    return found[0], number("SIDESTEP_IO_DEPTH") if found[1] is None else found[1]
