# SPDX-License-Identifier: BSD-3-Clause
"""python_series.py -- measures what a series costs a training loop: should_save(), retention, an
event, metrics, a resume among many checkpoints, and a resume past damaged ones; and how long the
commands that look at many checkpoints take.

bench/run calls it; it needs torch in .venv.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch_support import report, timed

import sidestep

ASKED = 2000
MANY = 1000
FROZEN_MIB = 50
BAD = 3


def ask(root: str, runs: int) -> list[float]:
    """Seconds of one call of should_save(): the median of ASKED calls, for each run."""
    found = []
    with sidestep.Checkpointer(root, interval=10**9, keep_last_n=2) as checkpoints:
        for run in range(runs):
            first = 1 + run * ASKED
            found.append(
                statistics.median(
                    timed(lambda: checkpoints.should_save(step))[0]
                    for step in range(first, first + ASKED)
                )
            )
    return found


def ask_on_two(rank: int, address: str, root: str, runs: int, queue: Any) -> None:
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    times = ask(root, runs)
    if rank == 0:
        queue.put(times)
    dist.destroy_process_group()


def two_ranks(directory: str, runs: int) -> list[float]:
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    address = f"file://{os.path.join(directory, 'store')}"
    ranks = [
        context.Process(
            target=ask_on_two, args=(rank, address, os.path.join(directory, "two"), runs, queue)
        )
        for rank in range(2)
    ]
    for rank in ranks:
        rank.start()
    times: list[float] = queue.get()
    for rank in ranks:
        rank.join()
    return times


def retention(directory: str, runs: int) -> list[float]:
    """How much longer a save's call takes if retention deletes: differences of medians."""
    state = {"weight": torch.zeros(1 << 20)}

    def median_call(root: str, keep: Any) -> float:
        with sidestep.Checkpointer(root, keep_last_n=keep, signals=()) as checkpoints:
            calls = []
            for step in range(1, 31):
                calls.append(timed(lambda: checkpoints.save(step, state))[0])
                checkpoints.wait()
            return statistics.median(calls)

    differences = []
    for run in range(runs):
        without = median_call(os.path.join(directory, f"all-{run}"), None)
        differences.append(
            max(1e-9, median_call(os.path.join(directory, f"few-{run}"), 2) - without)
        )
    return differences


def events(root: str, runs: int) -> list[float]:
    """Seconds to keep one event, with the call that tells it: the median of ASKED, for each run."""
    with sidestep.Checkpointer(root, signals=()) as checkpoints:
        tell = checkpoints._series.exported
        return [
            statistics.median(timed(lambda: tell(1, root))[0] for _ in range(ASKED))
            for _ in range(runs)
        ]


def metrics(directory: str, runs: int) -> tuple[list[float], list[float]]:
    """How much longer the call and the background of a save take if metrics are written:
    differences of medians."""
    state = {"weight": torch.zeros(1 << 18)}

    def medians(root: str) -> tuple[float, float]:
        calls, backgrounds = [], []
        with sidestep.Checkpointer(root, keep_last_n=2, signals=()) as checkpoints:
            for step in range(1, 61):
                call, handle = timed(lambda: checkpoints.save(step, state))
                calls.append(call)
                backgrounds.append(timed(handle.wait)[0])
        return statistics.median(calls), statistics.median(backgrounds)

    found: tuple[list[float], list[float]] = ([], [])
    for run in range(runs):
        without = medians(os.path.join(directory, f"silent-{run}"))
        os.environ["SIDESTEP_METRICS"] = os.path.join(directory, "metrics.prom")
        with_them = medians(os.path.join(directory, f"telling-{run}"))
        del os.environ["SIDESTEP_METRICS"]
        for differences, a, b in zip(found, with_them, without):
            differences.append(max(1e-9, a - b))
    return found


def looks(program: str, runs: int, *words: str) -> list[float]:
    """Seconds of a command that looks at a root."""
    command = [program, *words]
    return [
        timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))[0]
        for _ in range(runs)
    ]


