# SPDX-License-Identifier: BSD-3-Clause
"""python_lightning.py -- measures what a checkpoint costs a training in Lightning, with each of its
ways to save and with sidestep's plugin.

Called by bench/run with the Python of .venv/frameworks/lightning. A step multiplies matrices for a
while, and then SGD with momentum rewrites the whole state. One checkpoint is saved at an early
step; the steps after it are long enough for it to be written. The lost time is that of the steps,
without the end of fit, compared with a fit that saves nothing.
"""
import argparse
import logging
import os
import statistics
import time
import warnings

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO
from torch_support import report, settle

from sidestep.lightning import SidestepCheckpointIO

STEPS, SAVED = 14, 2
SECONDS = 0.25  # of work in a step
LEARNING = 3  # fits whose saves teach the snapshot policy
WAYS = {
    "stock: default": lambda: TorchCheckpointIO(),
    "stock: AsyncCheckpointIO": lambda: AsyncCheckpointIO(TorchCheckpointIO()),
    "sidestep": SidestepCheckpointIO,
}
GOAL = 1 / 4


class Model(LightningModule):
    def __init__(self, mib, units):
        super().__init__()
        self.automatic_optimization = True
        count = max(1, mib // 2 // 4)  # the momentum is as large as the parameters
        self.layers = torch.nn.ParameterList(torch.ones(1024, 1024) for _ in range(count))
        self.matrix = torch.randn(512, 512)
        self.units = units

    def work(self, units):
        for _ in range(units):
            self.matrix = torch.tanh(self.matrix @ self.matrix)

    def training_step(self, batch, number):
        self.work(self.units)
        return sum((one * 1e-6).sum() for one in self.layers) + 0 * batch.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6, momentum=0.9)


class Clock(Callback):
    """Saves once, and notes when the first step began and the last one ended."""

    def __init__(self, path):
        self.path = path

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == 1:  # the first one makes the optimizer's state
            self.began = time.monotonic()

    def on_train_batch_end(self, trainer, *_):
        if self.path is not None and trainer.global_step == SAVED:
            trainer.save_checkpoint(self.path)
        self.ended = time.monotonic()


def fit(model, plugin, path):
    """The seconds of all steps but the first one."""
    clock = Clock(path)
    trainer = Trainer(accelerator="cpu", devices=1, max_steps=STEPS, callbacks=[clock],
                      plugins=[] if plugin is None else [plugin], logger=False,
                      enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False)
    trainer.fit(model, torch.utils.data.DataLoader(torch.ones(STEPS, 1), num_workers=0))
    if path is not None:
        settle(path)
        if os.path.isfile(path):
            os.unlink(path)
    return clock.ended - clock.began


def calibrate(model):
    model.work(20)
    began = time.monotonic()
    model.work(100)
    return round(SECONDS / ((time.monotonic() - began) / 100))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    path = os.path.join(args.dir, "lightning.ckpt")
    model = Model(args.mib, 0)
    model.units = calibrate(model)
    for _ in range(LEARNING):
        fit(model, WAYS["sidestep"](), path)
    lost = {way: [] for way in WAYS}
    for _ in range(args.runs):
        quiet = fit(model, None, None)
        for way, make in WAYS.items():
            lost[way].append(fit(model, make(), path) - quiet)
    best = min((way for way in WAYS if way != "sidestep"), key=lambda way: statistics.median(lost[way]))
    for way in [one for one in WAYS if one != "sidestep"]:
        goal = GOAL if way == best else 0
        report("lost per checkpoint, Lightning, one device", "stall", goal, lost["sidestep"], way, lost[way])


if __name__ == "__main__":
    main()
