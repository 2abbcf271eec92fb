# SPDX-License-Identifier: BSD-3-Clause
"""The plugins are those of the package by whose name a program has Lightning."""

import lightning_fabric.plugins.io
import pytorch_lightning

from sidestep.lightning import SidestepCheckpointIO, SidestepFSDPStrategy

assert issubclass(SidestepCheckpointIO, lightning_fabric.plugins.io.CheckpointIO)
assert issubclass(SidestepFSDPStrategy, pytorch_lightning.strategies.FSDPStrategy)
trainer = pytorch_lightning.Trainer(accelerator="cpu", plugins=[SidestepCheckpointIO()])
print("plugin", type(trainer.strategy.checkpoint_io).__name__)
