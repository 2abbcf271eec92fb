#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""mpi_stop.py -- stops a rank for longer than the deadline, and gives a rank other storage than the
others. The other ranks must report it, and no incomplete checkpoint may appear when the stopped rank
continues."""
import os
import re
import shutil
import signal
import subprocess
import time

import mpi_kill
import rig as rigs

TIMEOUT_MS = 4000  # a busy machine may need seconds to reach the wait
PATIENCE = 60


def judge(saver, folder, path, may_be_there):
    """Complaints unless there is no checkpoint, or a complete one, and gc leaves nothing else."""
    seen = rigs.run([saver, "check", path, "1"])
    kept = rigs.run([saver, "gc", folder])
    left = rigs.leftovers(folder)
    complaints = []
    if seen.status != 0 or (seen.out != "none" and not may_be_there):
        complaints.append(f"afterwards: {seen}")
    if any(name.startswith(".sidestep.") for name in left):
        complaints.append(f"left behind: {left}, {kept}")
    return complaints


def run_to_end(process):
    """Return (output of the ranks, whether they ended by themselves)."""
    try:
        return process.communicate(timeout=PATIENCE)[1].decode("utf-8", "replace"), True
    except subprocess.TimeoutExpired:
        mpi_kill.end(process, 0)
        return "", False


def stop_a_rank(mpi, saver, rank, lasting=True):
    """Stop a rank after it has staged, until the others have given up; return complaints."""
    folder, logs = mpi.rig.folder(), mpi.rig.folder()
    path, log = os.path.join(folder, "it"), os.path.join(logs, "log")
    errors = os.path.join(logs, "errors")
    work = [mpi.program, "once", path, str(TIMEOUT_MS), log, "1", str(rank), "staged"]
    with open(errors, "wb") as file:
        process = subprocess.Popen(mpi.command([(mpi_kill.RANKS, work)], survive=True),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=file, start_new_session=True)
    pid = mpi_kill.wait_for_pid(log, process)
    if pid is None:
        mpi_kill.end(process, 0)
        return [f"rank {rank} was never stopped"]
    deadline = time.monotonic() + (PATIENCE if lasting else 0)
    said = ""
    while time.monotonic() < deadline and said.count("finish: ") < mpi_kill.RANKS - 1:
        time.sleep(0.05)
        with open(errors) as file:
            said = file.read()
    os.kill(pid, signal.SIGCONT)
    mpi_kill.end(process, 5)
    complaints = []
    if said.count("finish: ") != mpi_kill.RANKS - 1:
        complaints.append(f"not all others gave up in time: {said}")
    if rank != 0 and not re.search(rf"no word from rank {rank} for", said):
        complaints.append(f"no rank names rank {rank}: {said}")
    # After the votes only rank 0 decides, so the others report that the outcome is unknown.
    if rank == 0 and "COMMITTED" in said:
        complaints.append(f"a rank knew the outcome: {said}")
    complaints += judge(saver, folder, path, may_be_there=rank == 0)
    shutil.rmtree(folder)
    return [f"rank {rank} was stopped: {text}" for text in complaints]


def unshared_storage(mpi, saver):
    """Give rank 1 its own file system instead of the shared one. Each rank must report which ranks see
    the storage, long before the deadline."""
    folder, logs = mpi.rig.folder(), mpi.rig.folder()
    path = os.path.join(folder, "it")
    work = [mpi.program, "once", path, str(10 * PATIENCE * 1000), os.path.join(logs, "log")]
    alone = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', folder, *work]
    process = mpi.start([(1, work), (1, alone), (1, work)], survive=True)
    said, ended = run_to_end(process)
    complaints = [] if ended else ["they did not end"]
    told = re.findall(r"is seen by ranks 0, 2 on \S+, but not by rank 1 on", said)
    if len(told) != 3:
        complaints.append(f"not every rank says who sees the storage: {said}")
    return complaints + judge(saver, folder, path, may_be_there=False)


def can_unshare():
    return subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"],
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def main():
    rig = rigs.Rig(__doc__)
    saver = rig.tool("saver_tool")
    if shutil.which("mpicc.mpich") is None or shutil.which("mpirun.mpich") is None:
        rig.skip("ranks that are stopped", "mpicc.mpich or mpirun.mpich is not installed")
        rig.finish()
    mpi = mpi_kill.Mpi(rig, "mpich")
    for rank in (0, 2):
        rig.test(f"rank {rank} is stopped for longer than the deadline",
                 stop_a_rank(mpi, saver, rank))
    if can_unshare():
        rig.test("a rank that does not share the storage", unshared_storage(mpi, saver))
    else:
        rig.skip("a rank that does not share the storage", "mounts need privileges")
    rig.control("a rank that is stopped for a moment only", stop_a_rank(mpi, saver, 2, False))
    rig.finish()


if __name__ == "__main__":
    main()
