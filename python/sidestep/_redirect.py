# SPDX-License-Identifier: BSD-3-Clause
"""Redirects calls of torch.distributed.checkpoint that a framework makes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Optional

import torch.distributed.checkpoint as dcp

from ._checkpoint import Checkpoint
from ._torch.load import load
from ._torch.plugins import Writer
from ._torch.save import async_save, save

_KNOWN = ("torch.", "sidestep.")


class Recorded:
    """The states that a framework tried to save, by directory.

    place  the directory that the framework is told to save to; nothing is written to it
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._states: dict[str, dict[str, Any]] = {}

    def save(self, state_dict: dict[str, Any], **how: Any) -> None:
        """Replaces torch's function: keeps the state instead of saving it."""
        writer = how.get("storage_writer")
        path = str(how.get("checkpoint_id") or getattr(writer, "path", ""))
        self._states[os.path.relpath(path, self.place)] = dict(state_dict)

    def merged(self) -> tuple[dict[str, Any], list[str]]:
        """All states as one, and the directories that they were to be saved to.  Each becomes a
        name of the one checkpoint: readers ignore what they did not ask for.

        ValueError: two of them have the same names.
        """
        whole: dict[str, Any] = {}
        for state in self._states.values():
            twice = whole.keys() & state.keys()
            if twice:
                raise ValueError(f"two states have the name '{min(twice)}'")
            whole.update(state)
        return whole, [place for place in self._states if place != "."]


@contextlib.contextmanager
def in_place(name: str, function: Any, module: Any = dcp) -> Iterator[None]:
    """Inside, ``function`` replaces the one of this ``name`` in ``module``: torch's, by default."""
    before = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextlib.contextmanager
def recorded_saves(place: str) -> Iterator[Recorded]:
    """Inside, ``torch.distributed.checkpoint.save`` only notes what it was asked for.

    ``place``: the directory that the framework writes its other files to."""
    recorded = Recorded(place)
    with in_place("save", recorded.save):
        yield recorded


@contextlib.contextmanager
def ours_everywhere(step: Optional[int] = None) -> Iterator[None]:
    """Inside, the functions of ``torch.distributed.checkpoint`` are ours, unless a third party has
    replaced them.  ``step``: returns the step that a save to a path records."""
    ours = {"save": _of_step(save, step), "async_save": _of_step(async_save, step), "load": load}
    with contextlib.ExitStack() as stack:
        for name, mine in ours.items():
            if getattr(getattr(dcp, name), "__module__", "").startswith(_KNOWN):
                stack.enter_context(in_place(name, mine))
        yield


def _of_step(function: Any, step: Optional[int]) -> Any:
    def with_step(*args: Any, **how: Any) -> Any:
        if how.get("storage_writer") is None and how.get("checkpoint_id") is not None:
            how["storage_writer"] = Writer(how["checkpoint_id"], step=step)
        return function(*args, **how)

    return with_step


@contextlib.contextmanager
def ours_loads(checkpoint: Optional[str] = None, seen_at: Optional[str] = None) -> Iterator[None]:
    """Inside, ``torch.distributed.checkpoint.load`` is ours.

    checkpoint  loads from names of this one that lead to the checkpoint itself read it, whatever
                lies under these names
    seen_at     the directory that the framework takes for ``checkpoint``; None: that itself
    """

    def translated(state_dict: dict[str, Any], **how: Any) -> None:
        reader = how.get("storage_reader")
        path = str(how.get("checkpoint_id") or getattr(reader, "path", ""))
        place = os.path.relpath(path, seen_at or checkpoint)
        if place in aliases or (seen_at is not None and place == "."):
            more = {name: how[name] for name in ("planner", "process_group") if name in how}
            load(state_dict, checkpoint_id=checkpoint, **more)
        else:
            load(state_dict, **how)

    aliases: list[str] = []
    if checkpoint is not None:
        with Checkpoint(checkpoint) as opened:
            aliases = opened.aliases()
    with in_place("load", load if checkpoint is None else translated):
        yield
