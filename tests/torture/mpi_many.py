#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""mpi_many.py -- runs 64 ranks over MPI, each as a process of this machine: a series of many saves,
and jobs in which a rank is killed. Then 1, 7 or 64 ranks resume. They must load a complete
checkpoint, at least as new as the newest that was reported as committed to any rank. It takes long,
so `make check` does not run it.

The environment sets MANY_RANKS (64), MANY_SAVES (100) and MANY_KILLS (20)."""
import os
import random
import shutil
import time

import mpi_kill
import rig as rigs

RANKS = int(os.environ.get("MANY_RANKS", "64"))
SAVES = int(os.environ.get("MANY_SAVES", "100"))
KILLS = int(os.environ.get("MANY_KILLS", "20"))
READERS = (1, 7, RANKS)
SEED = 20
STEPS_OF_A_JOB = 3
TIMEOUT_MS = 120000
PATIENCE = 3600


def train(mpi, root, steps, *more):
    return [(RANKS, [mpi.program, "train", root, str(steps), str(TIMEOUT_MS), *map(str, more)])]


def resume(mpi, root, readers, told):
    """Resume with ``readers`` ranks; return complaints about what they load."""
    command = mpi.command([(readers, [mpi.program, "resume", root])])
    result = rigs.run(command, PATIENCE, {"TMPDIR": mpi.scratch})
    words = result.out.split()
    if result.status != 0 or not words:
        return [f"{readers} ranks cannot resume: {result}"]
    newest = int(words[-1]) if words[0] == "step" else 0
    if newest < told:
        return [f"{readers} ranks resumed step {newest}, but step {told} was committed"]
    return []


def saves(rig, mpi):
    folder = rig.folder()
    root, log = os.path.join(folder, "root"), os.path.join(folder, "log")
    began = time.monotonic()
    said = mpi_kill.end(mpi.start(train(mpi, root, SAVES, log)), PATIENCE)
    print(f"# {SAVES} saves by {RANKS} ranks: {time.monotonic() - began:.0f} s")
    complaints = []
    for rank in range(RANKS):
        try:
            with open(f"{log}.{rank}") as file:
                count = file.read().count("COMMITTED")
        except FileNotFoundError:
            count = 0
        if count != SAVES:
            complaints.append(f"rank {rank} was told of {count} commits: {said[-600:]}")
    for readers in READERS:
        complaints += resume(mpi, root, readers, SAVES)
    shutil.rmtree(folder)
    return complaints


def kill(rig, mpi, number, dice):
    """Run a job, kill one rank and then the others, as a scheduler does; return complaints."""
    folder = rig.folder()
    root, log = os.path.join(folder, "root"), os.path.join(folder, "log")
    rank = dice.randrange(RANKS) if number % 2 else 0
    where = (dice.randint(1, STEPS_OF_A_JOB), rank, dice.choice(mpi_kill.PHASES))
    process = mpi.start(train(mpi, root, STEPS_OF_A_JOB, log, *where), survive=True)
    pid = mpi_kill.wait_for_pid(log, process, PATIENCE)
    if pid is None:
        return [f"rank {rank} never came to {where}: {mpi_kill.end(process, 0)}"]
    os.kill(pid, 9)
    mpi_kill.end(process, 1)
    complaints = resume(mpi, root, READERS[number % len(READERS)], mpi_kill.told(log))
    print(f"# job {number}: rank {rank} killed at {where[2]} of save {where[0]}; "
          f"step {mpi_kill.told(log)} was known to be committed", flush=True)
    shutil.rmtree(folder)
    return [f"job {number}, {where}: {text}" for text in complaints]


def torn(rig, mpi):
    folder = rig.folder()
    root, log = os.path.join(folder, "root"), os.path.join(folder, "log")
    mpi_kill.end(mpi.start(train(mpi, root, 1, log)), PATIENCE)
    if resume(mpi, root, 1, 1):
        return []
    with open(os.path.join(root, "step-1", f"__{RANKS - 1}_0.distcp"), "r+b") as file:
        file.truncate(100)
    return resume(mpi, root, 7, 1)


def main():
    rig = rigs.Rig(__doc__.splitlines()[0], in_memory=True)
    if shutil.which("mpicc.mpich") is None or shutil.which("mpirun.mpich") is None:
        rig.skip("many ranks", "mpicc.mpich or mpirun.mpich is not installed")
        rig.finish()
    mpi = mpi_kill.Mpi(rig, "mpich")
    dice = random.Random(SEED)
    rig.test(f"{SAVES} saves by {RANKS} ranks, resumed by {READERS}", saves(rig, mpi))
    complaints = []
    for number in range(KILLS):
        complaints += kill(rig, mpi, number, dice)
    rig.test(f"{KILLS} jobs of {RANKS} ranks of which one was killed", complaints)
    rig.control("a shard that was cut afterwards", torn(rig, mpi))
    rig.finish()


if __name__ == "__main__":
    main()
