# SPDX-License-Identifier: BSD-3-Clause
"""peft_files.py CHECKPOINT PREFIX: what PEFT loads of a checkpoint of accelerate_train.py is what
the save holds below PREFIX, and is trained."""

import sys

import peft
import torch
from accelerate_train import base

import sidestep

checkpoint, prefix = sys.argv[1:3]
model = peft.PeftModel.from_pretrained(base(), checkpoint)
adapters = {name: value for name, value in model.state_dict().items() if "lora_" in name}
assert any("lora_B" in name and value.any() for name, value in adapters.items())
for name, value in adapters.items():
    assert torch.equal(value, sidestep.read(checkpoint, prefix + name)), name
