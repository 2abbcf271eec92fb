# SPDX-License-Identifier: BSD-3-Clause
"""A training loop with Accelerate: a tiny model with dropout, a scheduler, a registered counter.

    accelerate_train.py DIRECTORY STEPS [NAME=VALUE ...]

by=stock     Accelerate's own save_state; else sidestep's
resume=auto  or a path
fsdp=true    FSDP2, sharded, on processors
kill=STEP    SIGKILL to this rank a step after the save of that step has begun, or
kill_in=delete  after a save was committed, before an older one is deleted (with limit=N)
limit=N      total_limit
hooks=true   models are written by a hook
loader=true  rows come from torchdata's StatefulDataLoader
peft=true    LoRA: the first layer is frozen, with adapters; peft=inside: in another module
tell=true    "LOG LEVEL MESSAGE" for each line of the log
report=KINDS log_with these trackers, which write into DIRECTORY

It saves every second step, and prints "loss STEP VALUE" for each.
"""

import logging
import os
import signal
import sys

import accelerate
import torch
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration
from fsdp_on_processors import fsdp_on_processors

options = dict(word.split("=", 1) for word in sys.argv[3:])


class Counter:
    """Something that is registered."""

    step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def write_models(models, weights, directory):
    for i, model in enumerate(models):
        torch.save(model.state_dict(), os.path.join(directory, f"hook_{i}.pt"))
        weights.pop()


def read_models(models, directory):
    while models:
        model = models.pop()
        state = torch.load(os.path.join(directory, f"hook_{len(models)}.pt"), weights_only=True)
        model.load_state_dict(state)


def layers():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 64), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(64, 8)
    )


def base():
    """With buffers, which Accelerate 1.15 cannot shard with FSDP2."""
    return layers() if options.get("fsdp") else layers().append(torch.nn.BatchNorm1d(8))


def with_adapters(inside):
    """A layer that is trained whole is beside the adapters."""
    import peft

    how = {"target_modules": ["0"], "modules_to_save": ["3"], "lora_dropout": 0.2}
    model = peft.get_peft_model(base(), peft.LoraConfig(r=4, **how))
    return torch.nn.Sequential(model, torch.nn.Linear(8, 8)) if inside else model


def kind_of_accelerator():
    if options.get("by") == "stock":
        return accelerate.Accelerator
    from sidestep.accelerate import Accelerator

    return Accelerator


def made(directory):
    limit = options.get("limit")
    accelerator = kind_of_accelerator()(
        cpu=True,
        step_scheduler_with_optimizer=False,
        dataloader_config=DataLoaderConfiguration(use_stateful_dataloader="loader" in options),
        log_with=options["report"].split(",") if "report" in options else None,
        project_config=ProjectConfiguration(
            project_dir=directory,
            logging_dir=directory,
            automatic_checkpoint_naming=True,
            total_limit=int(limit) if limit else None,
        ),
    )
    model = with_adapters(options["peft"] == "inside") if "peft" in options else layers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    scheduler = accelerator.prepare(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20))
    return accelerator, model, optimizer, scheduler


def loader(accelerator):
    """Of more rows than a run needs; prepared, so that its place is in the checkpoint."""
    rows = torch.randn(100, 8, generator=torch.Generator().manual_seed(2))
    own = torch.Generator()  # iter() draws a number
    return accelerator.prepare(torch.utils.data.DataLoader(rows, batch_size=4, generator=own))


def tell():
    """On stdout, since Accelerate's lines are wanted, too."""
    logging.basicConfig(level=logging.INFO, format="LOG %(levelname)s %(message)s", stream=sys.stdout)


def leave(ranks):
    """torch may hang when the last reference to a group of gloo is that of DDP's reducer: its
    destructor waits, with the GIL, for a thread that wants it."""
    sys.stdout.flush()
    if ranks > 1:
        os._exit(0)


def main():
    directory, steps = sys.argv[1], int(sys.argv[2])
    if options.get("fsdp") == "true":
        fsdp_on_processors()
    if options.get("kill_in") == "delete":
        import sidestep._directory as directories

        directories.delete = lambda *words: os.kill(os.getpid(), signal.SIGKILL)
    accelerator, model, optimizer, scheduler = made(directory)
    if "report" in options:
        accelerator.init_trackers("run", init_kwargs={"wandb": {"dir": directory}})
    if options.get("tell") == "true":
        tell()
    data = loader(accelerator) if options.get("loader") == "true" else None
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    if options.get("hooks") == "true":
        accelerator.register_save_state_pre_hook(write_models)
        accelerator.register_load_state_pre_hook(read_models)
    torch.manual_seed(100 + accelerator.process_index)
    resume = options.get("resume")
    if resume:
        accelerator.load_state(None if resume == "auto" else resume)
        accelerator.project_configuration.iteration = counter.step // 2
    batches = iter(data or ())
    while counter.step < steps:
        rows = torch.arange(32.0).reshape(4, 8) / (counter.step + 2) - accelerator.process_index
        rows = next(batches, rows)
        loss = (model(rows) - rows.sin()).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        counter.step += 1
        value = accelerator.gather(loss.detach().reshape(1)).double().sum().item()
        if accelerator.is_main_process:
            sys.stdout.write(f"loss {counter.step} {value.hex()}\n")
            sys.stdout.flush()
        accelerator.log({"loss": value}, step=counter.step)
        if options.get("kill") == str(counter.step - 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if counter.step % 2 == 0:
            accelerator.save_state()
    accelerator.end_training()
    leave(accelerator.num_processes)


if __name__ == "__main__":
    main()
