# SPDX-License-Identifier: BSD-3-Clause
"""The end of a job of several ranks: it comes within the grace time, on all of them, whichever got
the signal, and however slow the storage is.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from ranks import run_ranks

import sidestep
from sidestep import Checkpointer, Preempted, PreemptionPolicy
from sidestep._engine import engine_for


def end(rank: int, root: str, at_signal: str, told: set[int], in_save: bool) -> tuple[int, bool]:
    """Exit code, and whether the communicator is still good, after a signal to the ranks ``told``
    while a save is under way that would take a minute."""
    state = {f"w{rank}": torch.zeros(64 << 18)}
    comm = engine_for().comm
    checkpoints = Checkpointer(
        root,
        preemption=PreemptionPolicy(grace_s=3, at_signal=at_signal),  # type: ignore[arg-type]
    )
    with pytest.raises(Preempted) as ended, checkpoints:
        checkpoints.save(1, state)
        if rank in told:
            os.kill(os.getpid(), signal.SIGTERM)
        step = 2
        while not in_save and not checkpoints.should_save(step):
            time.sleep(0.002)
            step += 1
        checkpoints.save(step, state)
    return int(str(ended.value.code)), comm.failed is None


@pytest.mark.parametrize(
    "at_signal, told, in_save",
    [("save", {0, 1}, True), ("save", {1}, False), ("finish", {0}, False), ("abort", {1}, False)],
)
def test_the_grace_time_is_the_end_of_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_signal: str, told: set[int], in_save: bool
) -> None:
    monkeypatch.setenv("SIDESTEP_WRITE_BYTES_PER_SECOND", str(1 << 20))
    found = run_ranks(2, end, str(tmp_path), at_signal, told, in_save, timeout=40)
    assert found == [(143, True), (143, True)]
    assert sidestep.latest(tmp_path) is None
