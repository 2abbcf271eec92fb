#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""errno_syscalls.py -- makes each system call on files of a save fail, once and from then on, with
each possible errno. The program must end by itself, with a complete checkpoint or with a reason, and
what was there must stay. After the fault, a save must succeed and leave nothing behind.
"""
import errno
import shutil

import rig as rigs

ERRORS = ["EIO", "ENOSPC", "EACCES", "EINTR"]
INTERRUPTIBLE = ("open", "read", "write", "pread64", "pwrite64", "fsync", "fdatasync", "fallocate",
                 "ftruncate", "close", "fcntl", "statx", "fstatfs")
STRIDE = 5  # without --long, only one of this many combinations is tried


def may_fail_with(call, name):
    if name == "EINTR":
        return call.startswith(INTERRUPTIBLE)
    if name == "ENOSPC":
        return call not in ("close", "fstat", "fcntl", "getdents64", "getcwd", "read", "pread64",
                            "newfstatat", "statx", "fstatfs")
    return True


def plan(names, everything):
    """(number of the call, its name, errno, whether all later calls fail too) of each trial:
    everything, or one in STRIDE."""
    all_of_them = [(number, call, error, sticky)
                   for number, call in enumerate(names, 1)
                   for error in ERRORS if may_fail_with(call, error)
                   for sticky in (False, True)
                   # A call that is always interrupted is retried for ever, as it should be.
                   if not (sticky and error == "EINTR")]
    return all_of_them if everything else all_of_them[::STRIDE]


def fail_everywhere(rig, killer, workload):
    sample = workload.prepare()
    result, names = rigs.calls_of(killer, workload.arguments(sample), rig.scratch)
    if result.status != 0 or len(names) < 20:
        return [f"without a fault: {result}, {len(names)} calls"], 0
    trials = plan(names, rig.long)

    def trial(how):
        number, call, error, sticky = how
        folder = workload.prepare()
        result = rigs.run([killer, "-k", str(number), "-e", str(getattr(errno, error)),
                           *(["-s"] if sticky else []), *workload.arguments(folder)], timeout=30)
        found = workload.judge(folder, result)
        shutil.rmtree(folder)
        return [f"{error} {'from' if sticky else 'at'} call {number}, {call}: {text}"
                for text in found]

    return rigs.parallel(trial, trials), len(trials)


def main():
    rig = rigs.Rig(__doc__, in_memory=True)
    saver = rig.tool("saver_tool")
    killer = rig.tool("nth_call")
    for workload in rigs.workloads(rig, saver):
        complaints, count = fail_everywhere(rig, killer, workload)
        rig.test(f"{workload.name}, with {count} faults", complaints)
    careless = rigs.Workload(rig, saver, "a careless saver", 0, "careless")
    rig.control("a saver that ignores errors", fail_everywhere(rig, killer, careless)[0])
    rig.finish()


if __name__ == "__main__":
    main()
