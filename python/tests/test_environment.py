# SPDX-License-Identifier: BSD-3-Clause
"""What launched a process, from its environment."""

from __future__ import annotations

import time

import pytest

import sidestep
from sidestep._environment import Environment, environment

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "node-0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "16",
    "SLURM_LOCALID": "3",
    "SLURM_RESTART_COUNT": "1",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7",
    "SLURM_JOB_END_TIME": "2000000000",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "2"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, Environment()),
        (TORCHRUN, Environment("torchrun", 5, 8, 1, "node-0:29500", "none", 2)),
        (SLURM, Environment("slurm", 3, 16, 3, "10.0.0.7", "4711", 1, 2e9)),
        ({**SLURM, **TORCHRUN}, Environment("torchrun", 5, 8, 1, "node-0:29500", "4711", 3, 2e9)),
        ({**SLURM, **OPEN_MPI}, Environment("openmpi", 1, 4, 0, "10.0.0.7", "4711", 1, 2e9)),
        (MPICH, Environment("mpich", 2, 3, 2)),
        ({"RANK": "0", "WORLD_SIZE": "2"}, Environment("env", 0, 2)),
        # words that are no numbers, and a job without a step
        ({"RANK": "x", "WORLD_SIZE": "2"}, Environment()),
        ({"RANK": "-1", "WORLD_SIZE": "2", "SLURM_RESTART_COUNT": "often"}, Environment()),
        ({"SLURM_JOB_ID": "9"}, Environment(job="9")),
    ],
)
def test_launchers(variables: dict[str, str], expected: Environment) -> None:
    assert environment(variables) == expected


def test_time_left() -> None:
    assert Environment().left_s() == float("inf")
    assert Environment(ends_at=time.time() - 5).left_s() == 0
    assert 90 < Environment(ends_at=time.time() + 100).left_s() <= 100


def test_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "7")
    monkeypatch.setenv("SLURM_NTASKS", "9")
    assert (sidestep.environment().rank, sidestep.environment().world_size) == (7, 9)
