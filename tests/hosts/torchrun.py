#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""torchrun.py -- runs 4 hosts of 2 ranks on this machine, under torchrun. In the middle of a save a
host freezes, or loses its network with or without its storage. No rank may wait for much longer than
SIDESTEP_TIMEOUT, each must report the missing ranks, and no checkpoint may be torn. The next job
must save, even if the host comes back during that save. A process of torch may abort by itself when
all ranks have saved and loaded: that is told, and is no complaint."""
import glob
import os
import re
import subprocess
import time

import network as networks
import rig as rigs

CLOCKS = (0, 0, 0, 0)  # with libfaketime, Python waits for the wrong time
HOSTS = len(CLOCKS)
RANKS_OF_A_HOST = 2
RANKS = HOSTS * RANKS_OF_A_HOST
LOST = HOSTS - 1  # number of the host that freezes or loses its network
OTHERS = range(LOST * RANKS_OF_A_HOST)
LATE = range(LOST * RANKS_OF_A_HOST, RANKS)
TIMEOUT_S = 10
PATIENCE = 120  # a process may need half a minute to start
CONTROL_PATIENCE = 3 * TIMEOUT_S
PORT = 29400
# What the C++ runtime says of an exception in a thread of torch, and of a thread of gloo that still
# runs while the interpreter ends. Both end the process.
TORCHS_ABORT = re.compile(r"terminate called (?:after throwing an instance of '(?:c10|gloo|torch)"
                          r"[^\n]*(?:\n *what\(\):[^\n]*)?|without an active exception)")
ABORTS = re.compile(r"(?:terminate called|Fatal Python error).*", re.DOTALL)


def environment(rig):
    """What the processes of a job inherit."""
    return {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.path.join(rig.top, "python"),
            "SIDESTEP_LIBRARY": os.path.join(rig.build, "libsidestep.so.0"),
            "SIDESTEP_TIMEOUT": str(TIMEOUT_S), "PYTHONFAULTHANDLER": "1"}


def told(logs, rank):
    """What the rank has written."""
    try:
        with open(os.path.join(logs, str(rank)), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


class Job:
    """A job: a torchrun on each of its hosts, as a context."""

    jobs = 0
    environment = {}  # more of it

    def __init__(self, network, hosts, steps):
        Job.jobs += 1
        self.network, self.hosts, self.steps = network, hosts, steps
        self.port = PORT + Job.jobs
        self.logs = network.rig.folder()
        self.patience = PATIENCE
        self.ranks = range(RANKS_OF_A_HOST * len(hosts))

    def command(self, number):
        top = self.network.rig.top
        return self.hosts[number].command([
            os.path.join(top, ".venv/bin/torchrun"), "--nnodes", str(len(self.hosts)),
            "--nproc-per-node", str(RANKS_OF_A_HOST), "--node-rank", str(number),
            "--master-addr", self.hosts[0].address, "--master-port", str(self.port),
            os.path.join(top, "tests/hosts/train.py"), self.logs, str(self.steps),
            *self.places()])

    def places(self):
        """The root of the series, and its mirror, if it has one."""
        return [os.path.join(self.network.place, "root")]

    def __enter__(self):
        env = {**os.environ, **environment(self.network.rig), **self.environment}
        self.errors = [open(os.path.join(self.logs, f"errors-{number}"), "wb")
                       for number in range(len(self.hosts))]
        self.processes = [
            subprocess.Popen(self.command(number), stdin=subprocess.DEVNULL, stdout=error,
                             stderr=error, start_new_session=True, env=env)
            for number, error in enumerate(self.errors)]
        return self

    def __exit__(self, *error):
        for process in self.processes:
            rigs.finish_group(process)
            process.wait()
        for file in self.errors:
            file.close()

    def allow(self, name):
        with open(os.path.join(self.logs, name), "wb"):
            pass

    def told(self, rank):
        return told(self.logs, rank)

    def texts(self):
        """What the processes of each host have written."""
        for path in sorted(glob.glob(os.path.join(self.logs, "errors-*"))):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield file.read()

    def said(self):
        found = [f"rank {rank}: {self.told(rank)}" for rank in self.ranks]
        for text in self.texts():
            aborts = ABORTS.search(text)
            found += [aborts[0][:3000]] if aborts else []
            found.append(text[-600:])
        return "\n".join(found)

    def torchs_abort(self):
        """Why torch has ended a process after all ranks had done their part; None: it has not."""
        if not all("\nLOADED " in self.told(rank) for rank in self.ranks):
            return None
        return next((found[0] for found in map(TORCHS_ABORT.search, self.texts()) if found), None)

    def come(self, ranks, line):
        """Complaints unless each of the ranks writes a line that begins with ``line``."""
        began = time.monotonic()
        if networks.wait_until(lambda: all(f"\n{line}" in "\n" + self.told(rank)
                                           for rank in ranks), self.patience):
            print(f"# {line} of {len(ranks)} ranks after {time.monotonic() - began:.0f} s")
            return []
        return [f"not all of {ranks} say {line} within {self.patience} s:\n{self.said()}"]

    def save(self, step):
        self.allow(f"go-{step}")
        return self.come(self.ranks, f"COMMITTED {step}")

    def stage(self, step, held):
        """Let all ranks stage a save, which the ranks of the host ${held} do not write yet."""
        self.allow(f"hold-{held}")
        self.allow(f"go-{step}")
        return self.come(self.ranks, f"STAGED {step}")

    def miss(self, ranks):
        """Complaints unless each of the ranks fails and names a rank of the lost host."""
        complaints = self.come(ranks, "FAILED")
        for rank in ranks:
            line = self.told(rank).partition("FAILED")[2]
            if not complaints and not any(f"rank {late}" in line or f"ranks {late}" in line
                                          for late in LATE):
                complaints.append(f"rank {rank} does not name the missing ranks: {line}")
        return complaints

    def fail(self, hosts):
        """Complaints unless torchrun fails on these hosts, after its ranks have failed."""
        for number in hosts:
            self.allow(f"over-{number}")
        if networks.wait_until(lambda: all(self.processes[number].poll() for number in hosts),
                               PATIENCE):
            return []
        return [f"torchrun does not end, or succeeds: {self.said()}"]

    def end(self):
        """Complaints unless all processes succeed, or torch has ended them after their part."""
        ended = networks.wait_until(lambda: all(process.poll() is not None
                                                for process in self.processes), PATIENCE)
        if ended and not any(process.returncode for process in self.processes):
            return []
        abort = self.torchs_abort() if ended else None
        if abort is not None:
            print(f"# all ranks have saved and loaded; then torch ended one: {abort!r}")
            return []
        return [f"the job does not end, or fails: {self.said()}"]


def lost_in_a_save(rig, begins, ends):
    """The other hosts give up the save and start a new job. The host comes back while it saves."""
    with networks.Network(rig, CLOCKS) as network:
        lost = network.hosts[LOST]
        with Job(network, network.hosts, 2) as old:
            complaints = old.save(1)
            complaints += old.stage(2, LOST)
            begins(lost)
            old.allow(f"write-{LOST}")
            complaints += old.miss(OTHERS)
            complaints += old.fail(range(LOST))
            with Job(network, network.hosts[:LOST], 2) as new:
                complaints += new.come(new.ranks, "RESUMED 1")
                complaints += new.stage(2, LOST - 1)
                ends(lost)
                complaints += old.come(LATE, "FAILED")
                new.allow(f"write-{LOST - 1}")
                complaints += new.save(2) + new.save(3) + new.end()
    return complaints


def cut_between_saves(rig, cuts=True):
    """The host has its storage, but no network: the ranks cannot agree on the next save."""
    with networks.Network(rig, CLOCKS) as network:
        lost = network.hosts[LOST]
        with Job(network, network.hosts, 3) as old:
            complaints = old.save(1)
            if cuts:
                lost.cut()
                lost.answer()
            else:
                old.patience = CONTROL_PATIENCE
            old.allow("go-2")
            complaints += old.miss(OTHERS)
            if complaints:
                return complaints
            complaints += old.come(LATE, "FAILED") + old.fail(range(LOST))
            lost.join()
        with Job(network, network.hosts, 2) as new:
            complaints += new.save(2) + new.save(3) + new.end()
    return complaints


def make_rig(purpose, what, reason=None):
    """A rig for ``what``, which is skipped for this reason, or where hosts or torch are missing."""
    rig = rigs.Rig(purpose.splitlines()[0], in_memory=True)
    reason = networks.reason_not_to(rig) or reason
    if not os.path.exists(os.path.join(rig.top, ".venv/bin/torchrun")):
        reason = "there is no .venv with torch"
    if reason is not None:
        rig.skip(what, reason)
        rig.finish()
    return rig


def main():
    rig = make_rig(__doc__, "hosts under torchrun")
    rig.test("torchrun: a host freezes, and a job without it goes on",
             lost_in_a_save(rig, networks.Host.freeze, networks.Host.thaw))
    rig.test("torchrun: a host loses its network, and a job without it goes on",
             lost_in_a_save(rig, networks.Host.cut, networks.Host.join))
    rig.test("torchrun: a host loses its network, but not its storage", cut_between_saves(rig))
    rig.control("torchrun: a host that loses nothing", cut_between_saves(rig, False))
    rig.finish()


if __name__ == "__main__":
    main()
