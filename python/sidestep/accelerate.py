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
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Optional, Union

import accelerate
from accelerate.utils import DistributedType, fsdp_utils

from ._c.checked import a_path, absolute, is_url
from ._c.errors import Error
from ._checkpoint import Checkpoint
from ._directory import (
    DirectorySave,
    delete_oldest,
    for_hooks,
    from_newest,
    has_files,
    highest_on_all,
    numbers_in,
    raise_advised,
    save,
    taken_from,
    tell_loaded,
    tell_once,
    wait_all,
    with_aliases,
    write_out,
)
from ._engine import engine_for
from ._files import FirstRank, Taken
from ._metrics import Costs
from ._peft import ADAPTER_CONFIG, without_frozen, write_adapters
from ._plain import (
    export_model,
    export_optimizer,
    has_plain,
    load_optimizer,
    optimizer_state,
    run_export,
)
from ._redirect import Recorded, in_place, ours_loads, recorded_saves
from ._registered import export_registered, put_together, taken_apart
from ._torch.load import agreed, load

log = logging.getLogger("sidestep")

_PREFIX = "checkpoint_"
_STEP = re.compile(r"(?:^|[/_-])(?:checkpoint-|step[_-])(\d{1,18})$")
_told: set[str] = set()
Path = Union[str, "os.PathLike[str]"]


