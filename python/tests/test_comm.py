# SPDX-License-Identifier: BSD-3-Clause
"""The collectives over gloo and over stores: what they compute, what they leave, how they fail."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from ranks import Died, run_ranks

import sidestep._comm as comm_module
import sidestep._comm_base as base
from sidestep._c.errors import Error
from sidestep._comm import Comm, GroupComm, StoreComm, comm_of

# ---------------------------------------------------------------- as the library calls it


def max_all(comm: Comm, values: list[int]) -> tuple[int, list[int]]:
    words = (ctypes.c_uint64 * len(values))(*values)
    return comm.struct.all_reduce_max(None, words, len(values)), list(words)


def broadcast(comm: Comm, value: bytes, root: int) -> tuple[int, bytes]:
    buffer = ctypes.create_string_buffer(value if comm.rank == root else len(value), len(value))
    status = comm.struct.broadcast(None, ctypes.addressof(buffer), len(value), root)
    return status, buffer.raw


def gather(comm: Comm, parts: list[bytes]) -> tuple[int, bytes]:
    mine = ctypes.create_string_buffer(parts[comm.rank], max(1, len(parts[comm.rank])))
    total = sum(map(len, parts))
    into = ctypes.create_string_buffer(total + 8) if comm.rank == 0 else None
    lengths = (ctypes.c_size_t * comm.size)(*map(len, parts)) if comm.rank == 0 else None
    address = ctypes.addressof(into) if into is not None else None
    status = comm.struct.gather(
        None, ctypes.addressof(mine), len(parts[comm.rank]), address, lengths
    )
    assert into is None or into.raw[total:] == bytes(8)
    return status, into.raw[:total] if into is not None else b"".join(parts)


def scatter(comm: Comm, parts: list[bytes]) -> tuple[int, bytes]:
    all_parts = ctypes.create_string_buffer(b"".join(parts)) if comm.rank == 0 else None
    lengths = (ctypes.c_size_t * comm.size)(*map(len, parts)) if comm.rank == 0 else None
    address = ctypes.addressof(all_parts) if all_parts is not None else None
    length = len(parts[comm.rank])
    into = ctypes.create_string_buffer(length + 8)
    status = comm.struct.scatter(None, address, lengths, ctypes.addressof(into), length)
    assert into.raw[length:] == bytes(8)
    return status, into.raw[:length]


def conversation(comm: Comm, rounds: int = 12) -> int:
    """All four, with sizes that are 0, small, and beyond one piece.  How many were compared."""
    made = random.Random(7)  # the same on all ranks
    compared = 0
    for _ in range(rounds):
        per_rank = [[made.getrandbits(64) for _ in range(3)] for _ in range(comm.size)]
        per_rank[made.randrange(comm.size)][0] = (1 << 64) - 1  # beyond the signed ones
        status, found = max_all(comm, per_rank[comm.rank])
        assert (status, found) == (0, [max(column) for column in zip(*per_rank)])
        root, value = made.randrange(comm.size), made.randbytes(made.choice([1, 700, 5000]))
        assert broadcast(comm, value, root) == (0, value)
        parts = [made.randbytes(made.choice([0, 1, 900, 7000])) for _ in range(comm.size)]
        assert gather(comm, parts) == (0, b"".join(parts))
        assert scatter(comm, parts) == (0, parts[comm.rank])
        compared += 4
    assert gather(comm, [b""] * comm.size) == (0, b"")
    return compared


def small_pieces() -> None:
    comm_module.GATHER_BYTES = 2048
    comm_module.STORE_BYTES = 1024


# ---------------------------------------------------------------- what they compute


def talk(rank: int, use_store: bool) -> tuple[str, int]:
    import torch.distributed as dist

    small_pieces()
    if use_store:
        comm_module.has_cpu_backend = lambda group: False
    comm = comm_of(dist.group.WORLD)
    with comm.calling():
        compared = conversation(comm)
        max_all(comm, [rank, 7])
    comm.raise_carried()
    if not use_store:  # the last tensors stay, so that gloo's threads never free them
        assert comm_module._last_tensors[-1].numel() == 2
    return type(comm).__name__, compared


@pytest.mark.parametrize("init", ["file", "tcp"])
@pytest.mark.parametrize(("use_store", "name"), [(False, "GroupComm"), (True, "GroupStoreComm")])
def test_groups(init: str, use_store: bool, name: str) -> None:
    assert run_ranks(3, talk, use_store, init=init) == [(name, 48)] * 3


def talk_beside_training(rank: int) -> int:
    """A sub-group, a mesh's group, and the group's own collectives in between."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    pair = dist.new_group([1, 3])
    compared = 0
    groups = [mesh["a"].get_group(), mesh["b"].get_group(), mesh.get_group("a"), dist.group.WORLD]
    if rank in (1, 3):
        groups.append(pair)
    for group in groups:
        comm = comm_of(group)
        assert isinstance(comm, GroupComm)
        assert (comm.rank, comm.size) == (dist.get_rank(group), dist.get_world_size(group))
        with comm.calling():
            compared += conversation(comm, 2)
            if group is dist.group.WORLD:
                ones = torch.ones(5)
                dist.all_reduce(ones)
                assert ones.tolist() == [4.0] * 5
                compared += conversation(comm, 2)
        comm.raise_carried()
    return compared


