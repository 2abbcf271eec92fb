# SPDX-License-Identifier: BSD-3-Clause
"""A training loop with Accelerate whose states sidestep saves in the background.

    python examples/train_accelerate.py OUTPUT [STEPS]

Run it again after a kill: it resumes from the newest complete state. Under ``torchrun`` or
``accelerate launch`` it trains on several ranks. It needs no network.
"""

import os
import sys

import torch
from accelerate.utils import ProjectConfiguration

from sidestep.accelerate import Accelerator  # was: from accelerate import Accelerator


class Progress:
    """The number of trained steps. It is registered, so Accelerate saves it with the state."""

    def __init__(self):
        self.step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def main():
    output = sys.argv[1] if len(sys.argv) > 1 else "output"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    configuration = ProjectConfiguration(
        project_dir=output, automatic_checkpoint_naming=True, total_limit=2
    )
    accelerator = Accelerator(project_config=configuration, cpu=not torch.cuda.is_available())
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if os.path.isdir(os.path.join(output, "checkpoints")):
        accelerator.load_state()
        configuration.iteration = progress.step // 5
    while progress.step < steps:
        rows = torch.randn(32, 16, device=accelerator.device)
        loss = (model(rows) - rows.sin()).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        progress.step += 1
        if progress.step % 5 == 0:
            accelerator.save_state()  # returns while the state is written in the background
    accelerator.end_training()  # waits for the last save


if __name__ == "__main__":
    main()
