# SPDX-License-Identifier: BSD-3-Clause
"""Copies of checkpoints, between directories and object stores."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional, Union

from ._c import abi
from ._c.calls import report_progress, run_cancellable
from ._c.checked import a_count, a_flag, a_function, a_path
from ._c.library import lib
from ._modes import without_modes

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Copied:
    """The result of a copy.

    save_id       of the checkpoint, and of its copy; None: torch wrote it
    step          None: unknown
    files         data files of the checkpoint
    bytes         in them
    copied_files  files that this call copied; the others were there already, whole
    copied_bytes  bytes in these
    """

    save_id: Optional[str]
    step: Optional[int]
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int


@without_modes
def copy(
    source: PathLike,
    destination: PathLike,
    *,
    replace: bool = False,
    threads: int = 0,
    progress: Optional[Callable[[int, int], None]] = None,
) -> Copied:
    """Copy the checkpoint at ``source`` to ``destination``, and check every byte by its hash.  Both
    may be paths or URLs (``s3://BUCKET/PREFIX``).  This process does it alone.

    replace   replace the checkpoint at ``destination``, once the copy is whole
    threads   0: by the number of processors; 16 with an object store
    progress  called with the bytes done and all bytes; from any thread, one at a time

    When this returns, ``destination`` is whole and durable.  After an error it does not exist.
    After an interruption the same call goes on: it checks files that are there, and copies the
    others.  If ``destination`` is a whole copy already, nothing is copied.

    Errors: `Error`: EEXISTS, ECORRUPT if the source is damaged, ELOCKED if another process copies
    there, ENOSPC, EIO, and those of `sidestep.read`.  An interrupt (KeyboardInterrupt) stops it.
    """
    a_function(progress, "progress")
    options = abi.CopyOptions(
        flags=abi.COPY_REPLACE * a_flag(replace, "replace"), threads=a_count(threads, "threads")
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
