# SPDX-License-Identifier: BSD-3-Clause
"""Runs a function on n ranks: fresh processes with a gloo group between them, and a deadline.

Processes are forked from a server that has imported torch once, so that a world of four costs a
fraction of a second.  None outlives the call.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection
from typing import Any, Optional

PRELOAD = [
    "torch.distributed.checkpoint",
    "torch.distributed.tensor",
    "torch.distributed.device_mesh",
    "sidestep._engine",
    "sidestep._torch.state",
    "sidestep._torch.plugins",
    "torch._dynamo",  # with the first step of an optimizer
    # What the modules of tests import, in which the functions are that ranks run.
    "pytest",
    "hypothesis",
]
GRACE_S = 15.0  # for the others, once one rank has raised


class RanksFailed(AssertionError):
    """One or more ranks raised, died, or were not done in time.

    exceptions   {rank: exception} of those that raised, as far as it could be pickled
    """

    def __init__(self, message: str, exceptions: Optional[dict[int, BaseException]] = None) -> None:
        super().__init__(message)
        self.exceptions = exceptions or {}


class Died:
    """The result of a rank that was expected to die: its exit code (-9: SIGKILL)."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __repr__(self) -> str:
        return f"Died({self.code})"


def run_ranks(
    n: int,
    function: Callable[..., Any],
    *args: Any,
    timeout: float = 60,
    init: Optional[str] = "file",
    backend: str = "gloo",
    may_die: Collection[int] = (),
) -> list[Any]:
    """``function(rank, *args)`` in ``n`` processes; the results, by rank.

    ``function`` and ``args`` must be picklable (a function of a module).  ``init`` is the store of
    the default group: "file", "tcp", or None for no group.  A rank in ``may_die`` that ends
    without a result has `Died` as one.  Raises `RanksFailed`: with the stacks of all threads of the
    ranks that were still running at the deadline (``timeout`` seconds), which are then killed.
    """
    scratch = tempfile.mkdtemp(prefix="ranks-")
    world = _World(n, set(may_die), scratch, time.monotonic() + timeout)
    try:
        world.start(function, args, _address(init, scratch), backend)
        return world.results()
    finally:
        world.kill()
        shutil.rmtree(scratch, ignore_errors=True)


def _address(init: Optional[str], scratch: str) -> Optional[str]:
    if init == "file":
        return f"file://{scratch}/store"
    if init == "tcp":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    assert init is None, init
    return None


def _context() -> Any:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


class _World:
    """The processes of one call."""

    def __init__(self, n: int, may_die: set[int], scratch: str, deadline: float) -> None:
        self.n = n
        self.may_die = may_die
        self.scratch = scratch
        self.deadline = deadline
        self.processes: list[Any] = []
        self.pipes: dict[Any, int] = {}
        self.done: dict[int, tuple[bool, Any, str]] = {}

    def start(
        self, function: Callable[..., Any], args: Any, address: Optional[str], backend: str
    ) -> None:
        context = _context()
        call = pickle.dumps((function, args))
        for rank in range(self.n):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank_main,
                args=(rank, self.n, self.scratch, call, address, backend, dict(os.environ), theirs),
                daemon=True,
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes[ours] = rank

    def results(self) -> list[Any]:
        while self.pipes:
            left = self.deadline - time.monotonic()
            ready = multiprocessing.connection.wait(list(self.pipes), max(0.0, left))
            if not ready:
                raise RanksFailed(self._story("not done in time"), self._exceptions())
            for pipe in ready:
                self._take(pipe)
        if any(not good for good, _, _ in self.done.values()):
            raise RanksFailed(self._story("failed"), self._exceptions())
        return [self.done[rank][1] for rank in range(self.n)]

    def _take(self, pipe: Any) -> None:
        rank = self.pipes.pop(pipe)
        try:
            self.done[rank] = pickle.loads(pipe.recv_bytes())
        except EOFError:
            self.processes[rank].join(10)
            code = self.processes[rank].exitcode
            expected = rank in self.may_die
            self.done[rank] = (expected, Died(code), f"exited with {code}, without a result")
        except Exception as problem:
            self.done[rank] = (False, None, f"its result cannot be unpickled: {problem!r}")
        pipe.close()
        if not self.done[rank][0]:
            self.deadline = min(self.deadline, time.monotonic() + GRACE_S)

    def _exceptions(self) -> dict[int, BaseException]:
        return {
            rank: value
            for rank, (good, value, _) in self.done.items()
            if not good and isinstance(value, BaseException)
        }

    def _story(self, what: str) -> str:
        running = sorted(self.pipes.values())
        for rank in running:
            os.kill(self.processes[rank].pid, signal.SIGUSR1)
        if running:
            time.sleep(0.5)
        lines = [f"{self.n} ranks: {what}"]
        for rank, (good, _, text) in sorted(self.done.items()):
            if not good:
                lines.append(f"--- rank {rank} failed:\n{text}")
        for rank in running:
            with open(_trace_path(self.scratch, rank), errors="replace") as file:
                lines.append(f"--- rank {rank} was still running:\n{file.read()}")
        return "\n".join(lines)

    def kill(self) -> None:
        for process in self.processes:
            if process.is_alive() and (process in self._unfinished() or not self._ends(process)):
                process.kill()
            process.join(10)

    def _unfinished(self) -> list[Any]:
        return [self.processes[rank] for rank in self.pipes.values()]

    def _ends(self, process: Any) -> bool:
        process.join(max(0.1, min(5.0, self.deadline - time.monotonic())))
        return not process.is_alive()


def _trace_path(scratch: str, rank: int) -> str:
    return os.path.join(scratch, f"trace-{rank}")


def _rank_main(
    rank: int,
    n: int,
    scratch: str,
    call: bytes,
    address: Optional[str],
    backend: str,
    environment: dict[str, str],
    pipe: Any,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    trace = open(_trace_path(scratch, rank), "w")  # noqa: SIM115  (for the life of the process)
    faulthandler.register(signal.SIGUSR1, file=trace, all_threads=True)
    try:
        function, args = pickle.loads(call)
        if address is not None:
            import torch.distributed as dist

            dist.init_process_group(backend, init_method=address, rank=rank, world_size=n)
            if backend == "gloo":  # who is ready does not end while others connect to it
                dist.barrier()
        result = (True, function(rank, *args), "")
        if address is not None and dist.is_initialized():
            dist.destroy_process_group()
    except BaseException as problem:
        result = (False, _picklable(problem), traceback.format_exc())
    sys.stdout.flush()
    pipe.send_bytes(pickle.dumps(result))
    pipe.close()


def _picklable(problem: BaseException) -> Optional[BaseException]:
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:
        return None
    return problem
