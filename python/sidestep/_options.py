# SPDX-License-Identifier: BSD-3-Clause
"""Options of the library as users write them: the environment's words, and their numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Optional

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


def milliseconds(variable: str, seconds: Optional[float]) -> int:
    """``seconds``, or the milliseconds that the environment says in ``variable``."""
    if seconds is None:
        return number(variable)
    if not 0 <= seconds < 1e9:
        raise make_error(f"{seconds!r} is no number of seconds to spread a save over")
    return round(seconds * 1000)


def compression(wanted: Optional[str]) -> int:
    """``wanted``, or what SIDESTEP_COMPRESS says."""
    if wanted is None:
        return choice("SIDESTEP_COMPRESS", COMPRESS)
    if wanted not in COMPRESS:
        raise make_error(f"compress={wanted!r} is none of: {', '.join(COMPRESS)}")
    return COMPRESS[wanted]


def choice(variable: str, choices: Mapping[str, int]) -> int:
    """Which of ``choices`` the environment names in ``variable``; nothing: the first."""
    text = os.environ.get(variable) or next(iter(choices))
    if text not in choices:
        raise make_error(f"{variable} is '{text}', none of: {', '.join(choices)}")
    return choices[text]
