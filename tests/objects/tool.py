# SPDX-License-Identifier: BSD-3-Clause
"""The client of src/object/, driven line by line (tests/tools/object_tool.c).

with Tool(store) as tool:
    assert tool("put", "key", 100, 1)["status"] == "OK"
"""

import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADER = (ROOT / "include/sidestep/sidestep.h").read_text()
STATUSES = re.findall(r"^    X\((\w+), \d+, \"", HEADER, re.MULTILINE)
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS")
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def program():
    """The tool, beside the library that is tested."""
    library = pathlib.Path(os.environ.get("SIDESTEP_LIBRARY", ROOT / "build/libsidestep.so.0"))
    return library.parent / "tests/object_tool"


class Tool:
    """One client in a process of its own, in a clean environment.

    store: of servers.py, or None.  environment: more of it; None takes a variable away.
    """

    def __init__(self, store=None, tls=False, deadline_ms=20000, stall_seconds=0, **more):
        found = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        found.update(HOME="/nonexistent", SIDESTEP_TRACE="all")  # secrets are in no trace, either
        found.update(store.environment(tls) if store else {"AWS_EC2_METADATA_DISABLED": "true"})
        found.update(more.get("environment") or {})
        self.environment = {name: value for name, value in found.items() if value is not None}
        bucket = more.get("bucket", store.bucket if store else "bucket")
        self.command = [str(program()), bucket, str(deadline_ms), str(stall_seconds)]
        self.command += ["fork"] if more.get("fork") else []
        self.process = None
        self.opened = None  # how the client was made
        self.heard = []  # every answer
        self.said = ""  # and what it printed besides

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )
        self.opened = self.read()
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()
        self.said = self.process.stderr.read()
        status = self.process.wait(60)
        self.process.stdout.close()
        self.process.stderr.close()
        if exception[0] is None:
            assert (status, "ERROR" in self.said) == (0, False), self.said
            self.check_secrets()

    def check_secrets(self):
        """No secret is part of anything that was said."""
        for name in SECRETS:
            secret = self.environment.get(name)
            assert not secret or secret not in "".join(self.heard) + self.said, name

    def read(self):
        line = self.process.stdout.readline()
        assert line, "object_tool ended"
        self.heard.append(line)
        answer = json.loads(line)
        answer["status"] = STATUSES[answer["status"]]
        return answer

    def send(self, *words):
        """Without waiting for the answer."""
        self.process.stdin.write("\t".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def __call__(self, *words):
        self.send(*words)
        return self.read()

    def ok(self, *words):
        answer = self(*words)
        assert answer["status"] == "OK", answer
        return answer

    def fails(self, status, *words):
        """Returns the sentence."""
        answer = self(*words)
        assert answer["status"] == status, answer
        assert answer["text"] and len(answer["text"]) < 704
        return answer["text"]

    def upload(self, key, parts=(100, 100, 50)):
        """A whole multipart upload, part by part; returns the answers."""
        name = self.ok("begin", key)["upload"]
        for number, length in enumerate(parts, 1):
            self.ok("part", key, name, number, length, number)
        return self.ok("complete", key, name, sum(parts))
