# SPDX-License-Identifier: BSD-3-Clause
"""Programs that use the Python package, each run in a process of its own."""

import os
import subprocess
import sys

import programs

ROOT = programs.tool.ROOT

SERIES = """
import sys
import torch
import sidestep

root = sys.argv[1]
state = {"model": {"w": torch.zeros(1000, 100)}, "step": 0}
with sidestep.Checkpointer(root, keep_last_n=2) as checkpoints:
    assert checkpoints.resume(state) is None
    for step in range(1, 5):
        state["model"]["w"] += 1
        state["step"] = step
        checkpoints.save(step, state)
state = {"model": {"w": torch.zeros(1000, 100)}, "step": 0}
with sidestep.Checkpointer(root, keep_last_n=2) as checkpoints:
    assert checkpoints.resume(state).path == root + "/step-4"
    assert state["step"] == 4 and torch.equal(state["model"]["w"], torch.full((1000, 100), 4.0))
"""


def run(program, *arguments, **environment):
    library = os.environ.get("SIDESTEP_LIBRARY", ROOT / "build" / "libsidestep.so.0")
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "python"),
            "SIDESTEP_LIBRARY": str(library),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=programs.SECONDS,
    )
    assert result.returncode == 0, result.stderr
