# SPDX-License-Identifier: BSD-3-Clause
"""network.py -- simulates hosts on this machine. Each has a name, mounts, processes that freeze
together, and an interface on a common network. Shared storage is at the same path on all hosts, and
behaves like NFS."""
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

SECONDS = 20  # time in which a host must start or end
PROGRAMS = ("ip", "nsenter", "unshare", "faketime")


def control_groups():
    """The folder in which control groups that freeze can be made; None: there is none."""
    with open("/proc/mounts", encoding="utf-8") as file:
        for line in file:
            _, path, kind, *_ = line.split()
            if kind == "cgroup2" and os.access(os.path.join(path, "cgroup.procs"), os.W_OK):
                return path
    return None


def reason_not_to(rig):
    """Why hosts cannot be simulated here; None: they can."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not os.path.exists(os.path.join(rig.build, "tests", "habit_mount")):
        return "libfuse3 (libfuse3-dev) was not installed at build"
    if control_groups() is None:
        return "no control group (cgroup2) is writable"
    trial = ["unshare", "-n", "sh", "-c", "ip link add trial type veth peer name other"]
    if mounts.reason_not_to() is None and subprocess.run(trial, check=False).returncode != 0:
        return "no network can be made (veth)"
    return mounts.reason_not_to()


def command_of(pid):
    """The command of a process; "": it has gone."""
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def wait_until(condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


class Host:
    """One host of a Network, as a context."""

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

    def end_work(self, left=None):
        """Kill all processes of the host but those that make it one, and those with the word ``left`` in
        their command. Then storage answers: who waits for it ends only when it does."""
        kept = {self.holder.pid, self.mount.process.pid}
        path = os.path.join(self.group, "cgroup.procs")

        def others():
            if not os.path.exists(path):
                return set()
            with open(path, encoding="ascii") as file:
                return {pid for pid in {int(line) for line in file} - kept
                        if left is None or left not in command_of(pid)}

        for pid in others():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.answer()
        wait_until(lambda: not others())

    def _write(self, name, text):
        with open(os.path.join(self.group, name), "w", encoding="ascii") as file:
            file.write(text)

    def _is_empty(self):
        with open(os.path.join(self.group, "cgroup.events"), encoding="ascii") as file:
            return "populated 0" in file.read()

    def command(self, work):
        """The command that runs ``work`` on this host, with its clock."""
        enter = ["nsenter", "-n", "-u", "-m", "-t", str(self.holder.pid)]
        clock = ["faketime", "-f", f"{self.clock:+d}h"] if self.clock else []
        join = f'echo $$ > {self.group}/cgroup.procs && exec "$@"'
        return ["sh", "-c", join, "sh", *enter, *clock, *work]

    def freeze(self):
        """Stop all processes of the host, including that of its mount."""
        self._write("cgroup.freeze", "1")

    def thaw(self):
        self._write("cgroup.freeze", "0")

    def stop_storage(self):
        """Make storage not respond, like a server that cannot be reached."""
        self.mount.process.send_signal(signal.SIGSTOP)

    def answer(self):
        self.mount.process.send_signal(signal.SIGCONT)

    def cut(self):
        """Cut the host from the network and from storage: packets are dropped silently."""
        self.cable.cut()
        self.stop_storage()

    def join(self):
        """Connect the host to the network and to storage again."""
        self.cable.join()
        self.answer()


class Network:
    """All hosts and the switch between them, as a context. ${clocks}: the error of each host's clock,
    in hours. ${place}: the path of the shared storage on each host."""

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
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all hosts end
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
