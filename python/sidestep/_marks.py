# SPDX-License-Identifier: BSD-3-Clause
"""Pins and tags of checkpoints, by path."""

from __future__ import annotations

import os
from typing import Union

from ._abi import ErrorInfo
from ._checked import a_path, a_text
from ._errors import check
from ._library import lib

Path = Union[str, "os.PathLike[str]"]


def pin(path: Path, on: bool = True) -> None:
    """Protect the checkpoint ``path`` from retention, or no longer.  Durable when it returns, and
    possible while a run is using its directory.

    Errors: `Error`: ENOTFOUND if it is not there, or was deleted meanwhile.
    """
    err = ErrorInfo()
    check(lib().sidestep_pin(os.fsencode(a_path(path, "path")), bool(on), err), err)


def tag(path: Path, tag: str, on: bool = True) -> None:
    """Put a tag (letters, digits, '_' and '-') on the checkpoint ``path``, or take it away."""
    err = ErrorInfo()
    where, word = os.fsencode(a_path(path, "path")), a_text(tag, "tag")
    check(lib().sidestep_tag(where, word, bool(on), err), err)
