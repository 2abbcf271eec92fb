# SPDX-License-Identifier: BSD-3-Clause
"""DDP with torchdata's StatefulDataLoader, which shuffles.  Prints "rows STEP ROWS" of rank 0.

lightning_position.py ROOT lost|kept [CHECKPOINT]

lost: as Lightning sets it up; kept: with the two lines that the warning names
"""

import logging
import os
import sys

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from sidestep.lightning import SidestepCheckpointIO

root, kept, resume = sys.argv[1], sys.argv[2] == "kept", (sys.argv[3:] or [None])[0]
data = torch.arange(80.0).reshape(80, 1)


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        if self.trainer.is_global_zero:
            print("rows", self.global_step, batch.flatten().int().tolist(), flush=True)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-6)


logging.basicConfig(format="LOG %(levelname)s %(message)s")
seed_everything(7, verbose=False)
how = {"shuffle": True}
if kept:
    how = {"sampler": StatefulDistributedSampler(data, 2, int(os.environ["LOCAL_RANK"]), True)}
trainer = Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_steps=6,
    callbacks=[ModelCheckpoint(root, every_n_train_steps=3, save_top_k=-1)],
    plugins=[SidestepCheckpointIO()],
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=root,
    use_distributed_sampler=not kept,
)
trainer.fit(Model(), StatefulDataLoader(data, batch_size=4, **how), ckpt_path=resume)
sys.stdout.flush()
os._exit(0)  # gloo's threads may abort the end of the interpreter
