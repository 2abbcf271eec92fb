# SPDX-License-Identifier: BSD-3-Clause
"""python_levels.py -- measures what a mirror costs: a trainer with a mirror under way, without, and
with a plain copy of each checkpoint instead, also at a partner; the mirror and a plain copy between
the same places; and a resume from the near level.

bench/run calls it; it needs torch in .venv.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from python_partner import copied, plain_copy, sent
from torch_support import drop_from_cache, report, settle, timed

import sidestep

SAVES, STEPS = 4, 60  # in one run of the trainer, and between two saves


def near_in(directory: Path) -> Path:
    """The near level: in memory, if it can be, so that it is not on the disk of the mirror."""
    return Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else directory) / "sidestep-bench-near"


def state_of(mib: int) -> dict[str, Any]:
    return {f"w{i}": torch.randn(mib << 15) for i in range(8)}


def train(near: Path, far: Path, state: dict[str, Any], sends: str) -> float:
    """Seconds of the loop of a trainer that leaves processors to others; not of the end, which
    waits for the mirror."""
    weight = torch.randn(768, 768)
    mirror = sidestep.Mirror(far, keep_last_n=2) if sends == "mirror" else None
    copies = {"copy": copied, "partner": sent}.get(sends)
    with contextlib.ExitStack() as stack:
        if copies is not None:
            stack.enter_context(copies(near, far))
        checkpoints = stack.enter_context(
            sidestep.Checkpointer(near, mirror=mirror, keep_last_n=2, signals=())
        )
        checkpoints.save(1, state).wait()
        began = time.monotonic()
        for save in range(SAVES):
            for _ in range(STEPS):
                weight = torch.tanh(weight @ weight)
            checkpoints.save(2 + save, state)
        for _ in range(STEPS):
            weight = torch.tanh(weight @ weight)
        return time.monotonic() - began


def lost_time(directory: Path, runs: int, mib: int) -> None:
    state, times = state_of(mib), {"mirror": [], "nothing": [], "copy": [], "partner": []}
    near, far, ways = near_in(directory), directory / "far", list(times)
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
    for run in range(runs + 1):  # the first one warms up
        for way in ways if run % 2 else reversed(ways):
            times[way].append(train(near, far, state, way))
            for place in (near, far):
                settle(place)
    torch.set_num_threads(threads)
    ours, without, copy, partner = (times[way][1:] for way in ways)
    what = "levels: a trainer with a mirror under way"
    report(what, "stall", 1.02, ours, "the same without", without)
    report(what, "stall", None, ours, "with a plain copy", copy)
    what = "levels: a trainer with a plain copy at a partner"
    report(what, "stall", None, partner, "the same without", without)


def rate(program: str, directory: Path, runs: int, mib: int) -> None:
    near, far = near_in(directory), directory / "far"
    words = [program, "-q", "mirror", str(near), str(far)]
    with sidestep.Checkpointer(near, signals=()) as checkpoints:
        checkpoints.save(1, state_of(mib)).wait()
    ours, theirs = [], []
    for run in range(runs):
        for is_ours in (True, False) if run % 2 else (False, True):
            drop_from_cache(str(near / "step-1"))
            settle(far)
            if is_ours:
                ours.append(
                    timed(lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL))[0]
                )
            else:
                theirs.append(timed(lambda: plain_copy(near / "step-1", far))[0])
    settle(far)
    report(
        "levels: the mirror gets a checkpoint", "speed", 0.9, ours, "plain copy", theirs, mib << 20
    )


def resume(directory: Path, runs: int, mib: int) -> None:
    near, far, state = near_in(directory), directory / "far", state_of(mib)
    mirror = sidestep.Mirror(far)
    with sidestep.Checkpointer(near, mirror=mirror, signals=()) as checkpoints:
        checkpoints.save(1, state).wait()
    ours, theirs = [], []
    for run in range(runs + 1):
        for is_ours in (True, False) if run % 2 else (False, True):
            if is_ours:
                with sidestep.Checkpointer(near, mirror=mirror, signals=()) as checkpoints:
                    seconds, found = timed(lambda: checkpoints.resume(state))
                assert found is not None and found.step == 1
                ours.append(seconds)
            else:
                theirs.append(timed(lambda: sidestep.load(state, checkpoint_id=near / "step-1"))[0])
    report(
        "levels: resume from the near level",
        "speed",
        0.9,
        ours[1:],
        "load of the checkpoint",
        theirs[1:],
        mib << 20,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dir", required=True)
    parser.add_argument("--cli", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512)
    options = parser.parse_args()
    directory = Path(options.dir) / "levels"
    for part in (lost_time, partial(rate, options.cli), resume):
        shutil.rmtree(near_in(directory), ignore_errors=True)
        directory.mkdir()
        part(directory, options.runs, options.mib)
        shutil.rmtree(near_in(directory), ignore_errors=True)
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
