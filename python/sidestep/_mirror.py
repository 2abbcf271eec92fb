# SPDX-License-Identifier: BSD-3-Clause
"""The mirror of a `Checkpointer`: a second place for its checkpoints."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from ctypes import pointer
from dataclasses import dataclass
from typing import Optional, Union

from ._c import abi
from ._c.abi import Status
from ._c.calls import report_progress
from ._c.checked import MAX_STEP, a_count, a_path, absolute
from ._c.errors import Error
from ._progress import size_text
from ._series import Series

PROGRESS_S = 10.0

log = logging.getLogger("sidestep")


@dataclass(frozen=True)
class Mirror:
    """A second place that gets the checkpoints of a `Checkpointer`, and from which the run goes on
    if the first place is lost.  C: ``mirror`` of struct sidestep_series_options.

    root              a path, whose parent exists, or a URL (``s3://BUCKET/PREFIX``)
    every             send a checkpoint only if it is at least so many steps after the newest one
                      there; 0: each.  The last one is always sent
    keep_last_n       how many of the newest stay there; None: all
    keep_every        also send and keep those whose step is a multiple of it
    bytes_per_second  write at most so many; 0: no limit
    after_exit        do not wait at the end: a process that is left on each node sends the newest
                      checkpoint when this one has ended, or was killed.  What kills that, too, as
                      the end of a container does, is in docs/LEVELS.md
    """

    root: Union[str, os.PathLike[str]]
    every: int = 0
    keep_last_n: Optional[int] = None
    keep_every: int = 0
    bytes_per_second: int = 0
    after_exit: bool = False

    def add_to(self, options: abi.SeriesOptions) -> abi.MirrorOptions:
        """Enter it into the ``options`` of a series.  Returns what must live as long as the series;
        its ``cancel`` ends the sending.  ValueError, TypeError: it is not valid."""
        mirror = abi.MirrorOptions(
            cancel=pointer(ctypes.c_bool(False)),
            every=a_count(self.every, "mirror: every", most=MAX_STEP),
            bytes_per_second=a_count(
                self.bytes_per_second, "mirror: bytes_per_second", most=MAX_STEP
            ),
        )
        keep_every = a_count(self.keep_every, "mirror: keep_every", most=MAX_STEP)
        if self.keep_last_n is not None:
            last = a_count(self.keep_last_n, "mirror: keep_last_n", least=1)
            mirror.retention = pointer(abi.Retention(keep_last=last, keep_every=keep_every))
        elif keep_every:
            raise ValueError("mirror: keep_every without keep_last_n: all stay anyway")
        options.mirror = os.fsencode(absolute(a_path(self.root, "mirror: root")))
        options.mirror_options = pointer(mirror)
        report_progress(mirror, _progress_log(f"sending the newest checkpoint to '{self.root}'"))
        return mirror


def mirror_of_environment(root: str) -> Optional[Mirror]:
    """The mirror of ``root`` that the environment asks for: in SIDESTEP_MIRROR, under the name of
    ``root``; None: it asks for none."""
    place = os.environ.get("SIDESTEP_MIRROR", "").rstrip("/")
    return Mirror(f"{place}/{os.path.basename(root)}") if place else None


def _progress_log(what: str) -> Callable[[int, int], None]:
    """A function that writes to the log how far it is, every `PROGRESS_S`."""
    last = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if last == 0.0 or now - last >= PROGRESS_S:
            last = now
            log.info("%s: %s of %s", what, size_text(done), size_text(total))

    return tell


def attach(mirror: Optional[Mirror], options: abi.SeriesOptions) -> Optional[abi.MirrorOptions]:
    """Enter ``mirror`` into the ``options`` of a series: see `Mirror.add_to`.  None: there is no
    mirror."""
    if mirror is None:
        return None
    if not isinstance(mirror, Mirror):
        raise TypeError(f"mirror={mirror!r} is not a sidestep.Mirror")
    return mirror.add_to(options)


def close_series(
    series: Series,
    mirror: Optional[abi.MirrorOptions],
    until: Callable[[], float],
    may_give_up: Callable[[], bool],
) -> None:
    """Close ``series``.  If it has a ``mirror`` (see `attach`), sending is given up when ``until``
    has come, with a warning if ``may_give_up``; else that is an error."""
    try:
        with cancelled_when(mirror, until):
            series.close()
    except Error as unsent:
        if not may_give_up() or unsent.status is not Status.ECANCELLED:
            raise
        log.warning("the grace time is over: %s", unsent)


@contextlib.contextmanager
def cancelled_when(
    mirror: Optional[abi.MirrorOptions], until: Callable[[], float]
) -> Iterator[None]:
    """In this block, what ``mirror`` (see `attach`) sends is given up when ``until`` has come, by
    the clock of time.monotonic().  A signal may bring that nearer."""
    if mirror is None:
        yield
        return
    is_over, cancel = threading.Event(), mirror.cancel.contents

    def watch() -> None:
        while not is_over.wait(0.1):
            if time.monotonic() >= until():
                cancel.value = True
                return

    watching = threading.Thread(target=watch, name="sidestep-mirror", daemon=True)
    watching.start()
    try:
        yield
    finally:
        is_over.set()
        watching.join()
