# SPDX-License-Identifier: BSD-3-Clause
"""A training with Lightning whose checkpoints sidestep saves in the background.

    python examples/train_lightning.py --steps 200
    python examples/train_lightning.py --steps 400      # resumes where the first one ended

It needs lightning and torchdata. On several devices: --devices 2 (DDP).
"""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torchdata.stateful_dataloader import StatefulDataLoader

from sidestep.lightning import SaveMetrics, SidestepCheckpointIO


class Model(LightningModule):
    """Learns to reverse vectors."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)
        )

    def training_step(self, batch, number):
        (x,) = batch
        loss = torch.nn.functional.mse_loss(self.layers(x), x.flip(-1))
        self.log("loss", loss)
        if self.trainer.is_global_zero and self.global_step % 50 == 0:
            print(f"step {self.global_step}: loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default="lightning-checkpoints")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--devices", type=int, default=1)
    given = parser.parse_args()
    seed_everything(1)
    rows = torch.utils.data.TensorDataset(torch.randn(2048, 64))
    trainer = Trainer(
        max_steps=given.steps,
        devices=given.devices,
        strategy="ddp" if given.devices > 1 else "auto",
        plugins=[SidestepCheckpointIO()],
        callbacks=[
            ModelCheckpoint(given.root, every_n_train_steps=50, save_top_k=1, save_last=True),
            SaveMetrics(),
        ],
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(Model(), StatefulDataLoader(rows, batch_size=16), ckpt_path="last")
    if trainer.is_global_zero:
        print(f"saved: {trainer.checkpoint_callback.last_model_path}")


if __name__ == "__main__":
    main()
