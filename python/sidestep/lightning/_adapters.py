# SPDX-License-Identifier: BSD-3-Clause
"""`SaveAdapters`: checkpoints of models of PEFT, without the frozen base."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from .._peft import is_peft, without_frozen, write_adapters
from ._io import FILES, SidestepCheckpointIO
from ._modules import of_pytorch

_Callback: Any = of_pytorch("callbacks").Callback


class SaveAdapters(_Callback):
    """``Trainer(callbacks=[SaveAdapters()])``: what PEFT has frozen in the module is not saved, and
    ``adapter_model.safetensors`` is in the checkpoint, where PEFT looks for it.

    The module gets ``strict_loading = False``, because the base is not loaded, either.  With FSDP
    and model parallelism all is saved, as without this.
    """

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before a checkpoint is loaded."""
        pl_module.strict_loading = False

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Take what is frozen out."""
        io = getattr(trainer.strategy, "checkpoint_io", None)
        if not isinstance(io, SidestepCheckpointIO) or hasattr(trainer.strategy, "saves_shards"):
            return
        state = checkpoint["state_dict"]
        for prefix, model in _outermost(pl_module).items():
            mine = {
                name[len(prefix) :]: value
                for name, value in state.items()
                if name.startswith(prefix)
            }
            for name in mine.keys() - without_frozen(model, mine).keys():
                del state[prefix + name]
            if trainer.is_global_zero:
                checkpoint.setdefault(FILES, {}).update(_files_of(model, checkpoint.get(FILES)))


def _outermost(module: Any) -> dict[str, Any]:
    """The models of PEFT in ``module``, by the beginning of the names of their tensors."""
    found: dict[str, Any] = {}
    for name, part in module.named_modules():
        prefix = f"{name}." if name else ""
        if is_peft(part) and not prefix.startswith(tuple(found)):
            found[prefix] = part
    return found


def _files_of(model: Any, others: Any) -> dict[str, bytes]:
    """The files of its adapters: of a second model in a directory of their own."""
    home = f"model_{len(others)}" if others else ""
    with tempfile.TemporaryDirectory(prefix="sidestep-") as directory:
        write_adapters(model, directory)
        paths = [path for path in Path(directory).rglob("*") if path.is_file()]
        return {
            os.path.join(home, str(path.relative_to(directory))): path.read_bytes()
            for path in paths
        }
