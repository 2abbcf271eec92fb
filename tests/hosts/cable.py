# SPDX-License-Identifier: BSD-3-Clause
"""A host's network: an interface in namespaces of its own, and a cable from there to a switch."""
import subprocess


def hold(*command):
    """A process that lives in namespaces of its own until it is killed; and says when they are
    there."""
    process = subprocess.Popen([*command, "sh", "-c", "echo here; exec sleep 86400"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if process.stdout.readline() != b"here\n":
        raise RuntimeError(f"no such host can be made: {command}")
    return process


class Cable:
    """switch(*words) runs "ip WORDS" where the bridge "switch" is; ${holder} is of hold()."""

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
        """Nothing arrives any more, and nobody is told."""
        self.switch("link", "set", self.name, "down")

    def join(self):
        self.switch("link", "set", self.name, "up")
