# SPDX-License-Identifier: BSD-3-Clause
"""Directories shown with habits: mounts of habit_mount, as one or two hosts."""
import os
import subprocess
import tempfile
import time

SECONDS = 20  # until a mount is there


def reason_not_to():
    """Why nothing can be mounted here; None if it can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be opened"
    return None if os.geteuid() == 0 else "mounts for two hosts need privileges"


class Mount:
    """What one host sees of ${backing}, as a context."""

    def __init__(self, rig, backing, habits):
        self.program = rig.tool("habit_mount")
        self.backing = backing
        self.habits = habits
        self.path = tempfile.mkdtemp(prefix="host-", dir=rig.scratch)

    def __enter__(self):
        command = [self.program, self.backing, self.path, *self.habits]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + SECONDS
        while not os.path.ismount(self.path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"cannot be mounted: {command}")
            time.sleep(0.01)
        return self

    def __exit__(self, *error):
        subprocess.run(["umount", "-l", self.path], check=False, stderr=subprocess.DEVNULL)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def on_host(mount, place, command):
    """The command, run where ${place} is what that host sees."""
    script = 'mount --bind "$0" "$1" && shift && exec "$@"'
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", script, mount.path, place,
            *command]
