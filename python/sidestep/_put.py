# SPDX-License-Identifier: BSD-3-Clause
"""Names that come to exist without taking those of others: renames that replace nothing, and files
that appear whole."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import tempfile
from collections.abc import Iterator

_AT_FDCWD, _NOREPLACE = -100, 1


def put_aside(path: str, names: Iterator[str]) -> str:
    """Rename ``path`` to the first of ``names`` that nothing has, and return that.

    Errors: OSError; the last of the names is taken, too: FileExistsError.
    """
    taken = FileExistsError(errno.EEXIST, "no name for it is free", path)
    for name in names:
        try:
            rename_new(path, name)
            return name
        except FileExistsError as error:
            taken = error
    raise taken


def rename_new(old: str, new: str) -> None:
    """Rename ``old``, unless ``new`` exists.  Errors: FileExistsError, OSError."""
    failure = _renameat2(old, new)
    if failure in (errno.EINVAL, errno.ENOSYS):  # this storage, or C library, does not know it
        _rename_by_hand(old, new)
    elif failure:
        raise OSError(failure, os.strerror(failure), old, None, new)


def _renameat2(old: str, new: str) -> int:
    """renameat2(2), which then replaces nothing.  0, or errno."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return errno.ENOSYS
    words = _AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), _NOREPLACE
    return 0 if function(*words) == 0 else ctypes.get_errno()


def _rename_by_hand(old: str, new: str) -> None:
    """By calls that fail if ``new`` exists: a rename of a directory replaces only an empty one."""
    if os.path.isdir(old) and not os.path.islink(old):
        os.mkdir(new)
        os.rename(old, new)
    else:
        os.link(old, new, follow_symlinks=False)
        os.unlink(old)


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[str]:
    """The path of a new file beside ``path``, to write into; at the end it takes that name."""
    home, name = os.path.split(os.path.abspath(path))
    with tempfile.TemporaryDirectory(prefix=f".{name}.sidestep-", dir=home) as hidden:
        part = os.path.join(hidden, name)
        yield part
        os.replace(part, path)
