# SPDX-License-Identifier: BSD-3-Clause
"""For trainers that delete an old checkpoint right after they have asked for a new one.

The old checkpoint is deleted when the new one is committed.  It stays if the save fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Optional

from . import _directory as directories
from ._c.checked import absolute, is_url
from ._directory import described
from ._handle import SaveHandle, in_background

log = logging.getLogger("sidestep")
Path = str
_RECENT = 16


class Rotation:
    """The saves of one trainer in the order in which they end, and what waits for them.

    Any thread may use it.  Only the rank that deletes needs to call `delete`.  A pickle of it is
    empty, because its saves belong to this process.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._saves: list[SaveHandle] = []  # the last one, and those that have not ended
        self._recent: deque[SaveHandle] = deque(maxlen=_RECENT)
        self._wanted: dict[Path, SaveHandle] = {}  # paths to be deleted, each after a save
        self._deleting: Optional[Path] = None
        _all.add(self)

    def __reduce__(self) -> Any:
        return Rotation, ()

    def begin(self, path: Path) -> None:
        """A save to ``path`` is about to begin: do not delete ``path``, which it replaces."""
        path = absolute(path)
        with self._lock:
            self._wanted.pop(path, None)
            self._lock.wait_for(lambda: self._deleting != path)

    def add(self, save: SaveHandle) -> None:
        """Add a save that has begun."""
        with self._lock:
            self._saves = [one for one in self._saves if not one.done()] + [save]
            self._recent.append(save)

    def recent(self) -> list[SaveHandle]:
        """The last saves, the oldest first, whether they have ended or not."""
        with self._lock:
            return list(self._recent)

    def find(self, path: Path) -> Optional[SaveHandle]:
        """The save to ``path`` that is under way."""
        path = absolute(path)
        with self._lock:
            found = [save for save in self._saves if absolute(save.path) == path]
        return next((save for save in reversed(found) if not save.done()), None)

    def last(self) -> Optional[SaveHandle]:
        """The save that was begun last, even if it has ended."""
        with self._lock:
            return self._saves[-1] if self._saves else None

    def delete(self, path: Path) -> None:
        """Delete the checkpoint ``path`` once the save that was begun last is committed; at once if
        none was begun."""
        path, save = absolute(path), self.last()
        if save is None:
            delete(path)
            return
        with self._lock:
            self._wanted[path] = save
        self.then(save, lambda failure: self._delete(path, save, failure))

    def then(self, save: SaveHandle, job: Callable[[Optional[BaseException]], None]) -> None:
        """When ``save`` has ended, call ``job`` with its failure, or None, on a thread of the
        package.  The end of the interpreter waits for that."""
        save._hold()

        def run() -> None:
            try:
                job(save.peek())
            finally:
                save._let_go()

        save.add_done_callback(lambda _: in_background(run))

    def wait(self) -> None:
        """Wait until all saves have ended and all deletions are done.

        Errors: that of the first save that has failed, if it was not reported yet.
        """
        with self._lock:
            saves = list(self._saves)
        for save in saves:
            save._hurry()
            save.reach()
        with self._lock:
            self._lock.wait_for(lambda: not self._wanted and self._deleting is None)
        errors = [error for error in (save._take_sticky() for save in saves) if error is not None]
        if errors:
            raise errors[0]

    def _delete(self, path: Path, save: SaveHandle, failure: Optional[BaseException]) -> None:
        with self._lock:
            if self._wanted.get(path) is not save:
                return  # it was replaced meanwhile, or is deleted after a later save
            if failure is None:
                self._deleting = path
            else:
                log.warning("'%s' is kept: save '%s' has failed", path, save.path)
            del self._wanted[path]
            self._lock.notify_all()
        if failure is not None:
            return
        try:
            delete(path)
        except OSError as error:
            log.error("'%s' was not deleted: %s", path, error.strerror or error)
        finally:
            with self._lock:
                self._deleting = None
                self._lock.notify_all()


_all: weakref.WeakSet[Rotation] = weakref.WeakSet()


def under_way(path: Path) -> Optional[tuple[Rotation, SaveHandle]]:
    """The save to ``path`` that is under way in this process, and its `Rotation`."""
    for rotation in list(_all):
        save = rotation.find(path)
        if save is not None:
            return rotation, save
    return None


def delete(path: Path) -> None:
    """Delete what a trainer lets go, and do nothing if it is not there: a checkpoint of sidestep as
    the library does, or a file of the framework.  A directory that another program made, and a
    checkpoint that is pinned or holds files of others, stay; the log says so.

    Errors: OSError.
    """
    if is_url(path) or (os.path.isdir(path) and not os.path.islink(path)):
        if described(path) is not None:
            directories.delete(path, "the trainer lets it go")
        elif not is_url(path):
            log.warning("'%s' stays: sidestep did not make it; delete it by hand", path)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        log.info("deleted '%s'", path)
