# SPDX-License-Identifier: BSD-3-Clause
"""Bodies of objects, in memory or in files.  Nothing copies a body: parts are joined by reference.

A body has a size, and pieces(first, count) gives its bytes as memoryviews.  A sink is filled from
a socket, and becomes a body.
"""

import contextlib
import itertools
import os
import weakref

PIECE_BYTES = 1 << 20


class MemoryBody:
    def __init__(self, data):
        self.data = memoryview(data)
        self.size = len(self.data)

    def pieces(self, first, count):
        if count:
            yield self.data[first : first + count]


class FileBody:
    """A file of the server's own folder; it goes when nothing refers to it any more."""

    def __init__(self, path, size):
        self.path = path
        self.size = size
        weakref.finalize(self, _unlink, path)

    def pieces(self, first, count):
        buffer = memoryview(bytearray(min(count, PIECE_BYTES)))
        with open(self.path, "rb", buffering=0) as file:
            file.seek(first)
            while count:
                got = file.readinto(buffer[: min(count, PIECE_BYTES)])
                if not got:
                    raise OSError(f"{self.path} is shorter than it was")
                yield buffer[:got]
                count -= got


def _unlink(path):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


class JoinedBody:
    def __init__(self, bodies):
        self.bodies = list(bodies)
        self.size = sum(body.size for body in self.bodies)

    def pieces(self, first, count):
        for body in self.bodies:
            here = max(0, min(count, body.size - first))
            if first < body.size and here:
                yield from body.pieces(first, here)
                count -= here
            first = max(0, first - body.size)


class SlicedBody:
    def __init__(self, body, first, size):
        self.body = body
        self.first = first
        self.size = size

    def pieces(self, first, count):
        return self.body.pieces(self.first + first, count)


def flipped(body, at):
    """The body with one byte changed: a copy, for a test that damages."""
    data = bytearray(b"".join(body.pieces(0, body.size)))
    data[at] ^= 0x01
    return MemoryBody(data)


class MemorySink:
    """Fills one buffer of the size that was announced."""

    def __init__(self, size):
        self.data = memoryview(bytearray(size))
        self.end = 0

    def buffer(self, wanted):
        """Room for some of the `wanted` bytes; what comes too much finds none."""
        return self.data[self.end : self.end + min(wanted, PIECE_BYTES)]

    def filled(self, count):
        self.end += count

    def body(self):
        return MemoryBody(self.data[: self.end])


class FileSink:
    _numbers = itertools.count()

    def __init__(self, folder):
        self.path = os.path.join(folder, f"body-{next(self._numbers)}")
        self.file = open(self.path, "wb", buffering=0)  # noqa: SIM115
        self.room = memoryview(bytearray(PIECE_BYTES))
        self.end = 0
        self.owner = weakref.finalize(self, _unlink, self.path)

    def buffer(self, wanted):
        return self.room[: min(wanted, PIECE_BYTES)]

    def filled(self, count):
        written = 0
        while written < count:
            written += self.file.write(self.room[written:count])
        self.end += count

    def body(self):
        self.file.close()
        self.owner.detach()
        return FileBody(self.path, self.end)
