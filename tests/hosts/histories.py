#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""histories.py -- random lives of a training under torchrun, on 3 of 4 hosts with disks of
their own and a mirror: the job ends, or is killed in a save, with or without the disks of some hosts;
the mirror may lag then; epilogs may send what is left; hosts move, and disks return late. Each job
must go on from no older step than was acknowledged where something is left, bit for bit.
SIDESTEP_LONG: many."""
import os
import random
import re
import subprocess
import time

import nodes
import torchrun

HISTORIES, LONG_HISTORIES = 2, 100
ROUNDS = 5
HOSTS = range(4)


class History:
    """A life. What was acknowledged: ->far at the mirror, ->near on the disks of ->holders."""

    def __init__(self, rig, seed, *, careless=False):
        self.rig, self.random, self.careless = rig, random.Random(seed), careless
        self.near = self.far = 0
        self.holders, self.away = set(), set()
        self.told = [f"seed {seed}"]

    def on(self, cluster, host, *work):
        subprocess.run(cluster.network.hosts[host].command(list(work)), check=True)

    def lose(self, cluster, host):
        """Its disk is gone: for ever, or it returns late with what it had."""
        place = os.path.join(cluster.disk, "run")
        returns = self.random.random() < 0.5 and host not in self.away
        self.told.append(f"host {host} loses its disk{', for now' if returns else ''}")
        if returns:
            self.away.add(host)
        self.on(cluster, host, "sh", "-c", f'[ ! -e {place} ] || ' +
                (f"mv {place} {place}-away" if returns else f"rm -r {place}"))
        if host in self.holders:
            self.near = 0

    def give_back(self, cluster):
        for host in list(self.away):
            if self.random.random() < 0.5:
                self.told.append(f"the disk of host {host} returns")
                place = os.path.join(cluster.disk, "run")
                self.on(cluster, host, "sh", "-c", f"[ ! -e {place}-away ] || "
                        f"{{ rm -rf {place}; mv {place}-away {place}; }}")
                self.away.discard(host)
                if host in self.holders:
                    self.near = 0

    def play_job(self, cluster, hosts):
        """A job of a few steps. Returns complaints."""
        saves, ends = self.random.randint(1, 2), self.random.random() < 0.3
        lags = not ends and self.far != 0 and self.random.random() < 0.5
        self.told.append(f"hosts {hosts}: {saves} saves, {'ends' if ends else 'killed'}, lags: {lags}")
        with nodes.Job(cluster, hosts, saves + (not ends)) as job:
            job.patience = nodes.PATIENCE
            complaints = job.come(job.ranks, "RESUMED")
            if complaints:
                return complaints
            first = int(re.search(r"RESUMED (\d+)", job.told(0))[1])
            near = self.near if self.holders <= set(hosts) else 0
            if first < max(self.far, near):
                return [f"it resumes step {first}; near {near}, mirror {self.far}"]
            for step in range(first + 1, first + saves + 1):
                if lags and step == first + saves:
                    for host in hosts:
                        cluster.network.hosts[host].stop_storage()
                complaints += job.save(step)
                if self.far == 0 and not lags:
                    complaints += cluster.await_mirror(step)
            if complaints:
                return complaints
            if ends:
                complaints += job.end()
            else:
                job.allow(f"go-{first + saves + 1}")
                time.sleep(self.random.random() / 4)
                job.kill()
        self.near, self.holders, self.far = first + saves, set(hosts), cluster.newest()
        if ends and self.far < first + saves:
            complaints.append(f"it has ended, and the mirror has step {self.far}, not {first + saves}")
        return complaints

    def play_between(self, cluster, hosts):
        """What happens between two jobs. Returns complaints."""
        complaints = []
        if self.random.random() < 0.4:
            self.told.append("epilogs")
            complaints = nodes.mirror_by_hand(cluster, hosts)
            if cluster.newest() < self.near:
                complaints.append(f"the mirror has step {cluster.newest()}, not {self.near}")
            self.far = cluster.newest()
        for host in self.random.sample(HOSTS, self.random.choice([0, 0, 1, 2])):
            self.lose(cluster, host)
        self.give_back(cluster)
        if self.careless:
            self.on(cluster, 0, "sh", "-c", f"rm -rf {cluster.network.place}/far/step-*")
            for host in HOSTS:
                self.on(cluster, host, "rm", "-rf", os.path.join(cluster.disk, "run"))
        return complaints

    def play(self):
        with nodes.Cluster(self.rig) as cluster:
            for number in range(ROUNDS):
                hosts = self.random.sample(HOSTS, 3)
                complaints = self.play_job(cluster, hosts) or self.play_between(cluster, hosts)
                if complaints:
                    return [f"round {number}: {complaints[0]}", *self.told]
        return []


def main():
    rig = torchrun.make_rig(__doc__, "random histories of hosts with their own disks")
    for seed in range(LONG_HISTORIES if rig.long else HISTORIES):
        rig.test(f"random history {seed}", History(rig, seed).play())
    rig.control("a history that loses both levels", History(rig, 0, careless=True).play())
    rig.finish()


if __name__ == "__main__":
    main()
