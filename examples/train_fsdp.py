#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Train a small language model with FSDP2, and resume where it stopped, on any number of ranks.

    torchrun --standalone --nproc-per-node 4 examples/train_fsdp.py --text FILE --root ckpt

Run it again after a kill, a signal, a crash or its end: it resumes. main() uses sidestep: a
Checkpointer, resume(), should_save() and save(). It runs on CPUs with gloo.
"""

import argparse
import datetime
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import sidestep

VOCABULARY, CONTEXT, BATCH = 256, 64, 8  # bytes; tokens per sequence; sequences per step, all ranks


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, type=Path, help="the file to train on, of any kind")
    parser.add_argument("--root", required=True, type=Path, help="directory of the checkpoints")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=8, help="steps between checkpoints")
    parser.add_argument("--save-minutes", type=float, help="minutes between checkpoints, instead")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--losses", type=Path, help="append each step's loss, as JSON")
    return parser.parse_args()


# ---------------------------------------------------------------- the model and its data


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm."""

    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        heads = [
            t.unflatten(-1, (4, -1)).transpose(1, 2)
            for t in self.qkv(self.norms[0](x)).chunk(3, -1)
        ]
        attention = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[1](x))


class LanguageModel(nn.Module):
    """Predicts the next byte from those before it: (B, T) int64 -> (B * T, VOCABULARY)."""

    def __init__(self, layers, width):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).flatten(0, 1))


def batch_of(text, step):
    """This rank's part of the batch of a step. The whole batch does not depend on the ranks."""
    picks = torch.randint(
        len(text) - CONTEXT - 1, (BATCH,), generator=torch.Generator().manual_seed(step)
    )
    mine = picks[dist.get_rank() :: dist.get_world_size()]
    rows = torch.stack([text[i : i + CONTEXT + 1] for i in mine.tolist()]).long()
    return rows[:, :-1], rows[:, 1:]


def build(args):
    """The model, sharded over all ranks, its optimizer and its learning-rate scheduler."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = LanguageModel(args.layers, args.width)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    return model, optimizer, scheduler


def train(model, optimizer, scheduler, text, step):
    """Train one step; return the mean loss over all ranks."""
    ids, targets = batch_of(text, step)
    loss = F.cross_entropy(model(ids), targets.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    mean = loss.detach()
    dist.all_reduce(mean)
    return (mean / dist.get_world_size()).item()


# ---------------------------------------------------------------- the run


def main():
    args = options()
    dist.init_process_group("gloo")
    text = torch.frombuffer(bytearray(args.text.read_bytes()), dtype=torch.uint8)
    model, optimizer, scheduler = build(args)
    interval = args.save_every
    if args.save_minutes is not None:
        interval = datetime.timedelta(minutes=args.save_minutes)

    state = sidestep.TrainState(model, optimizer, scheduler)
    with sidestep.Checkpointer(args.root, interval=interval, keep_last_n=3) as checkpoints:
        resumed = checkpoints.resume(state)
        if resumed is not None and dist.get_rank() == 0:
            print(f"resumed from {resumed.path}", flush=True)
        while state.step < args.steps:
            loss = train(model, optimizer, scheduler, text, state.step + 1)
            state.step += 1
            if args.losses is not None and dist.get_rank() == 0:
                with args.losses.open("a") as log:
                    log.write(json.dumps([state.step, loss.hex()]) + "\n")
            last = state.step == args.steps
            if checkpoints.should_save(state.step) or last:
                checkpoints.save(state.step, state, metrics={"loss": loss}, final=last)
    if dist.get_rank() == 0:
        print(f"at step {state.step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
