# SPDX-License-Identifier: BSD-3-Clause
"""Engines: one per group, in turn, with what one rank cannot do told to all."""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Died, run_ranks
from saving import held_saves, load, save, state

import sidestep._engine as engine_module
from sidestep._c.errors import Error
from sidestep._comm import Comm, StoreComm
from sidestep._engine import Engine, LoadReport, engine_alone, engine_for


def tensors(fill: float, n: int = 100) -> dict[str, Any]:
    return {"w": torch.full((n,), float(fill)), "step": int(fill)}


def found(engine: Engine, path: Any, n: int = 100) -> float:
    """What the checkpoint's tensor is filled with."""
    load(engine, path, {"w": (target := torch.full((n,), -1.0))})
    assert bool((target == target[0]).all())
    return float(target[0])


# ---------------------------------------------------------------- alone


def test_alone_is_one_engine() -> None:
    assert engine_alone() is engine_for() is engine_for(no_dist=True)
    assert (engine_alone().rank, engine_alone().size) == (0, 1)
    assert engine_alone().any_rank(True) and not engine_alone().any_rank(False)


def test_save_and_load(tmp_path: Path) -> None:
    engine = engine_alone()
    save(engine, tmp_path / "c", tensors(4), step=4).result(30)
    target, extra = torch.zeros(100), torch.zeros(3)
    with pytest.raises(Error, match="'extra'") as caught:
        load(engine, tmp_path / "c", {"w": target, "extra": extra})
    assert caught.value.status.name == "EMISMATCH"
    report = load(engine, tmp_path / "c", {"w": target, "extra": extra}, partial=True)
    assert isinstance(report, LoadReport)
    assert (report.missing, report.unexpected) == (["extra"], ["step"])
    assert report.bytes_loaded == 400 <= report.bytes_read
    assert float(target.sum()) == 400
    with pytest.raises(Error, match="'step'"):
        load(engine, tmp_path / "c", {"w": target}, strict=True)
    for verify in ("before", "structure"):
        assert load(engine, tmp_path / "c", {"w": target}, verify=verify).bytes_loaded == 400
    with pytest.raises(ValueError, match="verify='never' is none of read, before, structure"):
        load(engine, tmp_path / "c", {"w": target}, verify="never")
    with pytest.raises(Error) as exists:
        save(engine, tmp_path / "c", tensors(5), no_replace=True)
    assert exists.value.status.name == "EEXISTS"
    assert found(engine, tmp_path / "c") == 4


