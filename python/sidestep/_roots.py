# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints by path, without a run: the newest one of a directory, pins and tags."""

from __future__ import annotations

import errno
import logging
import os
from typing import Optional, Union

from ._c.abi import ErrorInfo, LatestReport, List, Presence, Status, VerifyMode
from ._c.calls import call
from ._c.checked import a_flag, a_path, a_text, words_of
from ._c.errors import check
from ._c.library import lib
from ._environment import environment
from ._modes import without_modes

log = logging.getLogger("sidestep")
Path = Union[str, "os.PathLike[str]"]


@without_modes
def latest(root: Path, *, verify: Optional[str] = "structure") -> Optional[str]:
    """The path of the newest checkpoint under ``root`` that is whole; None: there is none yet.

    ``verify``: "structure" (check files, sizes, names and ids) or "read" (check every byte).
    It chooses as a resume of a `Checkpointer` does.  So it passes over checkpoints that are
    damaged, unfinished or being deleted, that the run left behind by going back, that another run
    made, or that are copies under other names.  The logger "sidestep" gets a warning with the
    reason for each.  A missing root counts as empty, and rank 0 is warned.  Writes nothing.
    Not collective: each rank looks for itself.  A `load` of different checkpoints fails on all
    ranks.

    Errors: `Error`: ECORRUPT: there are checkpoints, but none verifies.  EMISMATCH: a resume would
    take none of them; the message says why.  EPERM, EIO: one cannot be read now, and may be whole.
    ValueError for an unknown ``verify``.
    """
    if verify not in ("structure", "read"):
        raise ValueError(f"verify={verify!r} is neither 'structure' nor 'read'")
    mode = words_of(VerifyMode, "VERIFY_")[verify]
    path = os.fsencode(a_path(root, "root"))
    report, err = LatestReport(), ErrorInfo()
    try:
        status = lib().sidestep_find_latest(path, mode, None, report, err)
        for i in range(report.passed_count):
            passed = lib().sidestep_latest_report_passed(report, i).contents
            words = map(os.fsdecode, (passed.path, passed.state_name, passed.reason))
            log.warning("latest: passed over '%s' (%s): %s", *words)
        if status == Status.ENOTFOUND:
            _tell_there_is_none(err)
            return None
        check(status, err)
        return os.fsdecode(report.path)
    finally:
        lib().sidestep_latest_report_release(report)


def _tell_there_is_none(err: ErrorInfo) -> None:
    """Who is told None begins anew: that is right once, and wrong with a path that is mistyped."""
    text = os.fsdecode(err.message)
    if err.sys_errno != errno.ENOENT:
        log.info("latest: %s", text)
        return
    log.log(
        logging.DEBUG if environment().rank else logging.WARNING,
        "latest: %s.  So there is no checkpoint: right for the first start of a run; otherwise "
        "check the path",
        text,
    )


def checkpoints_of(root: Path) -> list[str]:
    """The paths of all committed checkpoints under ``root``.  Errors: `Error`: it cannot be
    listed."""
    found = List()
    try:
        call(lib().sidestep_list_root, os.fsencode(a_path(root, "root")), found)
        entries = [lib().sidestep_list_entry(found, i).contents for i in range(found.count)]
        return [os.fsdecode(one.path) for one in entries if one.state == Presence.COMMITTED]
    finally:
        lib().sidestep_list_release(found)


@without_modes
def pin(path: Path, on: bool = True) -> None:
    """Protect the checkpoint ``path`` from retention; ``on=False`` undoes it.  Durable when it
    returns.  A run may be using the directory.

    Errors: `Error`: ENOTFOUND if there is no such checkpoint, or it was deleted meanwhile.
    """
    call(lib().sidestep_pin, os.fsencode(a_path(path, "path")), a_flag(on, "on"))


@without_modes
def tag(path: Path, tag: str, on: bool = True) -> None:
    """Add a tag (letters, digits, '_' and '-') to the checkpoint ``path``, or remove it."""
    what = os.fsencode(a_path(path, "path")), a_text(tag, "tag"), a_flag(on, "on")
    call(lib().sidestep_tag, *what)
