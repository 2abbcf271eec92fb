# SPDX-License-Identifier: BSD-3-Clause
"""Where to resume: the newest checkpoint under a directory."""

from __future__ import annotations

import ctypes
import os
from typing import Optional, Union

from ._abi import ErrorInfo, Status, VerifyMode
from ._checked import a_path
from ._errors import check
from ._library import lib


def latest(
    root: Union[str, os.PathLike[str]], *, verify: Optional[str] = "structure"
) -> Optional[str]:
    """The path of the newest checkpoint under ``root`` that is whole, or None if there is none yet.

    ``verify``: "structure" (files, sizes, names and ids) or "read" (every byte is checked).
    What a killed save left, what is being deleted and what does not verify is passed over, and so
    is what no resume of a `Checkpointer` takes: what its run has left behind by going back, what
    another run made, and copies under other names.  A root that is not there counts as empty.
    Writes nothing.  Not collective: each rank looks for itself, and a `load` of different
    checkpoints fails on all ranks.

    Errors: `Error`: ECORRUPT if there are checkpoints but none that verifies, EMISMATCH if none
    that a resume would take (it says why); EPERM, EIO if one cannot be read now, which
    does not mean that it is damaged.  ValueError for another ``verify``.
    """
    modes = {"structure": VerifyMode.VERIFY_STRUCTURE, "read": VerifyMode.VERIFY_READ}
    if not isinstance(verify, str) or verify not in modes:
        raise ValueError(f"verify={verify!r} is neither 'structure' nor 'read'")
    path, err = ctypes.c_char_p(), ErrorInfo()
    status = lib().sidestep_latest(
        os.fsencode(a_path(root, "root")), int(modes[verify]), ctypes.byref(path), ctypes.byref(err)
    )
    if status == Status.ENOTFOUND:
        return None
    check(status, err)
    found = os.fsdecode(path.value or b"")
    lib().sidestep_string_free(ctypes.byref(path))
    return found
