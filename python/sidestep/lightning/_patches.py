# SPDX-License-Identifier: BSD-3-Clause
"""Three functions of Lightning that have no seam, and have to know of directories and of saves that
are under way.  Each does what it did for everything else."""

from __future__ import annotations

import os
from typing import Any

from .._rotation import under_way
from ._files import read_directory
from ._io import free_name, wait_for
from ._modules import of_fabric, of_pytorch

_io = of_fabric("utilities.cloud_io")
_Callback: Any = of_pytorch("callbacks.model_checkpoint").ModelCheckpoint
_load = _io._load
_link = _Callback._link_checkpoint


def load(path_or_url: Any, map_location: Any = None, weights_only: Any = None) -> Any:
    """What ``load_from_checkpoint`` reads with: of a directory, too."""
    if isinstance(path_or_url, (str, os.PathLike)):
        wait_for(path_or_url)
        if os.path.isdir(path_or_url):
            return read_directory(
                os.fspath(path_or_url), map_location=map_location, weights_only=weights_only
            )
    return _load(path_or_url, map_location=map_location, weights_only=weights_only)


def file_exists(self: Any, filepath: Any, trainer: Any) -> Any:
    """Whether a checkpoint has this name: also one that is under way, so that none replaces it."""
    mine = trainer.is_global_zero and (
        under_way(os.fspath(filepath)) is not None or self._fs.exists(filepath)
    )
    return trainer.strategy.reduce_boolean_decision(mine, all=False)


def link_checkpoint(trainer: Any, filepath: str, linkpath: str) -> None:
    """``save_last="link"``: the link moves when what it leads to is committed."""
    found = under_way(filepath)
    if found is None:
        _link(trainer, filepath, linkpath)
        return
    if trainer.is_global_zero and os.path.abspath(filepath) != os.path.abspath(linkpath):
        rotation, save = found
        rotation.then(save, lambda failure: _move_link(filepath, linkpath, failure))
    trainer.strategy.barrier()


def _move_link(filepath: str, linkpath: str, failure: Any) -> None:
    if failure is not None:
        return
    target = os.path.relpath(filepath, os.path.dirname(linkpath))
    if os.path.isdir(linkpath) and not os.path.islink(linkpath):
        os.replace(linkpath, free_name(linkpath))
    part = os.path.join(os.path.dirname(linkpath), f".{os.path.basename(linkpath)}.sidestep-link")
    if os.path.islink(part):
        os.unlink(part)
    os.symlink(target, part)
    os.replace(part, linkpath)


def apply() -> None:
    """Put them in their places."""
    for module, name in (
        (_io, "_load"),
        (of_fabric("plugins.io.torch_io"), "pl_load"),
        (of_pytorch("core.saving"), "pl_load"),
    ):
        if getattr(module, name, None) is _load:
            setattr(module, name, load)
    _Callback.file_exists = file_exists
    _Callback._link_checkpoint = staticmethod(link_checkpoint)
