# SPDX-License-Identifier: BSD-3-Clause
"""A training with the Trainer of Transformers whose checkpoints sidestep saves in the background.

    python examples/train_transformers.py OUTPUT [STEPS]

Run it again after a kill: it resumes from the newest complete checkpoint. Under ``torchrun`` or
``accelerate launch`` it trains on several ranks. The model is tiny, has random weights, and needs no
network.
"""

import os
import sys

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


def main():
    output = sys.argv[1] if len(sys.argv) > 1 else "output"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    arguments = transformers.TrainingArguments(
        output_dir=output,
        max_steps=steps,
        save_steps=5,
        save_total_limit=2,
        logging_steps=5,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = Trainer(transformers.LlamaForCausalLM(config), arguments, train_dataset=Rows())
    begun = os.path.isdir(output) and any(name[:11] == "checkpoint-" for name in os.listdir(output))
    trainer.train(resume_from_checkpoint=begun)
    trainer.save_model(os.path.join(output, "final"))  # safetensors, for from_pretrained


if __name__ == "__main__":
    main()
