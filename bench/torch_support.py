# SPDX-License-Identifier: BSD-3-Clause
"""torch_support.py -- clocks, caches and plain reads for the measurements in Python."""
import glob
import json
import mmap
import os
import shutil
import time

REQUEST = 8 << 20
MADV_POPULATE_WRITE = 23  # Linux 5.14; Python has no name for it


def warm(tensors, size):
    """Touch the state, and as much free memory as a run may need."""
    for tensor in tensors:
        tensor.reshape(-1)[::1024].sum()
    free = mmap.mmap(-1, size + (64 << 20))
    free.madvise(mmap.MADV_HUGEPAGE)
    free.madvise(MADV_POPULATE_WRITE)
    free.close()


def timed(function):
    """(seconds, what it returned)."""
    began = time.monotonic()
    result = function()
    return time.monotonic() - began, result


def drop_from_cache(path):
    for name in [*glob.glob(path + "/*"), *glob.glob(path + "/.*")]:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def settle(path):
    """Remove what a run wrote, and let the disk come to rest."""
    shutil.rmtree(path, ignore_errors=True)
    os.sync()
    time.sleep(0.2)


def plain_read(path):
    buffer = bytearray(REQUEST)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def report_duration(what, goal, seconds):
    """A row for bench/run that is compared with nothing but its goal."""
    row = {"what": what, "kind": "duration", "goal": goal, "bytes": 0, "ours": seconds, "reference": "",
           "theirs": None}
    print(json.dumps(row), flush=True)


def report_memory(what, goal, amounts):
    """The same, of bytes."""
    row = {"what": what, "kind": "memory", "goal": goal, "bytes": 0, "ours": amounts, "reference": "",
           "theirs": None}
    print(json.dumps(row), flush=True)


def report_stall(what, goal, ours, reference, theirs):
    """A row of times that are compared with those of ``reference``."""
    row = {"what": what, "kind": "stall", "goal": goal, "bytes": 0, "ours": ours,
           "reference": reference, "theirs": theirs}
    print(json.dumps(row), flush=True)
