#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""nfs.py -- tests saves, series and loads on a real NFS, in the virtual machine that tests/nfs/run
starts: each version of the protocol; two hosts with their own networks; a server that restarts,
forgets its handles or is full; and a host that loses its network."""
import os
import subprocess
import tempfile
import time

import judge
import mpi_kill
import rig as rigs
from cable import Cable, hold

EXPORT, SMALL = "/srv/export", "/srv/small"
VERSIONS = {
    "NFS 4.2": "vers=4.2",
    "NFS 4.0": "vers=4.0",
    "NFS 3": "vers=3",
    "NFS 3, nolock": "vers=3,nolock",
    "NFS 3, local_lock": "vers=3,local_lock=all",
}
SHORT = ["NFS 4.2", "NFS 3"]  # the versions that are tested without --long
# If the server does not respond, report an error after about two seconds.
SOFT = "vers=4.2,soft,timeo=5,retrans=1"
# If the server does not respond, retry for ever, every two seconds instead of every sixty.
HARD = "vers=4.2,hard,timeo=20"
SERVER = "10.78.0.1"  # address of the server for the hosts


def command(*words):
    result = rigs.run(list(words))
    if result.status != 0:
        raise RuntimeError(f"{words}: {result}")


class Host:
    """A host with its own network, as a context."""

    def __init__(self, number):
        self.number = number
        self.holder = self.cable = None

    def __enter__(self):
        self.holder = hold("unshare", "-n", "-u", "sh", "-c", 'hostname "$0" && exec "$@"',
                           f"host{self.number}")
        self.cable = Cable(switch, f"cable{self.number}", f"10.78.0.{self.number + 1}", self.holder)
        return self

    def __exit__(self, *error):
        self.holder.kill()
        self.holder.communicate()

    def enter(self):
        return ["nsenter", "-n", "-u", "-t", str(self.holder.pid)]


def switch(*words):
    command("ip", *words)


def add_switch():
    switch("link", "add", "switch", "type", "bridge")
    switch("addr", "add", f"{SERVER}/24", "dev", "switch")
    switch("link", "set", "switch", "up")


class Mount:
    """A mount of a directory of the server on a host, as a context. nosharecache: mounts do not share
    cached data."""

    def __init__(self, rig, backing, options, host=None):
        self.path = tempfile.mkdtemp(prefix="host-", dir="/tmp")
        self.host = host
        server = SERVER if host else "127.0.0.1"
        self.words = ["mount", "-t", "nfs", "-o", f"{options},nosharecache",
                      f"{server}:{backing}", self.path]

    def __enter__(self):
        command(*(self.host.enter() if self.host else []), *self.words)
        return self

    def __exit__(self, *error):
        command("umount", "-f", "-l", self.path)


def shown(rig, options, host=None):
    return lambda backing: Mount(rig, backing, options, host)


def test_version(rig, workloads, name):
    complaints = []
    for workload in workloads:
        complaints += judge.on_storage(workload, shown(rig, VERSIONS[name]), judge.sound)
    with Mount(rig, rig.folder(), VERSIONS[name]) as mount:
        complaints += judge.doctor_says(rig, mount.path, "yes", "files are written at any place")
    rig.test(f"{name}: saves, series and loads", complaints)


def test_two_hosts(rig, saver, hosts):
    mpi = mpi_kill.Mpi(rig, "mpich", os.path.join(rig.build, "nfs", "mpi_saver"))
    for name in ["NFS 4.2", "NFS 3, nolock"]:
        shows = [shown(rig, VERSIONS[name], host) for host in hosts]
        rig.test(f"{name}: {judge.RANKS} ranks on two hosts",
                 judge.save_from_two_hosts(rig, mpi, *shows))
    second = judge.second_owner(rig, saver, *[shown(rig, VERSIONS["NFS 4.2"], host)
                                              for host in hosts])
    told = second.status == 11 and "in use by" in second.err
    rig.test("NFS 4.2: a series has one owner on all hosts", [] if told else [f"{second}"])
    second = judge.second_owner(rig, saver, *[shown(rig, VERSIONS["NFS 3, nolock"], host)
                                              for host in hosts])
    rig.control("no locks: a second owner", [] if second.status else ["it was let in"])


# ---- a server with failures

def restart_server():
    command("rpc.nfsd", "0")
    time.sleep(0.5)
    command("rpc.nfsd", "8")


def forget_handles(number):
    """Give the export another id, so that the server does not know older handles."""
    command("exportfs", "-u", f"*:{EXPORT}")
    command("exportfs", "-o", "rw,sync,no_root_squash,no_subtree_check,insecure,"
            f"fsid={number}", f"*:{EXPORT}")
    command("exportfs", "-f")


def disturbed(rig, workload, pause, show, disturb, mend):
    """Run a workload, call disturb() in the middle and mend() at its end; return complaints."""
    backing = workload.prepare()
    with show(backing) as mount:
        process = subprocess.Popen(workload.arguments(mount.path), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(pause)
        disturb()
        try:
            out, err = process.communicate(timeout=rigs.PATIENCE)
            result = rigs.Result(process.returncode, out.decode(), err.decode())
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            result = rigs.Result(None, "", "")
        mend()
    with Mount(rig, backing, VERSIONS["NFS 4.2"]) as mount:
        complaints = workload.judge(mount.path, result)
    return [f"{workload.name}, after {pause} s: {text}" for text in complaints], result


def trials(rig, workloads, show, disturb, mend):
    """Disturb runs after various times; return (complaints, failed runs, all runs)."""
    complaints, failed, count = [], 0, 0
    for workload in workloads:
        for tenths in range(0, 20, 4 if rig.long else 10):
            found, result = disturbed(rig, workload, tenths / 10, show, disturb, mend)
            complaints += found
            failed += result.status != 0
            count += 1
    return complaints, failed, count


def test_failures(rig, workloads, what, show, disturb, mend):
    complaints, failed, count = trials(rig, workloads, show, disturb, mend)
    rig.test(f"{count} saves, and {what} in the middle: those that fail give a reason",
             complaints or ([] if failed else ["no save failed"]))


def test_restarts(rig, workloads):
    """A hard mount waits for the server, so no save may fail."""
    complaints, failed, count = trials(rig, workloads, shown(rig, HARD), restart_server,
                                       lambda: None)
    rig.test(f"{count} saves, and the server restarts in the middle: none fails",
             complaints + ([f"{failed} failed"] if failed else []))


def test_full(rig, saver):
    """The client caches what is written, and the server refuses it later."""
    backing = tempfile.mkdtemp(dir=SMALL)
    with Mount(rig, backing, VERSIONS["NFS 4.2"]) as mount:
        path = os.path.join(mount.path, "it")
        result = rigs.run([saver, "save", path, "1"])
        seen = rigs.run([saver, "check", path, "1"])
    complaints = [] if result.status and "No space left" in result.err else [str(result)]
    complaints += [] if seen.out == "none" else [str(seen)]
    rig.test("the server is full: nothing was saved, and it says why", complaints)


def main():
    rig = rigs.Rig(__doc__, place=EXPORT)
    rigs.PATIENCE = 200  # the virtual machine is slow
    saver = rig.tool("saver_tool")
    workloads = judge.some(rigs.workloads(rig, saver), rig)
    for name in VERSIONS if rig.long else SHORT:
        test_version(rig, workloads, name)
    add_switch()
    with Host(1) as one, Host(2) as two:
        test_two_hosts(rig, saver, (one, two))
        test_restarts(rig, workloads)
        test_failures(rig, workloads, "a host loses its network", shown(rig, SOFT, one),
                      one.cable.cut, one.cable.join)
    numbers = iter(range(100, 100000))
    test_failures(rig, workloads, "the server forgets its handles",
                  shown(rig, VERSIONS["NFS 4.2"]), lambda: forget_handles(next(numbers)),
                  lambda: None)
    test_full(rig, saver)
    rig.finish()


if __name__ == "__main__":
    main()
