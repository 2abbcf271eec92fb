# SPDX-License-Identifier: BSD-3-Clause
"""peft_files.py CHECKPOINT PREFIX [PROGRAM]: what PEFT loads of a checkpoint of PROGRAM, by default
accelerate_train, is what the save holds below PREFIX, and is trained."""

import importlib
import sys

import peft
import torch

import sidestep

checkpoint, prefix = sys.argv[1:3]
program = importlib.import_module(sys.argv[3] if sys.argv[3:] else "accelerate_train")
model = peft.PeftModel.from_pretrained(program.base(), checkpoint)
adapters = {name: value for name, value in model.state_dict().items() if "lora_" in name}
assert any("lora_B" in name and value.any() for name, value in adapters.items())
saved = sidestep.load_metadata(checkpoint).tensors
for name, value in adapters.items():
    stored = prefix + name
    if stored not in saved:  # some have PEFT's names, without that of the adapter
        stored = prefix + name.replace(".default", "")
    assert torch.equal(value, sidestep.read(checkpoint, stored)), name
