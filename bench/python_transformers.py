# SPDX-License-Identifier: BSD-3-Clause
"""python_transformers.py -- measures what a checkpoint costs a training with Transformers' Trainer:
with its own saves, which run in the foreground only, and with sidestep's.

bench/run calls it with the Python of .venv/frameworks/transformers.
"""
import torch
import transformers
from framework_support import STEPS, Clock, Net, arguments, compare

from sidestep.transformers import Trainer

WAYS = {"stock: default": transformers.Trainer, "sidestep": Trainer}


class Model(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, batch):
        return {"loss": self.net(batch)}


class Steps(transformers.TrainerCallback):
    def __init__(self, clock):
        self.clock = clock

    def on_step_begin(self, args, state, control, **_):
        self.clock.step_begins(state.global_step)

    def on_step_end(self, args, state, control, **_):
        self.clock.step_ended(state.global_step)


def main():
    args = arguments()
    if args.sharded:
        from fsdp_on_processors import fsdp_on_processors

        fsdp_on_processors()
    model = Model(Net(args.mib))

    def train(way, path):
        def save():
            trainer.control.should_save = True

        def finish():
            if way == "sidestep":
                trainer.wait_for_checkpoint()

        clock = Clock(path, save, finish)
        trainer = WAYS[way](
            model,
            transformers.TrainingArguments(
                output_dir=path, max_steps=STEPS, per_device_train_batch_size=1, use_cpu=True,
                save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
                learning_rate=1e-6, lr_scheduler_type="constant"),
            train_dataset=[{"batch": torch.ones(1)}] * (4 * STEPS),
            callbacks=[Steps(clock)],
            optimizer_cls_and_kwargs=(torch.optim.SGD, {"momentum": 0.9, "lr": 1e-6}))
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        return clock

    compare("Transformers, " + ("FSDP2, one rank" if args.sharded else "one device"), args, WAYS, train)


if __name__ == "__main__":
    main()
