# SPDX-License-Identifier: BSD-3-Clause
"""Where to resume: the newest checkpoint under a directory."""

from __future__ import annotations

import ctypes
import logging
import os
from typing import Optional, Union

from ._abi import ErrorInfo, LatestReport, Status, VerifyMode
from ._checked import a_path
from ._errors import check
from ._library import lib

log = logging.getLogger("sidestep")


def latest(
    root: Union[str, os.PathLike[str]], *, verify: Optional[str] = "structure"
) -> Optional[str]:
    """The path of the newest checkpoint under ``root`` that is whole, or None if there is none yet.

    ``verify``: "structure" (files, sizes, names and ids) or "read" (every byte is checked).
    What a killed save left, what is being deleted and what does not verify is passed over, and so
    is what no resume of a `Checkpointer` takes: what its run has left behind by going back, what
    another run made, and copies under other names.  What is newer than the path that is returned,
    and was passed over, is logged, with the reason, as a warning of the logger "sidestep".
    A root that is not there counts as empty.  Writes nothing.  Not collective: each rank looks for
    itself, and a `load` of different checkpoints fails on all ranks.

    Errors: `Error`: ECORRUPT if there are checkpoints but none that verifies, EMISMATCH if none
    that a resume would take (it says why); EPERM, EIO if one cannot be read now, which
    does not mean that it is damaged.  ValueError for another ``verify``.
    """
    modes = {"structure": VerifyMode.VERIFY_STRUCTURE, "read": VerifyMode.VERIFY_READ}
    if not isinstance(verify, str) or verify not in modes:
        raise ValueError(f"verify={verify!r} is neither 'structure' nor 'read'")
    report, err = LatestReport(), ErrorInfo()
    try:
        status = lib().sidestep_find_latest(
            os.fsencode(a_path(root, "root")),
            int(modes[verify]),
            None,
            ctypes.byref(report),
            ctypes.byref(err),
        )
        _log_passed_over(report)
        if status == Status.ENOTFOUND:
            return None
        check(status, err)
        return os.fsdecode(report.path or b"")
    finally:
        lib().sidestep_latest_report_release(ctypes.byref(report))


def _log_passed_over(report: LatestReport) -> None:
    for i in range(report.passed_count):
        passed = report.passed[i]
        log.warning(
            "latest: passed over '%s' (%s): %s",
            os.fsdecode(passed.path),
            os.fsdecode(passed.state_name),
            os.fsdecode(passed.reason),
        )
