# SPDX-License-Identifier: BSD-3-Clause
"""python_accelerate.py -- measures what save_state() costs a training loop with Accelerate: its own,
which saves in the foreground only, and sidestep's.

bench/run calls it with the Python of .venv/frameworks/transformers.
"""
import accelerate
import torch
from framework_support import STEPS, Clock, Net, arguments, compare, momentum

from sidestep.accelerate import Accelerator

WAYS = {"stock: default": accelerate.Accelerator, "sidestep": Accelerator}


def main():
    args = arguments()
    if args.sharded:
        from fsdp_on_processors import fsdp_on_processors

        fsdp_on_processors()
    net = Net(args.mib)

    def train(way, path):
        def finish():
            if way == "sidestep":
                accelerator.wait_for_checkpoint()

        accelerator = WAYS[way](cpu=True)
        model, optimizer = accelerator.prepare(net, momentum(net))
        clock = Clock(path, lambda: accelerator.save_state(path), finish)
        for done in range(STEPS):
            clock.step_begins(done)
            accelerator.backward(model(torch.ones(1)))
            optimizer.step()
            optimizer.zero_grad()
            clock.step_ended(done + 1)
        return clock

    compare("Accelerate, " + ("FSDP2, one rank" if args.sharded else "one device"), args, WAYS, train)


if __name__ == "__main__":
    main()
