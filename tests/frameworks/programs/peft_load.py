# SPDX-License-Identifier: BSD-3-Clause
"""peft_load.py CHECKPOINT CHECKPOINT: what PEFT loads of both is the same, and is no new adapter."""

import sys

import peft
import torch
from peft_train import LORA, base


def adapters(model):
    return {name: value for name, value in model.state_dict().items() if "lora_" in name}


first, second = (adapters(peft.PeftModel.from_pretrained(base(), place)) for place in sys.argv[1:3])
fresh = adapters(peft.get_peft_model(base(), LORA))
assert first.keys() == second.keys() == fresh.keys() and first
assert all(torch.equal(first[name], second[name]) for name in first)
assert not any(torch.equal(first[name], fresh[name]) for name in first)
