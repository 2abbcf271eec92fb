# SPDX-License-Identifier: BSD-3-Clause
"""Read by every Python that ``python -m sidestep.run`` starts, before its program.

When the program imports torch.distributed.checkpoint, `sidestep.install` follows.  When it imports
a framework, its adapter follows, if SIDESTEP_RUN_ADAPT names it.  A program that imports neither is
left alone.  The ``sitecustomize`` of the machine, if it has one, is still read.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from typing import Any, Optional

_TORCH = "torch.distributed.checkpoint"
_FRAMEWORKS = {  # by the module that is there when the classes of the framework are
    "accelerate": "accelerate",
    "lightning.pytorch": "lightning",
    "megatron.core.dist_checkpointing.strategies.torch": "megatron",
    "pytorch_lightning": "lightning",
    "torchtitan.components.checkpointer": "torchtitan",
    "transformers.trainer": "transformers",
}
_HERE = os.path.dirname(os.path.abspath(__file__))


class _Follower(MetaPathFinder):
    """Leaves the import of modules unchanged, and acts when they have been executed.

    then  what to do, by the name of the module
    """

    def __init__(self, then: dict[str, Callable[[], None]]) -> None:
        self._then = then
        self._busy: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname not in self._then or fullname in self._busy:
            return None
        self._busy.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, self._then[fullname])
        return spec


class _Then(Loader):
    """A loader, and what follows it."""

    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader, self._follow = loader, then

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._follow()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _install() -> None:
    """Where sidestep is not imported yet, or is half a module, `_after_ours` follows its import."""
    spec = getattr(sys.modules.get("sidestep"), "__spec__", None)
    if spec is None:
        _or_warn(lambda: importlib.import_module("sidestep"))
    elif not getattr(spec, "_initializing", False):
        _replace()


def _replace() -> None:
    _log_if_asked()
    _or_warn(sys.modules["sidestep"].install)


def _or_warn(action: Callable[[], object]) -> None:
    try:
        action()
    except Exception as problem:
        _warn(f"torch's own functions stay: {type(problem).__name__}: {problem}")


def _adapt(framework: str) -> None:
    _log_if_asked()
    if framework not in os.environ.get("SIDESTEP_RUN_ADAPT", "").split(","):
        _tell_of_adapter(framework)
        return
    try:
        from sidestep._adapt import adapt

        adapt(framework)
    except Exception as problem:
        _warn(f"{framework} saves by itself: {type(problem).__name__}: {problem}")


def _warn(what: str) -> None:
    warnings.warn(f"sidestep.run: {what}", RuntimeWarning, stacklevel=3)


def _tell_of_adapter(framework: str) -> None:
    """Of those whose checkpoints are not torch.distributed.checkpoint's."""
    if framework in ("lightning", "transformers") and os.environ.get("RANK", "0") == "0":
        logging.getLogger("sidestep").warning(
            "sidestep.run: %s has ways of its own to save, which stay; sidestep.run --adapt %s "
            "replaces them",
            framework,
            framework,
        )


@functools.cache
def _log_if_asked() -> None:
    """Write the package's log to stderr from level info on, whatever the program does with its
    log."""
    if not os.environ.get("SIDESTEP_RUN_VERBOSE"):
        return
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


def _after_ours() -> None:
    """The program, or an adapter, has imported sidestep: torch's functions are replaced before one
    more of our modules imports them, which would be half a module at that time."""
    with contextlib.suppress(ImportError):
        importlib.import_module(_TORCH)
        _replace()


_actions: dict[str, Callable[[], None]] = {_TORCH: _install, "sidestep": _after_ours}
for _module, _name in _FRAMEWORKS.items():
    _actions[_module] = functools.partial(_adapt, _name)
sys.meta_path.insert(0, _Follower(_actions))
_read_the_other()
