# SPDX-License-Identifier: BSD-3-Clause
"""A training of several ranks that is killed again and again: the losses are those of a run that
was never killed, to the last bit, whatever was under way, and what was committed is resumed from.

By default the script itself forks two ranks.  It is a small torchrun: when one rank ends, it ends
the other.  With SIDESTEP_TORCHRUN=1 torchrun starts four ranks.  SIDESTEP_KILLS says how often they
are killed.  `make kills` sets both.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scripts import Script, Scripts

import sidestep

TOP = Path(__file__).parents[2]
EXAMPLE = TOP / "examples" / "train_fsdp.py"
RANKS = 4 if "SIDESTEP_TORCHRUN" in os.environ else 2
PATIENCE_S = 3600 if "SIDESTEP_KILLS" in os.environ else 120  # long runs give way to others

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


class Forked:
    """One start of the example on all ranks, by LAUNCH."""

    def __init__(self, scripts: Scripts, folder: Path, arguments: list[str]) -> None:
        self._script: Script = scripts.start(LAUNCH, folder, *arguments)
        self._script.wait_for("ranks")

    def pids(self) -> list[int]:
        line = next(x for x in self.output().splitlines() if x.startswith("ranks"))
        return [int(word) for word in line.split()[1:]]

    def end(self, number: int, pids: list[int]) -> None:
        send(number, pids)

    def has_ended(self) -> bool:
        return not self._script.runs()

    def wait(self) -> int:
        return self._script.wait(PATIENCE_S)

    def output(self) -> str:
        return "".join(self._script.output())


class Torchrun:
    """The same by torchrun."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--shutdown-timeout", "3", "--nproc-per-node", str(RANKS), str(EXAMPLE)]
        self._out = folder / "out"
        with self._out.open("w") as out:
            self._process = subprocess.Popen([*command, *arguments], stdout=out, stderr=out)

    def pids(self) -> list[int]:
        """Each is the first of its own session: nothing of torchrun's kills them with it."""
        pid = self._process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def end(self, number: int, pids: list[int]) -> None:
        if number != signal.SIGKILL:
            send(number, [self._process.pid])  # which forwards it
        else:
            send(number, [self._process.pid, *pids] if len(pids) > 1 else pids)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def output(self) -> str:
        return self._out.read_text()


def send(number: int, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it had come to its end
            os.kill(pid, number)


def start(scripts: Scripts, folder: Path, steps: int) -> Forked | Torchrun:
    arguments = ["--text", str(folder / "text"), "--root", str(folder / "root")]
    arguments += ["--steps", str(steps), "--save-every", "2", "--layers", "1", "--width", "16"]
    arguments += ["--losses", str(folder / "log")]
    if os.environ.get("SIDESTEP_TORCHRUN"):
        return Torchrun(folder, arguments)
    return Forked(scripts, folder, arguments)


def losses(folder: Path) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for line in (folder / "log").read_text().splitlines():
        step, loss = json.loads(line)
        found.setdefault(step, set()).add(loss)
    return found


def newest(root: Path) -> int:
    path = sidestep.latest(root) if root.exists() else None
    return int(path.rpartition("-")[2]) if path else 0


def folder_of(path: Path) -> Path:
    path.mkdir()
    (path / "text").write_bytes(bytes(i * i % 251 for i in range(4000)))
    return path


def resumed(run: Forked | Torchrun) -> int:
    """The step that it has resumed from; 0: none."""
    found = re.search(r"resumed from \S+-(\d+)", run.output())
    return int(found[1]) if found else 0


def makes_progress(run: Forked | Torchrun, folder: Path, before: int, more_s: float) -> bool:
    """At least one checkpoint more, so that the whole ends; then ``more_s``, if steps are slow.
    False: it has ended before that, as when its ranks do not find each other on a busy machine."""
    until = time.monotonic() + PATIENCE_S
    while newest(folder / "root") <= before:
        assert time.monotonic() < until, run.output()
        if run.has_ended():
            assert "resumed from" not in run.output(), run.output()
            return False
        time.sleep(0.02)
    until = time.monotonic() + more_s
    while time.monotonic() < until and max(losses(folder)) < before + 8:
        time.sleep(0.01)
    return True


def start_again(
    scripts: Scripts, folder: Path, steps: int, before: int, more_s: float
) -> Forked | Torchrun:
    """Until it runs, and has come further than ``before``, where it has resumed."""
    for _ in range(5):
        run = start(scripts, folder, steps)
        if makes_progress(run, folder, before, more_s):
            assert resumed(run) == before  # what was committed, and no older one
            return run
        run.wait()
    raise AssertionError(run.output())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_are_ended_and_lose_nothing(
    scripts: Scripts, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGKILL: of one rank, or of all at once, as when a machine goes.  SIGTERM: the job's end."""
    times = int(os.environ.get("SIDESTEP_KILLS", "3" if number == signal.SIGKILL else "2"))
    chance = random.Random(11)
    steps = 12 * (times + 1)
    whole, ended = folder_of(tmp_path / "whole"), folder_of(tmp_path / "ended")
    root = ended / "root"
    run = start(scripts, whole, steps)
    assert run.wait() == 0, run.output()
    before, singles = 0, 0
    for i in range(times):
        run = start_again(scripts, ended, steps, before, chance.uniform(0, 0.3))
        pids = run.pids()
        one = chance.random() < 0.5
        singles += one
        run.end(number, [chance.choice(pids)] if one else pids)
        assert run.wait() != 0, run.output()
        before = newest(root)
        if number == signal.SIGTERM:
            assert before == max(losses(ended)), run.output()  # not even a step is lost
        assert len(list(root.glob("step-*"))) <= 10
        print(f"{number.name} {i + 1} of {'one rank' if one else 'all'}: step {before}", flush=True)
    run = start(scripts, ended, steps)
    assert run.wait() == 0, run.output()
    expected, found = losses(whole), losses(ended)
    assert len(expected) == steps and found == expected
    assert newest(root) == steps
    assert len(list(root.glob("step-*"))) == 3
    print(f"{number.name}: {times} times, {singles} of one rank; {steps} steps, all bit-equal")
