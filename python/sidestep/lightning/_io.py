# SPDX-License-Identifier: BSD-3-Clause
"""`SidestepCheckpointIO`: what Lightning calls with one device, and under DDP on rank 0."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Iterator
from typing import Any, Optional, Union

from .._engine import engine_for
from .._handle import SaveHandle
from .._option_groups import SaveOptions, save_options
from .._packing import pack
from .._parents import make_parents
from .._put import put_aside
from .._rotation import Rotation, under_way
from .._torch.flatten import flatten
from .._torch.plugins import start_save
from .._waiting import waits
from ._files import read_directory
from ._modules import of_fabric

log = logging.getLogger("sidestep")
FILES = "sidestep.files"  # the key of small files of the save, by name, in what Lightning saves
_told: set[str] = set()
PathLike = Union[str, "os.PathLike[str]"]
_Base: Any = of_fabric("plugins.io.checkpoint_io").CheckpointIO
_Rank: Any = of_fabric("utilities.rank_zero").rank_zero_only
_Stock: Any = of_fabric("plugins.io.torch_io").TorchCheckpointIO


class SidestepCheckpointIO(_Base):
    """``Trainer(plugins=[SidestepCheckpointIO()])``: checkpoints are saved in the background.

    A ``.ckpt`` is a directory then.  It appears when it is whole and durable.  An old one that
    `ModelCheckpoint` lets go is deleted when the new one is there.  The end of ``fit`` waits for
    what is under way, and raises what has failed.  Files of ``torch.save`` are loaded as ever.

    options   `sidestep.SaveOptions`; not ``incremental``, which needs a `sidestep.Checkpointer`
    queue     so many saves may wait for the one under way, each as a copy of the state; then the
              next one waits.  With ``save_last=True`` Lightning saves twice in a row

    For FSDP and model parallelism, which do not ask a CheckpointIO: `SidestepFSDPStrategy`,
    `SidestepModelParallelStrategy`.
    """

    def __init__(self, *, options: Optional[SaveOptions] = None, queue: int = 1) -> None:
        super().__init__()
        self._options, self._queue = save_options(options), queue
        self._stock = _Stock()
        self.rotation = Rotation()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: PathLike, storage_options: Optional[Any] = None
    ) -> None:
        """Begin to save ``checkpoint`` as the directory ``path``; returns when its tensors may
        change.  A URL is left to Lightning.

        Errors: TypeError for ``storage_options``; `sidestep.Error`, also of an earlier save.
        """
        if left_to_lightning(path):
            self._stock.save_checkpoint(checkpoint, path, storage_options)
            return
        if storage_options is not None:
            raise TypeError("storage_options: a SidestepCheckpointIO has none; see its arguments")
        began, path = time.monotonic(), os.fspath(path)
        old = put_file_aside(path)
        handle = self._start(checkpoint, path, began)
        self.rotation.add(handle)
        if old is not None:
            self.rotation.delete(old)
        if is_urgent(path) or waits():
            handle.result()
        handle.stall_s = time.monotonic() - began

    def _start(self, checkpoint: dict[str, Any], path: str, began: float) -> SaveHandle:
        engine = engine_for(None, no_dist=True, ways=self._options.ways)
        files = checkpoint.get(FILES, {})
        state = {key: value for key, value in checkpoint.items() if key != FILES}
        self.rotation.begin(path)
        make_parents(path)
        return start_save(
            engine,
            path,
            lambda: engine.states.get(
                flatten(pack(state)), strict_objects=self._options.strict_objects
            ),
            files=lambda: files,
            step=step_of(checkpoint),
            compress=self._options.compress,
            spread_s=self._options.spread_s,
            queue=self._queue,
            began=began,
        )

    def load_checkpoint(
        self, path: PathLike, map_location: Any = None, weights_only: Optional[bool] = None
    ) -> dict[str, Any]:
        """The checkpoint at ``path``: a directory of ours or of a sharded strategy, or a file.

        Errors: FileNotFoundError; `sidestep.Error` (ECORRUPT, EUNCOMMITTED, EIO ...).
        """
        began = time.monotonic()
        wait_for(path)
        how = {"map_location": map_location, "weights_only": weights_only}
        loaded: dict[str, Any]
        if os.path.isdir(path) or is_bucket(path):
            loaded = read_directory(os.fspath(path), **how)
        else:
            loaded = self._stock.load_checkpoint(path, **how)
        tell_loaded(path, loaded, began)
        return loaded

    def remove_checkpoint(self, path: PathLike) -> None:
        """Delete ``path`` when the save that was begun last is committed; never if that fails."""
        if is_url(path):
            self._stock.remove_checkpoint(path)
            return
        self.rotation.delete(os.fspath(path))
        if waits():
            self.rotation.wait()

    def teardown(self) -> None:
        """Wait for the saves and deletions under way.  Errors: `sidestep.Error` of a save."""
        self.rotation.wait()


def wait_for(path: PathLike) -> None:
    """Until the save to ``path``, if this process has one under way, has ended.

    Errors: `sidestep.Error`: it has failed.
    """
    found = under_way(os.fspath(path))
    if found is not None:
        found[1].result()


def tell_loaded(path: PathLike, loaded: dict[str, Any], began: float) -> None:
    """One line on rank 0.  ``began``: by time.monotonic()."""
    level = logging.INFO if _Rank.rank == 0 else logging.DEBUG
    seconds, step = time.monotonic() - began, step_of(loaded)
    log.log(level, "loaded step %s from '%s' in %.3f s", step, os.fspath(path), seconds)


def is_bucket(path: PathLike) -> bool:
    """Whether it is in an object store that sidestep saves to."""
    return os.fspath(path).startswith("s3://")


def is_url(path: PathLike) -> bool:
    """Whether it is one of fsspec's, which only Lightning itself saves to and loads from."""
    return "://" in os.fspath(path) and not is_bucket(path)


def left_to_lightning(path: PathLike) -> bool:
    """`is_url`, before a save.  Says so, once for each kind of URL."""
    kind = os.fspath(path).partition("://")[0]
    if is_url(path) and kind not in _told:
        _told.add(kind)
        log.warning(
            "checkpoints at %s:// are saved by Lightning itself, while training waits", kind
        )
    return is_url(path)


def put_file_aside(path: str) -> Optional[str]:
    """Rename a file of ``torch.save`` at ``path``, since a directory cannot replace one; and a link
    (``save_last="link"``), so that what it leads to is not replaced.

    Returns its new name, or None: there is none.  ``ckpt_path="last"`` finds it there, should the
    save that replaces it come to nothing.
    """
    if not os.path.isfile(path) and not os.path.islink(path):
        return None
    return put_aside(path, names_aside(path))


def names_aside(path: str) -> Iterator[str]:
    """Names beside ``path`` that ``ckpt_path="last"`` considers: last-before.ckpt,
    last-before-2.ckpt ..."""
    stem, extension = os.path.splitext(path)
    yield f"{stem}-before{extension}"
    for number in itertools.count(2):
        yield f"{stem}-before-{number}{extension}"


def is_urgent(path: str) -> bool:
    """Whether the job may be requeued, and killed, as soon as it is saved."""
    return os.path.basename(path).startswith("hpc_ckpt_")


def step_of(checkpoint: dict[str, Any]) -> Optional[int]:
    """The training step of a checkpoint of Lightning, if it has one."""
    step = checkpoint.get("global_step")
    return step if isinstance(step, int) and step >= 0 else None
