# SPDX-License-Identifier: BSD-3-Clause
"""Reads a checkpoint of Lightning, whoever wrote it: a file, or a directory of sidestep's or of a
sharded strategy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, Union

import torch

from .._c.abi import Status
from .._c.errors import make_error
from .._checkpoint import Checkpoint
from .._packing import REST, from_bytes, unpack
from .._read import read

META = "meta.pt"  # where Lightning's sharded strategies keep what is neither model nor optimizer
_MODEL_KEYS = ("state_dict", "model")


def read_directory(
    path: Union[str, Path], *, map_location: Any = None, weights_only: Optional[bool] = None
) -> dict[str, Any]:
    """The checkpoint in the directory ``path``, in the form in which Lightning has one in a file.

    Errors: `Error`: EUNCOMMITTED, ECORRUPT, EIO; EMISMATCH if it is a checkpoint of something else.
    """
    place = _placer(map_location)
    with Checkpoint(path) as checkpoint:
        names = set(checkpoint.names())
    if REST in names:
        return unpack(read(path), weights_only=weights_only, place=place)
    found = read_rest(path, weights_only)
    if found is None:
        raise make_error(
            f"'{path}' is a checkpoint, but not one of Lightning: it has neither an object "
            f"'{REST}' nor '{META}'",
            status=Status.EMISMATCH,
        )
    state = read(path, allow_pickle=weights_only is False)
    for key in _MODEL_KEYS:
        if key in state:
            found["state_dict"] = _placed(state[key], place)
    optimizers = [state[key] for key in sorted(state, key=_number_of) if _number_of(key) >= 0]
    if optimizers:
        found["optimizer_states"] = [_by_number(_placed(one, place)) for one in optimizers]
    return found


def read_rest(path: Union[str, Path], weights_only: Optional[bool]) -> Optional[dict[str, Any]]:
    """What a sharded checkpoint holds beside model and optimizers; None: it is none."""
    with Checkpoint(path) as checkpoint:
        if META in checkpoint.file_names():
            return dict(from_bytes(checkpoint.file(META), weights_only=weights_only))
    file = os.path.join(path, META)
    if not os.path.exists(file):
        return None
    return dict(torch.load(file, map_location="cpu", weights_only=weights_only))


def _number_of(key: Any) -> int:
    """Of "optimizer_3"; -1: it is no optimizer."""
    word, _, number = str(key).rpartition("_")
    return int(number) if word == "optimizer" and number.isdigit() else -1


def _by_number(state: dict[str, Any]) -> dict[str, Any]:
    """The state of an optimizer by the numbers of its parameters, as torch's optimizers have it; a
    sharded checkpoint has it by their names."""
    numbers: dict[Any, int] = {}
    groups = []
    for group in state["param_groups"]:
        mine = [numbers.setdefault(name, len(numbers)) for name in group["params"]]
        groups.append({**group, "params": mine})
    states = {numbers[name]: value for name, value in state.get("state", {}).items()}
    return {"state": dict(sorted(states.items())), "param_groups": groups}


def _placed(value: Any, place: Callable[[Any], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return place(value)
    if isinstance(value, dict):
        return {key: _placed(one, place) for key, one in value.items()}
    if isinstance(value, list):
        return [_placed(one, place) for one in value]
    return value


def _placer(map_location: Any) -> Callable[[Any], Any]:
    """What ``torch.load(map_location=...)`` means for a tensor that was read into host memory."""
    if isinstance(map_location, (str, torch.device)):
        return lambda tensor: tensor.to(map_location)
    if isinstance(map_location, dict):
        return lambda tensor: tensor.to(map_location.get("cpu", "cpu"))
    return lambda tensor: tensor
