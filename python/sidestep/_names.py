# SPDX-License-Identifier: BSD-3-Clause
"""Where the public names of the package come from: ours first, torch's for all the others.

A script that says ``import sidestep as dcp`` goes on to say ``dcp.FileSystemWriter``,
``dcp.state_dict.get_state_dict`` or ``from sidestep.staging import DefaultStager``.  All of these
are torch's, imported when they are asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ._replaced_handlers import handlers_wait

_TORCH = "torch.distributed.checkpoint"

# Our names, by the module of this package that has them.
OURS = {
    name: module
    for module, names in {
        "_c.abi": "Status",
        "_c.errors": "Error",
        "_checkpointer": "Checkpointer",
        "_checkpoint": "FileMetadata",
        "_convert": "Converted Final convert export",
        "_copy": "Copied copy",
        "_environment": "environment",
        "_loaded": "Loaded Cast",
        "_mirror": "Mirror",
        "_option_groups": "Callbacks FailurePolicy PreemptionPolicy RetentionPolicy SaveOptions "
        "SchedulePolicy",
        "_handle": "SaveHandle",
        "_huge_pages": "huge_pages",
        "_paused": "paused",
        "_read": "TensorStats load_metadata read read_file stats",
        "_roots": "latest pin tag",
        "_signals": "Preempted",
        "_torch.extension": "Planes extension_registry",
        "_torch.fence": "fence_optimizers",
        "_torch.install": "install uninstall",
        "_torch.load": "load",
        "_torch.plugins": "Reader Writer",
        "_torch.save": "async_save save",
        "_train_state": "TrainState",
    }.items()
    for name in names.split()
}

# torch's modules in which to look for a name; those that people import from come first.
# fmt: off
_MODULES = (
    "state_dict", "stateful", "filesystem", "default_planner", "planner", "staging", "storage",
    "metadata", "state_dict_saver", "state_dict_loader", "format_utils", "api", "hf_storage",
    "quantized_hf_storage", "optimizer", "planner_helpers", "utils", "logger", "logging_handlers",
    "resharding", "_extension", "_fsspec_filesystem",
)
# fmt: on


def prepare() -> None:
    """Import what a save needs, if the program has torch, so that no save waits for it."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available():
        importlib.import_module("sidestep._torch.save")


def find(name: str) -> Any:
    """The value of the public ``name``.

    Errors: AttributeError if neither this package nor torch (or no torch is installed) has it.
    """
    if name in OURS:
        with handlers_wait():
            if name == "Checkpointer":  # what its calls need: a handler may save in the first one
                _module("sidestep._torch.save")
            return getattr(importlib.import_module(f"sidestep.{OURS[name]}"), name)
    if name == "__version__":
        from ._c.abi import VERSION

        return VERSION
    if not name.startswith("_") and (torch := _module(_TORCH)) is not None:
        if hasattr(torch, name):
            return _with_ours(getattr(torch, name))
        if (module := _module(f"{_TORCH}.{name}")) is not None:
            return _with_ours(module)
        for owner in _MODULES:
            module = _module(f"{_TORCH}.{owner}")
            if module is not None and name in _public(module):
                return getattr(module, name)
    raise AttributeError(f"module 'sidestep' has no attribute '{name}'")


def of_torch() -> set[str]:
    """Every name that `find` gets from torch; none if there is no torch."""
    torch = _module(_TORCH)
    if torch is None:
        return set()
    names = {name for name in vars(torch) if not name.startswith("_")}
    for owner in _MODULES:
        if (module := _module(f"{_TORCH}.{owner}")) is not None:
            names.update(_public(module))
            names.update([] if owner.startswith("_") else [owner])
    return names


def _module(name: str) -> ModuleType | None:
    """A module of torch; None if this torch lacks it, or something that it needs is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _public(module: ModuleType) -> Sequence[str]:
    names = getattr(module, "__all__", None)
    if names is not None:
        return [name for name in names if hasattr(module, name)]
    own = (name for name, value in vars(module).items() if _made_in(module, value))
    return [name for name in own if not name.startswith("_")]


def _made_in(module: ModuleType, value: Any) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _with_ours(value: Any) -> Any:
    """A module of torch.  If it has save or load, a copy of it that has ours instead."""
    if not isinstance(value, ModuleType):
        return value
    own = vars(value)
    covered = [name for name in ("save", "async_save", "load") if _made_in(value, own.get(name))]
    if not covered:
        return value
    alias = ModuleType(value.__name__.replace(_TORCH, "sidestep"), value.__doc__)
    vars(alias).update({name: v for name, v in own.items() if name[:2] != "__"})
    vars(alias).update({name: find(name) for name in covered}, __all__=_public(value))
    return alias


class _Finder(MetaPathFinder, Loader):
    """``import sidestep.state_dict`` and the like: torch's module of that name.

    It comes after all other finders, so it is asked only for modules that we do not have.
    """

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """A spec for a public module of torch.distributed.checkpoint under our name."""
        package, _, name = fullname.rpartition(".")
        if package != self.package or name.startswith("_"):
            return None
        try:
            found = importlib.util.find_spec(f"{_TORCH}.{name}")
        except ImportError:
            return None
        return None if found is None else ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Replace the empty module that the import machinery made by torch's."""
        name = module.__name__.rpartition(".")[2]
        sys.modules[module.__name__] = _with_ours(importlib.import_module(f"{_TORCH}.{name}"))


def install(package: str) -> None:
    """Make torch's modules importable as modules of ``package``, too."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder(package))
