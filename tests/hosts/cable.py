# SPDX-License-Identifier: BSD-3-Clause
"""cable.py -- the network of a host: an interface in its own namespaces, and a cable to a switch."""
import subprocess


def hold(*command):
    """Start a process that holds its own namespaces until it is killed; wait until they exist."""
    process = subprocess.Popen([*command, "sh", "-c", "echo here; exec sleep 86400"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if process.stdout.readline() != b"here\n":
        raise RuntimeError(f"the host cannot be made: {command}")
    return process


class Cable:
    """A cable from the switch to a host. switch(*words) runs "ip WORDS" in the namespace of the bridge
    "switch"; ${holder} is the process of hold()."""

    def __init__(self, switch, name, address, holder):
        self.switch = switch
        self.name = name
        switch("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns",
               str(holder.pid))
        switch("link", "set", name, "master", "switch", "up")
        inside = ["nsenter", "-n", "-t", str(holder.pid), "ip"]
        subprocess.run([*inside, "addr", "add", f"{address}/24", "dev", "eth0"], check=True)
        subprocess.run([*inside, "link", "set", "eth0", "up"], check=True)

    def cut(self):
        """Drop all packets silently."""
        self.switch("link", "set", self.name, "down")

    def join(self):
        self.switch("link", "set", self.name, "up")
