#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""nodes.py -- runs a training under torchrun on 3 hosts of 2 ranks, each with a disk of its own, and a
mirror that all share. Hosts die with their disks, are replaced, and return with old files; the mirror
does not answer for a while. The next job must go on from the newest step that the mirror had, with
the state, bit for bit, of a training that was never stopped."""
import os
import re
import shutil
import subprocess
import time

import network as networks
import rig as rigs
import torchrun

HOSTS = 5  # two of them are spare
PATIENCE = 60
IS_STEP = re.compile(r"step-(\d+)$")


class Job(torchrun.Job):
    """A job whose root is the disk of each host."""

    def __init__(self, cluster, numbers, steps):
        super().__init__(cluster.network, [cluster.network.hosts[number] for number in numbers], steps)
        self.cluster = cluster

    def places(self):
        return [os.path.join(self.cluster.disk, "run"), os.path.join(self.network.place, "far")]

    def leave_processes(self):
        """Give the ranks a mirror with ``after_exit=True``."""
        build = self.network.rig.build
        self.environment = {"AFTER_EXIT": "1", "PATH": f"{build}:{os.environ['PATH']}"}
        return self

    def kill(self, left=None):
        """Kill the ranks, too, each of which torchrun has put into a session of its own. ``left``: a
        word of the command of processes that are left."""
        for process in self.processes:
            rigs.finish_group(process)
        for host in self.hosts:
            host.end_work(left)
        for process in self.processes:
            process.wait()


class Cluster:
    """Hosts, each with a disk in memory at the same path, as a context."""

    def __init__(self, rig, hosts=HOSTS):
        self.network = networks.Network(rig, (0,) * hosts)
        self.disk = rig.folder()

    def __enter__(self):
        self.network.__enter__()
        for host in self.network.hosts:
            subprocess.run(["nsenter", "-m", "-t", str(host.holder.pid), "mount", "-t", "tmpfs",
                            "disk", self.disk], check=True)
        return self

    def __exit__(self, *error):
        self.network.__exit__(*error)

    def far(self):
        return os.path.join(self.network.backing, "far")

    def newest(self):
        """The newest step at the mirror, which exists only if it is whole."""
        far = self.far()
        steps = [IS_STEP.match(name) for name in (os.listdir(far) if os.path.exists(far) else [])]
        return max((int(step[1]) for step in steps if step), default=0)

    def await_mirror(self, step):
        return ([] if networks.wait_until(lambda: self.newest() >= step, PATIENCE)
                else [f"the mirror has step {self.newest()}, not {step}, after {PATIENCE} s"])

    def lose(self, number):
        """All processes of the host die, and its disk with it."""
        self.network.hosts[number].__exit__(None, None, None)


def dies(rig, lost, spare, *, has_mirror=True):
    """These hosts die while a step is saved; others take their place."""
    with Cluster(rig) as cluster:
        with Job(cluster, [0, 1, 2], 9) as job:
            complaints = job.save(1) + job.save(2) + cluster.await_mirror(2)
            job.allow("go-3")
            time.sleep(0.1 * rig.number)
            for number in lost:
                cluster.lose(number)
            had = cluster.newest()
            job.kill()
        if not has_mirror:
            shutil.rmtree(cluster.far())
        rest = [number for number in range(3) if number not in lost] + spare
        with Job(cluster, rest, 2) as job:
            job.patience = PATIENCE
            complaints += job.come(job.ranks, "RESUMED")
            if complaints:
                return complaints
            first = int(re.search(r"RESUMED (\d+)", job.told(0))[1])
            if first < had or first < 2:
                complaints.append(f"it resumes step {first}, but the mirror had {had}")
            complaints += job.save(first + 1) + job.save(first + 2) + job.end()
            complaints += cluster.await_mirror(first + 2)
    return complaints


def returns_late(rig):
    """A host is replaced, and returns with its old parts when the job has gone on without it."""
    with Cluster(rig) as cluster:
        with Job(cluster, [0, 1, 2], 2) as job:
            complaints = job.save(1) + job.save(2) + job.end()
        with Job(cluster, [0, 1, 3], 2) as job:
            complaints += job.come(job.ranks, "RESUMED 2")
            complaints += job.save(3) + job.save(4) + job.end()
        with Job(cluster, [2, 0, 1], 1) as job:
            complaints += job.come(job.ranks, "RESUMED 4") + job.save(5) + job.end()
    return complaints


def mirror_is_silent(rig):
    """Saves go on while the mirror does not answer, and it catches up."""
    with Cluster(rig) as cluster:
        with Job(cluster, [0, 1, 2], 4) as job:
            complaints = job.save(1) + cluster.await_mirror(1)
            for host in cluster.network.hosts[:3]:
                host.stop_storage()
            complaints += job.save(2) + job.save(3)
            for host in cluster.network.hosts[:3]:
                host.answer()
            complaints += job.save(4) + job.end() + cluster.await_mirror(4)
    return complaints


def mirror_by_hand(cluster, numbers):
    """`sidestep mirror` on these hosts at the same time, as their epilogs do. Returns complaints."""
    tool = os.path.join(cluster.network.rig.build, "sidestep")
    command = [tool, "mirror", os.path.join(cluster.disk, "run"),
               os.path.join(cluster.network.place, "far")]
    calls = [subprocess.Popen(cluster.network.hosts[number].command(command),
                              stderr=subprocess.PIPE, text=True) for number in numbers]
    texts = [call.communicate(timeout=2 * PATIENCE)[1] for call in calls]
    return [f"host {number}: {text}" for number, call, text in zip(numbers, calls, texts)
            if call.returncode != 0]


def sent_when_killed(rig, leaves):
    """The job is killed while the mirror lags. The epilogs of its hosts, or processes that it has left
    there, send what is newest. Then the disks are wiped."""
    with Cluster(rig) as cluster:
        job = Job(cluster, [0, 1, 2], 3)
        with job.leave_processes() if leaves else job:
            complaints = job.save(1) + cluster.await_mirror(1)
            for host in cluster.network.hosts[:3]:
                host.stop_storage()
            complaints += job.save(2)
            job.kill("--after" if leaves else None)
        complaints += cluster.await_mirror(2) if leaves else mirror_by_hand(cluster, range(3))
        if cluster.newest() != 2:
            complaints.append(f"the mirror has step {cluster.newest()}, not 2")
        for host in cluster.network.hosts[:3]:
            subprocess.run(host.command(["rm", "-r", os.path.join(cluster.disk, "run")]), check=True)
        with Job(cluster, [0, 1, 2], 1) as job:
            complaints += job.come(job.ranks, "RESUMED 2") + job.save(3) + job.end()
    return complaints


def main():
    rig = torchrun.make_rig(__doc__, "hosts with their own disks")
    rig.test("a host dies with its disk, and another one takes its place", dies(rig, [2], [3]))
    rig.test("the host of rank 0 dies with its disk", dies(rig, [0], [3]))
    rig.test("two hosts die with their disks", dies(rig, [0, 2], [4, 3]))
    rig.test("a host returns with old files", returns_late(rig))
    rig.test("the mirror does not answer for a while", mirror_is_silent(rig))
    rig.test("a killed job, whose epilogs send what is left", sent_when_killed(rig, False))
    rig.test("a killed job, which has left processes", sent_when_killed(rig, True))
    rig.control("a host that dies with the mirror", dies(rig, [2], [3], has_mirror=False))
    rig.finish()


if __name__ == "__main__":
    main()
