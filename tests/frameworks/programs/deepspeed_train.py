# SPDX-License-Identifier: BSD-3-Clause
"""A loop with DeepSpeed on processors.  To be run under torchrun.

    deepspeed_train.py STAGE DIRECTORY STEPS [NAME=VALUE ...]

model=pipe   a pipeline, with a stage on each rank; model=moe: a mixture of an expert on each rank
by=stock     DeepSpeed's own checkpoints
kill=STEP    SIGKILL to this rank a step after the save of STEP has begun
tag=TAG      load this one, and not what ``latest`` names
It saves every second step, and prints "loaded TAG", "loss STEP VALUE" for each step, and "open
STEP" where the save of the step before is not committed yet.
"""

import importlib
import os
import random
import signal
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch

importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # it takes minutes
options = dict(word.split("=", 1) for word in sys.argv[4:])
stage, directory, steps = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
RANK, KIND = int(os.environ["RANK"]), options.get("model")


def layers():
    return [torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 4)]


class Mixture(torch.nn.Module):
    def __init__(self):
        super().__init__()
        from deepspeed.moe.layer import MoE

        ranks = torch.distributed.get_world_size()
        expert = torch.nn.Linear(64, 64)
        self.first, self.last = torch.nn.Linear(16, 64), torch.nn.Linear(64, 4)
        self.moe = MoE(64, expert, num_experts=ranks, ep_size=ranks, use_rts=False)

    def forward(self, rows):
        return self.last(self.moe(self.first(rows))[0])


def model_of(kind):
    if kind == "moe":
        return Mixture()
    if kind == "pipe":
        from deepspeed.pipe import PipelineModule

        ranks = torch.distributed.get_world_size()
        return PipelineModule(layers(), num_stages=ranks, loss_fn=lambda made, _: loss_of(made))
    return torch.nn.Sequential(*layers())


def loss_of(made):
    return made.float().square().mean()


def train_step(engine, rows):
    """The loss."""
    if KIND == "pipe":
        return engine.train_batch(iter([(rows, rows)]))
    loss = loss_of(engine(rows))
    engine.backward(loss)
    engine.step()
    return loss


def made():
    torch.manual_seed(1)
    model = model_of(KIND)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": stage > 0},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3}},
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    if options.get("by") != "stock":
        import sidestep.deepspeed

        sidestep.deepspeed.attach(engine)
    return engine


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    engine = made()
    torch.manual_seed(RANK + 2)
    random.seed(RANK)
    path, client = engine.load_checkpoint(directory, tag=options.get("tag"))
    step = 0
    if path is not None:
        step = client["step"]
        torch.set_rng_state(client["rng"][RANK])
        print("loaded", os.path.basename(os.path.dirname(path)), flush=True)
    dtype = torch.bfloat16 if stage else torch.float32
    while step < steps:
        loss = train_step(engine, torch.randn(4, 16).to(dtype))
        step += 1
        total = loss.detach().double()
        torch.distributed.all_reduce(total)
        if RANK == 0:
            print("loss", step, total.item().hex(), flush=True)
            if step % 2 and step > 1 and not os.path.exists(f"{directory}/global_step{step - 1}"):
                print("open", step, flush=True)
        if options.get("kill") == str(step - 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if step % 2 == 0:
            states = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(states, torch.get_rng_state())
            engine.save_checkpoint(directory, client_state={"step": step, "rng": states})
    engine.destroy()


main()