def test_meshes_and_subgroups() -> None:
    assert run_ranks(4, talk_beside_training) == [40, 48, 40, 48]


def in_threads(size: int, function: Callable[[int], Any]) -> list[Any]:
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = function(rank)
        except BaseException as problem:
            results[rank] = problem

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return results


@pytest.mark.parametrize("kind", ["hash", "file", "tcp"])
def test_stores(kind: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    monkeypatch.setattr(comm_module, "STORE_BYTES", 1024)
    server: Any = dist.HashStore()
    if kind == "file":
        server = dist.FileStore(str(tmp_path / "store"), -1)
    if kind == "tcp":
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def rank_main(rank: int) -> tuple[int, int]:
        store = server
        if kind == "tcp":
            store = dist.TCPStore("127.0.0.1", server.port, wait_for_workers=False)
        if kind == "file":
            store = dist.FileStore(str(tmp_path / "store"), -1)
        comm = StoreComm(store, rank, 3, "here", 30.0)
        first = conversation(comm, 4)
        assert max_all(comm, [0])[0] == 0
        keys = server.num_keys()
        return first + conversation(comm, 12), keys

    results = in_threads(3, rank_main)
    assert [result[0] for result in results] == [64] * 3, results
    if kind != "file":  # one that only counts what is in it
        assert server.num_keys() <= 4 < 4 * 28
        assert all(keys <= 8 for _, keys in results)


def test_alone_needs_nobody() -> None:
    comm = Comm()
    with comm.calling():
        assert comm.max_all([3, 4]) == [3, 4]
    comm.raise_carried()
    assert (comm.rank, comm.size, bool(comm.struct.gather)) == (0, 1, False)


# ---------------------------------------------------------------- how they fail


def one_fails(rank: int, use_store: bool) -> tuple[int, float, str, Any]:
    """Rank 1 runs out of memory inside a gather."""
    import torch.distributed as dist

    if use_store:
        comm_module.has_cpu_backend = lambda group: False
    comm = comm_of(dist.group.WORLD, timeout=30.0)
    with comm.calling():
        conversation(comm, 1)
    if rank == 1:

        def fail(*arguments: Any) -> None:
            raise MemoryError("no room")

        fail.__name__ = "_gather"
        comm._gather = fail  # type: ignore[method-assign]
    began = time.monotonic()
    with comm.calling():
        status, _ = gather(comm, [b"x"] * 3)
        again, _ = max_all(comm, [1])
    took = time.monotonic() - began
    assert status != 0 and again != 0, (status, again)
    with pytest.raises(Error) as caught:
        comm.raise_carried("save 'x'")
    with_cause = type(caught.value.__cause__).__name__
    return status, took, str(caught.value), with_cause


@pytest.mark.parametrize("use_store", [False, True])
def test_a_failure_is_seen_by_all(use_store: bool) -> None:
    for rank, (_, took, message, cause) in enumerate(run_ranks(3, one_fails, use_store)):
        assert message.startswith("save 'x': rank 1: gather over the group's "), message
        assert "MemoryError: no room" in message
        assert "EPEER" in message
        assert took < 8, f"rank {rank} took {took}"
        assert cause == ("MemoryError" if rank == 1 else "PeerFailure")


def one_is_silent(rank: int, use_store: bool, dies: bool) -> Any:
    import torch.distributed as dist

    if use_store:
        comm_module.has_cpu_backend = lambda group: False
    base.PULSE_S = 0.2  # a rank that still waits answers a roll call only at its next pulse
    comm = comm_of(dist.group.WORLD, timeout=1.0)
    with comm.calling():
        conversation(comm, 1)
    if rank == 2:
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(6.0)
        return None
    began = time.monotonic()
    with comm.calling():
        status, _ = max_all(comm, [1])
    assert status != 0
    with pytest.raises(Error) as caught:
        comm.raise_carried("save 'x'")
    return time.monotonic() - began, str(caught.value), caught.value.rank, caught.value.status.name


@pytest.mark.parametrize(("use_store", "dies"), [(False, True), (True, True), (True, False)])
def test_who_is_missing_is_named(use_store: bool, dies: bool) -> None:
    results = run_ranks(3, one_is_silent, use_store, dies, may_die=[2])
    assert isinstance(results[2], Died) == dies
    for took, message, rank, status in results[:2]:
        assert took < 8, took
        assert "rank 2 did not come" in message
        assert rank == 2
        assert status in ("ETIMEDOUT", "EPEER")


class Silent:
    """A store whose host cannot be reached."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.check = self.get = self.set = self.delete_key = self.wait

    def wait(self, *arguments: Any) -> None:
        self.over.wait()


class Waiting(Comm):
    """Waits, as over a backend, for others who do not come."""

    def _all_reduce_max(self, values: Any, count: int) -> None:
        while True:
            time.sleep(0.01)
            self._pulse()


@pytest.mark.parametrize("use_store", [False, True])
def test_a_host_that_was_cut_off(use_store: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "ROLL_CALL_S", 0.2)
    monkeypatch.setattr(base, "PULSE_S", 0.0)
    store = Silent()
    comm = StoreComm(None, 0, 2, "", 0.2) if use_store else Waiting(0, 2, 0.2)
    comm._open_store = lambda: store
    try:
        with comm.calling():
            status, _ = max_all(comm, [1])
        assert status != 0
        with pytest.raises(Error, match=rf"was {socket.gethostname()} cut off") as caught:
            comm.raise_carried("save 'x'")
        assert caught.value.status.name == "ETIMEDOUT"
    finally:
        store.over.set()


# ---------------------------------------------------------------- signals


class Alarm(Exception):
    pass


def interrupted(rank: int, times: int) -> Any:
    """Rank 0 is interrupted while it waits for rank 1, who is late."""
    import torch.distributed as dist

    comm = comm_of(dist.group.WORLD, timeout=20.0)
    if rank == 1:
        time.sleep(1.5)
        with comm.calling():
            status, _ = max_all(comm, [5])
        return status
    seen = []

    def handler(number: int, frame: Any) -> None:
        seen.append(number)
        raise Alarm(f"number {len(seen)}")

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3 if times > 1 else 0)
    with comm.calling():
        assert signal.getsignal(signal.SIGALRM) is not handler
        status, _ = max_all(comm, [1])
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert signal.getsignal(signal.SIGALRM) is handler
    with pytest.raises(Alarm, match="number 1"):
        comm.raise_carried()
    return status, len(seen)


def test_the_first_signal_lets_the_agreement_end() -> None:
    assert run_ranks(2, interrupted, 1) == [(0, 1), 0]


def test_the_second_breaks_it_off_and_the_others_are_told() -> None:
    (status, count), other = run_ranks(2, interrupted, 2)
    assert (status, count >= 2) == (1, True)
    assert other in (0, 1)  # the exchange itself may still come to its end


def test_handlers_that_return_run_at_once() -> None:
    calls: list[int] = []
    old = signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
    try:
        comm = Comm()
        with comm.calling():
            os.kill(os.getpid(), signal.SIGUSR2)
            for _ in range(1000):
                if calls:
                    break
                time.sleep(0.001)
            assert calls == [signal.SIGUSR2]
        comm.raise_carried()
    finally:
        signal.signal(signal.SIGUSR2, old)


# ---------------------------------------------------------------- settings


def test_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIDESTEP_TIMEOUT", raising=False)
    assert base.timeout_s() == 600.0
    monkeypatch.setenv("SIDESTEP_TIMEOUT", "2.5")
    assert Comm().timeout == 2.5
    for text in ("soon", "-1", "0", "nan"):
        monkeypatch.setenv("SIDESTEP_TIMEOUT", text)
        with pytest.raises(Error, match=f"SIDESTEP_TIMEOUT is '{text}', not a number of seconds"):
            base.timeout_s()
