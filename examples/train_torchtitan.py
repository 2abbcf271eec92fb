# SPDX-License-Identifier: BSD-3-Clause
"""A training with parts of torchtitan whose checkpoints sidestep saves in the background.

    torchrun --standalone --nproc-per-node=2 examples/train_torchtitan.py OUTPUT [STEPS]

Run it again after a kill: it resumes from the newest complete step. The loop does what torchtitan's
own Trainer does with its checkpointer. With the Trainer, only set ``config.checkpoint`` as below, in
a function of the config registry. It needs no GPU and no network.
"""

import os
import sys

import torch
from torch.distributed.fsdp import fully_shard
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw

from sidestep.torchtitan import CheckpointManager  # was: from torchtitan.components.checkpointer


class Rows:
    """Batches that are computed from their position. Each rank has its own position."""

    def __init__(self, rank):
        self.rank, self.place = rank, 0

    def __next__(self):
        self.place += 1
        return torch.arange(64.0).reshape(4, 16) / (self.place + 1) - self.rank

    def state_dict(self):
        return {f"rank_{self.rank}": self.place}

    def load_state_dict(self, state):
        self.place = state[f"rank_{self.rank}"]


class Progress:
    """The number of trained steps, as the Trainer stores it."""

    step = 0

    def state_dict(self):
        return {"step": torch.tensor(self.step, dtype=torch.int32)}

    def load_state_dict(self, state):
        self.step = int(state["step"])


def main():
    output = sys.argv[1] if len(sys.argv) > 1 else "output"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    torch.distributed.init_process_group("gloo")
    ranks = torch.distributed.get_world_size()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (ranks,)))
    adamw = default_adamw(lr=0.01)
    adamw.implementation = "for-loop"  # "fused" needs a GPU
    optimizers = adamw.build(model_parts=[model])
    schedule = LRSchedulersContainer.Config(warmup_steps=2, total_steps=1000)
    schedulers = schedule.build(optimizers=optimizers, training_steps=1000)
    data, progress = Rows(torch.distributed.get_rank()), Progress()
    config = CheckpointManager.Config(enable=True, interval=5, keep_latest_k=2)
    config.last_save_model_only = False  # so that a longer run can resume from the last one
    checkpointer = config.build(
        dataloader=data,
        model_parts=[model],
        optimizers=optimizers,
        lr_schedulers=schedulers,
        states={"train_state": progress},
        sd_adapter=None,
        base_folder=output,
    )
    checkpointer.load()
    while progress.step < steps:
        rows = next(data)
        optimizers.zero_grad()
        loss = (model(rows) - rows.sin()).square().mean()
        loss.backward()
        checkpointer.maybe_wait_for_staging()
        optimizers.step()
        schedulers.step()
        progress.step += 1
        if os.environ["RANK"] == "0":
            print(f"step {progress.step}: loss {loss.item():.4f}", flush=True)
        checkpointer.save(progress.step, last_step=progress.step == steps)
    checkpointer.close()  # waits for the last save
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