def test_own_failure_is_raised_as_it_is(tmp_path: Path) -> None:
    reason = LookupError("mine")
    with pytest.raises(LookupError) as caught:
        engine_alone().save_async(tmp_path / "c", None, failure=reason)
    assert caught.value is reason
    with pytest.raises(LookupError):
        engine_alone().load(tmp_path / "c", None, failure=reason)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SIDESTEP_THREADS", "many", "SIDESTEP_THREADS is 'many', not a number"),
        ("SIDESTEP_THREADS", "-1", "SIDESTEP_THREADS is '-1', not a number"),
        ("SIDESTEP_THREADS", "1000", "1000 threads are more than"),
        ("SIDESTEP_POOL_BYTES", "1GB", "not a number of bytes, such as 67108864 for 64 MiB"),
        ("SIDESTEP_POOL_BYTES", "7", "pool_bytes must be at least"),
        ("SIDESTEP_SNAPSHOT", "fork", "SIDESTEP_SNAPSHOT is 'fork', none of: auto, copy, cow"),
        ("SIDESTEP_COPY_AHEAD", "now", "is 'now', none of: auto, always, never"),
        ("SIDESTEP_TIMEOUT", "x", "SIDESTEP_TIMEOUT is 'x', not a number of seconds"),
        ("SIDESTEP_IO", "fast", "SIDESTEP_IO is 'fast', none of: auto, uring, threads, buffered"),
        (
            "SIDESTEP_IO",
            "uring:",
            "SIDESTEP_IO is 'uring:', none of: auto, uring, threads, buffered",
        ),
        ("SIDESTEP_IO", "auto:0", "SIDESTEP_IO is 'auto:0', none of"),
        ("SIDESTEP_IO", "auto:65", "io_depth 65 is more than 64"),
        ("SIDESTEP_KEEP_PACE", "yes", "is 'yes', not a number"),
        ("SIDESTEP_WRITE_BYTES_PER_SECOND", "1G", "is '1G', not a number"),
        ("SIDESTEP_BACKGROUND_CPUS", "a-b", "background_cpus 'a-b' is not a list"),
        ("SIDESTEP_IO_DEPTH", "65", "io_depth 65 is more than 64"),
        ("SIDESTEP_EVENTS", "/nowhere/at/all", "open the event file '/nowhere/at/all'"),
    ],
)
def test_settings_that_are_wrong(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(Error, match=message.replace("(", r"\(")):
        Engine(Comm())


@pytest.mark.parametrize(
    ("variable", "value"), [("SIDESTEP_IO", "auto:13"), ("SIDESTEP_IO_DEPTH", "13")]
)
def test_a_depth_that_is_told(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with Engine(Comm()) as engine:
        handle = save(engine, tmp_path / "c", tensors(1, 10_000))
        handle.result()
        assert handle.progress().io_depth == 13


@pytest.mark.parametrize("snapshot", ["auto", "copy", "cow"])
def test_snapshots(
    snapshot: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("SIDESTEP_SNAPSHOT", snapshot)
    caplog.set_level("DEBUG", logger="sidestep")
    with Engine(Comm()) as engine:
        handle = save(engine, tmp_path / "c", tensors(1, 2_000_000))
        handle.result()
        progress = handle.progress()
    assert progress.cow_bytes + progress.copy_bytes == 8_000_000
    if snapshot == "copy":
        assert (progress.snapshot, progress.cow_bytes) == ("copy", 0)
        assert progress.copy_reason == "copying was asked for (snapshot=copy)"
        assert "snapshot by copy (copying was asked for (snapshot=copy))" in caplog.text
    else:  # or the machine does not let us
        assert (progress.snapshot == "cow") == (progress.cow_bytes > 0)
        assert progress.snapshot == "cow" or progress.copy_reason
        assert f"snapshot by {progress.snapshot}" in caplog.text


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDESTEP_THREADS", "1")
    monkeypatch.setenv("SIDESTEP_POOL_BYTES", str(16 << 20))
    monkeypatch.setenv("SIDESTEP_SNAPSHOT", "copy")
    monkeypatch.setenv("SIDESTEP_EVENTS", str(tmp_path / "events-{rank}"))
    before = set(os.listdir("/proc/self/task"))
    with Engine(Comm()) as engine:
        assert set(os.listdir("/proc/self/task")) <= before  # others may end
        handle = save(engine, tmp_path / "c", tensors(1, 10_000_000))
        assert handle.progress().streamed
        handle.result(60)
    events = [json.loads(line) for line in (tmp_path / "events-0").read_text().splitlines()]
    assert [event["event"] for event in events] == [
        "started",
        "staged",
        "released",
        "written",
        "committed",
    ]


def test_a_closed_engine(tmp_path: Path) -> None:
    engine = Engine(Comm())
    handle = save(engine, tmp_path / "c", tensors(1))
    engine.close()
    assert handle.done()
    engine.close()
    with pytest.raises(Error, match="the engine is closed"):
        engine.save_async(tmp_path / "c", None)


# ---------------------------------------------------------------- one save at a time


def test_the_second_save_waits(tmp_path: Path) -> None:
    with held_saves() as go:
        first = save(engine_alone(), tmp_path / "a", tensors(1))
        threading.Timer(1, go.set).start()
        second = save(engine_alone(), tmp_path / "b", tensors(2))
        assert go.is_set() and first.done()
        assert second.progress().wait_s > 0
    second.result(30)
    assert [found(engine_alone(), tmp_path / name) for name in "ab"] == [1, 2]


def test_threads_take_turns(tmp_path: Path) -> None:
    problems: list[BaseException] = []

    def use(number: int) -> None:
        try:
            for i in range(5):
                value = number * 10 + i
                save(engine_alone(), tmp_path / str(value), tensors(value)).result(30)
                assert found(engine_alone(), tmp_path / str(value)) == value
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
    assert len(list(tmp_path.iterdir())) == 20


def test_a_handler_cannot_enter_twice_with_other_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler that saves, in the middle of a save: refused, not a deadlock."""
    engine = engine_alone()
    values = state(engine, tensors(1))
    with (
        engine.turn("save"),
        pytest.raises(Error, match=r"in the middle of .*Checkpointer does with signals") as caught,
    ):
        monkeypatch.setattr(engine, "size", 2)
        engine.save_async(tmp_path / "c", values)
    assert caught.value.status.name == "EBUSY"
    monkeypatch.undo()
    save(engine, tmp_path / "c", tensors(1)).result(30)


# ---------------------------------------------------------------- errors that stick


def ended(engine: Engine, path: Any, fails: bool, name: str = "w") -> Any:
    """The handle of a save that has ended, which nobody has asked yet."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    if fails:
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, old[1]))
    try:
        handle = save(engine, path, {name: torch.ones(1_000_000), "step": 1})
        for _ in range(3000):
            if handle.done():
                break
            time.sleep(0.01)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert handle.done()
    return handle


@pytest.fixture
def failing_save(tmp_path: Path) -> Any:
    return lambda engine: ended(engine, tmp_path / "failed", True)


def test_an_error_nobody_asked_for_is_raised_once(
    tmp_path: Path, failing_save: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_alone()
    failed = failing_save(engine)
    assert "File too large" in caplog.text
    with pytest.raises(Error, match="the save before this one failed: save '.*/failed'") as caught:
        save(engine, tmp_path / "c", tensors(2))
    assert caught.value.__cause__ is failed.exception()
    assert caught.value.errno == failed.exception().errno != 0
    assert not (tmp_path / "c").exists()
    save(engine, tmp_path / "c", tensors(3)).result(30)
    failing_save(engine)
    with pytest.raises(Error, match="the save before this one failed"):
        found(engine, tmp_path / "c")
    assert found(engine, tmp_path / "c") == 3
    failing_save(engine)
    try:
        raise KeyError("the real one")
    except KeyError:
        assert found(engine, tmp_path / "c") == 3  # not raised over another exception ...
    with pytest.raises(Error, match="the save before this one failed"):
        found(engine, tmp_path / "c")  # ... but kept


def test_an_error_that_was_asked_for_is_not_raised_again(tmp_path: Path, failing_save: Any) -> None:
    engine = engine_alone()
    failed = failing_save(engine)
    assert isinstance(failed.exception(), Error)
    save(engine, tmp_path / "c", tensors(2)).result(30)
    with pytest.raises(Error):
        failing_save(engine).written.result()
    save(engine, tmp_path / "c", tensors(3)).result(30)
    assert found(engine, tmp_path / "c") == 3


# ---------------------------------------------------------------- several ranks


def background_beside_training(rank: int, root: str, use_store: bool) -> int:
    """Two saves in a row on the default group, with the trainer's own collectives beside them."""
    import torch.distributed as dist

    if use_store:
        import sidestep._comm as comm_module

        comm_module.has_cpu_backend = lambda group: False
    engine = engine_for()
    assert engine_for() is engine and engine_for(dist.group.WORLD) is engine
    for step in range(3):
        handles = [
            save(engine, f"{root}/{step}-{i}", tensors(step, 100_000), step=step) for i in range(2)
        ]
        for i in range(20):
            grad = torch.full((50,), float(rank + i))
            dist.all_reduce(grad)
            size = dist.get_world_size()
            assert float(grad[0]) == size * i + size * (size - 1) / 2
        assert [handle.wait(60) for handle in handles] == [True, True]
    dist.barrier()
    return sum(
        found(engine, f"{root}/{step}-{i}", 100_000) == step for step in range(3) for i in (0, 1)
    )


@pytest.mark.parametrize("use_store", [False, True])
def test_saves_beside_training(tmp_path: Path, use_store: bool) -> None:
    results = run_ranks(4, background_beside_training, str(tmp_path), use_store)
    assert results == [6] * 4


def groups_in_threads(rank: int, root: str) -> list[float]:
    """Two groups, each used by its own thread, in another order on each rank."""
    import torch.distributed as dist

    groups = [dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])]
    values: list[float] = [0.0, 0.0]

    def use(which: int) -> None:
        engine = engine_for(groups[which])
        for i in range(6):
            save(engine, f"{root}/{which}-{i}", tensors(10 * which + i), step=i)
        assert engine._saves and engine._saves[-1].wait(60)
        values[which] = found(engine, f"{root}/{which}-5")

    threads = [threading.Thread(target=use, args=(which,)) for which in (0, 1)]
    for thread in threads if rank % 2 else reversed(threads):
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join(60)
    assert engine_for(groups[0]) is not engine_for(groups[1])
    return values


