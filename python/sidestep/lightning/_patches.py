# SPDX-License-Identifier: BSD-3-Clause
"""Functions of Lightning that have no seam, and have to know of directories, of saves under way,
and of damage that a load finds.  Each does what it did for everything else."""

from __future__ import annotations

import os
from typing import Any, Optional

from torch.utils.data.distributed import DistributedSampler

from .._c.abi import Status
from .._c.errors import Error
from .._directory import described, names_in, raise_advised, tell_once, tell_passed_over
from .._put import put_aside
from .._rotation import under_way
from ._files import read_directory
from ._io import SidestepCheckpointIO, names_aside, wait_for
from ._modules import of_fabric, of_pytorch

_io = of_fabric("utilities.cloud_io")
_Callback: Any = of_pytorch("callbacks.model_checkpoint").ModelCheckpoint
_Connector: Any = of_pytorch("trainer.connectors.checkpoint_connector")._CheckpointConnector
_load = _io._load
_parse, _resume = _Connector._parse_ckpt_path, _Connector.resume_start
_dump = _Connector.dump_checkpoint
_told: set[str] = set()
_LOST = (
    "a resume in the middle of an epoch will see other data: Lightning gave the StatefulDataLoader "
    "a sampler that shuffles and has no state.  Use Trainer(use_distributed_sampler=False) and "
    "StatefulDataLoader(data, sampler=StatefulDistributedSampler(data, world_size, rank)) of "
    "torchdata.stateful_dataloader.sampler"
)
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
        put_aside(linkpath, names_aside(linkpath))
    part = os.path.join(os.path.dirname(linkpath), f".{os.path.basename(linkpath)}.sidestep-link")
    if os.path.islink(part):
        os.unlink(part)
    os.symlink(target, part)
    os.replace(part, linkpath)


def parse_path(self: Any, state_fn: Any, ckpt_path: Any, **how: Any) -> Any:
    """Keep in mind whether Lightning has chosen the path: ``ckpt_path="last"``, or of a requeued
    job."""
    found = _parse(self, state_fn, ckpt_path, **how)
    chooses = ckpt_path in ("last", "hpc") or (ckpt_path is None and state_fn.value == "fit")
    self._sidestep_chose = found if chooses else None
    return found


def resume_start(self: Any, checkpoint_path: Any = None, weights_only: Any = None) -> None:
    """If the bytes of a checkpoint that Lightning has chosen are damaged, take the one before."""
    wanted, tried = checkpoint_path, []
    first: Optional[Error] = None
    while checkpoint_path is not None or first is None:
        try:
            _resume(self, checkpoint_path, weights_only)
            return
        except Error as error:
            if error.status != Status.ECORRUPT or wanted != getattr(self, "_sidestep_chose", None):
                advice = 'ckpt_path="last" takes the newest that is whole'
                raise_advised(error, os.fspath(checkpoint_path), advice)
            first = first or error
            tell_passed_over(os.fspath(checkpoint_path), error.message)
            tried.append(os.path.realpath(checkpoint_path))
        before = _before(os.path.dirname(checkpoint_path), tried)
        checkpoint_path = self.trainer.strategy.broadcast(before)
    raise first


def _before(directory: str, tried: list[str]) -> Optional[str]:
    """The checkpoint of sidestep in ``directory`` with the highest step that names and sizes show
    to be whole, but none of ``tried``."""
    found = []
    for name in names_in(directory):
        path = os.path.join(directory, name)
        if name.endswith(".ckpt") and os.path.isdir(path) and os.path.realpath(path) not in tried:
            one = described(path)
            if one is not None and one.damage is None and one.step is not None:
                found.append((one.step, path))
    return max(found)[1] if found else None


def dump_checkpoint(self: Any, *args: Any, **how: Any) -> Any:
    """Warn once if the place in the data will not be in it."""
    if self.trainer.is_global_zero and _saves(self.trainer.strategy):
        loaders = getattr(self.trainer.fit_loop, "_combined_loader", None)
        if any(map(_loses_place, getattr(loaders, "flattened", []))):
            tell_once(_LOST, _told)
    return _dump(self, *args, **how)


def _saves(strategy: Any) -> bool:
    """Whether checkpoints are ours."""
    io = getattr(strategy, "checkpoint_io", None)
    return hasattr(strategy, "saves_shards") or isinstance(io, SidestepCheckpointIO)


def _loses_place(loader: Any) -> bool:
    batches = getattr(loader, "batch_sampler", None)
    sampler = getattr(batches, "sampler", getattr(loader, "sampler", None))
    return (
        hasattr(loader, "state_dict")
        and isinstance(sampler, DistributedSampler)
        and sampler.shuffle
        and not hasattr(sampler, "state_dict")
    )


def apply() -> None:
    """Put them in their places."""
    for module, name in (
        (_io, "_load"),
        (of_fabric("plugins.io.torch_io"), "pl_load"),
        (of_pytorch("core.saving"), "pl_load"),
    ):
        if getattr(module, name, None) is _load:
            setattr(module, name, load)
    _Connector._parse_ckpt_path = parse_path
    _Connector.resume_start = resume_start
    _Connector.dump_checkpoint = dump_checkpoint
    _Callback.file_exists = file_exists
    _Callback._link_checkpoint = staticmethod(link_checkpoint)
