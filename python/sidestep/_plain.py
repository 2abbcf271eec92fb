# SPDX-License-Identifier: BSD-3-Clause
"""Saves and exports models and optimizers that are the same on every rank.  The state of an
optimizer is stored by the numbers of its parameters, as in ``optimizer.state_dict()``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Optional

import torch

from ._c.errors import Error
from ._checkpoint import Checkpoint
from ._convert import convert
from ._directory import described
from ._put import whole_file
from ._torch.flatten import set_leaf
from ._torch.load import load
from ._torch.targets import dtype_of


def has_plain(directory: Optional[str], name: str = "optimizer") -> bool:
    """Whether `optimizer_state` was saved as ``name`` in the checkpoint ``directory``."""
    if directory is None or described(directory) is None:
        return False
    with Checkpoint(directory) as checkpoint:
        return checkpoint.find(f"{name}.groups") is not None


def optimizer_state(optimizer: Any) -> dict[str, Any]:
    """The state to save: tensors by number, and the groups as one object (in a tuple, so that they
    are not flattened).  Numbers and texts beside the tensors of a parameter are objects, too."""
    state = optimizer.state_dict()
    more = {key: value for key, value in state.items() if key not in ("state", "param_groups")}
    return {"state": state["state"], "groups": (state["param_groups"],), "more": (more,)}


def load_optimizer(
    optimizer: Any, directory: str, name: str = "optimizer", *, alone: bool = False
) -> dict[str, Any]:
    """Read the state that was saved as ``name``, load it into ``optimizer`` unless that is None,
    and return it.  Collective, unless ``alone``."""
    found = load_plain(directory, name, alone=alone)
    (groups,), (more,) = found["groups"], found["more"]
    state = {"state": found.get("state", {}), "param_groups": groups, **more}
    if optimizer is not None:
        optimizer.load_state_dict(state)
    return state


def load_plain(directory: str, name: str, *, alone: bool = False) -> Any:
    """What was saved as ``name``.  Collective, unless ``alone``."""
    wanted: dict[str, Any] = {name: _template(directory, name)}
    load(wanted, checkpoint_id=directory, no_dist=alone)
    return wanted[name]


def _template(directory: str, name: str) -> Any:
    """The entries of ``name`` in the checkpoint, with tensors that are not filled yet."""
    with Checkpoint(directory) as checkpoint:
        described = checkpoint.describe()
    state: dict[Any, Any] = {}
    for tensor in described.tensors.values():
        if tensor.path[0] == name:
            dtype = dtype_of(tensor.name, tensor.dtype)
            set_leaf(state, tensor.path, torch.empty(tensor.shape, dtype=dtype))
    for one in described.objects.values():
        if one.path[0] == name:
            set_leaf(state, one.path, None)
    return state[name]


def export_model(checkpoint: str, file: str, name: str = "model") -> None:
    """Write the tensors of ``name`` in ``checkpoint`` as a file of safetensors."""
    rename = f"s\x01^{name}[.]\x01\x01"
    include = [f"{name}.*"]
    convert(
        checkpoint,
        file,
        to="safetensors",
        include=include,
        rename=[rename],
        objects="skip",
        max_shard_size=1 << 62,
        replace=True,
    )


def export_optimizer(checkpoint: str, file: str, name: str = "optimizer") -> None:
    """Write the `optimizer_state` ``name`` as ``torch.save(optimizer.state_dict())`` does."""
    with whole_file(file) as part:
        torch.save(load_optimizer(None, checkpoint, name, alone=True), part)


def run_export(name: str, export: Callable[..., None], what: str) -> int:
    """``python -m sidestep.NAME``.  The exit status: 0, or 1 with a message."""
    parser = argparse.ArgumentParser(
        prog=f"python -m sidestep.{name}",
        description=f"Write {what}. Into CHECKPOINT, or into DIRECTORY with all small files.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT")
    parser.add_argument("directory", metavar="DIRECTORY", nargs="?")
    given = parser.parse_args()
    try:
        export(given.checkpoint, given.directory)
    except (Error, OSError, ValueError) as error:
        print(f"sidestep.{name}: {error}", file=sys.stderr)
        return 1
    return 0
