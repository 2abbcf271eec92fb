# SPDX-License-Identifier: BSD-3-Clause
"""Hosts on this machine: each has a name, mounts, processes that freeze together, and an interface on
one common network. Shared storage is at one path on all of them, and has the rules of NFS."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import habits
import mounts
from cable import Cable, hold

SECONDS = 20  # until a host is there, or gone
PROGRAMS = ("ip", "nsenter", "unshare", "faketime")


def control_groups():
    """Where control groups can be made that freeze; None if nowhere."""
    with open("/proc/mounts", encoding="utf-8") as file:
        for line in file:
            _, path, kind, *_ = line.split()
            if kind == "cgroup2" and os.access(os.path.join(path, "cgroup.procs"), os.W_OK):
                return path
    return None


def reason_not_to(rig):
    """Why there can be no hosts here; None if they can be."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not os.path.exists(os.path.join(rig.build, "tests", "habit_mount")):
        return "libfuse3 (libfuse3-dev) was not there at build"
    if control_groups() is None:
        return "there are no control groups (cgroup2) that may be written to"
    trial = ["unshare", "-n", "sh", "-c", "ip link add trial type veth peer name other"]
    if mounts.reason_not_to() is None and subprocess.run(trial, check=False).returncode != 0:
        return "no network can be made (veth)"
    return mounts.reason_not_to()


def wait_until(condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


class Host:
    """One host, as a context of Network. ${place} is where it sees the shared storage."""

    def __init__(self, network, number, clock):
        self.network = network
        self.name = f"host{number}"
        self.number = number
        self.address = f"10.77.0.{number + 1}"
        self.clock = clock
        self.mount = mounts.Mount(network.rig, network.backing, habits.WORKS["NFS"])
        self.group = os.path.join(network.group, self.name)
        self.holder = self.cable = self.stack = None

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            os.mkdir(self.group)
            stack.callback(os.rmdir, self.group)
            stack.enter_context(self.mount)
            stack.callback(self._end_all)
            self._begin()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        self.stack.close()

    def _begin(self):
        script = 'hostname "$0" && ip link set lo up && mount --bind "$1" "$2" && shift 2 && exec "$@"'
        self.holder = hold("unshare", "-n", "-u", "-m", "--propagation", "private", "sh", "-c",
                           script, self.name, self.mount.path, self.network.place)
        for process in (self.mount.process, self.holder):
            self._write("cgroup.procs", str(process.pid))
        self.cable = Cable(self.network.switch, f"cable{self.number}", self.address, self.holder)

    def _end_all(self):
        self.answer()
        self._write("cgroup.freeze", "0")
        self._write("cgroup.kill", "1")
        wait_until(self._is_empty)

    def _write(self, name, text):
        with open(os.path.join(self.group, name), "w", encoding="ascii") as file:
            file.write(text)

    def _is_empty(self):
        with open(os.path.join(self.group, "cgroup.events"), encoding="ascii") as file:
            return "populated 0" in file.read()

    def command(self, work):
        """The command, run on this host, by its clock."""
        enter = ["nsenter", "-n", "-u", "-m", "-t", str(self.holder.pid)]
        clock = ["faketime", "-f", f"{self.clock:+d}h"] if self.clock else []
        join = f'echo $$ > {self.group}/cgroup.procs && exec "$@"'
        return ["sh", "-c", join, "sh", *enter, *clock, *work]

    def freeze(self):
        """All of its processes stop, with what it does for its storage."""
        self._write("cgroup.freeze", "1")

    def thaw(self):
        self._write("cgroup.freeze", "0")

    def stop_storage(self):
        """Storage answers no more, as a server that cannot be reached."""
        self.mount.process.send_signal(signal.SIGSTOP)

    def answer(self):
        self.mount.process.send_signal(signal.SIGCONT)

    def cut(self):
        """It loses its network, and with it its storage: nothing arrives, and nobody is told."""
        self.cable.cut()
        self.stop_storage()

    def join(self):
        """It has its network again."""
        self.cable.join()
        self.answer()


class Network:
    """All hosts and the switch between them, as a context. ${clocks}: by how many hours the clock of
    each is wrong."""

    def __init__(self, rig, clocks):
        self.rig = rig
        self.backing, self.place = rig.folder(), rig.folder()
        self.group = os.path.join(control_groups(), f"sidestep-hosts-{os.getpid()}")
        self.switch_holder = self.stack = None
        self.hosts = [Host(self, number, clock) for number, clock in enumerate(clocks)]

    def switch(self, *words):
        subprocess.run(["nsenter", "-n", "-t", str(self.switch_holder.pid), "ip", *words],
                       check=True)

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no host outlives it
        with contextlib.ExitStack() as stack:
            os.mkdir(self.group)
            stack.callback(os.rmdir, self.group)
            self.switch_holder = hold("unshare", "-n")
            stack.callback(self.switch_holder.wait)
            stack.callback(self.switch_holder.kill)
            self.switch("link", "add", "switch", "type", "bridge")
            self.switch("link", "set", "switch", "up")
            for host in self.hosts:
                stack.enter_context(host)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        self.stack.close()
