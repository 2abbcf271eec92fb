# SPDX-License-Identifier: BSD-3-Clause
"""LoRA with PEFT: a tiny model whose base is frozen, with dropout in the adapters.

    peft_train.py KIND DIRECTORY STEPS [NAME=VALUE ...]

KIND            transformers, or trl: SFTTrainer; of Transformers' or TRL's own with by=stock; or
                inside: Transformers, where the model of PEFT is in another module
resume=true     or a path
kill=STEP       SIGKILL to this rank a step after the save of STEP has begun
best=true       load_best_model_at_end
fsdp=true       FSDP2, sharded, on processors

It saves every second step, and prints "loss STEP VALUE" for each, and "adapter SUM" at the end.
"""

import os
import signal
import sys

import datasets
import peft
import torch
import transformers
from fsdp_on_processors import fsdp_on_processors

options = dict(word.split("=", 1) for word in sys.argv[4:])
LORA = peft.LoraConfig(
    r=4, lora_alpha=8, lora_dropout=0.2, target_modules=["c_attn"], task_type="CAUSAL_LM"
)


def base():
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        bos_token_id=0, eos_token_id=0, vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


class Outer(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, input_ids, labels):
        return self.net(input_ids=input_ids, labels=labels)


class Prints(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **rest):
        if state.is_world_process_zero and "loss" in logs:
            print("loss", state.global_step, float(logs["loss"]).hex(), flush=True)

    def on_step_end(self, args, state, control, **rest):
        if options.get("kill") == str(state.global_step - 1):
            os.kill(os.getpid(), signal.SIGKILL)


def rows():
    found = [[(j * (i + 3) + i) % 61 for j in range(16)] for i in range(64)]
    return datasets.Dataset.from_dict({"input_ids": found, "labels": found})


def arguments(kind, directory, steps):
    best = options.get("best") == "true"
    how = {
        "output_dir": directory,
        "max_steps": steps,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "cosine",
        "logging_steps": 1,
        "save_steps": 2,
        "eval_strategy": "steps" if best else "no",
        "eval_steps": 2,
        "load_best_model_at_end": best,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
    }
    if kind != "trl":
        return transformers.TrainingArguments(**how)
    import trl

    return trl.SFTConfig(
        **how,
        bf16=False,
        gradient_checkpointing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )


def trainer(kind, directory, steps):
    mine = options.get("by") != "stock"
    set_up = {
        "args": arguments(kind, directory, steps),
        "train_dataset": rows(),
        "callbacks": [Prints()],
    }
    set_up["eval_dataset"] = rows()
    if kind != "trl":
        if mine:
            from sidestep.transformers import Trainer
        else:
            from transformers import Trainer
        model = peft.get_peft_model(base(), LORA)
        return Trainer(Outer(model) if kind == "inside" else model, **set_up)
    import trl

    from sidestep.transformers import SidestepMixin

    kind = type("Mine", (SidestepMixin, trl.SFTTrainer), {}) if mine else trl.SFTTrainer
    vocabulary = {"<eos>": 0, **{f"w{i}": i for i in range(1, 64)}}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<eos>"))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<eos>", pad_token="<eos>"
    )
    return kind(base(), peft_config=LORA, processing_class=tokenizer, **set_up)


def main():
    if options.get("fsdp") == "true":
        fsdp_on_processors()
    one = trainer(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    resume = options.get("resume")
    one.train(resume_from_checkpoint=True if resume == "true" else resume)
    parameters = [p for name, p in sorted(one.model.named_parameters()) if "lora_" in name]
    total = sum((i + 1) * p.double().abs().sum().item() for i, p in enumerate(parameters))
    if one.is_world_process_zero():
        print("adapter", total.hex(), flush=True)


if __name__ == "__main__":
    import tokenizers

    main()
