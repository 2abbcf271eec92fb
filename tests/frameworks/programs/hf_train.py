# SPDX-License-Identifier: BSD-3-Clause
"""A training under a Trainer of Transformers: a tiny model with dropout, data in random order.

    hf_train.py DIRECTORY STEPS [NAME=VALUE ...]

by=stock        Transformers' own Trainer; else sidestep's
resume=true     or a path
kill=STEP       SIGKILL to this rank after the save of that step has begun, or
kill_in=delete  after a save was committed, before an older one is deleted (with limit=N)
save=N          steps between saves
best=true       load_best_model_at_end
limit=N         save_total_limit
fsdp=true       FSDP2, sharded, on processors
report=KINDS    report_to these loggers, which write into DIRECTORY

It prints "loss STEP VALUE" for each step.
"""

import os
import signal
import sys

import torch
import transformers
from fsdp_on_processors import fsdp_on_processors

options = dict(word.split("=", 1) for word in sys.argv[3:])


class Rows(torch.utils.data.Dataset):
    """Rows of numbers that follow from their place."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        row = (torch.arange(16) * (i + 3) + i) % 61
        return {"input_ids": row, "labels": row}


class Prints(transformers.TrainerCallback):
    """The losses, to the last bit."""

    def on_log(self, args, state, control, logs=None, **rest):
        if state.is_world_process_zero and "loss" in logs:
            sys.stdout.write(f"loss {state.global_step} {logs['loss'].hex()}\n")  # at once
            sys.stdout.flush()

    def on_step_end(self, args, state, control, **rest):
        if options.get("kill") == str(state.global_step - 1):
            os.kill(os.getpid(), signal.SIGKILL)


def tiny_model():
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        bos_token_id=0,
        eos_token_id=0,
        vocab_size=64,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=2,
    )
    return transformers.GPT2LMHeadModel(config)


def arguments(directory, steps):
    saves = int(options.get("save", 2))
    best = options.get("best") == "true"
    limit = options.get("limit")
    return transformers.TrainingArguments(
        output_dir=directory,
        max_steps=steps,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        logging_steps=1,
        logging_first_step=True,
        save_steps=saves,
        save_total_limit=int(limit) if limit else None,
        eval_strategy="steps" if best else "no",
        eval_steps=saves if best else None,
        load_best_model_at_end=best,
        metric_for_best_model="eval_loss" if best else None,
        greater_is_better=False if best else None,
        use_cpu=True,
        report_to=[kind for kind in options.get("report", "").split(",") if kind],
        disable_tqdm=True,
        dataloader_num_workers=0,
    )


def kind_of_trainer():
    if options.get("by") == "stock":
        return transformers.Trainer
    from sidestep.transformers import Trainer

    return Trainer


def main():
    directory, steps = sys.argv[1], int(sys.argv[2])
    if options.get("fsdp") == "true":
        fsdp_on_processors()
    if options.get("kill_in") == "delete":
        import sidestep._directory as directories

        directories.delete = lambda *words: os.kill(os.getpid(), signal.SIGKILL)
    trainer = kind_of_trainer()(
        tiny_model(),
        arguments(directory, steps),
        train_dataset=Rows(),
        eval_dataset=Rows(),
        callbacks=[Prints()],
    )
    resume = options.get("resume")
    trainer.train(resume_from_checkpoint=True if resume == "true" else resume)
    if trainer.is_world_process_zero():
        total = sum(p.double().abs().sum().item() for p in trainer.model.parameters())
        sys.stdout.write(f"weights {total.hex()}\nbest {trainer.state.best_model_checkpoint}\n")
    if "final" in options:
        trainer.save_model(options["final"])
        if trainer.is_world_process_zero():
            transformers.GPT2LMHeadModel.from_pretrained(options["final"])
    sys.stdout.flush()
    if trainer.args.world_size > 1:  # see leave() of accelerate_train.py
        trainer.accelerator.wait_for_everyone()
        os._exit(0)


main()
