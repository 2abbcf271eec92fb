#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""mpi_kill.py -- kills ranks of a training over MPI: each rank at each phase of a save, and rank 0 and
another rank at one system call after the other. Then two ranks resume. They must load a complete
checkpoint, at least as new as the newest that was reported as committed to any rank.
"""
import atexit
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time

import rig as rigs

RANKS = 4
STEPS = 3
AT = 2  # number of the save during which a rank is killed
PHASES = ("staged", "written", "committed")
# How long a rank waits for another one. A busy machine may need seconds for a save.
TIMEOUT_MS = 5000
LONG_MS = 60000  # where the launcher ends the other ranks


class Mpi:
    def __init__(self, rig, name, program=None):
        self.name = name
        self.rig = rig
        self.program = program or rig.compile_saver(name)
        # A short path, for sockets. Each object has its own: an mpirun removes files at its end.
        self.scratch = tempfile.mkdtemp(prefix="mpi-", dir="/tmp")
        atexit.register(shutil.rmtree, self.scratch, ignore_errors=True)

    def command(self, groups, survive=False):
        """The command of mpirun. groups: (number of ranks, arguments), in the order of the ranks."""
        command = [f"mpirun.{self.name}"]
        if self.name == "openmpi":
            command += ["--oversubscribe", "-mca", "btl", "self,vader"]
            command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        elif survive:
            command += ["-disable-auto-cleanup"]
        for index, (ranks, arguments) in enumerate(group for group in groups if group[0]):
            command += [":"] * bool(index) + ["-n", str(ranks), *arguments]
        return command

    def start(self, groups, survive=False):
        return subprocess.Popen(self.command(groups, survive), stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                start_new_session=True, env={**os.environ, "TMPDIR": self.scratch})

    def train(self, root, timeout_ms, *more):
        return [self.program, "train", root, str(STEPS), str(timeout_ms), *map(str, more)]

    def resume(self, root):
        return rigs.run(self.command([(2, [self.program, "resume", root])]), 120,
                        {"TMPDIR": self.scratch})


def end(process, patience):
    """Wait up to ``patience`` seconds for the ranks, then kill them; return their output."""
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        pass
    # Launchers give each rank its own process group, but the same session.
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.getsid(int(entry)) == process.pid:
                os.kill(int(entry), signal.SIGKILL)
        except ProcessLookupError:
            pass
    return (process.communicate()[1] or b"").decode("utf-8", "replace")


def wait_for_pid(log, process, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with open(f"{log}.pid") as file:
                return int(file.read())
        except FileNotFoundError:
            time.sleep(0.005)
    return None


def told(log):
    """The newest step that was reported as committed to a rank."""
    steps = [0]
    for path in glob.glob(f"{log}.[0-9]*"):
        with open(path) as file:
            steps += [int(line.split()[1]) for line in file if line.startswith("COMMITTED")]
    return max(steps)


def judge(mpi, folder):
    root, log = os.path.join(folder, "root"), os.path.join(folder, "log")
    result = mpi.resume(root)
    words = result.out.split()
    if result.status != 0 or not words:
        return [f"the series cannot be resumed: {result}"]
    newest = int(words[-1]) if words[0] == "step" else 0
    if newest < told(log):
        return [f"step {told(log)} was committed, but step {newest} is the newest"]
    if newest > STEPS:
        return [f"step {newest} was never saved"]
    left = rigs.leftovers(root)
    # A marker in a committed checkpoint may stay until the next commit.
    left = [name for name in left if ".pending" not in name]
    return [f"left behind: {left}"] if any(name.startswith(".sidestep.") for name in left) else []


def kill_at_phase(mpi, rank, phase):
    folder = mpi.rig.folder()
    log = os.path.join(folder, "log")
    work = mpi.train(os.path.join(folder, "root"), TIMEOUT_MS, log, AT, rank, phase)
    process = mpi.start([(RANKS, work)], survive=True)
    pid = wait_for_pid(log, process)
    if pid is None:
        return [f"rank {rank} never came to '{phase}': {end(process, 0)}"]
    os.kill(pid, signal.SIGKILL)
    end(process, TIMEOUT_MS / 1000 + 1)
    found = judge(mpi, folder)
    shutil.rmtree(folder)
    return [f"rank {rank} killed when {phase}: {text}" for text in found]


def kill_at_call(mpi, killer, rank, number):
    """Return (complaints, whether that call was reached)."""
    folder = mpi.rig.folder()
    work = mpi.train(os.path.join(folder, "root"), LONG_MS, os.path.join(folder, "log"))
    victim = [killer, "-k", str(number), "-l", os.path.join(folder, "calls"), *work]
    process = mpi.start([(rank, work), (1, victim), (RANKS - rank - 1, work)])
    said = end(process, 120)
    with open(os.path.join(folder, "calls")) as file:
        killed = "*" in file.read()
    found = judge(mpi, folder)
    if not killed and told(os.path.join(folder, "log")) != STEPS:
        found.append(f"no rank was killed, but not all steps were saved: {said}")
    shutil.rmtree(folder)
    return [f"rank {rank} killed at call {number}: {text}" for text in found], killed


def torn_is_caught(mpi):
    folder = mpi.rig.folder()
    root = os.path.join(folder, "root")
    process = mpi.start([(RANKS, mpi.train(root, LONG_MS, os.path.join(folder, "log")))])
    end(process, 120)
    intact = judge(mpi, folder)
    if intact:
        return []
    with open(os.path.join(root, f"step-{STEPS}", ".metadata"), "r+b") as file:
        file.truncate(100)
    return judge(mpi, folder)


def test_phases(rig, mpi):
    ranks = range(RANKS) if rig.long or mpi.name == "mpich" else (0, RANKS - 1)
    trials = [(rank, phase) for rank in ranks for phase in PHASES]
    complaints = rigs.parallel(lambda trial: kill_at_phase(mpi, *trial), trials)
    rig.test(f"{mpi.name}: {len(trials)} kills, by rank and phase", complaints)


def test_calls(rig, mpi, killer):
    complaints, count = [], 0
    for rank, stride in ((0, 37), (RANKS - 2, 31)):
        numbers = range(1, 2000, 3 if rig.long else stride)
        for number in numbers:
            found, killed = kill_at_call(mpi, killer, rank, number)
            complaints += found
            count += killed
            if not killed:
                break
    rig.test(f"{mpi.name}: {count} kills, by system call", complaints)


def main():
    rig = rigs.Rig(__doc__)
    killer = rig.tool("nth_call")
    for name in ("mpich", "openmpi"):
        if shutil.which(f"mpicc.{name}") is None or shutil.which(f"mpirun.{name}") is None:
            rig.skip(f"{name}: kills", f"mpicc.{name} or mpirun.{name} is not installed")
            continue
        mpi = Mpi(rig, name)
        test_phases(rig, mpi)
        if name == "mpich":
            test_calls(rig, mpi, killer)
        rig.control(f"{name}: a checkpoint that was torn afterwards", torn_is_caught(mpi))
    rig.finish()


if __name__ == "__main__":
    main()
