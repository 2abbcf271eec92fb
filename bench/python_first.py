# SPDX-License-Identifier: BSD-3-Clause
"""python_first.py -- measures what sidestep costs a process before and during its first save, and
until it has resumed.

bench/run calls it; it needs torch in .venv. Each sample is a new process. It measures the import of
sidestep after that of torch, with compiled files, as pip leaves them, and without; memory and
processor time of an idle Checkpointer; the first save compared with the second; and the time from
the start of a process to its state loaded from the page cache, compared with one that calls stock's
load.
"""

from __future__ import annotations

import argparse
import glob
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

from torch_support import plain_read, report, settle, warm

IDLE = 1.0  # seconds for which the processor time of an idle Checkpointer is measured
BUILDING = 1.0  # minimum of seconds between Checkpointer() and the first save
MIB = 1 << 20


def memory() -> int:
    """Resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def processor_time() -> float:
    """Processor seconds of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def imported() -> float:
    """Seconds of the import of sidestep, after that of torch."""
    import torch.distributed.checkpoint  # noqa: F401 - so that its time does not count for sidestep

    began = time.perf_counter()
    import sidestep

    sidestep.Checkpointer  # noqa: B018 - the package imports a module when a name of it is used
    return time.perf_counter() - began


def one_process(root: str, mib: int) -> dict[str, Any]:
    """Measure this process; return its figures."""
    took = imported()
    import torch

    import sidestep

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
    return {"import": took, "idle": idle, "used": used, "stalls": stalls, "whole": whole}


def resumed(root: str, mib: int, began: float, way: str) -> dict[str, float]:
    """Load the newest checkpoint, in a process that was started at ``began``."""
    import torch
    import torch.distributed.checkpoint as dcp

    torch.set_num_threads(1)
    ready = time.monotonic()
    if way == "ours":
        import sidestep

        saver = sidestep.Checkpointer(root, interval=1)
    opened = time.monotonic()
    state = {f"layer.{i}": torch.zeros(mib * MIB // 16 // 4) for i in range(16)}
    made = time.monotonic()
    if way == "ours":
        assert saver.resume(state) is not None
    else:
        newest = max(os.listdir(root), key=lambda name: int(name.partition("step-")[2] or -1))
        dcp.load(state, checkpoint_id=os.path.join(root, newest))
    ended = time.monotonic()
    assert state["layer.15"][-1] == 1
    if way == "ours":
        saver.close()
    return {"all": ended - began, "open": opened - ready, "load": ended - made}


def run(root: str, mib: int, *more: str) -> dict[str, Any]:
    """The figures of one process, with the copy of the package that is beside ``root``."""
    command = [sys.executable, "-W", "ignore", __file__, f"--dir={root}", f"--mib={mib}", *more]
    environment = os.environ | {"PYTHONPATH": f"{root}-package:{os.environ.get('PYTHONPATH', '')}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(ran.stdout)


def samples(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run one process after another; return the figures of each."""
    found = []
    for _ in range(args.runs):
        with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
            root = os.path.join(scratch, "run")
            package = os.path.dirname(importlib.util.find_spec("sidestep").origin)
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package, f"{root}-package/sidestep", ignore=ignored)
            compiling = run(root, args.mib, "--import")
            found.append(run(root, args.mib, "--one") | {"compiling": compiling["import"]})
            for way in ("stock", "ours"):
                for file in glob.glob(os.path.join(root, "step-3", "*.distcp")):
                    plain_read(file)
                began = f"--began={time.monotonic()}"
                found[-1][way] = run(root, args.mib, f"--resume={way}", began)
            settle(root)
    return found


def main() -> None:
    """Print the rows, from one process per run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--import", dest="imports", action="store_true")
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--resume", choices=("ours", "stock"))
    parser.add_argument("--began", type=float)
    args = parser.parse_args()
    if args.imports:
        print(json.dumps({"import": imported()}))
        return
    if args.one:
        print(json.dumps(one_process(args.dir, args.mib)))
        return
    if args.resume:
        print(json.dumps(resumed(args.dir, args.mib, args.began, args.resume)))
        return
    found = samples(args)
    for what, key, goal in (
        ("", "import", 0.060),
        (", without compiled files", "compiling", 0.060),
    ):
        times = [one[key] for one in found]
        report(f"process: import sidestep, after torch{what}", "duration", goal, times)
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
    ours = [one["ours"] for one in found]
    report("process: import, open and find", "duration", 0.050, [one["open"] for one in ours])
    for what, key, goal in (("start to resumed", "all", 1.0), ("resume", "load", 0.5)):
        stock = [one["stock"][key] for one in found]
        report(f"process: {what}", "stall", goal, [one[key] for one in ours], "stock's load", stock)


if __name__ == "__main__":
    main()
