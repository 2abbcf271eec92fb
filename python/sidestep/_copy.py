# SPDX-License-Identifier: BSD-3-Clause
"""Copies of checkpoints, between directories and object stores."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional, Union

from ._c import abi
from ._c.calls import report_progress, run_cancellable
from ._c.checked import a_count, a_function, a_path
from ._c.library import lib

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Copied:
    """What a copy did.

    save_id       of the checkpoint, and of its copy; None: torch wrote it
    step          None: unknown
    files         data files of the checkpoint
    bytes         in them
    copied_files  by this call; the others were there already, whole
    copied_bytes  in those
    """

    save_id: Optional[str]
    step: Optional[int]
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int


def copy(
    source: PathLike,
    destination: PathLike,
    *,
    replace: bool = False,
    threads: int = 0,
    progress: Optional[Callable[[int, int], None]] = None,
) -> Copied:
    """Copy the checkpoint at ``source`` to ``destination``: the same bytes, every one checked by
    its hash.  Each may be a path or a URL (``s3://BUCKET/PREFIX``).  By this process alone.

    replace   the checkpoint that is at ``destination``, once the copy is whole
    threads   0: by the number of processors; 16 with an object store
    progress  called with bytes that are done, and all; from any thread, one at a time

    ``destination`` is there, whole and durable, when this returns, or not at all.  After an
    interruption the same call goes on: files that are there are checked, the others are copied.  If
    ``destination`` is a whole copy already, nothing is copied.

    Errors: `Error`: EEXISTS, ECORRUPT if the source is damaged, ELOCKED if another process copies
    there, ENOSPC, EIO, and those of `sidestep.read`.  An interrupt (KeyboardInterrupt) stops it.
    """
    a_function(progress, "progress")
    options = abi.CopyOptions(
        flags=abi.COPY_REPLACE * bool(replace), threads=a_count(threads, "threads")
    )
    report_progress(options, progress)
    places = a_path(source, "source"), a_path(destination, "destination")
    report = abi.CopyReport()
    arguments = *map(os.fsencode, places), options, report
    run_cancellable("sidestep-copy", options, lib().sidestep_copy, *arguments)
    return Copied(
        report.save_id.decode() or None,
        report.step if report.step >= 0 else None,
        report.file_count,
        report.bytes,
        report.copied_count,
        report.copied_bytes,
    )
