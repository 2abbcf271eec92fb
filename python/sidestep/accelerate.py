# SPDX-License-Identifier: BSD-3-Clause
"""Accelerate: an `Accelerator` whose ``save_state`` is done by sidestep, in the background.

    from sidestep.accelerate import Accelerator

instead of ``from accelerate import Accelerator``.  ``save_state`` and ``load_state`` take the same
arguments, with ``ProjectConfiguration(automatic_checkpoint_naming, total_limit)``, registered
objects and hooks.  `export` adds the files that stock Accelerate loads.  More is in
docs/FRAMEWORKS.md.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Optional, Union

import accelerate
from accelerate.utils import DistributedType

from . import _whole
from ._borrowed import Recorded, ours_loads, recorded_saves
from ._engine import engine_for
from ._metrics import Costs
from ._plain import (
    export_model,
    export_optimizer,
    has_plain,
    load_optimizer,
    optimizer_state,
    run_export,
)
from ._torch.load import agreed, load

log = logging.getLogger("sidestep")

_PREFIX = "checkpoint_"
_NUMBERED = re.compile(r"(?:^|[/_-])(?:checkpoint|step)[_-](\d{1,18})$")
_told: set[str] = set()
Path = Union[str, "os.PathLike[str]"]


class Accelerator(accelerate.Accelerator):
    """`accelerate.Accelerator`, whose ``save_state`` returns when the state may change again.

    Its directory appears when all of it is committed: models, optimizers, schedulers, random
    numbers of all ranks and registered objects.  What failed in the background is raised by the
    next save, or by `wait_for_checkpoint`.
    """

    _saving: Optional[_whole.WholeSave] = None
    _logged: Optional[int] = None  # the step of the last log()

    @cached_property
    def _costs(self) -> Costs:
        return Costs()

    def save_state(
        self, output_dir: Optional[Path] = None, safe_serialization: bool = True, **more: Any
    ) -> str:
        """As of `accelerate.Accelerator`.  Collective.  Returns where the checkpoint will be."""
        reason = _left_to_stock(self)
        if reason is not None:
            self.wait_for_checkpoint()
            _tell_once(f"save_state() is done by Accelerate itself: {reason}")
            return str(super().save_state(output_dir, safe_serialization, **more))
        naming = self.project_configuration.automatic_checkpoint_naming
        target, hidden = self._target(output_dir)
        limit = self.project_configuration.total_limit if naming else None
        with recorded_saves() as saves:
            with agreed(engine_for(), target):
                whole, states = self._record(saves, safe_serialization, more)
            files = _whole.contents_of(saves.place)
        parts, links = saves.parts() if whole else ([_whole.Part("", states)], {})
        self._saving = _whole.save(
            target,
            parts,
            lambda: files,
            hidden=hidden,
            links=links,
            before=self._saving,
            then=lambda: _rotate(os.path.dirname(target), limit),
            step=_number_of(target),
        )
        self._costs.note(*self._saving.handles)
        return target

    def load_state(
        self,
        input_dir: Optional[Path] = None,
        load_kwargs: Optional[dict[str, Any]] = None,
        **more: Any,
    ) -> None:
        """As of `accelerate.Accelerator`.  Collective.  Without ``input_dir``, with automatic
        naming: the newest checkpoint that is whole."""
        self.wait_for_checkpoint()
        began = time.monotonic()
        if input_dir is None and self.project_configuration.automatic_checkpoint_naming:
            input_dir = self._newest()
        elif input_dir is not None:
            _whole.settle(os.path.expanduser(input_dir))
        place = None if input_dir is None else _whole.place_in(os.path.expanduser(input_dir))
        if input_dir is None or place is None:
            with ours_loads():
                super().load_state(input_dir, load_kwargs, **more)
            return
        input_dir = os.path.expanduser(input_dir)
        with _seen_by_this_rank(input_dir, place) as directory, ours_loads(), _quiet():
            if has_plain(place, "optimizer_0") or has_plain(place, "model_0"):
                self._load_plain(place)
            with _without(self, has_plain(place, "model_0"), has_plain(place, "optimizer_0")):
                super().load_state(directory, load_kwargs, **more)
        _whole.tell_loaded(_number_of(input_dir), input_dir, began)

    def wait_for_checkpoint(self) -> None:
        """Until the save under way, if there is one, is in its place.  Collective.  Raises what it
        has failed with."""
        saving, self._saving = self._saving, None
        _whole.wait_all(saving)

    def log(self, values: dict[str, Any], step: Optional[int] = None, **more: Any) -> None:
        """As of `accelerate.Accelerator`; beside ``values``, what saves have cost that have ended
        since the last call."""
        self._logged = step
        super().log({**self._costs_now(), **values}, step, **more)

    def _costs_now(self) -> dict[str, float]:
        return {name: value for _, costs in self._costs.take() for name, value in costs.items()}

    def end_training(self) -> None:
        """As of `accelerate.Accelerator`, after `wait_for_checkpoint`."""
        self.wait_for_checkpoint()
        costs = self._costs_now()
        if costs and self._logged is not None:
            super().log(costs, self._logged)
        super().end_training()

    # -- inside

    def _target(self, output_dir: Optional[Path]) -> tuple[str, str]:
        """Where the checkpoint will be, and its name until then: not among those with numbers."""
        if not self.project_configuration.automatic_checkpoint_naming:
            if output_dir is None:
                raise ValueError(
                    "save_state() needs output_dir without automatic_checkpoint_naming"
                )
            target = os.path.abspath(os.path.expanduser(output_dir))
            return target, _whole.hidden_of(target)
        home = os.path.join(os.path.abspath(self.project_dir), "checkpoints")
        target = os.path.join(home, f"{_PREFIX}{self.save_iteration}")
        if os.path.exists(target):
            raise ValueError(
                f"Checkpoint directory {target} ({self.save_iteration}) already exists. To go on "
                "behind the checkpoints that are there, set project_configuration.iteration of "
                "the Accelerator to the number of the next one, before the first save_state()."
            )
        return target, _whole.hidden_of(target, os.path.dirname(home))

    def _record(
        self, saves: Recorded, safe_serialization: bool, more: dict[str, Any]
    ) -> tuple[bool, dict[str, Any]]:
        """Let Accelerate write its small files.  Returns whether it has named the tensors itself,
        and else what they are."""
        shards = self.distributed_type == DistributedType.FSDP
        hooks = bool(self._save_model_state_pre_hook)  # they may write models in a way of their own
        states: dict[str, Any] = {}
        if not shards:
            for i, optimizer in enumerate(self._optimizers):
                states[f"optimizer_{i}"] = lambda one=optimizer: optimizer_state(one)
            for i, model in enumerate([] if hooks else self._models):
                states[f"model_{i}"] = {"groups": (i,), "values": _bare(self, model).state_dict()}
        configuration = self.project_configuration
        naming = configuration.automatic_checkpoint_naming
        configuration.automatic_checkpoint_naming = False
        try:
            with _without(self, not shards and not hooks, not shards), _quiet():
                super().save_state(saves.place, safe_serialization, **more)
        finally:
            configuration.automatic_checkpoint_naming = naming
        return shards, states

    def _load_plain(self, place: str) -> None:
        for i, model in enumerate(self._models):
            if has_plain(place, f"model_{i}"):
                values = _bare(self, model).state_dict()  # filled in place
                load({f"model_{i}": {"values": values}}, checkpoint_id=place)
        for i, optimizer in enumerate(self._optimizers):
            load_optimizer(optimizer, place, f"optimizer_{i}")

    def _newest(self) -> str:
        project = os.path.abspath(self.project_dir)
        root = os.path.join(project, "checkpoints")
        number = _whole.newest_on_all(root, _PREFIX, lambda path: None, project)
        if number < 0:
            raise ValueError(f"there is no checkpoint that is whole in '{root}'")
        return os.path.join(root, f"{_PREFIX}{number}")


def _number_of(path: str) -> Optional[int]:
    """That of "checkpoint_3" or "step_500", as Accelerate and its examples name directories."""
    found = _NUMBERED.search(path.rstrip("/"))
    return None if found is None else int(found[1])


def _bare(accelerator: Any, model: Any) -> Any:
    return accelerator.unwrap_model(model, keep_torch_compile=False)


@contextlib.contextmanager
def _without(accelerator: Any, models: bool, optimizers: bool) -> Iterator[None]:
    """Inside, Accelerate knows of no models, or of no optimizers."""
    before = accelerator._models, accelerator._optimizers
    accelerator._models = [] if models else before[0]
    accelerator._optimizers = [] if optimizers else before[1]
    try:
        yield
    finally:
        accelerator._models, accelerator._optimizers = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Inside, Accelerate names no files at level info: they are temporary ones, not those that will
    be, or were.  We log a line of our own."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "accelerate"]
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:  # with ACCELERATE_LOG_LEVEL, each has a level of its own
        logger.setLevel(max(logger.getEffectiveLevel(), logging.WARNING))
    try:
        yield
    finally:
        for logger, level in zip(loggers, before):
            logger.setLevel(level)


@contextlib.contextmanager
def _seen_by_this_rank(checkpoint: str, place: str) -> Iterator[str]:
    """A directory with the small files of this rank, where several have files of one name, and
    links to all else."""
    with tempfile.TemporaryDirectory(prefix="sidestep-") as directory:
        _whole.write_out(place, directory, engine_for().rank)
        for entry in os.scandir(os.path.abspath(checkpoint)):
            path = os.path.join(directory, entry.name)
            if not os.path.exists(path):
                if os.path.lexists(path):
                    os.unlink(path)
                os.symlink(entry.path, path)
        yield directory


def _left_to_stock(accelerator: Any) -> Optional[str]:
    """Why this save is not for us; None: it is."""
    kind = accelerator.distributed_type
    others = (DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM, DistributedType.XLA)
    if kind in others:
        return f"{kind.value} saves its state itself"
    if accelerator.project_configuration.save_on_each_node:
        return "save_on_each_node=True"
    plugin: Any = getattr(accelerator.state, "fsdp_plugin", None)
    if kind == DistributedType.FSDP and "SHARDED" not in str(plugin.state_dict_type):
        return "FSDP is not set to state_dict_type=SHARDED_STATE_DICT"
    return None


def _tell_once(what: str) -> None:
    if what not in _told:
        _told.add(what)
        log.warning("%s", what)


def _rotate(home: str, limit: Optional[int]) -> None:
    """Delete what ``total_limit`` lets go, when the newest is committed."""
    if limit is None:
        return
    numbers = _whole.numbers_in(home, _PREFIX)
    for number in numbers[: max(0, len(numbers) - max(1, limit))]:
        path = os.path.join(home, f"{_PREFIX}{number}")
        _whole.remove(path)
        log.info("deleted '%s': total_limit=%d", path, limit)


def export(checkpoint: str, directory: Optional[str] = None) -> None:
    """Write what stock Accelerate loads where nothing is sharded: ``model.safetensors`` and
    ``optimizer.bin``.  By this process alone.

    directory  where to; None: into the checkpoint, beside what sidestep reads

    ``python -m sidestep.accelerate CHECKPOINT [DIRECTORY]`` does the same.
    """
    directory = directory or checkpoint
    if not (has_plain(checkpoint, "model_0") or has_plain(checkpoint, "optimizer_0")):
        raise ValueError(f"'{checkpoint}' is no checkpoint that needs an export")
    os.makedirs(directory, exist_ok=True)
    if directory != checkpoint:
        _whole.write_out(checkpoint, directory)
    i = 0
    while has_plain(checkpoint, f"model_{i}") or has_plain(checkpoint, f"optimizer_{i}"):
        end = f"_{i}" if i else ""
        if has_plain(checkpoint, f"model_{i}"):
            file = os.path.join(directory, f"model{end}.safetensors")
            export_model(checkpoint, file, f"model_{i}.values")
        if has_plain(checkpoint, f"optimizer_{i}"):
            file = os.path.join(directory, f"optimizer{end}.bin")
            export_optimizer(checkpoint, file, f"optimizer_{i}")
        i += 1


if __name__ == "__main__":
    sys.exit(
        run_export(
            "accelerate", export, "what stock Accelerate loads: model.safetensors and optimizer.bin"
        )
    )
