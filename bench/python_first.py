# SPDX-License-Identifier: BSD-3-Clause
"""python_first.py -- measures what a process pays before its first save, and at it.

Called by bench/run; needs torch in .venv. Each sample is a fresh process: the import of sidestep
after torch's own, the memory and the processor time of a Checkpointer that saves nothing, and the
first save beside the second.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

from torch_support import report, settle, warm

IDLE = 1.0  # seconds in which a Checkpointer is watched that does nothing
BUILDING = 1.0  # seconds between Checkpointer() and the first save, at least
MIB = 1 << 20


def memory() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def processor_time() -> float:
    """Seconds of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def one_process(root: str, mib: int) -> dict[str, Any]:
    """The figures of this process."""
    import torch
    import torch.distributed.checkpoint  # not ours, and as large as torch

    began = time.perf_counter()
    import sidestep

    sidestep.Checkpointer  # noqa: B018 - the package imports what is asked for
    imported = time.perf_counter() - began
    torch.set_num_threads(1)
    state = {f"layer.{i}": torch.ones(mib * MIB // 16 // 4) for i in range(16)}
    warm(state.values(), mib * MIB)
    before = memory()
    saver = sidestep.Checkpointer(root, interval=1)
    time.sleep(BUILDING)
    idle, used = memory() - before, processor_time()
    time.sleep(IDLE)
    used = processor_time() - used
    stalls, whole = [], []
    for step in range(1, 4):
        began = time.perf_counter()
        saver.save(step, state)
        stalls.append(time.perf_counter() - began)
        saver.wait()
        whole.append(time.perf_counter() - began)
    saver.close()
    return {"import": imported, "idle": idle, "used": used, "stalls": stalls, "whole": whole}


def samples(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One process after another."""
    found = []
    for _ in range(args.runs):
        with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
            root = os.path.join(scratch, "run")
            command = [sys.executable, __file__, f"--dir={root}", f"--mib={args.mib}", "--one"]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            found.append(json.loads(printed))
            settle(root)
    return found


def main() -> None:
    """The rows, from as many processes as there are runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--one", action="store_true")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one_process(args.dir, args.mib)))
        return
    found = samples(args)
    report(
        "process: import sidestep, after torch", "duration", 0.060, [one["import"] for one in found]
    )
    report(
        "process: memory of an idle Checkpointer", "memory", 8 * MIB, [one["idle"] for one in found]
    )
    report(
        "process: processor time of an idle second",
        "duration",
        0.001,
        [one["used"] for one in found],
    )
    for what, key in (("call", "stalls"), ("whole save", "whole")):
        first, second = ([one[key][i] for one in found] for i in (0, 1))
        report(f"process: {what}, the first", "stall", 1.3, first, "the second", second)


if __name__ == "__main__":
    main()
