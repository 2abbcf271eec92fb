# SPDX-License-Identifier: BSD-3-Clause
"""What a training with torchtitan's parts has of its own: the data, and its progress."""

import pickle

import torch


class Data:
    """Rows that follow from their place, which is its state."""

    def __init__(self, rank):
        self.rank, self.place = rank, 0

    def __next__(self):
        self.place += 1
        return torch.arange(32.0).reshape(4, 8) / (self.place + 1) - self.rank

    def state_dict(self):
        return {f"dp_rank_{self.rank}": pickle.dumps({"place": self.place})}

    def load_state_dict(self, state):
        if state:
            self.place = pickle.loads(state[f"dp_rank_{self.rank}"])["place"]


class Progress:
    step = 0

    def state_dict(self):
        return {"step": torch.tensor(self.step, dtype=torch.int32)}

    def load_state_dict(self, state):
        self.step = int(state["step"].item())
