# SPDX-License-Identifier: BSD-3-Clause
"""python_partner.py -- copies the checkpoints of a trainer elsewhere, on a thread of the lowest
priority: to another directory, or to a partner, which is a process on this machine, so that one
machine does what a node does that sends and receives.

python_levels.py compares a mirror with both. No byte is checked, so a real copy costs more.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

PIECE = 8 << 20


def plain_copy(source: Path, target: Path) -> None:
    """Read and write each file, and sync it."""
    target.mkdir()
    for path in source.iterdir():
        with open(path, "rb", 0) as read, open(target / path.name, "wb", 0) as written:
            while block := read.read(PIECE):
                written.write(block)
            os.fsync(written.fileno())


def yield_to_others() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@contextlib.contextmanager
def followed(near: Path, send: Callable[[Path], None]) -> Iterator[None]:
    """Meanwhile, a thread sends the newest checkpoint, again and again."""
    ends = threading.Event()

    def follow() -> None:
        yield_to_others()
        sent: set[Path] = set()
        while not ends.is_set():
            steps = [path.parent for path in near.glob("step-*/.metadata")]
            newest = max(steps, default=None, key=lambda path: int(path.name[5:]))
            if newest is None or newest in sent:
                ends.wait(0.01)
                continue
            sent.add(newest)
            with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
                send(newest)

    sending = threading.Thread(target=follow)
    sending.start()
    try:
        yield
    finally:
        ends.set()
        sending.join()


@contextlib.contextmanager
def copied(near: Path, far: Path) -> Iterator[None]:
    """Meanwhile, the newest checkpoint is copied to ``far``."""

    def copy(step: Path) -> None:
        plain_copy(step, far / step.name)
        for path in set(far.iterdir()) - {far / step.name}:
            shutil.rmtree(path)

    far.mkdir()
    with followed(near, copy):
        yield


def _receive(server: socket.socket, far: Path) -> None:
    """Write what comes to one file after the other: the length of each, then its bytes."""
    yield_to_others()
    connection, _ = server.accept()
    view, number = memoryview(bytearray(PIECE)), 0
    while head := connection.recv(8, socket.MSG_WAITALL):
        left, number = int.from_bytes(head, "little"), number + 1
        with open(far / str(number), "wb", 0) as file:
            while left:
                length = connection.recv_into(view, min(left, PIECE), socket.MSG_WAITALL)
                file.write(view[:length])
                left -= length
            os.fsync(file.fileno())
        (far / str(number - 1)).unlink(missing_ok=True)


@contextlib.contextmanager
def sent(near: Path, far: Path) -> Iterator[None]:
    """Meanwhile, the newest checkpoint is sent to a partner, which writes it to ``far``."""
    far.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        partner = multiprocessing.get_context("fork").Process(target=_receive, args=(server, far))
        partner.start()
        with socket.create_connection(server.getsockname()) as connection:

            def send(step: Path) -> None:
                for path in step.glob("*.distcp"):
                    with open(path, "rb", 0) as file:
                        connection.sendall(os.fstat(file.fileno()).st_size.to_bytes(8, "little"))
                        while block := file.read(PIECE):
                            connection.sendall(block)

            with followed(near, send):
                yield
        partner.join()