def frozen(directory: str, runs: int) -> None:
    """Report the bytes and the background time of incremental saves, compared with saves that write
    everything. Nine tenths of the state are frozen."""
    base = {f"base.{i}": torch.randn(FROZEN_MIB << 18) for i in range(9)}
    times: dict[bool, list[float]] = {}
    for incremental in (True, False):
        root = os.path.join(directory, f"frozen-{incremental}")
        with sidestep.Checkpointer(
            root, options=sidestep.SaveOptions(incremental=incremental), keep_last_n=2, signals=()
        ) as checkpoints:
            for step in range(1, 4 + runs):
                state = {"model": base, "adapter": torch.randn(FROZEN_MIB << 18)}
                handle = checkpoints.save(step, state)
                handle.wait()
                progress = handle.progress()
                if step > 3:
                    times.setdefault(incremental, []).append(progress.write_s + progress.commit_s)
            if incremental:
                total, written = progress.bytes_total, progress.bytes_total - progress.linked_bytes
        shutil.rmtree(root)
    what = f"{10 * FROZEN_MIB} MiB, 9/10 frozen"
    report(f"series: incremental save of {what}: bytes written", "memory", 0.12 * total, [written])
    report(
        f"series: incremental save of {what}, in the background",
        "stall",
        1.0,
        times[True],
        "one that writes all",
        times[False],
    )


def make_many(root: str, count: int) -> None:
    """Make small checkpoints of one run, each with the run's annotations."""
    with sidestep.Checkpointer(root, signals=()) as checkpoints:
        for step in range(1, count + 1):
            checkpoints.save(step, {"weight": torch.zeros(16), "step": step})
        checkpoints.wait()


def damage(root: str, steps: range) -> None:
    for step in steps:
        os.truncate(os.path.join(root, f"step-{step}", "__0_0.distcp"), 100)


def resume_once(source: str, directory: str, bad: int) -> float:
    root = os.path.join(directory, "resumed")
    shutil.copytree(source, root)
    damage(root, range(10 + 1 - bad, 10 + 1))
    with sidestep.Checkpointer(root, signals=()) as checkpoints:
        state = {"weight": torch.zeros(16), "step": 0}
        time_taken = timed(lambda: checkpoints.resume(state))[0]
    if state["step"] != 10 - bad:
        raise RuntimeError(f"resumed from {state['step']}")
    shutil.rmtree(root)
    return time_taken


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="series-", dir=options.dir) as directory:
        report(
            "python: should_save, alone, 'no'",
            "duration",
            10e-6,
            ask(os.path.join(directory, "alone"), options.runs),
        )
        report("python: should_save, 2 ranks, 'no'", "duration", 10e-6, two_ranks(directory, options.runs))
        report(
            "series: retention, on the training thread", "duration", 1e-3, retention(directory, options.runs)
        )
        report(
            "series: an event that is kept (a save has 5)",
            "duration",
            20e-6,
            events(os.path.join(directory, "events"), options.runs),
        )
        calls, backgrounds = metrics(directory, options.runs)
        report("series: metrics, more than without, in the call", "duration", 1e-4, calls)
        report("series: metrics, more than without, in the background", "duration", 1e-3, backgrounds)
        frozen(directory, options.runs)
        many, hundred = os.path.join(directory, "many"), os.path.join(directory, "hundred")
        make_many(many, MANY)
        make_many(hundred, 100)
        report(
            f"series: latest() of {MANY} checkpoints",
            "duration",
            0.050,
            [timed(lambda: sidestep.latest(many))[0] for _ in range(options.runs)],
        )
        program = os.path.join(os.path.dirname(os.environ["SIDESTEP_LIBRARY"]), "sidestep")
        for count, words in (
            (MANY, ("ls", "--json", many)),
            (100, ("check", hundred)),
            (100, ("metrics", hundred)),
        ):
            what = f"series: sidestep {words[0]} of {count} checkpoints"
            report(what, "duration", 0.050, looks(program, options.runs, *words))
        few = os.path.join(directory, "few")
        with sidestep.Checkpointer(few, signals=()) as checkpoints:
            for step in range(1, 11):
                checkpoints.save(step, {"weight": torch.zeros(16), "step": step})
        sound = statistics.median(resume_once(few, directory, 0) for _ in range(options.runs))
        report(
            f"series: resume past {BAD} damaged ones, more than past none",
            "duration",
            0.100,
            [max(1e-9, resume_once(few, directory, BAD) - sound) for _ in range(options.runs)],
        )


if __name__ == "__main__":
    main()
