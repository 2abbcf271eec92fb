# SPDX-License-Identifier: BSD-3-Clause
"""A loop of torchtitan's parts on processors: optimizers, schedulers, checkpoints, and a tiny model
that FSDP2 shards.  (Its Trainer needs triton.)  To be run under torchrun.

    titan_train.py DIRECTORY STEPS [NAME=VALUE ...]

by=stock    torchtitan's own CheckpointManager; by=made: one that with_sidestep() makes of it; else
            sidestep's
mode=WORD   async_mode
keep=K      keep_latest_k
kill=STEP   SIGKILL to this rank a step after the save of STEP has begun
last=model  last_save_model_only, last=hf: in the format of Hugging Face, too; else all of the state
dtype=WORD  export_dtype
init=PATH   initial_load_path, of which all is loaded with whole=true; of Hugging Face's: hf=true
exclude=KEY,KEY exclude_from_loading
index=DIR   where Hugging Face's index of the model is
report=true  the trainer's metrics go to TensorBoard and W&B

It saves every second step, and prints "loss STEP VALUE" for each.
"""

import os
import signal
import sys
from types import SimpleNamespace

import torch
from titan_parts import Data, Progress
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpointer import CheckpointManager as Stock
from torchtitan.components.metrics import LoggerContainer, TensorBoardLogger, WandBLogger
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.protocols.state_dict_adapter import StateDictAdapter

from sidestep.torchtitan import CheckpointManager, with_sidestep

options = dict(word.split("=", 1) for word in sys.argv[3:])


class Adapter(StateDictAdapter):
    """The names that the model has at Hugging Face."""

    def to_hf(self, state_dict):
        return {f"model.layers.{name}": value for name, value in state_dict.items()}

    def from_hf(self, hf_state_dict):
        return {name.removeprefix("model.layers."): value for name, value in hf_state_dict.items()}


def manager(directory, parts, progress):
    kinds = {"stock": Stock, "made": with_sidestep(Stock)}
    kind = kinds.get(options.get("by"), CheckpointManager)
    config = kind.Config(
        enable=True,
        interval=2,
        **({"async_mode": options["mode"]} if "mode" in options else {}),
        keep_latest_k=int(options.get("keep", 10)),
        last_save_model_only="last" in options,
        last_save_in_hf=options.get("last") == "hf",
        export_dtype=options.get("dtype", "bfloat16"),
        initial_load_path=options.get("init"),
        initial_load_model_only="whole" not in options,
        initial_load_in_hf="hf" in options,
        exclude_from_loading=options["exclude"].split(",") if "exclude" in options else [],
    )
    print("mode", config.async_mode, flush=True)
    parts.update(states={"train_state": progress}, sd_adapter=Adapter(None, options.get("index")))
    return config.build(**parts, base_folder=directory)


def metrics(directory):
    """What a MetricsProcessor has, which itself needs a GPU."""
    logger = LoggerContainer()
    if torch.distributed.get_rank() == 0:
        logger.add_logger(TensorBoardLogger(directory))
        logger.add_logger(WandBLogger(directory))
    return SimpleNamespace(logger=logger)


def main():
    directory, steps = sys.argv[1], int(sys.argv[2])
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    fully_shard(model, mesh=mesh)
    optimizer_config = default_adamw(lr=0.01)
    optimizer_config.implementation = "for-loop"
    optimizers = optimizer_config.build(model_parts=[model])
    schedulers = LRSchedulersContainer.Config(warmup_steps=2, total_steps=20).build(
        optimizers=optimizers, training_steps=20
    )
    data, progress = Data(rank), Progress()
    parts = {"dataloader": data, "model_parts": [model]}
    parts.update(optimizers=optimizers, lr_schedulers=schedulers)
    checkpointer = manager(directory, parts, progress)
    checkpointer.load()
    if options.get("report"):
        progress.metrics_processor = metrics(directory)
    while progress.step < steps:
        rows = next(data)
        optimizers.zero_grad()
        loss = (model(rows) - rows.sin()).square().mean()
        loss.backward()
        checkpointer.maybe_wait_for_staging()
        optimizers.step()
        schedulers.step()
        progress.step += 1
        total = loss.detach().double()
        torch.distributed.all_reduce(total)
        if rank == 0:
            sys.stdout.write(f"loss {progress.step} {total.item().hex()}\n")
            sys.stdout.flush()
        if options.get("kill") == str(progress.step - 1):
            os.kill(os.getpid(), signal.SIGKILL)
        checkpointer.save(progress.step, last_step=progress.step == steps)
    checkpointer.close()
    if options.get("report"):
        progress.metrics_processor.logger.close()
    torch.distributed.destroy_process_group()


main()
