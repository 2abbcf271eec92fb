# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of Lightning in the memory of fsspec.  The program does not know of sidestep."""

import fsspec
from lightning.pytorch import Trainer
from lightning_run import Model, Numbers
from torchdata.stateful_dataloader import StatefulDataLoader

quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
path = None
for step in (1, 2):
    trainer = Trainer(accelerator="cpu", devices=1, max_steps=step, **quiet)
    trainer.fit(Model(), StatefulDataLoader(Numbers(), batch_size=4), ckpt_path=path)
    path = f"memory://bucket/step-{step}.ckpt"
    trainer.save_checkpoint(path)
    with fsspec.open(path) as file:
        assert file.read(2) == b"PK", "a file of torch.save"
    print("loaded", trainer.strategy.checkpoint_io.load_checkpoint(path)["global_step"])
trainer.strategy.checkpoint_io.remove_checkpoint(path)
assert not fsspec.filesystem("memory").exists("/bucket/step-2.ckpt")
