# SPDX-License-Identifier: BSD-3-Clause
"""fio_device.py -- measures the disk with fio, for information. The reference of saves is not fio
but the simple loop of bench/save.c, which takes turns with sidestep.

bench/run calls it. It writes a new, preallocated file in requests of 4 MiB with O_DIRECT, makes it
durable, and reads it.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

from torch_support import report

DEPTH = 8


def seconds(path, direction, mib):
    """Seconds of one run of fio."""
    done = subprocess.run(
        ["fio", "--name=device", "--filename=" + path, f"--size={mib}m", "--rw=" + direction, "--bs=4m", "--direct=1",
         "--ioengine=io_uring", f"--iodepth={DEPTH}", "--fallocate=posix", "--end_fsync=1", "--output-format=json"],
        stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["jobs"][0]["job_runtime"] / 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    args = parser.parse_args()
    if shutil.which("fio") is None:
        print("bench: the part 'device' is skipped: fio is not installed (tools/setup bench)", file=sys.stderr)
        return
    path = os.path.join(args.dir, "fio")
    took = {"write": [], "read": []}
    for _ in range(args.runs):
        for direction, samples in took.items():
            samples.append(seconds(path, direction, args.mib))
        os.unlink(path)
    for direction, samples in took.items():
        report(f"fio: {direction} of 4 MiB, O_DIRECT, depth {DEPTH}", "duration", 0, samples, size=args.mib << 20)


if __name__ == "__main__":
    main()