def test_groups_in_threads(tmp_path: Path) -> None:
    assert run_ranks(3, groups_in_threads, str(tmp_path)) == [[5.0, 15.0]] * 3


def failures(rank: int, root: str) -> list[Any]:
    """A rank that cannot take part; one whose disk is full; one that was not asked."""
    engine = engine_for()
    story: list[Any] = []
    save(engine, f"{root}/c", tensors(1)).result(30)

    mine = RuntimeError("state_dict() broke") if rank == 1 else None
    try:
        engine.save_async(f"{root}/c", None if mine else state(engine, tensors(2)), failure=mine)
    except RuntimeError as problem:
        story.append(problem is mine)
    except Error as problem:
        story.append((problem.rank, "RuntimeError: state_dict() broke" in str(problem)))
    try:
        load(engine, f"{root}/c", {} if mine else {"w": torch.zeros(100)}, failure=mine)
    except RuntimeError as problem:
        story.append(problem is mine)
    except Error as problem:
        story.append(problem.rank == 1)

    handle = ended(engine, f"{root}/c", rank == 2, f"w{rank}")
    story.append("File too large" in str(handle.exception()))
    story.append(found(engine, f"{root}/c"))

    handle = ended(engine, f"{root}/c", rank == 2, f"w{rank}")
    if rank == 0:
        handle.exception()  # the others do not ask: all ranks hear of it
    try:
        save(engine, f"{root}/c", tensors(3))
        story.append("went on")
    except Error as problem:
        story.append("the save before this one failed" in str(problem))
    save(engine, f"{root}/c", tensors(4)).result(60)
    story.append(found(engine, f"{root}/c"))
    return story


