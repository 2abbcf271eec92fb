# SPDX-License-Identifier: BSD-3-Clause
"""A process that sends to the mirror what is left when this process has ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Optional

from ._c.abi import Status
from ._c.checked import is_url
from ._c.errors import make_error
from ._mirror import Mirror

LOG = os.path.join(".sidestep", "mirror.log")  # in the root

_left: set[tuple[str, ...]] = set()  # the commands that wait already


def program() -> Optional[str]:
    """The path of the command ``sidestep``: of the wheel, or one that is installed; None: there is
    none."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "sidestep")
    return path if os.access(path, os.X_OK) else shutil.which("sidestep")


def leave_process(root: str, mirror: Mirror) -> None:
    """Leave a process that waits until this one has ended, however it ends, and then sends the
    newest checkpoint of ``root`` to the ``mirror``.  It is in a session of its own, holds no file
    of this process, and writes to `LOG` at the root, if that is a directory.

    Errors: `Error`: EUNSUPPORTED: there is no command ``sidestep``, or the system cannot do it."""
    path = program()
    if path is None:
        raise make_error(
            "Mirror(after_exit=True): the command 'sidestep' is not installed; the wheel has it",
            status=Status.EUNSUPPORTED,
        )
    command = (path, "mirror", f"--after={os.getpid()}", *_limits(mirror), "--", root)
    command += (os.fspath(mirror.root),)
    if command in _left:
        return
    with _log_of(root) as log:
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False,
            start_new_session=True,
        )  # fmt: skip
    if done.returncode != 0:
        raise make_error(
            f"Mirror(after_exit=True): '{path} mirror --after' failed ({done.returncode}); "
            f"'{os.path.join(root, LOG)}' says why",
            status=Status.EUNSUPPORTED,
        )
    _left.add(command)


def _limits(mirror: Mirror) -> Iterator[str]:
    """The options of the command.  The last checkpoint is sent whatever `Mirror.every` says."""
    if mirror.keep_last_n is not None:
        yield f"--keep-last={mirror.keep_last_n}"
    if mirror.keep_every:
        yield f"--keep-every={mirror.keep_every}"
    if mirror.bytes_per_second:
        yield f"--bytes-per-second={mirror.bytes_per_second}"


@contextlib.contextmanager
def _log_of(root: str) -> Iterator[int]:
    if is_url(root):
        yield subprocess.DEVNULL
        return
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    log = os.open(os.path.join(root, LOG), flags, 0o666)
    try:
        yield log
    finally:
        os.close(log)
