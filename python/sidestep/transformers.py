# SPDX-License-Identifier: BSD-3-Clause
"""Transformers: a `Trainer` whose checkpoints are saved by sidestep, in the background.

    from sidestep.transformers import Trainer

instead of ``from transformers import Trainer``; or `SidestepMixin` in front of another trainer
(``class MyTrainer(SidestepMixin, SFTTrainer)``).  Nothing else changes: ``checkpoint-N``,
``save_total_limit``, ``load_best_model_at_end`` and ``resume_from_checkpoint`` mean what they mean
there.  `export` adds the files that stock Transformers resumes from.  docs/FRAMEWORKS.md has more.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partialmethod
from typing import Any, Optional, Union, cast

import torch
import transformers
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_utils import sort_checkpoints
from transformers.utils import is_sagemaker_mp_enabled, is_torch_xla_available

from ._c.errors import Error
from ._checkpoint import Checkpoint
from ._directory import (
    DirectorySave,
    delete_oldest,
    described,
    for_hooks,
    from_newest,
    raise_advised,
    save,
    taken_from,
    tell_loaded,
    tell_once,
    wait_all,
    with_aliases,
    write_out,
)
from ._files import FirstRank
from ._metrics import Costs
from ._peft import is_peft, peft_models, write_adapters
from ._plain import (
    export_model,
    export_optimizer,
    has_plain,
    load_optimizer,
    optimizer_state,
    run_export,
)
from ._read import read_file
from ._redirect import Recorded, ours_loads, recorded_saves
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

    _saving: Optional[DirectorySave] = None
    _taking: Optional[_Taking] = None  # the save whose files are being written
    _follows: bool = False  # on_save() is called after _save_checkpoint()
    _load_began = 0.0
    _unreadable: Optional[Error] = None  # why the last load has failed

    @cached_property
    def _costs(self) -> Costs:
        return Costs()

    # -- train

    def train(
        self, resume_from_checkpoint: Union[str, bool, None] = None, *args: Any, **kwargs: Any
    ) -> Any:
        """See `transformers.Trainer`.  With ``True`` it resumes from the newest checkpoint that
        is whole: if the load finds it damaged, from the one before."""
        me: Any = self

        def train(checkpoint: Any) -> Any:
            done = super(SidestepMixin, me).train(checkpoint, *args, **kwargs)  # type: ignore[misc]
            self.wait_for_checkpoint()
            return (done,)

        if isinstance(resume_from_checkpoint, bool) and resume_from_checkpoint:
            return _from_newest(self, me.args.output_dir, train)[0]
        try:
            return train(resume_from_checkpoint)[0]
        except Error as error:
            if error is not self._unreadable:
                raise
            advice = "resume_from_checkpoint=True takes the newest that is whole"
            raise_advised(error, str(resume_from_checkpoint), advice)

    @contextlib.contextmanager
    def _reads(self) -> Iterator[None]:
        """Inside, errors are those of a checkpoint that is loaded."""
        try:
            yield
        except Error as error:
            self._unreadable = error
            raise

    def wait_for_checkpoint(self) -> None:
        """Until the save under way, if there is one, is committed.  Collective.  Raises what it has
        failed with."""
        saving, self._saving = self._saving, None
        wait_all(saving)
        self._log_costs()

    # -- save

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """It saves, and then calls ``on_save()``: the checkpoint has what callbacks write there."""
        self._follows = True
        try:
            super()._maybe_log_save_evaluate(*args, **kwargs)  # type: ignore[misc]
            self._start_save()
        finally:
            self._follows = False
            self._end_taking()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Let the trainer and its bases write what they write beside the tensors, into a directory
        for that; then save that and the tensors."""
        me: Any = self
        reason = _left_to_stock(me)
        if reason is not None:
            self.wait_for_checkpoint()
            tell_once(f"checkpoints are saved by Transformers itself: {reason}", _told)
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
            return
        self._taking = _Taking(me, me._get_output_dir(trial=trial))
        try:
            with self._taking.light():
                super()._save_checkpoint(model, trial)  # type: ignore[misc]
            self._taking.note_best()
            self._taking.write_adapters()
            if not self._follows:
                self._start_save()
        except BaseException:
            self._end_taking()
            raise

    def _start_save(self) -> None:
        """Save what was written, and the tensors."""
        taking, me = self._taking, cast(Any, self)
        if taking is None:
            return
        files, aliases = taking.files(), taking.aliases
        taking.give_back()
        best, limit = me.state.best_model_checkpoint, me.args.save_total_limit
        target = taking.target
        try:
            self._saving = save(
                target,
                taking.state(),
                lambda: with_aliases(files, aliases),
                then=(lambda: _rotate(target, limit, best)) if limit else None,
                holds=taking.opened,
                step=me.state.global_step,
                began=taking.began,
            )
        finally:
            self._end_taking()
        self._costs.note(self._saving.handle)
        if me.control.should_training_stop or me.state.global_step >= me.state.max_steps:
            self.wait_for_checkpoint()

    def _end_taking(self) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.end()

    def log(self, *args: Any, **kwargs: Any) -> None:
        """See `transformers.Trainer`, after what saves have cost that have ended meanwhile."""
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
        _refuse_fsdp(me, resume_from_checkpoint)
        if not _has_model(resume_from_checkpoint):
            files = _files_of(resume_from_checkpoint)
            with self._reads(), _loads(resume_from_checkpoint), files as place:
                super()._load_from_checkpoint(place, model)  # type: ignore[misc]
            return
        with self._reads():
            load({"model": _unwrapped(me, model)}, checkpoint_id=resume_from_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: Optional[str]) -> None:
        me: Any = self
        if checkpoint is None or not has_plain(checkpoint):
            with self._reads(), _loads(checkpoint):
                super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        else:
            with self._reads():
                load_optimizer(me.optimizer, checkpoint)
                scheduler = io.BytesIO(read_file(checkpoint, "scheduler.pt"))
            me.lr_scheduler.load_state_dict(torch.load(scheduler, weights_only=True))
        if checkpoint is not None:
            tell_loaded(me.state.global_step, checkpoint, self._load_began)

    def _load_rng_state(self, checkpoint: Optional[str]) -> None:
        with _files_of(checkpoint) as place:
            super()._load_rng_state(place)  # type: ignore[misc]

    def _load_best_model(self) -> None:
        me: Any = self
        self.wait_for_checkpoint()
        best = me.state.best_model_checkpoint
        if not _has_model(best):
            with _loads(best), _files_of(best) as me.state.best_model_checkpoint:
                super()._load_best_model()  # type: ignore[misc]
            me.state.best_model_checkpoint = best
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
        "DeepSpeed saves its state itself": trainer.is_deepspeed_enabled,
        "the model is on an XLA device": is_torch_xla_available(),
        "SageMaker's model parallelism is in use": is_sagemaker_mp_enabled(),
        "FSDP is not set to state_dict_type=SHARDED_STATE_DICT": is_fsdp
        and not _is_sharded(trainer),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _has_model(checkpoint: str) -> bool:
    """Whether its model is one of plain tensors: not sharded by FSDP, and no adapter of PEFT."""
    if not has_plain(checkpoint):
        return False
    with Checkpoint(checkpoint) as opened:
        return any(name.startswith("model.") for name in opened.names())


