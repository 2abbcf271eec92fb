# SPDX-License-Identifier: BSD-3-Clause
"""Read by every Python that ``python -m sidestep.run`` starts, before its program.

When the program imports torch.distributed.checkpoint, `sidestep.install` follows.  A program that
does not is left alone.  The ``sitecustomize`` of the machine, if it has one, is read as ever.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import logging
import os
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from typing import Any, Optional

_TORCH = "torch.distributed.checkpoint"
_HERE = os.path.dirname(os.path.abspath(__file__))


class _Follower(MetaPathFinder):
    """Lets the module be found as ever, and acts when it has been executed."""

    def __init__(self) -> None:
        self._busy = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != _TORCH or self._busy:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader)
        return spec


class _Then(Loader):
    """A loader, and what follows it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _install()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _install() -> None:
    if os.environ.get("SIDESTEP_RUN_VERBOSE"):
        _log_to_stderr()
    try:
        import sidestep

        sidestep.install()
    except Exception as problem:
        warnings.warn(
            f"sidestep.run: torch's own functions stay: {type(problem).__name__}: {problem}",
            RuntimeWarning,
            stacklevel=2,
        )


def _log_to_stderr() -> None:
    """What the package says from level info on, whatever the program does with its log."""
    logger = logging.getLogger("sidestep")
    handler = logging.StreamHandler()
    rank = os.environ.get("RANK")
    name = "sidestep" if rank is None else f"sidestep: rank {rank}"
    handler.setFormatter(logging.Formatter(f"{name}: %(levelname)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(min(logger.level or logging.INFO, logging.INFO))
    logger.propagate = False


def _read_the_other() -> None:
    """The ``sitecustomize`` that this one hides, if there is one."""
    others = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]
    spec: Optional[Any] = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


sys.meta_path.insert(0, _Follower())
_read_the_other()
