# SPDX-License-Identifier: BSD-3-Clause
"""train.py ROOT LOGS STEPS -- a rank of a training under torchrun: resumes a series, and saves STEPS
more steps.

Before it saves step N, it waits for the file LOGS/go-N. If LOGS/hold-HOST (a number) exists, the
ranks of that host write nothing before LOGS/write-HOST exists. It writes the result of each save to
LOGS/RANK, one line each. At the end, stock torch loads the newest step. After a failure it waits for
the file LOGS/over-HOST, because torchrun ends the other ranks of a host when one ends."""
import os
import sys
import time

import sidestep
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

HOST = os.environ["GROUP_RANK"]
ROWS = 48  # of all ranks together


def say(logs, *words):
    with open(os.path.join(logs, str(dist.get_rank())), "a", encoding="utf-8") as file:
        file.write(" ".join(str(word).replace("\n", " ") for word in words) + "\n")


def wait_for(logs, name):
    while not os.path.exists(os.path.join(logs, name)):
        time.sleep(0.02)


def new_state(mesh, step):
    rows = torch.full((ROWS // dist.get_world_size(), 8), float(step))
    return {"w": DTensor.from_local(rows, mesh, [Shard(0)]), "step": step}


def is_of(state, step):
    return state["step"] == step and bool((state["w"].to_local() == step).all())


def train(root, logs, steps, mesh):
    state = new_state(mesh, 0)
    with sidestep.Checkpointer(root) as checkpoints:
        resumed = checkpoints.resume(state)
        first = 0 if resumed is None else resumed.step
        assert is_of(state, first)
        say(logs, "RESUMED", first)
        for step in range(first + 1, first + steps + 1):
            wait_for(logs, f"go-{step}")
            with sidestep.paused():
                save = checkpoints.save(step, new_state(mesh, step))
                say(logs, "STAGED", step)
                if os.path.exists(os.path.join(logs, f"hold-{HOST}")):
                    wait_for(logs, f"write-{HOST}")
            save.result()
            say(logs, "COMMITTED", step)
    loaded = new_state(mesh, 0)
    dcp.load(loaded, checkpoint_id=os.path.join(root, f"step-{first + steps}"))
    assert is_of(loaded, first + steps)
    say(logs, "LOADED", first + steps)


def main():
    root, logs, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    try:
        train(root, logs, steps, mesh)
    except Exception as error:
        say(logs, "FAILED", type(error).__name__, error)
        wait_for(logs, f"over-{HOST}")
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