def _is_sharded(trainer: Any) -> bool:
    return "SHARDED_STATE_DICT" in str(trainer.accelerator.state.fsdp_plugin.state_dict_type)


def _unwrapped(trainer: Any, model: Any = None) -> Any:
    model = trainer.model if model is None else model
    return trainer.accelerator.unwrap_model(model, keep_torch_compile=False)


def _tell_of_base(model: Any) -> None:
    """Warn that more is saved than of a model that is itself one of PEFT."""
    inside = [name for name in peft_models(model) if name]
    if inside:
        tell_once(
            f"the frozen base of '{inside[0]}', a model of PEFT in the model, is in each "
            "checkpoint, too: model.safetensors has to be whole",
            _told,
        )


class _Taking:
    """The files of a checkpoint while the trainer, its bases and its callbacks write them.

    They take ``args.output_dir`` for the directory of the run.  Meanwhile that is a hidden one
    in it.  What they write into ``checkpoint-N`` there becomes a part of the save; what they write
    beside that goes to where they meant it.
    """

    def __init__(self, trainer: Any, run_dir: str) -> None:
        self.began = time.monotonic()
        self.trainer = trainer
        self.target = os.path.join(run_dir, f"{_PREFIX}{trainer.state.global_step}")
        self.aliases: list[str] = []
        self._recorded: Optional[Recorded] = None
        self._output_dir = trainer.args.output_dir
        self.opened = contextlib.ExitStack()  # the hidden directory
        hooks = for_hooks(os.path.abspath(self.target), os.path.basename(self._output_dir) or "run")
        self._hidden = self.opened.enter_context(hooks)
        inside = os.path.relpath(run_dir, self._output_dir)
        self._place = os.path.normpath(
            os.path.join(self._hidden, inside, os.path.basename(self.target))
        )
        os.makedirs(self._place)
        trainer.args.output_dir = self._hidden

    @contextlib.contextmanager
    def light(self) -> Iterator[None]:
        """Inside, `transformers.Trainer` itself writes no tensors, but all else."""
        stock: Any = transformers.Trainer
        before = stock._save, stock._save_optimizer_and_scheduler
        stock._save = partialmethod(_write_configuration, before[0], self._output_dir)
        if not self.trainer.is_fsdp_enabled:
            stock._save_optimizer_and_scheduler = _write_scheduler
        try:
            with recorded_saves(self._place) as self._recorded:
                yield
        finally:
            stock._save, stock._save_optimizer_and_scheduler = before

    def note_best(self) -> None:
        """As stock does, with the names that the checkpoints will have."""
        trainer, run_dir = self.trainer, os.path.dirname(self.target)
        best = trainer.state.best_global_step
        if best and str(getattr(trainer.args.save_strategy, "value", "")) != "no":
            path = os.path.join(run_dir, f"{_PREFIX}{best}")
            if best == trainer.state.global_step or os.path.exists(path):
                trainer.state.best_model_checkpoint = path
        if trainer.args.should_save:
            trainer.state.save_to_json(os.path.join(self._place, _STATE))

    def write_adapters(self) -> None:
        """Under FSDP2, where stock has them only among the tensors."""
        trainer, model = self.trainer, _unwrapped(self.trainer)
        if trainer.is_fsdp_enabled and trainer.accelerator.is_fsdp2 and is_peft(model):
            write_adapters(model, self._place, writes=trainer.args.should_save)

    def files(self) -> dict[str, FirstRank]:
        """What was written into the checkpoint; all else is copied to where it was meant to be."""
        parent, name = os.path.split(self._place)
        shutil.copytree(
            self._hidden,
            self._output_dir,
            dirs_exist_ok=True,
            ignore=lambda place, _: [name] if place == parent else [],
        )
        return {name: FirstRank(file) for name, file in taken_from(self._place).items()}

    def state(self) -> dict[str, Any]:
        """The tensors."""
        if not self.trainer.is_fsdp_enabled:
            model = _unwrapped(self.trainer)
            _tell_of_base(model)
            return {
                **({} if is_peft(model) else {"model": model}),
                "optimizer": lambda: optimizer_state(self.trainer.optimizer),
            }
        assert self._recorded is not None
        whole, self.aliases[:] = self._recorded.merged()
        return whole

    def give_back(self) -> None:
        """The trainer has its directory back."""
        self.trainer.args.output_dir = self._output_dir

    def end(self) -> None:
        """And the hidden one goes, unless a save has it."""
        self.give_back()
        self.opened.close()


