# SPDX-License-Identifier: BSD-3-Clause
"""`SaveAdapters`: checkpoints of models of PEFT, without the frozen base."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from .._peft import without_frozen, write_adapters
from ._io import FILES, SidestepCheckpointIO
from ._modules import of_pytorch

_Callback: Any = of_pytorch("callbacks").Callback
_FSDP: Any = of_pytorch("strategies").FSDPStrategy


class SaveAdapters(_Callback):
    """``Trainer(callbacks=[SaveAdapters()])``: what PEFT has frozen in the module is not saved, and
    ``adapter_model.safetensors`` is in the checkpoint, where PEFT looks for it; not with
    ``FSDPStrategy``.

    The module gets ``strict_loading = False``, because the base is not loaded, either.  A sharded
    strategy that saves one file saves all, as without this.
    """

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before a checkpoint is loaded."""
        pl_module.strict_loading = False

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Take what is frozen out.  On all ranks."""
        strategy = trainer.strategy
        is_ours = isinstance(getattr(strategy, "checkpoint_io", None), SidestepCheckpointIO)
        if not getattr(strategy, "saves_shards", is_ours):
            return
        state = checkpoint["state_dict"]
        for name in state.keys() - without_frozen(pl_module, state).keys():
            del state[name]
        if not isinstance(strategy, _FSDP):
            files = _files_of(pl_module, trainer.is_global_zero)
            checkpoint.setdefault(FILES, {}).update(files)


def _files_of(module: Any, writes: bool) -> dict[str, bytes]:
    """The files of its adapters, on the rank that writes.  Collective, if the module is sharded."""
    with tempfile.TemporaryDirectory(prefix="sidestep-") as directory:
        write_adapters(module, directory, writes=writes)
        paths = [path for path in Path(directory).rglob("*") if path.is_file()]
        return {str(path.relative_to(directory)): path.read_bytes() for path in paths}
