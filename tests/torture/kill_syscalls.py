#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kill_syscalls.py -- kills a save with SIGKILL at each of its system calls on files. Afterwards the
old or the new checkpoint must be there, complete; the next save must succeed, and leave nothing
behind."""
import shutil

import rig as rigs


def kill_everywhere(rig, killer, workload, some=None):
    """Return (complaints, number of calls). some(names): the numbers of the calls at which to kill."""
    sample = workload.prepare()
    result, names = rigs.calls_of(killer, workload.arguments(sample), rig.scratch)
    if result.status != 0 or len(names) < 20:
        return [f"without a kill: {result}, {len(names)} calls"], 0

    def trial(number):
        folder = workload.prepare()
        result = rigs.run([killer, "-k", str(number), *workload.arguments(folder)])
        if result.status not in (0, 137):
            found = [f"it ended by itself: {result}"]
        else:
            found = workload.judge(folder, result, killed=result.status == 137)
        shutil.rmtree(folder)
        return [f"killed at call {number}, {names[min(number, len(names)) - 1]}: {text}"
                for text in found]

    # The order of calls of two threads varies, so also try a few more numbers than one run has.
    repeats = 5 if rig.long else 1
    numbers = some(names) if some else list(range(1, len(names) + 1))
    numbers += [len(names) + 1, len(names) + 2]
    return rigs.parallel(trial, numbers * repeats), len(names)


def main():
    rig = rigs.Rig(__doc__, in_memory=True)
    saver = rig.tool("saver_tool")
    killer = rig.tool("nth_call")
    devices = rigs.Workload(rig, saver, "tensors on devices", 1, "save-devices")
    for workload in [*rigs.workloads(rig, saver), devices]:
        complaints, calls = kill_everywhere(rig, killer, workload)
        rig.test(f"{workload.name}, killed at each of {calls} calls", complaints)
    careless = rigs.Workload(rig, saver, "a careless saver", 0, "careless")
    rig.control("a saver that writes .metadata first", kill_everywhere(rig, killer, careless)[0])
    rig.finish()


if __name__ == "__main__":
    main()