def _write_configuration(
    trainer: Any,
    stocks: Callable[..., None],
    run_dir: str,
    output_dir: Optional[str] = None,
    state_dict: Any = None,
) -> None:
    """In place of ``Trainer._save``, which is ``stocks``: all but the tensors.  Of a model of PEFT
    it writes adapters, which are small, and where PEFT looks for them.  ``run_dir``: the
    output_dir that the arguments of the trainer had."""
    output_dir = output_dir or trainer.args.output_dir
    if not trainer.args.should_save:
        return
    os.makedirs(output_dir, exist_ok=True)
    model = _unwrapped(trainer)
    if is_peft(model):
        stocks(trainer, output_dir, state_dict)
    else:
        _write_configs(trainer, model, output_dir)
    args = copy.copy(trainer.args)
    args.output_dir = run_dir
    torch.save(args, os.path.join(output_dir, "training_args.bin"))


def _write_configs(trainer: Any, model: Any, output_dir: str) -> None:
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
            config.save_pretrained(output_dir)


def _write_scheduler(trainer: Any, output_dir: str) -> None:
    """In place of ``Trainer._save_optimizer_and_scheduler``."""
    if trainer.args.should_save:
        torch.save(trainer.lr_scheduler.state_dict(), os.path.join(output_dir, "scheduler.pt"))


