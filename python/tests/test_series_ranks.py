# SPDX-License-Identifier: BSD-3-Clause
"""A training of several ranks that is killed again and again: the losses are those of a run that
was never killed, to the last bit, whatever was under way.

By default the ranks are forked by the script itself, which is a small torchrun: one that ends ends
all.  With SIDESTEP_TORCHRUN=1 it is torchrun, and SIDESTEP_KILLS says how often: a long target.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import pytest
from scripts import Script, Scripts

import sidestep

TOP = Path(__file__).parents[2]
EXAMPLE = TOP / "examples" / "train_fsdp.py"
RANKS = 4

# As torchrun starts them: the environment of each, and none outlives the others.
LAUNCH = f"""
import os, runpy, signal, socket, sys
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
children = []
for rank in range({RANKS}):
    pid = os.fork()
    if pid == 0:
        os.environ.update(RANK=str(rank), WORLD_SIZE="{RANKS}", LOCAL_RANK=str(rank),
                          MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
        sys.argv = [{str(EXAMPLE)!r}, *sys.argv[2:]]
        import torch
        torch.set_num_threads(1)
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    children.append(pid)
print("ranks", *children, flush=True)
worst = 0
while children:
    pid, status = os.wait()
    children.remove(pid)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        worst = worst or code
        for other in children:
            os.kill(other, signal.SIGKILL)
os._exit(0 if worst == 0 else 1)
"""


@pytest.fixture(scope="module")
def scripts() -> Iterator[Scripts]:
    server = Scripts()
    yield server
    server.close()


class Training:
    """One start of the example on all ranks."""

    def __init__(self, scripts: Scripts, folder: Path, steps: int) -> None:
        arguments = ["--text", str(folder / "text"), "--root", str(folder / "root")]
        arguments += ["--steps", str(steps), "--save-every", "2", "--layers", "1", "--width", "16"]
        arguments += ["--log", str(folder / "log")]
        self._script: Optional[Script] = None
        self._process: Optional[subprocess.Popen[bytes]] = None
        if os.environ.get("SIDESTEP_TORCHRUN"):
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            command += ["--nproc-per-node", str(RANKS), str(EXAMPLE), *arguments]
            self._process = subprocess.Popen(command, start_new_session=True)
        else:
            self._script = scripts.start(LAUNCH, folder, *arguments)
            self._script.wait_for("ranks")

    def kill(self, chance: random.Random) -> None:
        """One rank, or all of them at once, as when a machine goes."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            return
        assert self._script is not None
        line = next(x for x in self._script.output()[0].splitlines() if x.startswith("ranks"))
        pids = [int(word) for word in line.split()[1:]]
        for pid in pids if chance.random() < 0.5 else [chance.choice(pids)]:
            with contextlib.suppress(ProcessLookupError):  # it had come to its end
                os.kill(pid, signal.SIGKILL)

    def wait(self) -> int:
        if self._process is not None:
            return self._process.wait(180)
        assert self._script is not None
        return self._script.wait(120)

    def output(self) -> object:
        return self._script.output() if self._script is not None else "see above"


def losses(folder: Path) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for line in (folder / "log").read_text().splitlines():
        step, loss = json.loads(line)
        found.setdefault(step, set()).add(loss)
    return found


def newest(root: Path) -> int:
    path = sidestep.latest(root) if root.exists() else None
    return int(path.rpartition("-")[2]) if path else 0


def test_ranks_are_killed_and_lose_nothing(scripts: Scripts, tmp_path: Path) -> None:
    times = int(os.environ.get("SIDESTEP_KILLS", "3"))
    chance = random.Random(11)
    steps = 12 * (times + 1)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
        (folder / "text").write_bytes(bytes(i * i % 251 for i in range(4000)))
    run = Training(scripts, whole, steps)
    assert run.wait() == 0, run.output()
    before = 0
    for _ in range(times):
        run = Training(scripts, killed, steps)
        until = time.monotonic() + 60
        while newest(killed / "root") <= before and time.monotonic() < until:
            time.sleep(0.02)  # some progress, so that the whole ends
        time.sleep(chance.uniform(0, 0.3))
        run.kill(chance)
        run.wait()
        now = newest(killed / "root")
        assert now > before, run.output()
        before = now
        assert len(list((killed / "root").glob("step-*"))) <= 10
    run = Training(scripts, killed, steps)
    assert run.wait() == 0, run.output()
    expected, found = losses(whole), losses(killed)
    assert len(expected) == steps and found == expected
    assert newest(killed / "root") == steps
    assert len(list((killed / "root").glob("step-*"))) == 3
