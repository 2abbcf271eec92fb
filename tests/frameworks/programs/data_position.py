# SPDX-License-Identifier: BSD-3-Clause
"""A run whose data come from torchdata or Hugging Face's datasets: saved in the middle of an epoch,
resumed by another TrainState.  Prints what comes next, in both."""

import sys

import datasets
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import sidestep

root, kind, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, number):
        return torch.tensor(number)


def data():
    generator = torch.Generator().manual_seed(5)
    options = {"batch_size": 4, "num_workers": workers}
    if kind == "torchdata":
        return StatefulDataLoader(Rows(), shuffle=True, generator=generator, **options)
    rows = datasets.Dataset.from_dict({"x": list(range(40))}).to_iterable_dataset(num_shards=4)
    return rows if kind == "dataset" else StatefulDataLoader(rows, **options)


def numbers(batch):
    return batch["x"].tolist() if kind == "loader" else batch.tolist()


def take(batches, count):
    if kind == "dataset":
        return [next(batches)["x"] for _ in range(count)]
    return [numbers(next(batches)) for _ in range(count)]


first = data()
batches = iter(first)
take(batches, 3)
with sidestep.Checkpointer(root) as checkpoints:
    checkpoints.save(3, sidestep.TrainState(data=first))
print("goes on", take(batches, 4))
second = data()
with sidestep.Checkpointer(root) as checkpoints:
    checkpoints.resume(sidestep.TrainState(data=second))
print("resumed", take(iter(second), 4))
print("anew", take(iter(data()), 4))