def _loads(checkpoint: Optional[str]) -> contextlib.AbstractContextManager[None]:
    ours = checkpoint is not None and described(checkpoint) is not None
    return ours_loads(checkpoint if ours else None)


@contextlib.contextmanager
def _files_of(checkpoint: Optional[str]) -> Iterator[Optional[str]]:
    """A directory with the small files of a checkpoint of ours, checked by their hashes, for stock
    to read: another file may have the name of one there.  Else ``checkpoint`` itself."""
    if checkpoint is None or not has_plain(checkpoint):
        yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="sidestep-") as directory:
        write_out(checkpoint, directory)
        yield directory


def _rotate(target: str, limit: int, best: Optional[str]) -> None:
    """Delete what ``save_total_limit`` lets go, as `transformers.trainer_utils.rotate_checkpoints`
    does: never ``target``, which was just committed, nor the best that it knows of."""
    there = sort_checkpoints(os.path.dirname(target), use_mtime=True)
    kept = [target, *([best] if best else [])]
    delete_oldest(there, limit, kept, f"save_total_limit={limit}")


# ---------------------------------------------------------------- what is loaded


def _from_newest(trainer: Any, root: str, train: Callable[[Any], Any]) -> Any:
    """What ``train`` returns of the newest checkpoint that is whole.  Collective.

    ValueError: there is none.
    """
    found = from_newest(root, _PREFIX, _problem, train, lambda error: error is trainer._unreadable)
    if found is None:
        raise ValueError(f"No valid checkpoint found in output directory ({root})")
    return found


def _problem(path: str) -> Optional[str]:
    found = described(path)
    if (found is not None and _STATE in found.files) or os.path.isfile(os.path.join(path, _STATE)):
        return None
    return f"it has no {_STATE}, which is written last"


def _refuse_fsdp(trainer: Any, checkpoint: str) -> None:
    """If it was saved without FSDP, and this run has it."""
    if not trainer.is_fsdp_enabled or not has_plain(checkpoint):
        return
    what = "the adapters in it"
    if _has_model(checkpoint):
        made = f"sidestep.transformers.export('{checkpoint}', DIRECTORY)"
        what = f"the model that {made} makes of it"
    raise ValueError(
        f"'{checkpoint}' was saved without FSDP, and its optimizer cannot be sharded: resume "
        f"without FSDP, or begin a run with FSDP from {what}"
    )


# ---------------------------------------------------------------- for stock Transformers


def export(checkpoint: str, directory: Optional[str] = None, *, optimizer: bool = True) -> None:
    """Write what stock Transformers reads: ``model.safetensors``, for ``from_pretrained``, and
    ``optimizer.pt``, to resume from.  Adapters of PEFT are there already.  By this process alone.

    directory  where to; None: into the checkpoint, beside what sidestep reads
    optimizer  False: only the model, with its configuration and tokenizer

    ``python -m sidestep.transformers CHECKPOINT [DIRECTORY]`` does the same.
    """
    if not has_plain(checkpoint):
        raise ValueError(f"'{checkpoint}' is not a checkpoint that sidestep.transformers has saved")
    directory = directory or checkpoint
    os.makedirs(directory, exist_ok=True)
    if directory != checkpoint:
        write_out(checkpoint, directory)
    if _has_model(checkpoint):
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
