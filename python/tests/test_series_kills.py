# SPDX-License-Identifier: BSD-3-Clause
"""A training that is killed again and again, and resumed each time: nothing that was committed is
lost, its losses are those of a run that was never killed, and the disk stays bounded.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from scripts import Scripts

import sidestep

PATIENCE_S = 3600 if "SIDESTEP_KILLS" in os.environ else 60  # long runs give way to others

TRAINING = """
import json, sys
import torch, sidestep
from pathlib import Path
folder, steps = Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(1)
nn = torch.nn
model = nn.Sequential(nn.Linear(64, 256), nn.Dropout(0.3), nn.Linear(256, 1))
# Large enough to be write-protected, and rewritten at once.
model.register_buffer("counted", torch.zeros(3_000_000))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
state = sidestep.TrainState(model, optimizer)
with sidestep.Checkpointer(folder / "root", interval=5, keep_last_n=2) as checkpoints:
    checkpoints.resume(state)
    assert bool((model.counted == state.step).all())
    log = open(folder / "log", "a", buffering=1)
    print("resumed", state.step, flush=True)
    while state.step < steps:
        x = torch.randn(16, 64)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.counted.add_(1)
        state.step += 1
        log.write(json.dumps([state.step, float(loss).hex()]) + "\\n")
        if checkpoints.should_save(state.step):
            checkpoints.save(state.step, state)
print("done", flush=True)
"""


def losses(folder: Path) -> dict[int, set[str]]:
    """Of each step, all that it ever was."""
    found: dict[int, set[str]] = {}
    for line in (folder / "log").read_text().splitlines():  # each was one write
        step, loss = json.loads(line)
        found.setdefault(step, set()).add(loss)
    return found


def committed(root: Path) -> int:
    path = sidestep.latest(root) if root.exists() else None
    return int(path.rpartition("-")[2]) if path else 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_ended_at_random_moments(
    scripts: Scripts, tmp_path: Path, number: signal.Signals
) -> None:
    times = int(os.environ.get("SIDESTEP_KILLS", "5" if number == signal.SIGKILL else "3"))
    chance = random.Random(7)
    steps = 40 * (times + 1)
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    for folder in (whole, ended):
        folder.mkdir()
    assert scripts.start(TRAINING, whole, str(steps)).wait(PATIENCE_S) == 0
    before = 0
    for round_ in range(times):
        script = scripts.start(TRAINING, ended, str(steps))
        resumed = int(script.wait_for("resumed", PATIENCE_S).split()[1])
        assert resumed == before  # all that was committed, and no more
        while round_ % 2 == 0 and script.runs() and committed(ended / "root") == before:
            time.sleep(0.01)  # however slow the machine is, it comes to something
        time.sleep(chance.uniform(0.02, 0.3))
        script.signal(number)
        code = script.wait(PATIENCE_S)
        over = "done" in script.output()[0]  # then a signal has its usual meaning again
        assert code in (0, -number if over or number == signal.SIGKILL else 143), script.output()
        before = committed(ended / "root")
        assert before >= resumed
        # Two, and those that retention had not come to: it works behind the saves.
        assert len(list((ended / "root").glob("step-*"))) <= 10
    assert scripts.start(TRAINING, ended, str(steps)).wait(PATIENCE_S) == 0
    expected, found = losses(whole), losses(ended)
    assert len(expected) == steps and found == expected
    assert before > 0
    assert len(list((ended / "root").glob("step-*"))) == 2
    print(f"{number.name}: {times} times; {steps} steps, all bit-equal")
