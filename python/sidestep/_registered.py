# SPDX-License-Identifier: BSD-3-Clause
"""Objects that were registered with Accelerate (``register_for_checkpointing``).

Accelerate writes ``custom_checkpoint_0.pkl``.  Large tensors in it would be written while training
waits, so they become tensors of the save, and the rest is ``registered_0.pkl``.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

import accelerate.accelerator
import torch
from accelerate.state import PartialState

from ._directory import described
from ._packing import from_bytes, put_back, take
from ._plain import load_plain
from ._put import whole_file
from ._read import read_file
from ._redirect import in_place

_LARGE = 65536  # bytes of a tensor that is taken out
_PROTOCOL = 4  # torch.save's own, which is 2, takes ten times as long for bytes
_REST = re.compile(r"registered_(\d+)\.pkl")


def taken_apart(states: dict[str, Any], *, apart: bool) -> contextlib.AbstractContextManager[None]:
    """Inside, Accelerate adds the large tensors of registered objects to ``states``, and writes the
    rest.  ``apart=False``: it writes all of it, as stock reads it."""

    def save_custom_state(obj: Any, path: Any, index: int = 0, **how: Any) -> None:
        state, tensors = obj.state_dict(), {}  # type: ignore[var-annotated]
        if not PartialState().is_main_process:
            return
        rest = take(state, "state", tensors, _LARGE) if apart else state
        name = f"registered_{index}.pkl" if tensors else _stocks(index)
        torch.save(rest, os.path.join(path, name), pickle_protocol=_PROTOCOL)
        if tensors:
            states[f"registered_{index}"] = tensors

    return in_place("save_custom_state", save_custom_state, accelerate.accelerator)


def put_together(checkpoint: str, view: str) -> contextlib.AbstractContextManager[None]:
    """Inside, Accelerate loads registered objects from ``view``, a directory with the small files
    of ``checkpoint``, and their large tensors from there."""

    apart = _apart(checkpoint)

    def load_custom_state(obj: Any, path: Any, index: int = 0) -> None:
        file = os.path.join(path, _stocks(index))
        state = torch.load(file, map_location="cpu", weights_only=False)  # as Accelerate does
        obj.load_state_dict(_whole(state, checkpoint, index) if index in apart else state)

    for index in apart:
        os.replace(
            os.path.join(view, f"registered_{index}.pkl"), os.path.join(view, _stocks(index))
        )
    return in_place("load_custom_state", load_custom_state, accelerate.accelerator)


def export_registered(checkpoint: str, directory: str) -> None:
    """Write what stock Accelerate reads of registered objects.  By this process alone."""
    for index in _apart(checkpoint):
        data = read_file(checkpoint, f"registered_{index}.pkl")
        rest = from_bytes(data, weights_only=False)  # as Accelerate does
        with whole_file(os.path.join(directory, _stocks(index))) as part:
            torch.save(_whole(rest, checkpoint, index, alone=True), part)


def _stocks(index: int) -> str:
    return f"custom_checkpoint_{index}.pkl"


def _apart(checkpoint: str) -> list[int]:
    """The numbers of the objects whose tensors are apart."""
    found = described(checkpoint)
    matches = [_REST.fullmatch(name) for name in found.files] if found is not None else []
    return [int(match[1]) for match in matches if match]


def _whole(rest: Any, checkpoint: str, index: int, *, alone: bool = False) -> Any:
    """The state of an object: ``rest`` with its large tensors, which are read."""
    tensors = load_plain(checkpoint, f"registered_{index}", alone=alone)
    return put_back(rest, tensors, lambda tensor: tensor)
