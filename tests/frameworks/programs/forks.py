# SPDX-License-Identifier: BSD-3-Clause
"""Programs in forks of a process that has imported what they import: a start takes some tenths of a
second, where the imports of a framework take ten seconds for each rank.

    forks.py MODULE ...

imports these, and starts what it reads from its input: a line of JSON with "words" (a program and
its arguments), "ranks" (0: it gets no variables of torchrun), "variables" and "output", a file.  It
answers with a line that has the exit status, or minus the signal that ended it.  With ranks it is 1
if one of them fails, and the others are ended, as by torchrun.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

PATIENCE_S = 30  # after SIGTERM
ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def of_rank(rank, ranks, port):
    """The variables that torchrun sets."""
    found = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    found.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    return {name: str(value) for name, value in found.items()}


def run_program(words, output, modules):
    """Let this process be the program ``words``.  Does not return.  It writes what it has imported
    into the file ``modules``."""
    log = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = [str(word) for word in words]
    status = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = int(bool(end.code))
    except BaseException:
        traceback.print_exc()
    Path(modules).write_text("\n".join(sys.modules))
    atexit._run_exitfuncs()  # saves are waited for
    sys.stdout.flush()
    os._exit(status)


def import_all(modules):
    """What a program has imported, and what it imports the first time that it does something."""
    for name in Path(modules).read_text().split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or each start goes over all of it when it collects garbage


def wait_for(pids, has_ranks):
    """The exit status."""
    while pids:
        pid, status = os.wait()
        pids.discard(pid)
        if status:
            end(pids)
            return 1 if has_ranks else os.waitstatus_to_exitcode(status)
    return 0


def end(pids):
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    last = time.monotonic() + PATIENCE_S
    for pid in pids:
        while time.monotonic() < last and not os.waitid(os.P_PID, pid, ENDED):
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def start(words, ranks, variables, output, modules):
    """The processes."""
    port, pids = free_port(), set()
    for rank in range(max(1, ranks)):
        pid = os.fork()
        if not pid:
            os.environ.update(variables, **(of_rank(rank, ranks, port) if ranks else {}))
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            run_program(words, output, modules)
        pids.add(pid)
    return pids


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    is_first = True
    for line in iter(sys.stdin.buffer.readline, b""):  # one at a time: a fork has no rest of it
        order = json.loads(line)
        modules = order["output"] + ".modules"
        status = wait_for(start(**order, modules=modules), bool(order["ranks"]))
        if is_first and not status:
            import_all(modules)
            is_first = False
        answers.write(f"{status}\n")
        answers.flush()


if __name__ == "__main__":
    main()
