# SPDX-License-Identifier: BSD-3-Clause
"""damage_rig.py -- runs the command line with limits of time and memory, and makes the checkpoints of
damage.py."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cli")]
import hostile as h  # noqa: E402
import harness  # noqa: E402
from saver import Saver  # noqa: E402

UNREADABLE, DAMAGED, UNSUPPORTED, PERMISSION = 1, 3, 5, 12
CPU_SECONDS = 2
RSS_BYTES = 256 << 20
SANE = re.compile(r"[^\x00-\x1f\x7f-\x9f]*")

W = bytes(range(24))
W_ITEM = h.tensor_archive("FloatStorage", [2, 3], W)
W_STORED = h.stored("__0_0.distcp", 0, len(W_ITEM))
W_INDEX = h.index("w", [0, 0])
W_ENTRY = h.tensor("float32", [2, 3], [([0, 0], [2, 3])])


class Rig(harness.Sidestep):
    def run(self, *arguments, extra_bytes=0, **more):
        """Like run() of the harness, but fails if the command exceeds the limits."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen([self.program, *arguments], env=self.environment(),
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=err, **more)
            deadline = time.monotonic() + 60
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid != 0:
                    break
                if time.monotonic() > deadline:
                    process.kill()
                    os.wait4(process.pid, 0)
                    raise AssertionError(f"{arguments}: no end after 60 s")
                time.sleep(0.002)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            result = harness.Result(arguments, process.returncode, out.read(1 << 20),
                                    err.read(1 << 20).decode("utf-8", "replace"))
        assert result.status >= 0, "killed by " + signal.Signals(-result.status).name
        seconds = usage.ru_utime + usage.ru_stime
        assert seconds < CPU_SECONDS, f"{seconds:.1f} s\n{result.describe()}"
        assert usage.ru_maxrss << 10 < RSS_BYTES + extra_bytes, \
            f"{usage.ru_maxrss >> 10} MiB\n{result.describe()}"
        for line in result.stderr.splitlines():
            assert SANE.fullmatch(line), result.describe()
        return result

    def refused(self, folder, words, status=DAMAGED, tensor="w", commands=("verify", "cat"), **more):
        """Check that each command prints ${words} (or its own words, from a dict) in one line and
        has this status, and that cat writes nothing."""
        for command in commands:
            result = self.run(command, folder, *([tensor] if command == "cat" else []), **more)
            said = result.stderr + (result.stdout.decode() if command == "verify" else "")
            assert result.status == status, f"{command}: not {status}\n" + result.describe()
            wanted = words[command] if isinstance(words, dict) else words
            for word in [wanted] if isinstance(wanted, str) else wanted:
                assert word in said, f"{command} does not say {word!r}\n" + result.describe()
            assert result.stderr.count("\n") <= 1, result.describe()
            assert command != "cat" or result.stdout == b"", result.describe()

    def good(self, folder, data=None, tensor="w"):
        for arguments in (["verify", folder], ["cat", folder, tensor]):
            result = self.run(*arguments)
            assert result.status == 0, result.describe()
        assert data is None or result.stdout == data, result.describe()

    def stock(self, name="stock", entries=None, storage=None, item=W_ITEM, **more):
        """Write a checkpoint as torch does, with a tensor w or with the given contents."""
        folder = self.path(name)
        shutil.rmtree(folder, ignore_errors=True)
        h.put(folder, "__0_0.distcp", item)
        h.put(folder, ".metadata", h.metadata(entries or [("w", W_ENTRY)],
                                              storage or [(W_INDEX, W_STORED)], **more))
        return folder

    def ours(self, name="step-1", step=1):
        saver = Saver(os.path.dirname(self.program))
        saver.small(self.path(name), step)
        saver.close()
        return self.path(name)

    def path(self, name):
        return os.path.join(self.folder, name)


def shard_of(folder):
    name, = [name for name in os.listdir(folder) if name.endswith(".distcp")]
    return name
