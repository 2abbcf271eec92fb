# SPDX-License-Identifier: BSD-3-Clause
"""Finds out from the environment what launched this process: torchrun, Slurm, or an MPI."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

log = logging.getLogger("sidestep")

GRACE_S = 30.0  # the default of torchrun, of Slurm's KillWait and of Kubernetes


@dataclass(frozen=True)
class Environment:
    """How this process was launched.  A field that is not known is None.

    launcher    "torchrun", "openmpi", "mpich", "slurm", or "env" (RANK and WORLD_SIZE alone)
    rank, world_size, local_rank
    master      "host:port", or the host
    job         the scheduler's name of the job
    restarts    how often the job was started again: by torchrun, and by Slurm (requeued)
    ends_at     when the scheduler will end the job, in seconds since 1970
    """

    launcher: Optional[str] = None
    rank: Optional[int] = None
    world_size: Optional[int] = None
    local_rank: Optional[int] = None
    master: Optional[str] = None
    job: Optional[str] = None
    restarts: int = 0
    ends_at: Optional[float] = None

    def left_s(self) -> float:
        """Seconds until the scheduler ends the job; infinity where it does not say."""
        if self.ends_at is None:
            return float("inf")
        return max(0.0, self.ends_at - time.time())


# How to recognize each launcher, and its names for rank, size and local rank.  The first match
# counts: torchrun within a Slurm job has ranks of its own.
_OMPI = "OMPI_COMM_WORLD_"
_LAUNCHERS = (
    ("torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("openmpi", f"{_OMPI}SIZE", f"{_OMPI}RANK", f"{_OMPI}SIZE", f"{_OMPI}LOCAL_RANK"),
    ("mpich", "PMI_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("slurm", "SLURM_PROCID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("env", "WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
)


def environment(variables: Optional[Mapping[str, str]] = None) -> Environment:
    """How this process was launched; ``variables`` replace its environment."""
    env = os.environ if variables is None else variables
    if not isinstance(env, Mapping):
        raise TypeError(f"variables: names and values are wanted, not a {type(env).__name__}")
    launcher, rank, size, local = None, None, None, None
    for name, sign, *places in _LAUNCHERS:
        numbers = [_number(env, place) for place in places]
        if sign in env and numbers[0] is not None and numbers[1] is not None:
            launcher, (rank, size, local) = name, numbers
            break
    end = _number(env, "SLURM_JOB_END_TIME")
    counts = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    host = env.get("MASTER_ADDR") or env.get("SLURM_LAUNCH_NODE_IPADDR")
    port = env.get("MASTER_PORT")
    return Environment(
        launcher=launcher,
        rank=rank,
        world_size=size,
        local_rank=local,
        master=f"{host}:{port}" if host and port else host or None,
        job=env.get("SLURM_JOB_ID") or env.get("TORCHELASTIC_RUN_ID") or None,
        restarts=sum(_number(env, name) or 0 for name in counts),
        ends_at=float(end) if end is not None else None,
    )


def tell_about_job(env: Environment, size: int) -> None:
    """Log what looks wrong about the launch of ``size`` processes, and earlier restarts."""
    if env.restarts:
        log.info("this job was restarted %d times", env.restarts)
    if size == 1 and (env.world_size or 1) > 1 and env.launcher != "slurm":
        log.warning(
            "%s started %d processes, but torch.distributed is not initialized: each of them "
            "takes itself for the only one",
            env.launcher,
            env.world_size,
        )


def _number(env: Mapping[str, str], name: str) -> Optional[int]:
    """A non-negative number; None if the text is missing or is not one."""
    text = env.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
