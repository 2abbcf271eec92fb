#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""hosts.py -- runs 4 hosts of 2 ranks on this machine, over MPI, with clocks that differ by hours. In
the middle of a save a host freezes or loses its network for longer than the deadline. Rank 0 must
report the missing rank in time, no rank may wait for ever, and no checkpoint may be torn. The next
save must succeed: of the same job, once the host is back, or of a job of the other hosts, during
which the host comes back."""
import os
import re
import shlex
import shutil
import signal
import subprocess
import time

from judge import left_in
import mpi_kill
import network as networks
import rig as rigs

CLOCKS = (0, 1, -1, 24)  # error of each host's clock, in hours
HOSTS = len(CLOCKS)
RANKS_OF_A_HOST = 2
RANKS = HOSTS * RANKS_OF_A_HOST
STEPS = 3
TIMEOUT_MS = 10000
CALM_MS = 60000
PATIENCE = 120
LOST = HOSTS - 1  # number of the host that freezes or loses its network
RANK = LOST * RANKS_OF_A_HOST
OTHERS = range(RANK)


class Job:
    """An MPI job on some hosts, as a context."""

    def __init__(self, network, mpi, hosts, *work):
        """${work}: a command of mpi_saver, and its arguments up to the log."""
        self.network, self.mpi, self.hosts, self.work = network, mpi, hosts, work
        self.folder = network.rig.folder()
        self.log, self.errors = (os.path.join(self.folder, name) for name in ("log", "errors"))

    def launcher(self):
        """Make the program that mpirun calls instead of ssh, with an option, an address and a
        command."""
        path = os.path.join(self.folder, "launcher")
        cases = "".join(
            f"{host.address}) set -- {' '.join(map(shlex.quote, host.command(['sh', '-c'])))} \"$*\" ;;\n"
            for host in self.hosts)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nshift; at=$1; shift\ncase $at in\n{cases}esac\nexec "$@"\n')
        os.chmod(path, 0o755)
        return path

    def command(self, *more):
        first = self.hosts[0]
        places = ",".join(f"{host.address}:{RANKS_OF_A_HOST}" for host in self.hosts)
        return first.command([
            "mpirun.mpich", "-launcher", "ssh", "-launcher-exec", self.launcher(), "-iface", "eth0",
            "-localhost", first.address, "-hosts", places, "-disable-auto-cleanup",
            # Ranks of different hosts must not share memory, although they run on one machine.
            "-env", "UCX_TLS", "tcp,self", "-env", "SAVER_SKIPS_FINALIZE", "1", "-n", str(RANKS_OF_A_HOST * len(self.hosts)),
            self.mpi.program, *map(str, self.work), self.log, *map(str, more)])

    def start(self, *more):
        with open(self.errors, "wb") as file:
            self.process = subprocess.Popen(
                self.command(*more), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=file, start_new_session=True,
                env={**os.environ, "TMPDIR": self.mpi.scratch})
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end(0)

    def end(self, patience=PATIENCE):
        """Wait until the job ends; return complaints if it does not."""
        try:
            self.process.wait(patience)
            return []
        except subprocess.TimeoutExpired:
            return [f"still there after {patience} s: {self.said()}"]
        finally:
            mpi_kill.end(self.process, 0)

    def said(self):
        with open(self.errors, encoding="utf-8", errors="replace") as file:
            return file.read()

    def told(self, rank):
        """The results that were reported to the rank for its saves."""
        try:
            with open(f"{self.log}.{rank}", encoding="ascii") as file:
                return [line.strip() for line in file if not line.startswith("STAGED")]
        except FileNotFoundError:
            return []

    def complaints(self, ranks, expected):
        """Complaints if the results that were reported to these ranks are not the expected ones."""
        found = [f"rank {rank} was told {self.told(rank)}, not {expected}: {self.said()}"
                 for rank in ranks if self.told(rank) != expected]
        return found[:1]


# {name of a trouble: (function that starts it, function that ends it)}.
TROUBLES = {"freezes": (networks.Host.freeze, networks.Host.thaw),
            "loses its network": (networks.Host.cut, networks.Host.join)}


def stop_in_a_save(job, lost, begins):
    """Start the trouble when a rank of the host ${lost} has staged a save and has stopped."""
    pid = mpi_kill.wait_for_pid(job.log, job.process)
    if pid is None:
        return [f"rank {RANK} never came to its second save: {job.said()}"]
    begins(lost)
    os.kill(pid, signal.SIGCONT)
    return []


def missed(job, patience=PATIENCE):
    """Complaints if rank 0 does not report the missing rank."""
    named = re.compile(rf"rank 0: finish: .* no word from rank [^;]*\b{RANK}\b")
    began = time.monotonic()
    if networks.wait_until(lambda: named.search(job.said()), patience):
        print(f"# rank 0 reports it after {time.monotonic() - began:.0f} s")
        return []
    return [f"rank 0 does not report rank {RANK}: {job.said()}"]


def judge(network, mpi, step):
    """Complaints unless each host, `sidestep verify` and stock torch can read the series."""
    rig, root = network.rig, os.path.join(network.backing, "root")
    complaints = []
    for host in network.hosts:
        seen = rigs.run(host.command(mpi.command([(2, [mpi.program, "resume", os.path.join(network.place, "root")])])), PATIENCE,
                        {"TMPDIR": mpi.scratch})
        if seen.out != f"step {step}":
            complaints.append(f"{host.name} resumes, not from step {step}: {seen}")
    for name in sorted(os.listdir(root)):
        if name.startswith("step-"):
            path = os.path.join(root, name)
            seen = rigs.run([os.path.join(rig.build, "sidestep"), "verify", path])
            complaints += [] if seen.status == 0 else [f"{name}: {seen}"]
    return complaints + left_in(root) + stock_complaints(rig, path)


def stock_complaints(rig, path):
    """Complaints unless torch can load the whole checkpoint without sidestep."""
    script = ("import sys; from torch.distributed.checkpoint.format_utils import dcp_to_torch_save;"
              "dcp_to_torch_save(*sys.argv[1:])")
    result = rigs.run([os.path.join(rig.top, ".venv/bin/python"), "-W", "ignore", "-c", script,
                       path, os.path.join(rig.folder(), "all.pt")], PATIENCE)
    return [] if result.status == 0 else [f"stock torch cannot load '{path}': {result}"]


def clocks_apart(rig, mpi):
    with (networks.Network(rig, CLOCKS) as network,
          Job(network, mpi, network.hosts, "train", f"{network.place}/root", STEPS,
              CALM_MS).start() as job):
        complaints = job.end() + job.complaints(
            range(RANKS), [f"COMMITTED {step + 1}" for step in range(STEPS)])
        return complaints + judge(network, mpi, STEPS)


def comes_back(rig, mpi, trouble, lasting=True):
    """The host comes back after the others have given up the save. The job then saves the next
    step."""
    begins, ends = TROUBLES[trouble]
    with networks.Network(rig, CLOCKS) as network:
        lost = network.hosts[LOST]
        job = Job(network, mpi, network.hosts, "endure", f"{network.place}/root", STEPS, TIMEOUT_MS)
        with job.start(2, RANK, "staged"):
            complaints = stop_in_a_save(job, lost, begins) or missed(job, PATIENCE * lasting)
            ends(lost)
            complaints += job.end()
        return complaints + job.complaints(
            range(RANKS), ["COMMITTED 1", "FAILED 2", "COMMITTED 3"]) + judge(network, mpi, STEPS)


def goes_on_without(rig, mpi, trouble):
    """The other hosts start a new job. While it saves, the host comes back and its ranks end."""
    begins, ends = TROUBLES[trouble]
    with networks.Network(rig, CLOCKS) as network:
        lost, others = network.hosts[LOST], network.hosts[:LOST]
        root = f"{network.place}/root"
        old = Job(network, mpi, network.hosts, "train", root, STEPS, TIMEOUT_MS)
        new = Job(network, mpi, others, "endure", root, STEPS - 1, CALM_MS)
        with old.start(2, RANK, "staged"):
            complaints = (stop_in_a_save(old, lost, begins) or missed(old) or
                          they_fail(old, OTHERS))
            with new.start(1, RANK - 1, "staged"):
                pid = mpi_kill.wait_for_pid(new.log, new.process)
                ends(lost)
                complaints += they_fail(old, range(RANK, RANKS))
                if pid is None:
                    complaints.append(f"the new job does not save: {new.said()}")
                else:
                    os.kill(pid, signal.SIGCONT)
                complaints += new.end()
        return complaints + new.complaints(
            OTHERS, [f"COMMITTED {step}" for step in range(2, STEPS + 1)]) + judge(
                network, mpi, STEPS)


def they_fail(job, ranks):
    """Complaints unless the second save of each rank fails with a reason."""
    said = [re.compile(rf"^rank {rank}: finish: .+", re.MULTILINE) for rank in ranks]
    if networks.wait_until(lambda: all(line.search(job.said()) for line in said), PATIENCE):
        return []
    return [f"one of {ranks} does not say why it failed: {job.said()}"]


def main():
    rig = rigs.Rig(__doc__.splitlines()[0], in_memory=True)
    reason = networks.reason_not_to(rig)
    for program in ("mpicc.mpich", "mpirun.mpich"):
        if shutil.which(program) is None:
            reason = f"{program} is not installed"
    if reason is not None:
        rig.skip("hosts", reason)
        rig.finish()
    mpi = mpi_kill.Mpi(rig, "mpich")
    rig.test(f"{HOSTS} hosts whose clocks are hours apart", clocks_apart(rig, mpi))
    for trouble in TROUBLES:
        rig.test(f"a host {trouble}, and comes back", comes_back(rig, mpi, trouble))
        rig.test(f"a host {trouble}, and a job without it goes on",
                 goes_on_without(rig, mpi, trouble))
    rig.control("a host that freezes for a moment only", comes_back(rig, mpi, "freezes", False))
    rig.finish()


if __name__ == "__main__":
    main()
