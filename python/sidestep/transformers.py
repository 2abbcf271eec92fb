# SPDX-License-Identifier: BSD-3-Clause
"""Transformers: a `Trainer` whose checkpoints are saved by sidestep, in the background.

    from sidestep.transformers import Trainer

instead of ``from transformers import Trainer``; or `SidestepMixin` in front of another trainer
(``class MyTrainer(SidestepMixin, SFTTrainer)``).  Nothing else changes: ``checkpoint-N``,
``save_total_limit``, ``load_best_model_at_end`` and ``resume_from_checkpoint`` mean what they mean
there.  `export` adds the files that stock Transformers resumes from.  docs/FRAMEWORKS.md has more.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any, Optional, Union

import torch
import transformers
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import sort_checkpoints
from transformers.utils import is_sagemaker_mp_enabled, is_torch_xla_available

from . import _whole
from ._borrowed import ours_loads, recorded_saves
from ._metrics import Costs
from ._plain import (
    export_model,
    export_optimizer,
    has_plain,
    load_optimizer,
    optimizer_state,
    run_export,
)
from ._torch.load import load

log = logging.getLogger("sidestep")

_PREFIX = "checkpoint-"
_STATE = "trainer_state.json"
_REPORTERS = tuple(INTEGRATION_TO_CALLBACK.values())
_told: set[str] = set()


class SidestepMixin:
    """Goes before a `transformers.Trainer` in the bases of a class.

    A save returns when the state may change again.  A ``checkpoint-N`` appears when all of it is
    committed, and only then are older ones deleted.  The last save of a run is waited for, and
    what failed in the background is raised by the next save, or at the end of `train`.
    """

    _saving: Optional[_whole.WholeSave] = None
    _load_began = 0.0

    @cached_property
    def _costs(self) -> Costs:
        return Costs()

    # -- train

    def train(
        self, resume_from_checkpoint: Union[str, bool, None] = None, *args: Any, **kwargs: Any
    ) -> Any:
        """As of `transformers.Trainer`.  With ``True`` it resumes from the newest checkpoint that
        is whole."""
        me: Any = self
        if resume_from_checkpoint:
            resume_from_checkpoint = _chosen(resume_from_checkpoint, me.args.output_dir)
        done = super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]
        self.wait_for_checkpoint()
        return done

    def wait_for_checkpoint(self) -> None:
        """Until the save under way, if there is one, is in its place.  Collective.  Raises what it
        has failed with."""
        saving, self._saving = self._saving, None
        _whole.wait_all(saving)
        self._log_costs()

    # -- save

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        me: Any = self
        reason = _left_to_stock(me)
        if reason is not None:
            self.wait_for_checkpoint()
            _tell_once(f"checkpoints are saved by Transformers itself: {reason}")
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
            return
        if me.hp_search_backend is None and trial is None:
            me.store_flos()
        run_dir = me._get_output_dir(trial=trial)
        target = os.path.join(run_dir, f"{_PREFIX}{me.state.global_step}")
        _note_best(me, run_dir)
        best, limit = me.state.best_model_checkpoint, me.args.save_total_limit
        parts, links = _parts(me)
        self._saving = _whole.save(
            target,
            parts,
            lambda: _whole.collect(lambda directory: _write_files(me, directory)),
            links=links,
            before=self._saving,
            then=lambda: _rotate(run_dir, limit, best),
            step=me.state.global_step,
        )
        self._costs.note(*self._saving.handles)
        if me.control.should_training_stop or me.state.global_step >= me.state.max_steps:
            self.wait_for_checkpoint()

    def log(self, *args: Any, **kwargs: Any) -> None:
        """As of `transformers.Trainer`, after what saves have cost that have ended meanwhile."""
        self._log_costs()
        super().log(*args, **kwargs)  # type: ignore[misc]

    def _log_costs(self) -> None:
        """To TensorBoard and its like, if the trainer reports to them, at the step of the save."""
        me: Any = self
        if not me.is_world_process_zero():
            return
        for step, values in self._costs.take():
            state = copy.copy(me.state)
            state.global_step = step
            for callback in me.callback_handler.callbacks:
                if isinstance(callback, _REPORTERS):
                    callback.on_log(me.args, state, me.control, logs=dict(values), model=me.model)

    # -- load

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        me: Any = self
        self._load_began = time.monotonic()
        if not has_plain(resume_from_checkpoint):
            with ours_loads():
                super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
            return
        _refuse_fsdp(me, resume_from_checkpoint)
        load({"model": _unwrapped(me, model)}, checkpoint_id=resume_from_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: Optional[str]) -> None:
        me: Any = self
        if checkpoint is None or not has_plain(checkpoint):
            with ours_loads():
                super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        else:
            load_optimizer(me.optimizer, checkpoint)
            path = os.path.join(checkpoint, "scheduler.pt")
            me.lr_scheduler.load_state_dict(torch.load(path, weights_only=True))
        if checkpoint is not None:
            _whole.tell_loaded(me.state.global_step, checkpoint, self._load_began)

    def _load_best_model(self) -> None:
        me: Any = self
        self.wait_for_checkpoint()
        best = me.state.best_model_checkpoint
        if not has_plain(best):
            with ours_loads():
                super()._load_best_model()  # type: ignore[misc]
            return
        log.info("the best model is loaded from '%s' (score: %s)", best, me.state.best_metric)
        load({"model": _unwrapped(me)}, checkpoint_id=best)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        """It looks at the checkpoints that are there."""
        self.wait_for_checkpoint()
        return super()._finalize_training(*args, **kwargs)  # type: ignore[misc]


class Trainer(SidestepMixin, transformers.Trainer):
    """`transformers.Trainer` with `SidestepMixin`."""


# ---------------------------------------------------------------- what is saved


def _left_to_stock(trainer: Any) -> Optional[str]:
    """Why this save is not for us; None: it is."""
    args, is_fsdp = trainer.args, trainer.is_fsdp_enabled
    pushes = args.push_to_hub and str(getattr(args.hub_strategy, "value", "")) != "end"
    reasons = {
        "save_only_model=True": args.save_only_model,
        "save_on_each_node=True": args.save_on_each_node,
        "push_to_hub=True, but for hub_strategy='end'": pushes,
        "the model is one of PEFT, whose checkpoints have only adapters": _is_peft(trainer.model),
        "DeepSpeed saves its state itself": trainer.is_deepspeed_enabled,
        "the model is on an XLA device": is_torch_xla_available(),
        "SageMaker's model parallelism is in use": is_sagemaker_mp_enabled(),
        "FSDP is not set to state_dict_type=SHARDED_STATE_DICT": is_fsdp
        and not _is_sharded(trainer),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _tell_once(what: str) -> None:
    if what not in _told:
        _told.add(what)
        log.warning("%s", what)


def _is_peft(model: Any) -> bool:
    return any(base.__module__.partition(".")[0] == "peft" for base in type(model).__mro__)


def _is_sharded(trainer: Any) -> bool:
    return "SHARDED_STATE_DICT" in str(trainer.accelerator.state.fsdp_plugin.state_dict_type)


def _unwrapped(trainer: Any, model: Any = None) -> Any:
    model = trainer.model if model is None else model
    return trainer.accelerator.unwrap_model(model, keep_torch_compile=False)


def _parts(trainer: Any) -> tuple[list[_whole.Part], dict[str, str]]:
    """The tensors, and the links that stock Transformers needs to find them."""
    if not trainer.is_fsdp_enabled:
        state = {
            "model": _unwrapped(trainer),
            "optimizer": lambda: optimizer_state(trainer.optimizer),
        }
        return [_whole.Part("", state)], {}
    from accelerate.utils import save_fsdp_model, save_fsdp_optimizer

    plugin, accelerator = trainer.accelerator.state.fsdp_plugin, trainer.accelerator
    with recorded_saves() as saves:
        save_fsdp_model(plugin, accelerator, trainer.model, saves.place)
        save_fsdp_optimizer(plugin, accelerator, trainer.optimizer, trainer.model, saves.place)
    return saves.parts()


def _write_files(trainer: Any, directory: str) -> None:
    """All small files of a stock checkpoint: those of every rank, and those of the first."""
    trainer._save_scaler(directory)
    trainer._save_rng_state(directory)
    if not trainer.args.should_save:
        return
    torch.save(trainer.lr_scheduler.state_dict(), os.path.join(directory, "scheduler.pt"))
    torch.save(trainer.args, os.path.join(directory, "training_args.bin"))
    _write_configuration(trainer, directory)
    _note_callbacks(trainer)
    trainer.state.save_to_json(os.path.join(directory, _STATE))


def _write_configuration(trainer: Any, directory: str) -> None:
    """What makes a model of the tensors, and text of its input."""
    model = _unwrapped(trainer)
    configs: list[Any] = []
    if isinstance(model, transformers.PreTrainedModel):
        config = copy.deepcopy(model.config)
        config.architectures = [type(model).__name__]
        config.dtype = str(model.dtype).rpartition(".")[2]
        configs.append(config)
        if model.can_generate():
            configs.append(model.generation_config)
    collator = getattr(trainer, "data_collator", None)
    configs.append(trainer.processing_class or getattr(collator, "tokenizer", None))
    for config in configs:
        if hasattr(config, "save_pretrained"):
            config.save_pretrained(directory)


def _note_callbacks(trainer: Any) -> None:
    """The states of callbacks, into the state of the trainer."""
    noted = trainer.state.stateful_callbacks
    for callback in [*trainer.callback_handler.callbacks, trainer.control]:
        if isinstance(callback, ExportableState):
            name, state = type(callback).__name__, copy.deepcopy(callback.state())
            if isinstance(noted[name], list):
                noted[name].append(state)
            else:
                noted[name] = state


def _note_best(trainer: Any, run_dir: str) -> None:
    """As stock does; but the checkpoint of this step is not there yet."""
    best = trainer.state.best_global_step
    if not best or str(getattr(trainer.args.save_strategy, "value", "")) == "no":
        return
    path = os.path.join(run_dir, f"{_PREFIX}{best}")
    if best == trainer.state.global_step or os.path.exists(path):
        trainer.state.best_model_checkpoint = path


def _rotate(run_dir: str, limit: Optional[int], best: Optional[str]) -> None:
    """Delete what ``save_total_limit`` lets go, as `transformers.trainer_utils.rotate_checkpoints`
    does: never the newest, nor the best that the newest one knows of."""
    if not limit or limit <= 0:
        return
    there = sort_checkpoints(run_dir, use_mtime=True)
    kept = {there[-1], *([str(Path(best))] if best else [])}
    for path in [path for path in there if path not in kept][: max(0, len(there) - limit)]:
        _whole.remove(path)
        log.info("deleted '%s': save_total_limit=%d", path, limit)


# ---------------------------------------------------------------- what is loaded


def _chosen(wanted: Union[str, bool], output_dir: str) -> str:
    """The checkpoint to resume from: the same on all ranks.  Collective.

    ValueError: there is none that is whole.
    """
    root = output_dir if isinstance(wanted, bool) else os.path.dirname(os.path.abspath(wanted))
    step = _whole.newest_on_all(root, _PREFIX, _problem)
    if not isinstance(wanted, bool):
        return wanted
    if step < 0:
        raise ValueError(f"No valid checkpoint found in output directory ({output_dir})")
    return os.path.join(output_dir, f"{_PREFIX}{step}")


def _problem(path: str) -> Optional[str]:
    if os.path.isfile(os.path.join(path, _STATE)):
        return None
    return f"it has no {_STATE}, which is written last"


def _refuse_fsdp(trainer: Any, checkpoint: str) -> None:
    if trainer.is_fsdp_enabled:
        raise ValueError(
            f"'{checkpoint}' was saved without FSDP, and its optimizer cannot be sharded: resume "
            "without FSDP, or begin a run with FSDP from the model that sidestep.transformers."
            f"export('{checkpoint}', DIRECTORY) makes of it"
        )


# ---------------------------------------------------------------- for stock Transformers


def export(checkpoint: str, directory: Optional[str] = None, *, optimizer: bool = True) -> None:
    """Write what stock Transformers reads: ``model.safetensors``, for ``from_pretrained``, and
    ``optimizer.pt``, to resume from.  By this process alone.

    directory  where to; None: into the checkpoint, beside what sidestep reads
    optimizer  False: only the model, with its configuration and tokenizer

    ``python -m sidestep.transformers CHECKPOINT [DIRECTORY]`` does the same.
    """
    if not has_plain(checkpoint):
        raise ValueError(f"'{checkpoint}' is no checkpoint that sidestep.transformers has saved")
    directory = directory or checkpoint
    os.makedirs(directory, exist_ok=True)
    if directory != checkpoint:
        _whole.write_out(checkpoint, directory)
    export_model(checkpoint, os.path.join(directory, "model.safetensors"))
    if optimizer:
        export_optimizer(checkpoint, os.path.join(directory, "optimizer.pt"))


if __name__ == "__main__":
    sys.exit(
        run_export(
            "transformers",
            export,
            "what stock Transformers reads: model.safetensors and optimizer.pt",
        )
    )
