# SPDX-License-Identifier: BSD-3-Clause
"""DeepSpeed: ``save_checkpoint`` and ``load_checkpoint`` of an engine, by sidestep.

    engine, *_ = deepspeed.initialize(...)
    sidestep.deepspeed.attach(engine)

A save returns when the state may change.  ``TAG`` appears, and ``latest`` names it, when the save
of all ranks is committed.  What DeepSpeed itself saved is loaded.  `export` writes files that
DeepSpeed itself loads.  docs/FRAMEWORKS.md has more.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Optional

import torch
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine

from ._checkpoint import Checkpoint
from ._directory import DirectorySave, described, save, wait_all
from ._files import Alias
from ._packing import from_bytes, put_back, take, to_bytes
from ._plain import run_export
from ._put import whole_file
from ._torch.load import load
from ._torch.targets import dtype_of


def attach(engine: Any) -> Any:
    """Let ``engine``, a ``DeepSpeedEngine``, save and load with sidestep, and return it.

    To be called on all ranks.  ``engine.checkpoint_engine.wait()`` waits for the save under way, as
    the next save and the end of the interpreter do.
    """
    mine = SidestepCheckpointEngine(engine)
    stock = engine.save_checkpoint

    @functools.wraps(stock)
    def save_checkpoint(
        save_dir: Any,
        tag: Any = None,
        client_state: Any = None,
        save_latest: bool = True,
        *more: Any,
        **how: Any,
    ) -> Any:
        with mine.collecting(save_latest):
            return stock(save_dir, tag, client_state or {}, False, *more, **how)

    engine.checkpoint_engine = mine
    engine.save_checkpoint = save_checkpoint
    return engine


class SidestepCheckpointEngine(CheckpointEngine):
    """What `attach` puts in the place of DeepSpeed's own, which does all but checkpoints.

    All files of a checkpoint that the ranks would write are one save: its tensors, and an object
    for the rest of each file.  The name of the file leads to the checkpoint, because DeepSpeed
    looks for it.
    """

    def __init__(self, engine: Any) -> None:
        self.name = "SidestepCheckpointEngine"
        self._engine, self._stock = engine, engine.checkpoint_engine
        self._place: Optional[str] = None  # the checkpoint that is being collected
        self._files: dict[str, Any] = {}
        self._saving: Optional[DirectorySave] = None
        self._collects = self._names_latest = False
        self._began = 0.0

    @contextlib.contextmanager
    def collecting(self, save_latest: bool) -> Iterator[None]:
        """Inside, what DeepSpeed saves is collected, and saved at its `commit`."""
        self.wait()
        self._collects, self._names_latest, self._began = True, save_latest, time.monotonic()
        try:
            yield
        finally:
            self._collects, self._place = False, None
            self._files.clear()

    def wait(self) -> None:
        """Until the save under way is committed.  Collective.  Raises what it has failed with."""
        saving, self._saving = self._saving, None
        wait_all(saving)

    # -- what DeepSpeed calls

    def create(self, info: Any) -> None:
        """A checkpoint begins."""
        if self._collects:
            self._place = os.path.abspath(os.path.join(info.save_dir, info.tag))
        else:
            self._stock.create(info)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory, but not that of the checkpoint, which the commit makes."""
        if self._place is None or not _is_in(path, self._place):
            self._stock.makedirs(path, exist_ok=exist_ok)

    def save(self, state_dict: Any, path: str) -> None:
        """Collect a file of the checkpoint."""
        if self._place is None or not _is_in(path, self._place):
            self._stock.save(state_dict, path)
        else:
            self._files[os.path.relpath(path, self._place)] = state_dict

    def commit(self, info: Any) -> Any:
        """Begin to save what was collected.  Collective."""
        if self._place is None:
            return self._stock.commit(info)
        state: dict[str, Any] = {}
        for name, value in self._files.items():
            rest = take(value, name, state, 0)
            state[name] = to_bytes(rest)
        names = list(self._files)
        latest = os.path.join(info.save_dir, "latest")
        self._saving = save(
            self._place,
            state,
            lambda: {name: Alias() for name in names},
            then=(lambda: _write(latest, info.tag)) if self._names_latest else None,
            step=self._engine.global_steps,
            began=self._began,
        )
        return True

    def load(self, path: str, map_location: Any = None) -> Any:
        """A file of a checkpoint, whoever saved it.  Like DeepSpeed's own, it runs what the pickle
        of the file says.

        Errors: `sidestep.Error`: ECORRUPT, EIO ...; those of ``torch.load``.
        """
        if self._saving is not None:
            self._saving.wait()
        place, name = os.path.split(os.path.abspath(path))
        if _holds(place, name):
            return read_file_of(place, name, map_location)
        return self._stock.load(path, map_location=map_location)

    def is_data_parallel_writer(self, dp_rank: int) -> bool:
        """As DeepSpeed's own."""
        return bool(self._stock.is_data_parallel_writer(dp_rank))

    def preserves_storage_sharing(self) -> bool:
        """Whether DeepSpeed has to clone views before it saves them."""
        return not self._collects and bool(self._stock.preserves_storage_sharing())


def read_file_of(checkpoint: str, name: str, map_location: Any = None) -> Any:
    """What DeepSpeed had saved as the file ``name`` of ``checkpoint``.  By this process alone."""
    with Checkpoint(checkpoint) as opened:
        found = opened.describe().tensors.values()
    wanted: dict[str, Any] = {
        one.name: torch.empty(one.shape, dtype=dtype_of(one.name, one.dtype))
        for one in found
        if one.name.startswith(f"{name}.")
    }
    wanted[name] = None
    load(wanted, checkpoint_id=checkpoint, no_dist=True)
    rest = from_bytes(wanted[name], weights_only=False)
    moves = isinstance(map_location, (str, torch.device))
    return put_back(rest, wanted, lambda one: one.to(map_location) if moves else one)


def _is_in(path: str, place: str) -> bool:
    return os.path.commonpath([os.path.abspath(path), place]) == place


def _holds(place: str, name: str) -> bool:
    """Whether ``place`` is a checkpoint of ours with this file."""
    found = described(place)
    return found is not None and name in found.objects


def _write(latest: str, tag: str) -> None:
    with whole_file(latest) as part, open(part, "w") as file:
        file.write(tag)


def export(checkpoint: str, directory: Optional[str] = None) -> None:
    """Write the files that DeepSpeed itself would have written, for its loads and its scripts
    (``zero_to_fp32.py``).  By this process alone.

    directory  where to: one that is called like the tag, in a directory of checkpoints.  If there
               is no ``latest`` yet, it is made, and names this one

    ``python -m sidestep.deepspeed CHECKPOINT DIRECTORY`` does the same.
    """
    found = described(checkpoint)
    names = [name for name in found.objects if name.endswith(".pt")] if found else []
    if not names:
        raise ValueError(f"'{checkpoint}' is not a checkpoint that sidestep.deepspeed has saved")
    if directory is None or os.path.realpath(directory) == os.path.realpath(checkpoint):
        raise ValueError("DIRECTORY is missing: in CHECKPOINT, the names of the files are taken")
    os.makedirs(directory, exist_ok=True)
    for name in names:
        with whole_file(os.path.join(directory, name)) as part:
            torch.save(read_file_of(checkpoint, name), part)
    home, tag = os.path.split(os.path.abspath(directory))
    with contextlib.suppress(FileExistsError), open(os.path.join(home, "latest"), "x") as file:
        file.write(tag)


if __name__ == "__main__":
    sys.exit(run_export("deepspeed", export, "what stock DeepSpeed loads"))
