# SPDX-License-Identifier: BSD-3-Clause
"""LoRA with PEFT and the Trainer of Transformers. sidestep saves adapters and optimizer in the
background, and not the frozen base.

    python examples/train_lora.py OUTPUT [STEPS]

Run it again after a kill: it resumes from the newest complete checkpoint. The model is tiny, has
random weights, and needs no network.
"""

import os
import sys

import peft
import torch
import transformers

from sidestep.transformers import Trainer  # was: from transformers import Trainer


class Rows(torch.utils.data.Dataset):
    """Rows of tokens that count up."""

    def __len__(self):
        return 256

    def __getitem__(self, i):
        row = (torch.arange(32) + i) % 61
        return {"input_ids": row, "labels": row}


def base():
    torch.manual_seed(1)  # in place of from_pretrained()
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=64,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
        )
    )


def main():
    output = sys.argv[1] if len(sys.argv) > 1 else "output"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    arguments = transformers.TrainingArguments(
        output_dir=output,
        max_steps=steps,
        save_steps=5,
        save_total_limit=2,
        logging_steps=5,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
    )
    lora = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = Trainer(peft.get_peft_model(base(), lora), arguments, train_dataset=Rows())
    begun = os.path.isdir(output) and any(name[:11] == "checkpoint-" for name in os.listdir(output))
    trainer.train(resume_from_checkpoint=begun)
    peft.PeftModel.from_pretrained(base(), os.path.join(output, f"checkpoint-{steps}"))


if __name__ == "__main__":
    main()
