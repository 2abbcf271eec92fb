# SPDX-License-Identifier: BSD-3-Clause
"""Runs scripts as the main program of a real interpreter that starts and ends, without paying for
the import of torch each time: they are forked from a server that has imported it.

The script runs at the top of ``__main__``; when it ends, the interpreter is finalized as any other.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

from ranks import PRELOAD


class Script:
    """A script that runs.  Its output goes to files."""

    def __init__(self, server: Any, pid: int, out: Path, err: Path) -> None:
        self.pid = pid
        self._server = server
        self._out = out
        self._err = err
        self._status: Optional[int] = None

    def output(self) -> tuple[str, str]:
        return self._out.read_text(), self._err.read_text()

    def wait_for(self, text: str, timeout: float = 60) -> str:
        """Until it has printed a whole line with ``text``: print() may write it piece by piece."""
        until = time.monotonic() + timeout
        while True:
            for line in self.output()[0].splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line
            assert time.monotonic() < until, f"no {text!r} in {self.output()}"
            time.sleep(0.01)

    def runs(self) -> bool:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it is gone by now
            os.kill(self.pid, 0)
            return Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
        return False

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float = 60) -> int:
        """Its exit status (-9: SIGKILL).  Kills it after ``timeout`` seconds, and raises."""
        until = time.monotonic() + timeout
        while self.runs():
            if time.monotonic() > until:
                self.signal(signal.SIGABRT)  # faulthandler says where it hangs
                self._status = int(self._server.stdout.readline())
                raise AssertionError(f"still running after {timeout} s: {self.output()}")
            time.sleep(0.005)
        if self._status is None:
            self._status = int(self._server.stdout.readline())
        return self._status

    def end(self) -> None:
        """Whatever it does."""
        if self.runs():
            self.signal(signal.SIGKILL)
        self.wait()


class Scripts:
    """The server."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._running: Optional[Script] = None

    def start(
        self, code: str, path: Path, *arguments: str, environment: Optional[dict[str, str]] = None
    ) -> Script:
        """``code``, kept in ``path``/script.py, given ``path`` and ``arguments``."""
        if self._running is not None:
            self._running.end()  # a test that failed left it
        script, out, err = path / "script.py", path / "out", path / "err"
        script.write_text(code)
        out.write_text("")
        err.write_text("")
        request = {
            "script": str(script),
            "arguments": [str(path), *arguments],
            "environment": environment or {},
            "out": str(out),
            "err": str(err),
        }
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        pid = int(self._server.stdout.readline())
        self._running = Script(self._server, pid, out, err)
        return self._running

    def close(self) -> None:
        if self._running is not None:
            self._running.end()
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)


def serve() -> Optional[dict[str, Any]]:
    """Fork for each request; None in the server at its end, the request in a child."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            return request
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return None


def become(request: dict[str, Any]) -> str:
    """Make this process look as if the script had been started from a shell; its code."""
    import faulthandler

    for name, number in (("out", 1), ("err", 2)):
        fd = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(fd, number)
        os.close(fd)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.environ.update(request["environment"])
    sys.argv = [request["script"], *request["arguments"]]
    faulthandler.enable()
    return Path(request["script"]).read_text()


if __name__ == "__main__":
    for module in PRELOAD:
        importlib.import_module(module)
    gc.freeze()  # else the end of each script would copy and visit all of torch
    request = serve()
    if request is not None:
        __file__ = request["script"]
        exec(compile(become(request), __file__, "exec"), globals())
