# SPDX-License-Identifier: BSD-3-Clause
"""The library's choices by the names that arguments and environment variables use."""

from __future__ import annotations

from . import _abi

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

VERIFY = {
    "read": _abi.VerifyMode.VERIFY_READ,
    "before": _abi.VerifyMode.VERIFY_BEFORE,
    "structure": _abi.VerifyMode.VERIFY_STRUCTURE,
}
