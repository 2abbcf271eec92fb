# SPDX-License-Identifier: BSD-3-Clause
"""Replaces a framework's own classes by adapters, for ``python -m sidestep.run --adapt NAMES``.

The adapters are the same as those that a program imports by itself (``sidestep.transformers`` ...).
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from typing import Any

log = logging.getLogger("sidestep")


def adapt(name: str) -> None:
    """Replace the classes of the framework ``name`` by ours, in all modules that have imported
    them.  The framework must have been imported.  The log (level info) names what was replaced.

    Errors: ImportError: the framework is too old, or incomplete.
    """
    if _is_half(sys.modules.get(f"sidestep.{name}")):
        log.info("sidestep.run: the program imports sidestep.%s by itself", name)
        return
    replaced = _FRAMEWORKS[name]()
    log.info("sidestep.run: of %s, these are now sidestep's: %s", name, ", ".join(replaced))


def _is_half(module: Any) -> bool:
    """Whether the module is still being imported: then it is what imports the framework."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _transformers() -> list[str]:
    return _replace("transformers.trainer", "sidestep.transformers", "Trainer")


def _accelerate() -> list[str]:
    return _replace("accelerate.accelerator", "sidestep.accelerate", "Accelerator")


def _torchtitan() -> list[str]:
    home = "torchtitan.components.checkpointer.dcp"
    return _replace(home, "sidestep.torchtitan", "CheckpointManager")


def _lightning() -> list[str]:
    """The default plugin of a Trainer, and two strategies, also under their registered names."""
    ours: Any = importlib.import_module("sidestep.lightning")
    modules: Any = importlib.import_module("sidestep.lightning._modules")
    strategies = modules.of_pytorch("strategies")
    modules.of_pytorch("strategies.strategy").TorchCheckpointIO = ours.SidestepCheckpointIO
    replaced = ["the default CheckpointIO"]
    for name in ("FSDPStrategy", "ModelParallelStrategy"):
        stock, mine = getattr(strategies, name), getattr(ours, f"Sidestep{name}")
        _replace_everywhere(stock, mine)
        replaced.append(name)
        for entry in strategies.StrategyRegistry.values():
            if entry["strategy"] is stock:
                entry["strategy"] = mine
    return replaced


def _megatron() -> list[str]:
    home, ours = "megatron.core.dist_checkpointing.strategies", "sidestep.megatron"
    replaced = [
        *_replace(f"{home}.torch", ours, "TorchDistSaveShardedStrategy"),
        *_replace(f"{home}.torch", ours, "TorchDistLoadShardedStrategy"),
    ]
    common: Any = sys.modules[f"{home}.common"]
    if hasattr(common, "TorchCommonLoadStrategy"):  # not after 0.16
        replaced += _replace(f"{home}.common", ours, "TorchCommonLoadStrategy")
        common.register_default_common_strategies()  # it has made one at its import
    return replaced


_FRAMEWORKS: dict[str, Callable[[], list[str]]] = {
    "accelerate": _accelerate,
    "lightning": _lightning,
    "megatron": _megatron,
    "torchtitan": _torchtitan,
    "transformers": _transformers,
}
NAMES = tuple(_FRAMEWORKS)


def _replace(home: str, ours: str, name: str) -> list[str]:
    stock = getattr(sys.modules[home], name)
    _replace_everywhere(stock, getattr(importlib.import_module(ours), name))
    return [f"{home}.{name}"]


def _replace_everywhere(stock: Any, mine: Any) -> None:
    own = __name__.partition(".")[0]
    for module_name, module in list(sys.modules.items()):
        if module is None or module_name.partition(".")[0] == own:
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is stock:
                setattr(module, name, mine)
