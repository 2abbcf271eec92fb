# SPDX-License-Identifier: BSD-3-Clause
"""Redirects calls of torch.distributed.checkpoint that a framework makes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any, Optional

import torch.distributed.checkpoint as dcp

from . import _whole
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

    def parts(self) -> tuple[list[_whole.Part], dict[str, str]]:
        """Merge directories whose names end in the same number into one checkpoint, under the name
        of the first; the others become links to it.  Readers ignore what they did not ask for."""
        states: dict[str, tuple[str, dict[str, Any]]] = {}
        links = {}
        for place, state in self._states.items():
            home, have = states.setdefault(place.rpartition("_")[2], (place, {}))
            if have.keys() & state.keys():
                states[place] = (place, state)
                continue
            have.update(state)
            if place != home:
                links[place] = home
        return [_whole.Part(place, state) for place, state in states.values()], links


@contextlib.contextmanager
def _in_place(name: str, function: Any) -> Iterator[None]:
    """Inside, ``function`` replaces torch's."""
    before = getattr(dcp, name)
    setattr(dcp, name, function)
    try:
        yield
    finally:
        setattr(dcp, name, before)


@contextlib.contextmanager
def recorded_saves() -> Iterator[Recorded]:
    """Inside, ``torch.distributed.checkpoint.save`` only notes what it was asked for."""
    with tempfile.TemporaryDirectory(prefix="sidestep-") as place:
        recorded = Recorded(place)
        with _in_place("save", recorded.save):
            yield recorded


@contextlib.contextmanager
def ours_everywhere(step: Optional[int] = None) -> Iterator[None]:
    """Inside, the functions of ``torch.distributed.checkpoint`` are ours, unless a third party has
    replaced them.  ``step``: returns the step that a save to a path records."""
    ours = {"save": _of_step(save, step), "async_save": _of_step(async_save, step), "load": load}
    with contextlib.ExitStack() as stack:
        for name, mine in ours.items():
            if getattr(getattr(dcp, name), "__module__", "").startswith(_KNOWN):
                stack.enter_context(_in_place(name, mine))
        yield


def _of_step(function: Any, step: Optional[int]) -> Any:
    def with_step(*args: Any, **how: Any) -> Any:
        if how.get("storage_writer") is None and how.get("checkpoint_id") is not None:
            how["storage_writer"] = Writer(how["checkpoint_id"], step=step)
        return function(*args, **how)

    return with_step


@contextlib.contextmanager
def ours_loads() -> Iterator[None]:
    """Inside, ``torch.distributed.checkpoint.load`` is ours."""
    with _in_place("load", load):
        yield
