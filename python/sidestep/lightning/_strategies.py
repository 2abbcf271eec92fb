# SPDX-License-Identifier: BSD-3-Clause
"""Strategies whose sharded checkpoints are saved in the background: for FSDP and model parallelism,
where Lightning asks no CheckpointIO.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)

from .._c.errors import Error
from .._checkpoint import Checkpoint
from .._directory import described
from .._engine import engine_for
from .._files import Files, FirstRank
from .._handle import SaveHandle
from .._packing import REST, to_bytes
from .._parents import make_parents
from .._put import whole_file
from .._read import read_file
from .._rotation import Rotation
from .._torch.flatten import flatten
from .._torch.load import agreed, load
from .._torch.plugins import start_save
from .._train_state import set_optimizers, trainable
from .._waiting import waits
from ._files import META, read_directory, read_rest
from ._io import (
    FILES,
    PathLike,
    is_urgent,
    is_url,
    left_to_lightning,
    put_file_aside,
    step_of,
    tell_loaded,
    wait_for,
)
from ._modules import of_pytorch

log = logging.getLogger("sidestep")
_ModelParallel: Any = of_pytorch("strategies").ModelParallelStrategy
_FSDP: Any = of_pytorch("strategies").FSDPStrategy


class _Optimizer:
    """The state of an optimizer by the names of the parameters, also of those that are frozen."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        self._model = model
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        return get_optimizer_state_dict(self._model, self._optimizer)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_optimizers(self._model, [self._optimizer], state)

    def parts_of_state(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        """As `TrainState`'s."""
        yield (), [self._optimizer]


def _have_state(saved: dict[str, Any]) -> list[bool]:
    """Which parameters of a saved optimizer have a state, in the order of its groups."""
    keys = [key for group in saved["param_groups"] for key in group["params"]]
    return [bool(saved["state"].get(key)) for key in keys]


def _chosen(optimizers: list[Any], have_state: list[list[bool]]) -> list[Any]:
    """The parameters of ``optimizers`` that have a state in the checkpoint."""
    chosen = []
    for optimizer, have in zip(optimizers, have_state):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if len(parameters) == len(have):
            chosen += [p for p, has in zip(parameters, have) if has]
    return chosen


class SidestepSharded:
    """Mix-in of a strategy that saves shards: its checkpoints are saved in the background.

    The strategy without it loads them, too.

    Put it before a strategy of Lightning's, ``class Mine(SidestepSharded, FSDPStrategy)``.  A
    checkpoint of one file (``state_dict_type="full"``, ``save_distributed_checkpoint=False``) goes
    to the CheckpointIO as ever.
    """

    model_key = "state_dict"
    """The name of the model in a checkpoint of the strategy."""

    model: Any
    optimizers: list[Any]
    lightning_module: Any

    @property
    def rotation(self) -> Rotation:
        """The saves under way."""
        if "_rotation" not in vars(self):
            self._rotation = Rotation()
        return self._rotation

    @property
    def saves_shards(self) -> bool:
        """Whether it is set up for sharded checkpoints."""
        return bool(getattr(self, "_save_distributed_checkpoint", True))

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Of the shards themselves: copies are made by the save, where they are needed."""
        if not self.saves_shards:
            return self._super().lightning_module_state_dict()  # type: ignore[no-any-return]
        return get_model_state_dict(self.model)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """The same of an optimizer."""
        if not self.saves_shards:
            return self._super().optimizer_state(optimizer)  # type: ignore[no-any-return]
        return get_optimizer_state_dict(self.model, getattr(optimizer, "_optimizer", optimizer))

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: PathLike, storage_options: Optional[Any] = None
    ) -> None:
        """Begin to save; returns when the state may change.  Collective.

        Errors: TypeError for ``storage_options``; `sidestep.Error`, also of an earlier save.
        """
        others = storage_options is not None or not self.saves_shards
        if others or left_to_lightning(filepath):
            self._super().save_checkpoint(checkpoint, filepath, storage_options=storage_options)
            return
        began, path = time.monotonic(), str(self._super().broadcast(os.fspath(filepath)))
        is_first = self._super().global_rank == 0
        old = put_file_aside(path) if is_first else None
        apart = ("state_dict", "optimizer_states", FILES)
        rest = {key: value for key, value in checkpoint.items() if key not in apart}
        files = {**checkpoint.get(FILES, {}), META: FirstRank(to_bytes(rest))}
        state = {self.model_key: checkpoint["state_dict"]}
        for i, one in enumerate(checkpoint.get("optimizer_states", [])):
            state[f"optimizer_{i}"] = one
        self.rotation.begin(path)
        handle = self._start(state, files, path, step_of(checkpoint), began)
        if is_first and old is not None:
            self.rotation.delete(old)
        if is_urgent(path) or waits():
            handle.result()
        handle.stall_s = time.monotonic() - began

    def _start(
        self, state: dict[str, Any], files: Files, path: str, step: Optional[int], began: float
    ) -> SaveHandle:
        engine = engine_for(None)

        def made() -> Any:
            make_parents(path)
            return engine.states.get(flatten(state))

        handle = start_save(engine, path, made, files=files, step=step, queue=1, began=began)
        self.rotation.add(handle)
        if engine.rank == 0 and not is_url(path):
            self.rotation.then(handle, lambda failure: _replace_stocks(path, failure))
        return handle

    def load_checkpoint(
        self, checkpoint_path: PathLike, weights_only: Optional[bool] = None
    ) -> dict[str, Any]:
        """Fill model and optimizers, and return the rest.  Collective.

        Errors: `sidestep.Error`, on all ranks.
        """
        began = time.monotonic()
        path = str(self._super().broadcast(os.fspath(checkpoint_path)))
        wait_for(path)
        if described(path) is None and not os.path.isfile(os.path.join(path, ".metadata")):
            return self._super().load_checkpoint(path, weights_only)  # type: ignore[no-any-return]
        with Checkpoint(path) as checkpoint:
            names = set(checkpoint.names())
        if REST in names:
            return self._load_whole(path, weights_only)
        strict = self.lightning_module.strict_loading
        planner = DefaultLoadPlanner(allow_partial_load=not strict)
        key = self._key_in(names)
        model = get_model_state_dict(self.model)
        load({key: model}, checkpoint_id=path, planner=planner)
        set_model_state_dict(self.model, model, options=StateDictOptions(strict=strict))
        if self.lightning_module.trainer.state.fn == "fit":
            for i, optimizer in enumerate(self.optimizers):
                load({f"optimizer_{i}": _Optimizer(self.model, optimizer)}, checkpoint_id=path)
        rest = read_rest(path, weights_only) or {}
        tell_loaded(path, rest, began)
        return rest

    def _load_whole(self, path: str, weights_only: Optional[bool]) -> dict[str, Any]:
        """Load what one device or DDP has saved, through the file that Lightning would have made of
        it.  The file is deleted before this returns.  Frozen parameters get their moments, too."""
        began, engine = time.monotonic(), engine_for(None)
        have_state: list[list[bool]] = []
        home, name = os.path.split(os.path.abspath(path))
        file = os.path.join(home, f".{name}.sidestep-file")
        try:
            with agreed(engine, path):
                if engine.rank == 0:
                    whole = read_directory(path, weights_only=weights_only)
                    have_state = [_have_state(one) for one in whole.get("optimizer_states", [])]
                    torch.save(whole, file)
                    del whole
            have_state = self._super().broadcast(have_state)
            with agreed(engine, path), trainable(_chosen(self.optimizers, have_state)):
                rest: dict[str, Any] = self._super().load_checkpoint(file, weights_only)
        finally:
            if engine.rank == 0:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file)
        tell_loaded(path, rest, began)
        return rest

    def _key_in(self, names: set[str]) -> str:
        """The name of the model in a checkpoint with these names: the strategies have two."""
        is_other = any(name.startswith("model.") for name in names)
        has_mine = any(name.startswith(f"{self.model_key}.") for name in names)
        return self.model_key if has_mine or not is_other else "model"

    def remove_checkpoint(self, filepath: PathLike) -> None:
        """Delete it when the save that was begun last is committed; never if that fails."""
        if is_url(filepath):
            self._super().remove_checkpoint(filepath)
        elif self._super().global_rank == 0:
            self.rotation.delete(os.fspath(filepath))
            if waits():
                self.rotation.wait()

    def teardown(self) -> None:
        """Wait for what is under way.  Errors: `sidestep.Error` of a save."""
        try:
            self._super().teardown()
        finally:
            self.rotation.wait()

    def _super(self) -> Any:
        """The strategy that this class is mixed into."""
        return super()


def _replace_stocks(path: str, failure: Optional[BaseException]) -> None:
    """After the commit: if Lightning has saved to this path before, its ``meta.pt`` is still there.
    Put ours in its place, so that stock Lightning does not mix the two."""
    file = os.path.join(path, META)
    try:
        if failure is not None or not os.path.isfile(file):
            return
        mine = read_file(path, META)
        with open(file, "rb") as there:
            if there.read() == mine:
                return
        with whole_file(file) as part, open(part, "wb") as new:
            new.write(mine)
            new.flush()
            os.fsync(new.fileno())
    except (Error, OSError) as error:
        log.warning("'%s' is that of an older checkpoint, only sidestep loads it: %s", file, error)


class SidestepModelParallelStrategy(SidestepSharded, _ModelParallel):
    """``Trainer(strategy=SidestepModelParallelStrategy())``: as ModelParallelStrategy, with its
    arguments; sharded checkpoints are saved in the background."""


class SidestepFSDPStrategy(SidestepSharded, _FSDP):
    """``Trainer(strategy=SidestepFSDPStrategy(state_dict_type="sharded"))``: as FSDPStrategy, with
    its arguments; sharded checkpoints are saved in the background."""

    model_key = "model"

    @property
    def saves_shards(self) -> bool:
        return bool(self._state_dict_type == "sharded")
