# SPDX-License-Identifier: BSD-3-Clause
"""A process that sends to the mirror what is left when this process has ended."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from typing import Optional

from ._c.abi import Status
from ._c.checked import a_path, absolute, is_url
from ._c.errors import make_error
from ._mirror import Mirror

logger = logging.getLogger("sidestep")

LOG = os.path.join(".sidestep", "mirror.log")  # in the root

_left: set[tuple[str, ...]] = set()  # the commands that wait already


def program() -> Optional[str]:
    """The path of the command ``sidestep``: of the wheel, or one that is installed; None: there is
    none."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "sidestep")
    found = path if os.access(path, os.X_OK) else shutil.which("sidestep")
    return found and os.path.abspath(found)


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
    command += (absolute(a_path(mirror.root, "mirror: root")),)
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
    """A descriptor of the log.  It is not worth a failure, and what is not ours gets nothing."""
    log = _open_log(root)
    try:
        yield log
    finally:
        if log != subprocess.DEVNULL:
            os.close(log)


def _open_log(root: str) -> int:
    if is_url(root):
        return subprocess.DEVNULL
    path = os.path.join(root, LOG)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        log = os.open(path, flags, 0o666)
    except OSError as error:
        logger.warning("Mirror(after_exit=True): what it does is not logged: %s", error)
        return subprocess.DEVNULL
    found = os.fstat(log)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return log
    os.close(log)
    logger.warning("Mirror(after_exit=True): what it does is not logged: '%s' is not ours", path)
    return subprocess.DEVNULL
