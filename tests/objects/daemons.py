# SPDX-License-Identifier: BSD-3-Clause
"""Programs in the background, of a store that takes several: they end with their context, and with
this process if it is killed."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

START_SECONDS = 120


class Missing(Exception):
    """A program of the store is not installed; tools/setup objects brings it."""


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed (tools/setup objects)")


def free_ports(count):
    """Ports that nobody listens on, of 127.0.0.1."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


class Daemons:
    """Those of one store.  What they say goes to FOLDER/NAME.log."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.processes = {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in reversed(self.processes.values()):
            process.kill()
        for process in self.processes.values():
            process.wait()

    def start(self, name, *command):
        """A program that stays in the foreground."""
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def run(self, *command):
        """A program that ends; returns what it printed."""
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            cwd=self.folder,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def wait_for(self, is_ready, what):
        """Until is_ready(); an error if a program ends before."""
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with status {process.returncode}:\n"
                                       + self.tail(name))  # fmt: skip
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what} is not there after {START_SECONDS} s")
            time.sleep(0.05)

    def wait_for_port(self, port):
        self.wait_for(lambda: is_listening(port), f"port {port}")

    def tail(self, name):
        text = (self.folder / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-20:])


def is_listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def has_attributes(folder):
    """Whether files of this folder may have extended attributes."""
    path = pathlib.Path(folder) / "attributes"
    path.touch()
    try:
        os.setxattr(path, "user.test", b"x")
    except OSError:
        return False
    finally:
        path.unlink()
    return True
