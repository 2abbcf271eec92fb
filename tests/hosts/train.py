# SPDX-License-Identifier: BSD-3-Clause
"""train.py LOGS STEPS ROOT [MIRROR] -- a rank of a training under torchrun: resumes a series, and
saves STEPS more steps.

Before it saves step N, it waits for the file LOGS/go-N. If LOGS/hold-HOST (a number) exists, the
ranks of that host write nothing before LOGS/write-HOST exists. It writes the result of each save to
LOGS/RANK, one line each. What it resumes must be, bit for bit, what a training has that was never
stopped. At the end, stock torch loads the newest step, from the mirror if there is one. After a
failure it waits for the file LOGS/over-HOST, because torchrun ends the other ranks of a host when one
ends."""
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


def new_state(mesh):
    rows = torch.zeros((ROWS // dist.get_world_size(), 8))
    return {"w": DTensor.from_local(rows, mesh, [Shard(0)]), "step": 0}


def go_on(state, step):
    state["w"].to_local().mul_(1.0001).add_(step)
    state["step"] = step


def is_of(state, step, mesh):
    wanted = new_state(mesh)
    for one in range(1, step + 1):
        go_on(wanted, one)
    return state["step"] == step and torch.equal(state["w"].to_local(), wanted["w"].to_local())


def train(logs, steps, mesh, root, far=None):
    state = new_state(mesh)
    leaves = "AFTER_EXIT" in os.environ
    mirror = None if far is None else sidestep.Mirror(far, keep_last_n=3, after_exit=leaves)
    with sidestep.Checkpointer(root, mirror=mirror, keep_last_n=2 if far else None) as checkpoints:
        resumed = checkpoints.resume(state)
        first = 0 if resumed is None else resumed.step
        assert is_of(state, first, mesh)
        say(logs, "RESUMED", first)
        for step in range(first + 1, first + steps + 1):
            wait_for(logs, f"go-{step}")
            go_on(state, step)
            with sidestep.paused():
                save = checkpoints.save(step, state)
                say(logs, "STAGED", step)
                if os.path.exists(os.path.join(logs, f"hold-{HOST}")):
                    wait_for(logs, f"write-{HOST}")
            save.result()
            say(logs, "COMMITTED", step)
    loaded = new_state(mesh)
    if far:  # another host has put it there, and NFS shows it some seconds later
        wait_for(far, f"step-{first + steps}/.metadata")
    dcp.load(loaded, checkpoint_id=os.path.join(far or root, f"step-{first + steps}"))
    assert is_of(loaded, first + steps, mesh)
    say(logs, "LOADED", first + steps)


def main():
    logs, steps, *places = sys.argv[1:]
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    try:
        train(logs, int(steps), mesh, *places)
    except BaseException as error:  # that of DCP is no Exception
        say(logs, "FAILED", type(error).__name__, error)
        wait_for(logs, f"over-{HOST}")
        raise
    dist.destroy_process_group()
    time.sleep(0.5)  # a thread of gloo that still runs would abort the process, and torchrun then waits


if __name__ == "__main__":
    main()
