# SPDX-License-Identifier: BSD-3-Clause
"""torchtitan: a ``CheckpointManager`` whose checkpoints are saved by sidestep.

    import sidestep.torchtitan
    config.checkpoint = sidestep.torchtitan.CheckpointManager.Config(enable=True, keep_latest_k=2)

in a function of the config registry.  All fields mean what they mean there; ``async_mode`` is
"async" unless you say otherwise.  `with_sidestep` makes such a class of another manager, such as
``TorchFTCheckpointManager``.  docs/FRAMEWORKS.md has more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, Optional, TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torchtitan.components.checkpointer import CheckpointManager as _Stock
from torchtitan.tools import filesystem

from ._c.abi import Status
from ._c.checked import is_url
from ._c.errors import Error, make_error
from ._directory import (
    collect_garbage,
    damage_of,
    delete_oldest,
    described,
    names_in,
    raise_advised,
    tell_passed_over,
)
from ._handle import SaveHandle, in_background
from ._metrics import Costs
from ._redirect import in_place, ours_everywhere
from ._waiting import waits

log = logging.getLogger("sidestep")

_STEP = re.compile(r"step-(\d+)")
Kind = TypeVar("Kind", bound=type)


class _Saves:
    """Goes before a ``CheckpointManager`` of torchtitan in the bases of a class."""

    _step: Optional[int] = None  # that is being saved
    _found = ""  # the newest that is whole, as far as names and sizes tell
    _damaged: dict[str, str]  # those whose bytes a load has found damaged, and why

    def dcp_save(self, *args: Any, **kwargs: Any) -> Any:
        """See torchtitan; torch's functions that it calls are ours."""
        began = time.monotonic()
        with ours_everywhere(self._step):
            saved = super().dcp_save(*args, **kwargs)  # type: ignore[misc]
        handle = getattr(saved, "upload_completion", None)
        if isinstance(handle, SaveHandle):
            handle.stall_s = time.monotonic() - began
            self._costs.note(handle)
        return saved

    def dcp_load(self, *args: Any, **kwargs: Any) -> None:
        """See torchtitan; torch's functions that it calls are ours."""
        with ours_everywhere():
            super().dcp_load(*args, **kwargs)  # type: ignore[misc]

    def _save(self, *args: Any, **kwargs: Any) -> bool:
        """torchtitan's stager pins memory, which nobody would use: it gets one that does not."""
        me: Any = self
        self._log_costs()
        self._step = args[0] if args else kwargs["curr_step"]
        if me.stager is None and me.async_mode.value == "async_with_pinned_mem":
            me.stager = DefaultStager(StagingOptions(False, False, True, False))
        saved = bool(super()._save(*args, **kwargs))  # type: ignore[misc]
        if saved and waits() and me.save_future is not None:
            me.save_future.result()
        return saved

    @cached_property
    def _costs(self) -> Costs:
        return Costs()

    def _log_costs(self) -> None:
        """To the trainer's TensorBoard and W&B, at its step: the latter take no earlier one."""
        me: Any = self
        trainer: Any = getattr(me, "states", {}).get("train_state")
        metrics = getattr(trainer, "metrics_processor", None)
        if metrics is None:
            return
        for _, values in self._costs.take():
            metrics.logger.log(values, trainer.step)

    def _load(self, step: int = -1) -> bool:
        me: Any = self
        if dist.is_initialized() and me._should_purge():
            collect_garbage(me.folder)
        self._damaged = {}
        while True:
            self._found = ""
            try:
                with _buckets():
                    return bool(super()._load(step))  # type: ignore[misc]
            except Error as error:
                if error.status == Status.ECORRUPT and self._found:
                    self._damaged[self._found] = error.message
                    continue
                advice = "load_step=-1 takes the newest that is whole"
                raise_advised(error, f"step {step}", advice)

    def _find_load_step(self, folder: str = "") -> int:
        """The newest that is whole.  What is passed over is logged.

        Error (ECORRUPT): all that are there are damaged.  A run does not start anew unless it is
        asked to.
        """
        me: Any = self
        root = folder or me.folder
        if filesystem.is_remote(root) and not is_url(root):
            return int(super()._find_load_step(folder))  # type: ignore[misc]
        steps = [int(match[1]) for match in map(_STEP.search, names_in(root)) if match]
        damaged = ""
        for step in sorted(steps, reverse=True):
            path = me._create_checkpoint_id(step, root)
            problem = self._damaged.get(path) or _problem(path)
            if problem is None:
                self._found = path
                return step
            tell_passed_over(path, problem)
            if is_url(path) or os.path.exists(os.path.join(path, ".metadata")):
                damaged = damaged or f"'{path}': {problem}"
        if damaged:
            raise make_error(
                f"load: no checkpoint in '{root}' is whole; {damaged}; to begin anew, move them "
                "away",
                status=Status.ECORRUPT,
            )
        return -1

    def _should_purge(self) -> bool:
        with _buckets():
            return bool(super()._should_purge())  # type: ignore[misc]

    def _purge_stale_checkpoints(self) -> None:
        """When the one under way is committed: until then it is not there, and does not count.
        torchtitan's own deletes directories whole, with files that others have put there."""
        me: Any = self
        handle = me.save_future
        if isinstance(handle, SaveHandle):
            me.save_future = _after(handle, lambda: _purge(me))
        else:
            _purge(me)

    def _close(self) -> None:
        """What is under way is finished first, so that what it lets go is deleted."""
        me: Any = self
        saving, me.save_future = getattr(me, "save_future", None), None
        try:
            if saving is not None:
                saving.result()
            self._log_costs()
        finally:
            super()._close()  # type: ignore[misc]


