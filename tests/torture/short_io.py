#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""short_io.py -- tests saves and loads while reads and writes move fewer bytes than requested, or are
interrupted: the state must be correct, bit for bit."""
import os

import rig as rigs

ROUNDS = 60


def main():
    rig = rigs.Rig(__doc__, in_memory=True)
    saver = rig.tool("saver_tool")
    shim = rig.tool("short_io.so")
    short = {"LD_PRELOAD": shim}
    path = os.path.join(rig.folder(), "it")
    complaints = []
    for number in range(1, ROUNDS * (10 if rig.long else 1) + 1):
        seed = str(number % 50 + 1)
        command = ("save", "save-planes", "save-zstd")[number % 3]
        for result in (rigs.run([saver, command, path, seed], env=short),
                       rigs.run([saver, "check", path, seed]),
                       rigs.run([saver, "check", path, seed], env=short)):
            if result.status != 0 or result.out not in ("", f"seed {seed}"):
                complaints.append(f"round {number}: {result}")
    rig.test("saves and loads with short reads and writes", complaints)
    caught = []
    for number in range(1, 11):
        rigs.run([saver, "save", path, str(number)], env={**short, "SHORT_IO_LOSE": "1"})
        result = rigs.run([saver, "check", path, str(number)])
        if result.status != 0 or result.out != f"seed {number}":
            caught.append(str(result))
    rig.control("a system that loses bytes of writes", caught)
    rig.finish()


if __name__ == "__main__":
    main()