def test_failures_are_everybodys(tmp_path: Path) -> None:
    results = run_ranks(3, failures, str(tmp_path))
    for rank, story in enumerate(results):
        if rank == 1:
            assert story[:2] == [True, True], story
        else:
            assert story[0] == (1, True) and story[1] is True, story
        assert story[2] is True, story
        assert story[-3:] == [1.0, True, 4.0], story


def killed(rank: int, root: str, when: str) -> Any:
    os.environ["SIDESTEP_TIMEOUT"] = "6"
    engine = engine_for()
    save(engine, f"{root}/c", tensors(1)).result(30)
    big = {f"w{rank}": torch.ones(20_000_000), "step": 1}
    torch.distributed.barrier()  # who lives comes in time
    if when == "before" and rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        handle = save(engine, f"{root}/c", big)
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        error: Any = handle.exception(60)
    except Error as problem:
        error = problem
    took = time.monotonic() - began
    kept = found(engine_alone(), f"{root}/c")
    return took, error.status.name if error else None, str(error), kept


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_rank(tmp_path: Path, when: str) -> None:
    """Before the agreement, and in the background; the old checkpoint stays."""
    results = run_ranks(3, killed, str(tmp_path), when, may_die=[2])
    assert isinstance(results[2], Died) and results[2].code == -9
    for took, status, message, kept in results[:2]:
        assert status in ("ETIMEDOUT", "EPEER", "EABORTED"), (status, message)
        assert "rank 2" in message or "ranks 2" in message, message
        assert took < 60  # not the 600 s that are the default
        assert kept == 1.0


def not_a_member(rank: int, root: str) -> str:
    import torch.distributed as dist

    group = dist.new_group([0])
    if rank == 0:
        save(engine_for(group), f"{root}/c", tensors(1)).result(30)
        return "saved"
    with pytest.raises(ValueError, match="Invalid process group specified"):
        dist.checkpoint.save({"w": torch.ones(1)}, checkpoint_id=f"{root}/d", process_group=group)
    with pytest.raises(ValueError, match="Invalid process group specified"):
        engine_for(group)
    return "refused"


def test_outside_the_group(tmp_path: Path) -> None:
    assert run_ranks(2, not_a_member, str(tmp_path)) == ["saved", "refused"]