class CheckpointManager(_Saves, _Stock):
    """torchtitan's, with saves and loads by sidestep."""

    @dataclass(kw_only=True, slots=True)
    class Config(_Stock.Config):
        """torchtitan's."""

        async_mode: Literal["disabled", "async", "async_with_pinned_mem"] = "async"
        """"disabled": a save returns when it is committed.  "async", "async_with_pinned_mem": when
        the state may change; which memory is copied to is ours to choose."""


def with_sidestep(kind: Kind) -> Kind:
    """A subclass of ``kind``, a ``CheckpointManager`` of torchtitan's or a subclass of it, with
    saves and loads by sidestep, and with a ``Config`` of its own: where that of ``kind`` has
    ``async_mode="disabled"`` by default, it has "async"."""
    stock: Any = kind
    mode: Any = {one.name: one.default for one in fields(stock.Config)}["async_mode"]

    @dataclass(kw_only=True, slots=True)
    class Config(stock.Config):
        async_mode: Literal["disabled", "async", "async_with_pinned_mem"] = (
            "async" if mode == "disabled" else mode
        )

    Config.__qualname__ = f"{kind.__qualname__}.Config"
    names = {"Config": Config, "__doc__": kind.__doc__, "__module__": __name__}
    made: Any = type(kind.__name__, (_Saves, kind), names)
    return made  # type: ignore[no-any-return]


def _problem(path: str) -> str | None:
    """Why it is no checkpoint to load; None: it is one."""
    if is_url(path):
        return damage_of(path)
    if os.path.isfile(os.path.join(path, ".metadata")):
        return damage_of(path)
    if os.path.isfile(os.path.join(path, "model.safetensors.index.json")):
        return None
    return "it has neither .metadata nor model.safetensors.index.json"


@contextlib.contextmanager
def _buckets() -> Iterator[None]:
    """Inside, sidestep answers what torchtitan asks of a URL of ours.  Its own answer needs s3fs,
    which has settings of its own, and remembers what was there."""

    def answers(stock: Callable[[Any], bool]) -> Callable[[Any], bool]:
        return lambda path: _is_there(path) if is_url(str(path)) else stock(path)

    with (
        in_place("exists", answers(filesystem.exists), filesystem),
        in_place("isdir", answers(filesystem.isdir), filesystem),
    ):
        yield


def _is_there(url: str) -> bool:
    """Whether it is a checkpoint, or has some below."""
    return bool(names_in(url)) or described(url) is not None


def _purge(manager: Any) -> None:
    """Delete what ``keep_latest_k`` lets go."""
    if not manager._should_purge():
        return
    found = [(_STEP.search(name), name) for name in names_in(manager.folder)]
    steps = sorted((int(step[1]), name) for step, name in found if step)
    paths = [os.path.join(manager.folder, name) for _, name in steps]
    keep = manager.keep_latest_k
    delete_oldest(paths, keep, [], f"keep_latest_k={keep}")


def _after(handle: SaveHandle, then: Any) -> Future[Any]:
    """A future that is done when ``then`` was called, after the commit, or with its failure."""
    done: Future[Any] = Future()

    def go_on() -> None:
        failure = handle.exception()
        try:
            if failure is None:
                then()
        except BaseException as problem:
            failure = problem
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    handle.add_done_callback(lambda _: in_background(go_on))
    return done
