#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""4 hosts of 2 ranks on this machine, over MPI: each host has a name, mounts and a clock of its own, and
sees shared storage as an NFS client does. Their clocks are hours apart; a host freezes for longer
than the deadline, and comes back late. No checkpoint is torn, rank 0 says in time who is missing,
and the next save works. The hosts share one network: that one is cut off is not tested."""
import glob
import os
import re
import shutil
import signal
import subprocess
import time

import habits
import mounts
import mpi_kill
import rig as rigs

HOSTS = 4
RANKS_OF_A_HOST = 2
RANKS = HOSTS * RANKS_OF_A_HOST
STEPS = 3
CLOCKS = (0, 1, -1, 24)  # hours
TIMEOUT_MS = 5000
CALM_MS = 60000
PATIENCE = 120
FROZEN = HOSTS - 1


class Hosts:
    """All hosts, as a context. ${place} is where each sees the shared storage."""

    def __init__(self, rig, mpi):
        self.mpi = mpi
        self.backing, self.place = rig.folder(), rig.folder()
        self.mounts = [mounts.Mount(rig, self.backing, habits.WORKS["NFS"]) for _ in range(HOSTS)]

    def __enter__(self):
        for mount in self.mounts:
            mount.__enter__()
        return self

    def __exit__(self, *error):
        for mount in self.mounts:
            mount.__exit__()

    def on(self, host, work):
        named = ["unshare", "-u", "sh", "-c", 'hostname "$0" && exec "$@"', f"host{host}", *work]
        clock = [] if CLOCKS[host] == 0 else ["faketime", "-f", f"{CLOCKS[host]:+d}h"]
        return mounts.on_host(self.mounts[host], self.place, clock + named)

    def start(self, work, errors):
        """${work} on all ranks; what they say goes to the file ${errors}."""
        groups = [(RANKS_OF_A_HOST, self.on(host, work)) for host in range(HOSTS)]
        with open(errors, "wb") as file:
            return subprocess.Popen(self.mpi.command(groups, survive=True),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=file, start_new_session=True,
                                    env={**os.environ, "TMPDIR": self.mpi.scratch})

    def train(self, logs, timeout_ms, *more):
        log = os.path.join(logs, "log")
        return [self.mpi.program, "train", os.path.join(self.place, "root"), str(STEPS),
                str(timeout_ms), log, *map(str, more)]

    def resume(self):
        """The newest step, as the last host sees it; or a complaint."""
        work = [self.mpi.program, "resume", os.path.join(self.place, "root")]
        result = rigs.run(self.on(FROZEN, self.mpi.command([(2, work)])), PATIENCE,
                          {"TMPDIR": self.mpi.scratch})
        words = result.out.split()
        if result.status != 0 or not words:
            return 0, [f"cannot be resumed: {result}"]
        return int(words[-1]) if words[0] == "step" else 0, []


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def clocks_apart(rig, mpi):
    logs = rig.folder()
    errors = os.path.join(logs, "errors")
    with Hosts(rig, mpi) as hosts:
        mpi_kill.end(hosts.start(hosts.train(logs, CALM_MS), errors), PATIENCE)
        newest, complaints = hosts.resume()
        if newest != STEPS:
            complaints.append(f"step {newest} is the newest: {read(errors)}")
        complaints += habits.left_in(os.path.join(hosts.backing, "root"))
    return complaints


def processes_on(host):
    """Those ranks of the host that run, by its name."""
    found = []
    for path in glob.glob("/proc/[0-9]*/comm"):
        pid = path.split("/")[2]
        try:
            if read(path).startswith("mpi_saver") and os.path.exists(f"/proc/{pid}/root"):
                name = subprocess.run(["nsenter", "-u", "-t", pid, "hostname"], text=True,
                                      capture_output=True, check=False).stdout.strip()
                found += [int(pid)] if name == f"host{host}" else []
        except OSError:
            pass
    return found


def freeze(rig, mpi, lasting=True):
    """All ranks of the last host stop when one of them has staged its second save."""
    logs = rig.folder()
    errors = os.path.join(logs, "errors")
    complaints = []
    with Hosts(rig, mpi) as hosts:
        rank = FROZEN * RANKS_OF_A_HOST
        process = hosts.start(hosts.train(logs, TIMEOUT_MS, 2, rank, "staged"), errors)
        if mpi_kill.wait_for_pid(os.path.join(logs, "log"), process) is None:
            mpi_kill.end(process, 0)
            return [f"rank {rank} never came to its second save: {read(errors)}"]
        frozen = processes_on(FROZEN)
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        named = re.compile(rf"rank 0: finish: .* no word from rank {rank} for")
        deadline = time.monotonic() + (PATIENCE if lasting else 0)
        while time.monotonic() < deadline and not named.search(read(errors)):
            time.sleep(0.05)
        said = read(errors)
        for pid in frozen:  # the launcher may have ended them
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        mpi_kill.end(process, 5)
        if len(frozen) != RANKS_OF_A_HOST:
            complaints.append(f"{len(frozen)} processes were frozen")
        if not named.search(said):
            complaints.append(f"rank 0 does not name rank {rank}: {said}")
        complaints += judge(rig, hosts, logs)
    return complaints


def judge(rig, hosts, logs):
    """What was committed is there, and the next save works."""
    newest, complaints = hosts.resume()
    if newest < mpi_kill.told(os.path.join(logs, "log")):
        complaints.append(f"step {newest} is the newest, but a newer one was committed")
    errors = os.path.join(rig.folder(), "errors")
    once = [hosts.mpi.program, "once", os.path.join(hosts.place, "once"), str(CALM_MS), errors]
    process = hosts.start(once, errors)
    mpi_kill.end(process, PATIENCE)
    if process.returncode != 0 or not os.path.exists(f"{hosts.backing}/once/.metadata"):
        complaints.append(f"the next save: {read(errors)}")
    return complaints


def main():
    rig = rigs.Rig(__doc__.splitlines()[0], in_memory=True)
    reason = mounts.reason_not_to()
    for program in ("mpicc.mpich", "mpirun.mpich", "faketime", "nsenter"):
        if shutil.which(program) is None:
            reason = f"{program} is not installed"
    if reason is None and not os.path.exists(os.path.join(rig.build, "tests", "habit_mount")):
        reason = "libfuse3 (libfuse3-dev) was not there at build"
    if reason is not None:
        rig.skip("hosts", reason)
        rig.finish()
    mpi = mpi_kill.Mpi(rig, "mpich")
    rig.test(f"{HOSTS} hosts whose clocks are hours apart", clocks_apart(rig, mpi))
    rig.test("a host that freezes for longer than the deadline", freeze(rig, mpi))
    rig.control("a host that freezes for a moment only", freeze(rig, mpi, False))
    rig.finish()


if __name__ == "__main__":
    main()
