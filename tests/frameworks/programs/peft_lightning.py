# SPDX-License-Identifier: BSD-3-Clause
"""Lightning with LoRA by PEFT: a frozen layer with adapters, dropout and buffers; a second model of
PEFT; and layers of PEFT that are in no model of it, of which all is saved.

    peft_lightning.py DIRECTORY STEPS [NAME=VALUE ...]

by=stock     Lightning's own CheckpointIO, or strategy
strategy=KIND  fsdp, or parallel: FSDP2; on two ranks
kill=STEP    SIGKILL to this rank a step after the save of that step has begun; then the one before
             is committed
resume=PATH
It saves every second step, and prints "loss STEP VALUE" for each.
"""

import os
import signal
import sys

import peft
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from sidestep.lightning import SaveAdapters, SidestepCheckpointIO

options = dict(word.split("=", 1) for word in sys.argv[3:])


def sharded(module):
    """As the strategy has it."""
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    if options["strategy"] == "parallel":
        return fully_shard(module)
    cpu = torch.device("cpu")
    return FullyShardedDataParallel(module, device_id=cpu, use_orig_params=True)


def strategy():
    """And what saves."""
    import lightning.pytorch.strategies as stock

    import sidestep.lightning as ours

    kind = {"fsdp": "FSDPStrategy", "parallel": "ModelParallelStrategy"}[options["strategy"]]
    mine = options.get("by") != "stock"
    base = getattr(ours, f"Sidestep{kind}") if mine else getattr(stock, kind)
    how = {"state_dict_type": "sharded"} if kind == "FSDPStrategy" else {}
    return type("OnHost", (base,), {})(**how)


class Model(LightningModule):
    is_sharded = False

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        base = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 8)
        )
        lora = peft.LoraConfig(r=4, target_modules=["0"], modules_to_save=["2"], lora_dropout=0.2)
        self.net = peft.get_peft_model(base, lora)
        lora = peft.LoraConfig(r=2, target_modules=["0"])
        self.second = peft.get_peft_model(torch.nn.Sequential(torch.nn.Linear(8, 8)), lora)
        self.layers = peft.inject_adapter_in_model(
            peft.LoraConfig(r=2, target_modules=["0"]), torch.nn.Sequential(torch.nn.Linear(8, 8))
        )
        self.scale = torch.nn.Parameter(torch.ones(1))

    def configure_model(self):
        if "strategy" in options and not self.is_sharded:
            self.is_sharded = True
            for name in ("net", "second", "layers"):
                setattr(self, name, sharded(getattr(self, name)))

    def training_step(self, batch, number):
        torch.manual_seed(self.global_step)  # Lightning saves no random numbers, nor the place
        batch = torch.randn(4, 8)
        made = self.net(batch) + self.second(batch) + self.layers(batch)
        loss = (self.scale * made - batch.sin()).square().mean()
        if self.trainer.is_global_zero:
            print("loss", self.global_step + 1, float(loss.detach()).hex(), flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=0.01)


class Kills(Callback):
    def on_train_batch_end(self, trainer, *_):
        if options.get("kill") == str(trainer.global_step + 1):
            strategy = trainer.strategy
            saver = strategy if hasattr(strategy, "rotation") else strategy.checkpoint_io
            saver.rotation.wait()
        if options.get("kill") == str(trainer.global_step - 1):
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    directory, steps = sys.argv[1], int(sys.argv[2])
    stock = options.get("by") == "stock"
    saves = ModelCheckpoint(directory, filename="{step}", every_n_train_steps=2, save_top_k=-1)
    has_shards = "strategy" in options
    trainer = Trainer(
        accelerator="cpu",
        devices=2 if has_shards else 1,
        strategy=strategy() if has_shards else "auto",
        max_steps=steps,
        callbacks=[saves, Kills(), SaveAdapters()],
        plugins=[] if stock or has_shards else [SidestepCheckpointIO()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=directory,
    )
    loader = torch.utils.data.DataLoader(torch.zeros(80, 8), batch_size=4)
    trainer.fit(Model(), loader, ckpt_path=options.get("resume"), weights_only=False)


main()
