# SPDX-License-Identifier: BSD-3-Clause
"""torchtune's own recipe for full finetuning on two processes, with checkpoints by sidestep.

    python examples/train_torchtune.py OUTPUT [EPOCHS]

Run it again after a kill: it resumes after the newest complete epoch. It writes a tiny model and the
recipe's configuration into OUTPUT, and executes the command

    python -m sidestep.run -v tune run --nproc_per_node 2 train_torchtune --config CONFIG

With GPUs, use the recipe ``full_finetune_distributed`` instead of train_torchtune, which is the same
recipe without GPUs. Only `python -m sidestep.run -v` is added for sidestep. It needs no network.
"""

import os
import runpy
import sys
import time

import torch
import torchtune
from torchtune import training
from torchtune.models.llama3 import llama3

MODEL = {
    "vocab_size": 64,
    "num_layers": 2,
    "num_heads": 2,
    "num_kv_heads": 2,
    "embed_dim": 32,
    "max_seq_len": 32,
    "intermediate_dim": 64,
}
CONFIG = """\
output_dir: {output}
tokenizer: {{_component_: train_torchtune.Tokens}}
dataset: {{_component_: train_torchtune.Rows}}
model: {{_component_: torchtune.models.llama3.llama3, {model}}}
checkpointer:
  _component_: torchtune.training.FullModelTorchTuneCheckpointer
  checkpoint_dir: {output}/base
  checkpoint_files: [model.pt]
  output_dir: {output}
  model_type: LLAMA3
enable_async_checkpointing: True
resume_from_checkpoint: {resume}
seed: 1
shuffle: True
batch_size: 4
epochs: {epochs}
max_steps_per_epoch: null
gradient_accumulation_steps: 1
optimizer: {{_component_: torch.optim.AdamW, lr: 0.01}}
loss: {{_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}}
device: cpu
dtype: fp32
metric_logger: {{_component_: torchtune.training.metric_logging.DiskLogger, log_dir: {output}/logs}}
log_every_n_steps: 1
"""


class Tokens:
    """The part of a tokenizer that the recipe uses."""

    pad_id = 0


class Rows(torch.utils.data.Dataset):
    """Rows of tokens that count up."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __len__(self):
        return 32

    def __getitem__(self, i):
        row = ((torch.arange(16) * (i + 3) + i) % 61 + 1).tolist()
        return {"tokens": row, "labels": row}


def recipe():
    """Run torchtune's recipe without a GPU: replace its functions that need one."""
    training.get_memory_stats = lambda device: {}
    training.log_memory_stats = lambda stats: None
    training.cleanup_before_training = lambda: None
    training.get_distributed_backend = lambda *device, **how: "gloo"
    home = os.path.dirname(os.path.dirname(torchtune.__file__))
    place = os.path.join(home, "recipes", "full_finetune_distributed.py")
    try:
        runpy.run_path(place, run_name="__main__")
    finally:
        # The groups of the recipe outlive their destruction.  A thread of gloo that lets go of the
        # last tensors when the interpreter has ended aborts the process, also without sidestep.
        time.sleep(0.2)


def main():
    output = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "output")
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    base, config = os.path.join(output, "base", "model.pt"), os.path.join(output, "config.yaml")
    if not os.path.exists(base):
        os.makedirs(os.path.dirname(base), exist_ok=True)
        torch.manual_seed(1)
        torch.save(llama3(**MODEL).state_dict(), base)
    resume = any(name.startswith("dist_epoch_") for name in os.listdir(output))
    model = ", ".join(f"{name}: {value}" for name, value in MODEL.items())
    with open(config, "w") as file:
        file.write(CONFIG.format(output=output, model=model, resume=resume, epochs=epochs))
    arguments = ["train_torchtune", "--config", config]
    command = [sys.executable, "-m", "sidestep.run", "-v", "tune", "run", "--nproc_per_node", "2"]
    here = [
        os.path.dirname(os.path.abspath(__file__)),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join(here)  # for Tokens and Rows
    os.execv(sys.executable, [*command, *arguments])


if __name__ == "__main__":
    recipe() if "--config" in sys.argv else main()
