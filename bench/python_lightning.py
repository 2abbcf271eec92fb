# SPDX-License-Identifier: BSD-3-Clause
"""python_lightning.py -- measures what a checkpoint costs a training in Lightning, with each of its
ways to save and with sidestep's plugin.

bench/run calls it with the Python of .venv/frameworks/lightning.
"""
import torch
from framework_support import STEPS, Clock, Net, arguments, compare, momentum
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

from sidestep.lightning import SidestepCheckpointIO

WAYS = {
    "stock: default": TorchCheckpointIO,
    "stock: AsyncCheckpointIO": lambda: AsyncCheckpointIO(TorchCheckpointIO()),
    "sidestep": SidestepCheckpointIO,
}


class Model(LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def training_step(self, batch, number):
        return self.net(batch)

    def configure_optimizers(self):
        return momentum(self)


class Steps(Callback):
    def __init__(self, clock):
        self.clock = clock

    def on_train_batch_start(self, trainer, *_):
        self.clock.step_begins(trainer.global_step)

    def on_train_batch_end(self, trainer, *_):
        self.clock.step_ended(trainer.global_step)


def main():
    args = arguments()
    model = Model(Net(args.mib))

    def train(way, path):
        plugin = WAYS[way]()
        clock = Clock(path, lambda: trainer.save_checkpoint(path), plugin.teardown)
        trainer = Trainer(accelerator="cpu", devices=1, max_steps=STEPS, callbacks=[Steps(clock)],
                          plugins=[plugin], logger=False, enable_checkpointing=False,
                          enable_progress_bar=False,
                          enable_model_summary=False)
        trainer.fit(model, torch.utils.data.DataLoader(torch.ones(STEPS, 1), num_workers=0))
        return clock

    compare("Lightning, one device", args, WAYS, train)


if __name__ == "__main__":
    main()
