# SPDX-License-Identifier: BSD-3-Clause
"""python_torchtitan.py -- measures what a checkpoint costs a training with torchtitan's parts, with
each of its ways to save and with sidestep's CheckpointManager.

bench/run calls it with the Python of .venv/frameworks/torchtitan. One of torchtitan's ways pins
memory, which torch cannot do without a GPU. Here it uses memory that is not pinned.
"""
import functools
from dataclasses import replace

import torch
from framework_support import STEPS, Clock, Net, arguments, compare
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpointer import CheckpointManager as Stock
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw

from sidestep.torchtitan import CheckpointManager

COMMON = {"enable": True, "initial_load_model_only": False}
WAYS = {
    "stock: disabled": Stock.Config(async_mode="disabled", **COMMON),  # its default
    "stock: async": Stock.Config(async_mode="async", **COMMON),
    "stock: with pinned mem": Stock.Config(async_mode="async_with_pinned_mem", **COMMON),
    "sidestep": CheckpointManager.Config(**COMMON),
}


class Progress:
    step = 0

    def state_dict(self):
        return {"step": self.step}


def main():
    args = arguments()
    net = Net(args.mib, moments=2)
    fully_shard(net, mesh=init_device_mesh("cpu", (1,)))
    optimizers = replace(default_adamw(lr=1e-6), implementation="for-loop").build(model_parts=[net])
    schedulers = LRSchedulersContainer.Config(warmup_steps=2, total_steps=STEPS).build(
        optimizers=optimizers, training_steps=STEPS)
    parts = {"model_parts": [net], "optimizers": optimizers, "lr_schedulers": schedulers}

    @functools.cache
    def manager_of(way, path):
        made = replace(WAYS[way], folder=path).build(
            **parts, dataloader=Progress(), states={"train_state": Progress()}, sd_adapter=None)
        if way == "stock: with pinned mem":
            made.stager = DefaultStager(StagingOptions(False, True, True, False))
        return made

    def train(way, path):
        saves = manager_of(way, path)
        clock = Clock(path, lambda: saves.save(500), saves.maybe_wait_for_saving)
        for done in range(STEPS):
            clock.step_begins(done)
            net(torch.ones(1)).backward()
            saves.maybe_wait_for_staging()
            optimizers.step()
            optimizers.zero_grad()
            clock.step_ended(done + 1)
        return clock

    compare("torchtitan, FSDP2, one rank", args, WAYS, train)


if __name__ == "__main__":
    main()
