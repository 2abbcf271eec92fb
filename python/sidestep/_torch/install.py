# SPDX-License-Identifier: BSD-3-Clause
"""`install`: replaces torch's functions by ours, for programs that you cannot edit."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

from .._modes import without_modes
from . import load as _load
from . import originals
from . import save as _save

logger = logging.getLogger("sidestep")

_HOMES = (dcp, state_dict_saver, state_dict_loader)
_lock = threading.Lock()
_replaced: list[tuple[Any, str, Any, Any]] = []  # module, name, torch's, ours


def install() -> tuple[str, ...]:
    """Replace `save`, `async_save` and `load` of torch.distributed.checkpoint by ours, also in
    modules that have imported them already.

    For programs that you cannot edit: their next calls are ours.  ``python -m sidestep.run`` does
    this for a whole command.  `uninstall` undoes it.

    Returns the names that were replaced: ("torch.distributed.checkpoint.save", ...), without those
    that are ours already.  The log (level info) names them, too.  When a save is left to torch, a
    warning gives the reason, once for each reason.  A line of level info names the first save that
    returns only when it is committed.  ``torch.save`` stays torch's: programs that use it need an
    adapter (docs/FRAMEWORKS.md).
    """
    with _lock:
        new = [place for place in _places() if place not in _replaced]
        for module, name, _, ours in new:
            setattr(module, name, ours)
        _replaced.extend(new)
    logger.info("%s", _line(new))
    return tuple(f"{module.__name__}.{name}" for module, name, _, _ in new)


def _line(new: list[tuple[Any, str, Any, Any]]) -> str:
    """The log line about the replaced names."""
    if not new:
        return "sidestep.install: nothing is left to replace"
    homes = {home.__name__ for home in _HOMES}
    others = sorted({module.__name__ for module, *_ in new} - homes)
    more = f", also in {', '.join(others)}" if others else ""
    return (
        "sidestep.install: save, async_save and load of torch.distributed.checkpoint are now "
        f"sidestep's{more}; torch.save is torch's"
    )


def uninstall() -> None:
    """Undo `install`: restore torch's functions, where nobody has replaced ours."""
    with _lock:
        for module, name, original, ours in _replaced:
            if vars(module).get(name) is ours:
                setattr(module, name, original)
        _replaced.clear()


def _places() -> Iterator[tuple[Any, str, Any, Any]]:
    """The modules that have torch's functions by name: torch's, and those that imported them."""
    ours = {id(original): (original, mine) for original, mine in _PAIRS}
    own = __name__.partition(".")[0]
    for module_name, module in list(sys.modules.items()):
        if module is None or module_name.partition(".")[0] == own:
            continue
        if module_name.startswith("torch.") and module not in _HOMES:
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in ours:
                yield module, name, *ours[id(value)]


@without_modes
@functools.wraps(_save.save)
def _blocking_save(*args: Any, **kwargs: Any) -> Any:
    _tell_of_blocking()
    return _save.save(*args, **kwargs)


@functools.cache
def _tell_of_blocking() -> None:
    """Log it once in the life of a process."""
    logger.info(
        "the program calls save() of torch.distributed.checkpoint, which returns when the "
        "checkpoint is committed; async_save() would let it go on in the meantime"
    )


_PAIRS: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    (originals.save, _blocking_save),
    (originals.async_save, _save.async_save),
    (originals.load, _load.load),
)