class Accelerator(accelerate.Accelerator):
    """`accelerate.Accelerator`, whose ``save_state`` returns when the state may change again.

    Its directory appears when all of it is committed: models, optimizers, schedulers, random
    numbers of all ranks and registered objects.  What failed in the background is raised by the
    next save, or by `wait_for_checkpoint`.
    """

    _saving: Optional[DirectorySave] = None
    _logged: Optional[int] = None  # the step of the last log()

    @cached_property
    def _costs(self) -> Costs:
        return Costs()

    def save_state(
        self, output_dir: Optional[Path] = None, safe_serialization: bool = True, **more: Any
    ) -> str:
        """See `accelerate.Accelerator`.  Collective.  Returns where the checkpoint will be."""
        reason = _left_to_stock(self)
        if reason is not None:
            self.wait_for_checkpoint()
            tell_once(f"save_state() is done by Accelerate itself: {reason}", _told)
            return str(super().save_state(output_dir, safe_serialization, **more))
        began = time.monotonic()
        naming = self.project_configuration.automatic_checkpoint_naming
        target = self._target(output_dir)
        home, limit = os.path.dirname(target), self.project_configuration.total_limit
        # Not among checkpoints with numbers: stock Accelerate would take it for one.
        beside = os.path.dirname(home) if naming else None
        with contextlib.ExitStack() as opened:
            place = opened.enter_context(for_hooks(target, home=beside))
            with recorded_saves(place) as saves, agreed(engine_for(), target):
                state = self._record(saves, safe_serialization, more)
            files = _of_rank(taken_from(place))
            recorded, aliases = saves.merged()
            rotates = naming and limit is not None
            self._saving = save(
                target,
                {**state, **recorded},
                lambda: with_aliases(files, aliases),
                then=(lambda: _rotate(home, limit, target)) if rotates else None,
                holds=opened,
                step=_step_of(target),
                began=began,
            )
        self._costs.note(self._saving.handle)
        return target

    def load_state(
        self,
        input_dir: Optional[Path] = None,
        load_kwargs: Optional[dict[str, Any]] = None,
        **more: Any,
    ) -> None:
        """See `accelerate.Accelerator`.  Collective.  Without ``input_dir``, with automatic
        naming: the newest checkpoint that is whole."""
        self.wait_for_checkpoint()
        naming = self.project_configuration.automatic_checkpoint_naming
        if input_dir is not None or not naming:
            advice = "load an older one"
            if naming:
                advice += "; load_state() without a name takes the newest that is whole"
            try:
                self._load(input_dir, load_kwargs, more)
            except Error as error:
                raise_advised(error, str(input_dir), advice)
            return

        def load_one(path: str) -> bool:
            self._load(path, load_kwargs, more)
            return True

        if not from_newest(self._home(), _PREFIX, lambda path: None, load_one):
            raise ValueError(f"there is no checkpoint that is whole in '{self._home()}'")

    def _load(
        self,
        input_dir: Optional[Path],
        load_kwargs: Optional[dict[str, Any]],
        more: dict[str, Any],
    ) -> None:
        began = time.monotonic()
        place = None if input_dir is None else absolute(os.path.expanduser(input_dir))
        if place is None or not has_files(place):
            with ours_loads():
                super().load_state(input_dir, load_kwargs, **more)
            return
        with _view_of(place) as directory, ours_loads(place, directory), _quiet():
            if has_plain(place, "optimizer_0") or has_plain(place, "model_0"):
                self._load_plain(place)
            with (
                _without(self, has_plain(place, "model_0"), has_plain(place, "optimizer_0")),
                put_together(place, directory),
                _without_base(self._has_shards()),
            ):
                super().load_state(directory, load_kwargs, **more)
        tell_loaded(_step_of(place), place, began)

    def wait_for_checkpoint(self) -> None:
        """Until the save under way, if there is one, is committed.  Collective.  Raises what it has
        failed with."""
        saving, self._saving = self._saving, None
        wait_all(saving)

    def log(self, values: dict[str, Any], step: Optional[int] = None, **more: Any) -> None:
        """See `accelerate.Accelerator`; beside ``values``, what saves have cost that have ended
        since the last call."""
        self._logged = step
        super().log({**self._costs_now(), **values}, step, **more)

    def _costs_now(self) -> dict[str, float]:
        return {name: value for _, costs in self._costs.take() for name, value in costs.items()}

    def end_training(self) -> None:
        """See `accelerate.Accelerator`, after `wait_for_checkpoint`."""
        self.wait_for_checkpoint()
        costs = self._costs_now()
        if costs and self._logged is not None:
            super().log(costs, self._logged)
        super().end_training()

    # -- inside

    def _target(self, output_dir: Optional[Path]) -> str:
        """Where the checkpoint will be.  With automatic naming, its number is higher than all that
        are there."""
        configuration = self.project_configuration
        if not configuration.automatic_checkpoint_naming:
            if output_dir is None:
                raise ValueError(
                    "save_state() needs output_dir without automatic_checkpoint_naming"
                )
            return absolute(a_path(os.path.expanduser(output_dir), "output_dir"))
        home = self._home()
        highest = highest_on_all(home, _PREFIX)
        if configuration.iteration <= highest:
            log.info("'%s' has checkpoints up to %d: this run goes on after them", home, highest)
            configuration.iteration = highest + 1
        return os.path.join(home, f"{_PREFIX}{configuration.iteration}")

    def _home(self) -> str:
        """Where checkpoints with numbers are."""
        return os.path.join(absolute(a_path(self.project_dir, "project_dir")), "checkpoints")

    def _record(
        self, saves: Recorded, safe_serialization: bool, more: dict[str, Any]
    ) -> dict[str, Any]:
        """Let Accelerate write its small files.  Returns the tensors that it has not named."""
        shards = self._has_shards()
        hooks = bool(self._save_model_state_pre_hook)  # they may write models in a way of their own
        states: dict[str, Any] = {}
        if not shards:
            for i, optimizer in enumerate(self._optimizers):
                states[f"optimizer_{i}"] = lambda one=optimizer: optimizer_state(one)
            for i, model in enumerate([] if hooks else self._models):
                states[f"model_{i}"] = {"groups": (i,), "values": _values(self, model)}
                if self.is_main_process:
                    write_adapters(_bare(self, model), os.path.join(saves.place, _home_of(i)))
        for model in self._models if self.is_fsdp2 and not hooks else []:
            write_adapters(_bare(self, model), saves.place, writes=self.is_main_process)
        configuration = self.project_configuration
        naming = configuration.automatic_checkpoint_naming
        configuration.automatic_checkpoint_naming = False
        try:
            with (
                _without(self, not shards and not hooks, not shards),
                taken_apart(states, apart=not shards),
                _without_base(shards),
                _quiet(),
            ):
                super().save_state(saves.place, safe_serialization, **more)
        finally:
            configuration.automatic_checkpoint_naming = naming
        return states

    def _has_shards(self) -> bool:
        return bool(self.distributed_type == DistributedType.FSDP)

    def _load_plain(self, place: str) -> None:
        for i, model in enumerate(self._models):
            if has_plain(place, f"model_{i}"):
                values = _values(self, model)  # filled in place
                load({f"model_{i}": {"values": values}}, checkpoint_id=place)
        for i, optimizer in enumerate(self._optimizers):
            load_optimizer(optimizer, place, f"optimizer_{i}")


def _step_of(path: str) -> Optional[int]:
    """That of "step_500" or "checkpoint-500", as Accelerate's and other examples name directories.
    Automatic naming counts saves, and nobody tells Accelerate the step."""
    found = _STEP.search(path.rstrip("/"))
    return None if found is None else int(found[1])


def _bare(accelerator: Any, model: Any) -> Any:
    return accelerator.unwrap_model(model, keep_torch_compile=False)


