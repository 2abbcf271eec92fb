# SPDX-License-Identifier: BSD-3-Clause
"""A loop with torchtune's DistributedCheckpointer and one of its models, sharded by FSDP2.  It does
not know of sidestep; `python -m sidestep.run` tells it.  To be run under torchrun.

    tune_train.py DIRECTORY EPOCHS [NAME=VALUE ...]

async=false  with blocking saves: stock's others share a group with the loop, and may hang
resume=true  load the latest checkpoint
kill=EPOCH   SIGKILL to this rank an epoch after the save of EPOCH has begun
It prints "loss EPOCH VALUE" for each epoch, and "functions MODULE" of what it saves with.
"""

import os
import signal
import sys

import torch
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.distributed.fsdp import fully_shard
from torchtune.models.llama3 import llama3
from torchtune.training.checkpointing import _checkpointer

options = dict(word.split("=", 1) for word in sys.argv[3:])


def tiny_model():
    torch.manual_seed(1)
    return llama3(
        vocab_size=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=2,
        embed_dim=32,
        max_seq_len=32,
        intermediate_dim=64,
    )


def filled_optimizer(model):
    """With states, as torchtune fills them before a load."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.01
    optimizer.zero_grad()
    return optimizer


def main():
    directory, epochs = sys.argv[1], int(sys.argv[2])
    os.makedirs(directory, exist_ok=True)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model = tiny_model()
    fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    optimizer = filled_optimizer(model)
    checkpointer = _checkpointer.DistributedCheckpointer(directory, directory)
    if rank == 0:
        print("functions", _checkpointer.async_save.__module__, flush=True)
    begin = 0
    if options.get("resume"):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs_run": 0}
        state = checkpointer.load_checkpoint(state)
        begin = state["epochs_run"]
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
    for epoch in range(begin, epochs):
        rows = (torch.arange(32).reshape(2, 16) * (epoch + 2) + rank) % 61
        loss = torch.nn.functional.cross_entropy(model(rows).flatten(0, 1), rows.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().double()
        torch.distributed.all_reduce(total)
        if rank == 0:
            print("loss", epoch, total.item().hex(), flush=True)
        if options.get("kill") == str(epoch - 1):
            os.kill(os.getpid(), signal.SIGKILL)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        state["epochs_run"] = epoch + 1
        later = options.get("async") != "false" and epoch + 1 < epochs
        checkpointer.save_checkpoint(state, epoch=epoch, save_async=later)
    torch.distributed.destroy_process_group()


main()
