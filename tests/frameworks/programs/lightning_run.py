# SPDX-License-Identifier: BSD-3-Clause
"""A training in Lightning of a tiny model.  Prints "loss STEP VALUE" for each step, in full
precision, and what its ModelCheckpoint ended with.

At step KILL the process is killed by SIGKILL while the save of that step is under way.  --kill-in:
where, for a save to last.ckpt; "soon": some milliseconds after it began, committed or not.
"""

import argparse
import logging
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

STEPS_OF_AN_EPOCH = 10


class Numbers(Dataset):
    """Samples that follow from their number, another set for each rank."""

    def __len__(self):
        return 4 * STEPS_OF_AN_EPOCH

    def __getitem__(self, number):
        rank = dist.get_rank() if dist.is_initialized() else 0
        generator = torch.Generator().manual_seed(1000 * rank + number)
        x = torch.randn(16, generator=generator)
        return x, x.roll(1) * 0.5


class Model(LightningModule):
    def __init__(self, width=32, kill=0, kill_in="", term=0, strategy="auto", freeze=False):
        super().__init__()
        self.save_hyperparameters(ignore=["kill", "kill_in", "term", "strategy", "freeze"])
        self.kill, self.term, self.strategy, self.freeze = kill, term, strategy, freeze
        self.kill_in = kill_in
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, width), torch.nn.Tanh(), torch.nn.Linear(width, 16)
        )

    def configure_model(self):
        from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
        from torch.distributed.tensor import DTensor

        cpu = torch.device("cpu")
        if self.strategy == "fsdp" and not isinstance(self.layers, FullyShardedDataParallel):
            self.layers = FullyShardedDataParallel(self.layers, device_id=cpu, use_orig_params=True)
        if self.strategy == "parallel" and not isinstance(self.layers[0].weight, DTensor):
            mesh = self.device_mesh["data_parallel"]
            for layer in (self.layers[0], self.layers[2]):
                fully_shard(layer, mesh=mesh)
            fully_shard(self.layers, mesh=mesh)

        self.layers[0].requires_grad_(not self.freeze)

    def on_train_start(self):
        """Print the moments of the first layer, which is perhaps frozen."""
        state = self.optimizers().optimizer.state
        for name, parameter in self.layers[0].named_parameters():
            for key, value in sorted(state.get(parameter, {}).items()):
                value = value.full_tensor() if hasattr(value, "full_tensor") else value
                if self.trainer.is_global_zero:
                    print("moment", name, key, float(value.double().sum()).hex(), flush=True)

    def training_step(self, batch, number):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layers(x), y)
        self.log("train_loss", loss)
        if self.trainer.is_global_zero:
            sys.stdout.write(f"loss {self.global_step} {float(loss).hex()}\n")  # at once
            sys.stdout.flush()
        return loss

    def on_train_batch_start(self, *_):
        if self.kill and self.global_step == self.kill - 1:
            import sidestep

            strategy = self.trainer.strategy
            saver = strategy if hasattr(strategy, "rotation") else strategy.checkpoint_io
            saver.rotation.wait()  # else the save of this step may have to wait for them
            if self.kill_in:
                kill_in(self.kill_in, saver)
            if self.kill_in.startswith("soon"):
                return
            self.pause = sidestep.paused()  # the save does not end before it is killed
            self.pause.__enter__()

    def on_train_batch_end(self, *_):
        if self.kill and self.global_step == self.kill and not self.kill_in:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.term and self.global_step == self.term:
            os.kill(os.getpid(), signal.SIGTERM)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.9)]


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in(place, saver):
    """From now on, the process dies in a save to last.ckpt: after the step PLACE of it."""
    from sidestep.lightning import _io, _strategies

    where = _strategies if hasattr(saver, "saves_shards") else _io
    step = "start_save" if place.startswith("soon") else place
    real = getattr(where, step)

    def then_die(*args, **options):
        found = real(*args, **options)
        if any(os.path.basename(str(word)) == "last.ckpt" for word in args):
            if step == place:
                die()
            threading.Timer(float(place.removeprefix("soon")) / 1000, die).start()
        return found

    setattr(where, step, then_die)


def strategy_of(given, ours):
    if given.strategy == "ddp":
        return "ddp"
    if given.strategy == "auto":
        return "auto"
    options = {"data_parallel_size": given.devices, "tensor_parallel_size": 1}
    if ours:
        from sidestep.lightning import SidestepFSDPStrategy, SidestepModelParallelStrategy

        if given.strategy == "fsdp":
            return SidestepFSDPStrategy(state_dict_type="sharded")
        return SidestepModelParallelStrategy(**options)
    from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy

    if given.strategy == "fsdp":
        return type("OnHost", (FSDPStrategy,), {})(state_dict_type="sharded")
    return ModelParallelStrategy(**options)


def loggers(root):
    return [
        TensorBoardLogger(root),
        WandbLogger(save_dir=root, offline=True),
        MLFlowLogger(save_dir=os.path.join(root, "mlflow")),
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--resume")
    parser.add_argument("--kill", type=int, default=0)
    parser.add_argument("--kill-in", default="")
    parser.add_argument("--term", type=int, default=0)
    parser.add_argument("--top-k", type=int, default=-1)
    parser.add_argument("--save-last", default="")
    parser.add_argument("--monitor")
    parser.add_argument("--filename")
    parser.add_argument("--weights-only", action="store_true")
    parser.add_argument("--final")
    parser.add_argument("--tell", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--freeze", action="store_true")
    given = parser.parse_args()
    if given.tell:
        logging.basicConfig(format="LOG %(levelname)s %(message)s")
        logging.getLogger("sidestep").setLevel(logging.INFO)
    seed_everything(7, verbose=False)
    plugins, callbacks = [], []
    if not given.stock:
        from sidestep.lightning import SaveMetrics, SidestepCheckpointIO

        callbacks.append(SaveMetrics())
        if given.strategy in ("auto", "ddp"):
            plugins.append(SidestepCheckpointIO())
    saver = ModelCheckpoint(
        dirpath=given.root,
        filename=given.filename,
        every_n_train_steps=given.every,
        save_top_k=given.top_k,
        monitor=given.monitor,
        save_last={"": None, "true": True, "link": "link"}[given.save_last],
        save_weights_only=given.weights_only,
        save_on_exception=given.term > 0,
    )
    csv = CSVLogger(given.root, name="log") if given.tell else False
    trainer = Trainer(
        accelerator="cpu",
        devices=given.devices,
        strategy=strategy_of(given, not given.stock),
        max_steps=given.steps,
        callbacks=[*callbacks, saver],
        plugins=plugins,
        logger=loggers(given.root) if given.report else csv,
        log_every_n_steps=1,
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=given.root,
    )
    names = "kill", "kill_in", "term", "strategy", "freeze"
    model = Model(**{name: getattr(given, name) for name in names})
    trainer.fit(model, StatefulDataLoader(Numbers(), batch_size=4), ckpt_path=given.resume)
    if given.final:
        trainer.save_checkpoint(given.final)
    if trainer.is_global_zero:
        print("best", saver.best_model_path)
        print("last", saver.last_model_path)
    if dist.is_initialized():  # gloo's threads may abort the end of the interpreter
        dist.barrier()
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