def _values(accelerator: Any, model: Any) -> dict[str, Any]:
    """The tensors to save: of models of PEFT, all but the frozen base."""
    bare = _bare(accelerator, model)
    return without_frozen(bare, bare.state_dict())


def _home_of(i: int) -> str:
    """Where PEFT finds the adapters of a model in a checkpoint."""
    return f"model_{i}" if i else ""


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
def _without_base(shards: bool) -> Iterator[None]:
    """Inside, under FSDP, Accelerate neither saves nor loads the frozen base of models of PEFT: it
    stays as it is."""
    if not shards:
        yield
        return
    home: Any = fsdp_utils
    taken, given = home._get_model_state_dict, home._set_model_state_dict
    base: dict[str, Any] = {}

    def take(model: Any, *args: Any, **how: Any) -> dict[str, Any]:
        state = taken(model, *args, **how)
        trained = without_frozen(model, state)
        base.update((name, state[name]) for name in state.keys() - trained.keys())
        return trained

    def give(model: Any, state_dict: dict[str, Any], *args: Any, **how: Any) -> Any:
        return given(model, {**base, **state_dict}, *args, **how)

    with (
        in_place("_get_model_state_dict", take, home),
        in_place("_set_model_state_dict", give, home),
    ):
        yield


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


def _of_rank(written: dict[str, Taken]) -> dict[str, Any]:
    """The files of this rank.  Of files with one name the first rank's is the one that stock finds;
    the others are kept beside it, since each rank has a place in the data of its own."""
    rank = engine_for().rank
    files: dict[str, Any] = {name: FirstRank(data) for name, data in written.items()}
    own = {name: data for name, data in written.items() if f"_{rank}." not in name}
    return files if rank == 0 else {**files, **{_name_of(rank, one): own[one] for one in own}}


def _name_of(rank: int, name: str) -> str:
    return f"of_rank_{rank}/{name}"


@contextlib.contextmanager
def _view_of(checkpoint: str) -> Iterator[str]:
    """A directory with the small files of a checkpoint, checked by their hashes, those of this rank
    first, and links to all else that lies there.  Loads from it read the checkpoint
    (`ours_loads`)."""
    with tempfile.TemporaryDirectory(prefix="sidestep-") as directory:
        write_out(checkpoint, directory)
        own = os.path.join(directory, _name_of(engine_for().rank, ""))
        if os.path.isdir(own):
            shutil.copytree(own, directory, dirs_exist_ok=True)
        with Checkpoint(checkpoint) as opened:
            for name in opened.aliases():
                os.makedirs(os.path.join(directory, name), exist_ok=True)
        for entry in [] if is_url(checkpoint) else os.scandir(checkpoint):
            path = os.path.join(directory, entry.name)
            if not os.path.lexists(path):
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
    if (
        kind == DistributedType.FSDP
        and max(len(accelerator._models), len(accelerator._optimizers)) > 1
    ):
        return "several models or optimizers under FSDP have the same names"
    return None


def _rotate(home: str, limit: int, target: str) -> None:
    """Delete what ``total_limit`` lets go, when ``target`` is committed."""
    paths = [os.path.join(home, f"{_PREFIX}{number}") for number in numbers_in(home, _PREFIX)]
    delete_oldest(paths, limit, [target], f"total_limit={limit}")


def export(checkpoint: str, directory: Optional[str] = None) -> None:
    """Write what stock Accelerate loads where nothing is sharded: ``model.safetensors`` and
    ``optimizer.bin``.  By this process alone.  Of a model of PEFT there are adapters already, and
    no ``model.safetensors``, because its base is not in the checkpoint.

    directory  where to; None: into the checkpoint, beside what sidestep reads

    ``python -m sidestep.accelerate CHECKPOINT [DIRECTORY]`` does the same.
    """
    directory = directory or checkpoint
    if not (has_plain(checkpoint, "model_0") or has_plain(checkpoint, "optimizer_0")):
        raise ValueError(f"'{checkpoint}' is not a checkpoint that needs an export")
    os.makedirs(directory, exist_ok=True)
    if directory != checkpoint:
        write_out(checkpoint, directory)
    export_registered(checkpoint, directory)
    with Checkpoint(checkpoint) as opened:
        files = opened.file_names()
    i = 0
    while has_plain(checkpoint, f"model_{i}") or has_plain(checkpoint, f"optimizer_{i}"):
        end = f"_{i}" if i else ""
        has_base = os.path.join(_home_of(i), ADAPTER_CONFIG) not in files
        if has_base and has_plain(checkpoint, f"model_{i}"):
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
