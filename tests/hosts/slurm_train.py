# SPDX-License-Identifier: BSD-3-Clause
"""slurm_train.py LOGS UNTIL ROOT MIRROR -- a rank of a training under Slurm's srun: resumes a series, and
trains until step UNTIL, with a checkpoint every 10 steps, and one when Slurm asks it to end.

What it resumes must be, bit for bit, what a training has that was never stopped. It writes what it does
to LOGS/RANK, one line each."""
import os
import sys
import time

import sidestep
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from train import go_on, is_of, new_state, say

EVERY = 10
STEP_S = 0.1


def train(logs, until, mesh, root, far):
    state = new_state(mesh)
    with sidestep.Checkpointer(root, mirror=sidestep.Mirror(far, keep_last_n=3), keep_last_n=2,
                               preemption=sidestep.PreemptionPolicy(grace_s=20)) as checkpoints:
        resumed = checkpoints.resume(state)
        first = 0 if resumed is None else resumed.step
        assert is_of(state, first, mesh)
        say(logs, "RESUMED", first)
        for step in range(first + 1, until + 1):
            time.sleep(STEP_S)
            go_on(state, step)
            say(logs, "STEP", step)
            if checkpoints.should_save(step) or step % EVERY == 0:
                checkpoints.save(step, state)
    say(logs, "DONE", until)


def main():
    logs, until, *places = sys.argv[1:]
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    try:
        train(logs, int(until), mesh, *places)
    except sidestep.Preempted:
        say(logs, "PREEMPTED")
        raise
    finally:
        dist.destroy_process_group()
        time.sleep(0.5)  # as in train.py


if __name__ == "__main__":
    main()
