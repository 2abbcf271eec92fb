# SPDX-License-Identifier: BSD-3-Clause
"""Train with Ray Train on two workers. sidestep saves in the background, and after a worker has
died, all of them resume from the newest complete checkpoint.

    python examples/train_ray.py RUNS [STEPS]

RUNS is a directory that all nodes see. Run it again: it resumes there, too. It needs no GPU.
"""

import os
import sys

import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model

import sidestep


def train(config):
    """Runs on each worker. torch.distributed is set up by Ray."""
    torch.manual_seed(1)
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rank = ray.train.get_context().get_world_rank()
    state = sidestep.TrainState(model, optimizer)
    with sidestep.Checkpointer(config["root"], interval=5, keep_last_n=3) as checkpoints:
        newest = checkpoints.resume(state)
        while state.step < config["steps"]:
            batch = torch.Generator().manual_seed(2 * state.step + rank)
            loss = model(torch.randn(8, 32, generator=batch)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.step += 1
            last = state.step == config["steps"]
            if checkpoints.should_save(state.step) or last:
                newest = checkpoints.save(state.step, state, final=last)
            ray.train.report({"step": state.step, "loss": loss.item()})
            config.get("log", print)(rank, state.step, loss.item().hex())
    # It is on storage that all nodes see, and in the directory of the run: nothing to upload.
    ray.train.report(
        {"step": state.step},
        checkpoint=ray.train.Checkpoint(newest.path),
        checkpoint_upload_mode=ray.train.CheckpointUploadMode.NO_UPLOAD,
    )


def run(runs, steps, **more):
    runs = os.path.abspath(runs)
    root = os.path.join(runs, "example", "checkpoints")  # RunConfig below: storage_path, name
    trainer = TorchTrainer(
        train,
        train_loop_config={"root": root, "steps": steps, **more},
        scaling_config=ray.train.ScalingConfig(num_workers=2, use_gpu=torch.cuda.is_available()),
        run_config=ray.train.RunConfig(
            name="example",
            storage_path=runs,
            failure_config=ray.train.FailureConfig(max_failures=3),
        ),
    )
    return trainer.fit()


if __name__ == "__main__":
    result = run(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    print("checkpoint", result.checkpoint.path, flush=True)