def restarted(rank: int, root: str) -> list[Any]:
    """The default group destroyed and made again in the same process, with a save in flight."""
    import torch.distributed as dist

    story: list[Any] = []
    engines = []
    for attempt in range(3):
        dist.init_process_group(
            "gloo", init_method=f"file://{root}/store{attempt}", rank=rank, world_size=2
        )
        group = dist.new_group([0, 1])
        engine = engine_for()
        engines.append(engine)
        handle = save(engine, f"{root}/{attempt}", tensors(attempt, 1_000_000))
        other = save(engine_for(group), f"{root}/g{attempt}", tensors(attempt))
        assert engine_for(group) is not engine
        dist.destroy_process_group()
        with pytest.raises(ValueError):
            engine_for(group)
        del group
        gc.collect()
        assert engine_for() is engine_alone()
        story += [handle.wait(60), other.wait(60), engine.usable]
    assert len({id(engine) for engine in engines}) == 3
    with pytest.raises(Error, match="closed|destroyed"):
        save(engines[0], f"{root}/x", tensors(1))
    for _ in range(1000):
        engine_alone()
        if not any(engine.pointer for engine in engines):
            break
        time.sleep(0.01)
    story.append([bool(engine.pointer) for engine in engines])
    dist.init_process_group("gloo", init_method=f"file://{root}/last", rank=rank, world_size=2)
    story.append(
        [
            found(engine_for(), f"{root}/{name}{i}", n)
            for i in range(3)
            for name, n in (("", 1_000_000), ("g", 100))
        ]
    )
    dist.destroy_process_group()
    return story


def test_groups_come_and_go(tmp_path: Path) -> None:
    expected = [True, True, False] * 3 + [[False] * 3, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]]
    assert run_ranks(2, restarted, str(tmp_path), init=None) == [expected] * 2


def recovers(rank: int, root: str) -> list[Any]:
    """A rank that breaks off leaves the others with an error, and the group with a way to talk."""
    engine = engine_for()
    save(engine, f"{root}/c", tensors(1)).result(30)
    assert engine.comm.name == "the group's CPU backend"
    if rank == 0:
        real = engine.comm._all_reduce_max

        def breaking(values: Any, count: int) -> None:
            engine.comm._all_reduce_max = real  # type: ignore[method-assign]
            raise OSError("a broken wire")

        engine.comm._all_reduce_max = breaking  # type: ignore[method-assign]
    with pytest.raises(Error, match="rank 0: .* a broken wire"):
        save(engine, f"{root}/c", tensors(2))
    assert not engine.usable
    again = engine_for()
    save(again, f"{root}/c", tensors(3)).result(30)
    return [again.comm.name, found(again, f"{root}/c")]


def test_after_a_break(tmp_path: Path) -> None:
    expected = ["the group's key-value store", 3.0]
    assert run_ranks(2, recovers, str(tmp_path)) == [expected] * 2


def wrong_settings(rank: int) -> str:
    os.environ["SIDESTEP_TIMEOUT"] = "20"
    if rank == 1:
        os.environ["SIDESTEP_THREADS"] = "x"
    with pytest.raises(Error) as caught:
        engine_for()
    return str(caught.value)


def test_one_rank_cannot_open() -> None:
    first, second = run_ranks(2, wrong_settings)
    assert "SIDESTEP_THREADS is 'x', not a number" in first and "rank 1" in first
    assert "SIDESTEP_THREADS is 'x', not a number" in second


def test_plugins_own_engine(tmp_path: Path) -> None:
    """Engine(): a world of threads over a store."""
    import torch.distributed as dist

    store = dist.HashStore()
    values: list[float] = [0.0, 0.0]

    def rank_main(rank: int) -> None:
        with Engine(StoreComm(store, rank, 2, "p", 30.0)) as engine:
            save(engine, tmp_path / "c", tensors(7)).result(30)
            values[rank] = found(engine, tmp_path / "c")

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert values == [7.0, 7.0]


def interrupted_between(rank: int, root: str) -> Any:
    """Ctrl-C on one rank, in a save that waits for the one before."""
    engine = engine_for()
    with held_saves() as go:
        first = save(engine, f"{root}/a", tensors(1))
        if rank == 0:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            go.set()
        try:
            save(engine, f"{root}/b", tensors(2))
            outcome = "went on"
        except KeyboardInterrupt:
            outcome = "interrupted"
        except Error as problem:
            outcome = f"{problem.status.name} {problem.rank}"
        go.set()
    first.result(30)
    save(engine, f"{root}/b", tensors(3)).result(30)
    return outcome, found(engine, f"{root}/b")


def test_ctrl_c_on_one_rank(tmp_path: Path) -> None:
    results = run_ranks(2, interrupted_between, str(tmp_path))
    assert results == [("interrupted", 3.0), ("ECANCELLED 0", 3.0)]


def test_logging_is_quiet_by_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="sidestep")
    save(engine_alone(), tmp_path / "c", tensors(1)).result(30)
    assert not caplog.records
    assert engine_module.log.name == "sidestep"
