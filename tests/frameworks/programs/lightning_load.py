# SPDX-License-Identifier: BSD-3-Clause
"""Trains, saves by hand, and reads what was saved in the ways in which programs of Lightning do."""

import os
import sys

import torch
from lightning.pytorch import Trainer
from lightning_run import Model, Numbers
from torchdata.stateful_dataloader import StatefulDataLoader

from sidestep.lightning import SidestepCheckpointIO

root = sys.argv[1]
quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}


def trainer(**options):
    return Trainer(
        accelerator="cpu",
        devices=1,
        default_root_dir=root,
        plugins=[SidestepCheckpointIO()],
        **quiet,
        **options,
    )


model = Model(width=24)
one = trainer(max_steps=2, enable_checkpointing=False)
one.fit(model, StatefulDataLoader(Numbers(), batch_size=4))
for name, weights_only in (("all", False), ("weights", True)):
    one.save_checkpoint(f"{root}/{name}.ckpt", weights_only=weights_only)

for name in ("all", "weights"):
    loaded = Model.load_from_checkpoint(f"{root}/{name}.ckpt")  # also while it is under way
    assert os.path.isdir(f"{root}/{name}.ckpt")
    assert loaded.hparams.width == 24
    for key, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), (name, key)

plugin = SidestepCheckpointIO()
everything = plugin.load_checkpoint(f"{root}/all.ckpt", weights_only=True)
weights = plugin.load_checkpoint(f"{root}/weights.ckpt", weights_only=True)
print("left_out", *sorted(set(everything) - set(weights)))
assert everything["optimizer_states"][0]["state"][0]["step"] == 2
assert list(everything["state_dict"]) == list(model.state_dict())
moved = plugin.load_checkpoint(f"{root}/all.ckpt", map_location="meta")
assert {one.device.type for one in moved["state_dict"].values()} == {"meta"}

two = trainer(max_steps=4, enable_checkpointing=False)
two.fit(Model(width=24), StatefulDataLoader(Numbers(), batch_size=4), ckpt_path=f"{root}/all.ckpt")
print("step", two.global_step)

for problem, path in (("file", f"{root}/none.ckpt"), ("directory", root)):
    try:
        plugin.load_checkpoint(path)
    except Exception as error:
        print(problem, type(error).__name__, error)
try:
    plugin.save_checkpoint({}, f"{root}/x.ckpt", storage_options={"a": 1})
except TypeError as error:
    print("options", error)

for name in ("all", "gone"):  # "last.ckpt", of a run with save_last="link"
    os.symlink(f"{name}.ckpt", f"{root}/last.ckpt")
    plugin.save_checkpoint({"global_step": 100}, f"{root}/last.ckpt")
    plugin.teardown()
    assert not os.path.islink(f"{root}/last.ckpt") and not os.path.lexists(f"{root}/last-before.ckpt")
    assert plugin.load_checkpoint(f"{root}/last.ckpt")["global_step"] == 100
    print("linked", plugin.load_checkpoint(f"{root}/all.ckpt")["global_step"])
    plugin.remove_checkpoint(f"{root}/last.ckpt")
    plugin.teardown()
