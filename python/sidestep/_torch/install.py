# SPDX-License-Identifier: BSD-3-Clause
"""`install`: ours in the place of torch's functions, for programs that are not to be edited."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

from . import load as _load
from . import originals
from . import save as _save

logger = logging.getLogger("sidestep")

_HOMES = (dcp, state_dict_saver, state_dict_loader)
_lock = threading.Lock()
_replaced: list[tuple[Any, str, Any, Any]] = []  # module, name, torch's, ours


def install() -> tuple[str, ...]:
    """Put `save`, `async_save` and `load` in the place of those of torch.distributed.checkpoint,
    also in modules that have imported them already.

    For programs that are not to be edited: what they call next is ours.  ``python -m sidestep.run``
    does it for a whole command.  `uninstall` undoes it.

    Returns what was replaced: ("torch.distributed.checkpoint.save", ...); nothing that is ours
    already.  The log (level info) names it, too.  When a save is left to torch, a warning says why,
    once for each reason; the first save that returns only when it is committed is named at level
    info.  ``torch.save`` stays torch's: programs that use it need an adapter (docs/FRAMEWORKS.md).
    """
    with _lock:
        new = [place for place in _places() if place not in _replaced]
        for module, name, _, ours in new:
            setattr(module, name, ours)
        _replaced.extend(new)
    logger.info("%s", _line(new))
    return tuple(f"{module.__name__}.{name}" for module, name, _, _ in new)


def _line(new: list[tuple[Any, str, Any, Any]]) -> str:
    """What the log says of the replaced."""
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
    """Undo `install`: put torch's functions back, where nobody else has put others."""
    with _lock:
        for module, name, original, ours in _replaced:
            if vars(module).get(name) is ours:
                setattr(module, name, original)
        _replaced.clear()


def _places() -> Iterator[tuple[Any, str, Any, Any]]:
    """Where torch's functions are to be found by name: in torch, and in what has imported them."""
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


@functools.wraps(_save.save)
def _blocking_save(*args: Any, **kwargs: Any) -> Any:
    _tell_of_blocking()
    return _save.save(*args, **kwargs)


@functools.cache
def _tell_of_blocking() -> None:
    """Once in the life of a process."""
    logger.info(
        "the program calls save() of torch.distributed.checkpoint, which returns when the "
        "checkpoint is committed; async_save() would let it go on in the meantime"
    )


_PAIRS: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    (originals.save, _blocking_save),
    (originals.async_save, _save.async_save),
    (originals.load, _load.load),
)
