# SPDX-License-Identifier: BSD-3-Clause
"""torch_support.py -- what the measurements in Python share: clocks, control of the page cache, plain
reads and rows of the report."""
import glob
import json
import mmap
import os
import shutil
import time

REQUEST = 8 << 20
MADV_POPULATE_WRITE = 23  # Linux 5.14; Python has no name for it


def warm(tensors, size):
    """Read the state, and write as much free memory as a run may need."""
    for tensor in tensors:
        tensor.reshape(-1)[::1024].sum()
    free = mmap.mmap(-1, size + (64 << 20))
    free.madvise(mmap.MADV_HUGEPAGE)
    free.madvise(MADV_POPULATE_WRITE)
    free.close()


class MemoryGroup:
    """A control group with this process and its children, as a context. Needs root."""

    def __init__(self):
        old = "/sys/fs/cgroup/memory"
        self.is_old = os.path.isdir(old)
        self.parent = old if self.is_old else "/sys/fs/cgroup"
        self.path = os.path.join(self.parent, f"sidestep-bench-{os.getpid()}")

    @staticmethod
    def _move(process, group):
        with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(process))

    def __enter__(self):
        os.mkdir(self.path)
        self._move(os.getpid(), self.path)
        return self

    def __exit__(self, *error):
        with open(os.path.join(self.path, "cgroup.procs"), encoding="ascii") as file:
            for process in file.read().split():  # also a helper of multiprocessing, which lives on
                self._move(process, self.parent)
        os.rmdir(self.path)

    def leave_to_page_cache(self, size):
        """Limit memory to what the processes have now, and ``size`` bytes."""
        with open(os.path.join(self.path, "memory.stat"), encoding="ascii") as file:
            used = dict(line.split() for line in file)
        limit = int(used["total_rss" if self.is_old else "anon"]) + size
        with open(os.path.join(self.path, "memory.limit_in_bytes" if self.is_old else "memory.max"),
                  "w", encoding="ascii") as file:
            file.write(str(limit))


def timed(function):
    """Returns (seconds, result)."""
    began = time.monotonic()
    result = function()
    return time.monotonic() - began, result


def drop_file(name):
    fd = os.open(name, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def drop_from_cache(path):
    """Drop a file, or all files of a directory, from the page cache."""
    for name in [*glob.glob(path + "/*"), *glob.glob(path + "/.*")] if os.path.isdir(path) else [path]:
        drop_file(name)


def settle(path):
    """Remove what a run wrote, and wait until the disk is idle."""
    shutil.rmtree(path, ignore_errors=True)
    os.sync()
    time.sleep(0.2)


def plain_read(path):
    buffer = bytearray(REQUEST)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def report(what, kind, goal, ours, reference="", theirs=None, size=0, **more):
    """Print a row for bench/run: samples of sidestep, and of ``reference`` if there is one."""
    print(json.dumps({"what": what, "kind": kind, "goal": goal, "bytes": size, "ours": ours,
                      "reference": reference, "theirs": theirs, **more}), flush=True)
