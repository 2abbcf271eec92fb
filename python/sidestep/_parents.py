# SPDX-License-Identifier: BSD-3-Clause
"""Makes the directories above a checkpoint or a root, durably."""

from __future__ import annotations

import errno
import os
from typing import Optional

from ._c.abi import Status
from ._c.checked import is_url
from ._c.errors import Error, error_of_os, make_error


def make_parents(path: str, *, durable: bool = True) -> None:
    """Make the directories above ``path``, and sync them: they survive power loss.  If not
    ``durable``, the caller syncs them later.

    Errors: `Error`: names what is in the way, or may not be written to.
    """
    if is_url(path):  # object stores have no directories
        return
    parent = os.path.dirname(os.path.abspath(path))
    missing = []
    while not os.path.isdir(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    for made in reversed(missing):
        try:
            os.makedirs(made, exist_ok=True)
            if durable:
                sync_directory(os.path.dirname(made))
        except OSError as reason:
            raise _cannot_make(path, made, reason) from reason


def sync_directory(path: str) -> None:
    """Make the names in ``path`` durable.  OSError names ``path``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this file system cannot sync a directory
            raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(descriptor)


def _cannot_make(path: str, directory: str, reason: OSError) -> Error:
    if not os.path.lexists(directory) or os.path.isdir(directory):
        return error_of_os(f"save '{path}': make the directory '{directory}'", reason)
    return make_error(
        f"save '{path}': '{directory}' is not a directory, so nothing can lie below it; choose "
        "another path",
        status=Status.ENOTFOUND,
        errno=errno.ENOTDIR,
    )


def try_make_parents(path: str) -> Optional[Error]:
    """Like `make_parents`, but returns the error: the other ranks wait for this one."""
    try:
        make_parents(path)
    except Error as failure:
        return failure
    return None
