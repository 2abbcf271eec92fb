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
