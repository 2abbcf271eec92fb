# SPDX-License-Identifier: BSD-3-Clause
"""python_accelerate.py -- measures what save_state() costs a training loop with Accelerate: its own,
which saves in the foreground only, and sidestep's.

bench/run calls it with the Python of .venv/frameworks/transformers.
"""
import time

import accelerate
import torch
from framework_support import ASLEEP, STEPS, Clock, Net, arguments, compare, momentum

from sidestep.accelerate import Accelerator

WAYS = {"stock: default": accelerate.Accelerator, "sidestep": Accelerator}


class Average:
    """An average of weights, as programs register one. It is as large as the model."""

    def __init__(self, net):
        self.values = {name: value.clone() for name, value in net.state_dict().items()}

    def state_dict(self):
        return self.values

    def load_state_dict(self, state):
        self.values = state


class Base(torch.nn.Module):
    def __init__(self, mib):
        super().__init__()
        count = max(1, mib // 4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1024, 1024, bias=False) for _ in range(count))

    def forward(self, batch):
        time.sleep(ASLEEP)
        batch = batch.expand(1, 1024)
        for layer in self.layers:
            batch = layer(batch)
        return batch.sum()


def with_adapters(mib):
    """A frozen base of ``mib`` MiB, with adapters of 1.5 % of it."""
    import peft

    return peft.get_peft_model(Base(mib), peft.LoraConfig(r=8, target_modules=r"layers\.[0-9]+"))


def main():
    args = arguments()
    if args.sharded:
        from fsdp_on_processors import fsdp_on_processors

        fsdp_on_processors()
    net = with_adapters(args.mib) if args.lora else Net(args.mib // (2 if args.registered else 1))

    def train(way, path):
        def finish():
            if way == "sidestep":
                accelerator.wait_for_checkpoint()

        accelerator = WAYS[way](cpu=True)
        model, optimizer = accelerator.prepare(net, momentum(net))
        if args.registered:
            accelerator.register_for_checkpointing(Average(net))
        clock = Clock(path, lambda: accelerator.save_state(path), finish)
        for done in range(STEPS):
            clock.step_begins(done)
            accelerator.backward(model(torch.ones(1)))
            optimizer.step()
            optimizer.zero_grad()
            clock.step_ended(done + 1)
        return clock

    kind = "FSDP2, one rank" if args.sharded else "one device"
    kind += ", half is registered" if args.registered else ", LoRA" if args.lora else ""
    compare(f"Accelerate, {kind}", args, WAYS, train)


if __name__ == "__main__":
    main()
