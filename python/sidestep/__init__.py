# SPDX-License-Identifier: BSD-3-Clause
"""Distributed, asynchronous checkpoints for PyTorch.

``import sidestep as dcp`` instead of ``import torch.distributed.checkpoint as dcp``: `save`,
`async_save` and `load` are the same functions with the same arguments and the same files, and every
other public name of torch's package and of its modules is found here too.  What is sidestep's own:

- `save`, `async_save`, `load`: torch's functions, whole-or-not-at-all and in the background;
- `fence_optimizers`: copy what lies on CUDA devices beside the next forward and backward;
- `SaveHandle`: what `async_save` returns, a ``concurrent.futures.Future`` and more;
- `latest`: the newest checkpoint of a directory;
- `load_metadata`, `read`, `stats`: look into a checkpoint without a template;
- `Checkpointer`: the checkpoints of a run, which look after themselves; `TrainState`: all that a
  run has to remember; `Preempted`: its end, when a signal announced it; `pin`, `tag`: by hand;
- `huge_pages`: memory that can be held still in no time;
- `paused`: parts of training that no save in the background may disturb;
- `export`, `Final`: a checkpoint as safetensors or one file of `torch.save`;
- `Writer`, `Reader`: the same storage under torch's own ``save`` and ``load``;
- `Error`: what goes wrong.

Importing this package imports neither torch nor the C library: that happens on first use.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import _names

if TYPE_CHECKING:
    from ._abi import VERSION as __version__
    from ._abi import Status
    from ._checkpointer import Checkpointer
    from ._convert import Converted, convert
    from ._environment import environment
    from ._errors import Error
    from ._export import Final, export
    from ._extension import Planes, extension_registry
    from ._fence import fence_optimizers
    from ._filling import Loaded
    from ._handle import SaveHandle
    from ._huge_pages import huge_pages
    from ._latest import latest
    from ._load import load
    from ._marks import pin, tag
    from ._paused import paused
    from ._plugins import Reader, Writer
    from ._read import load_metadata, read
    from ._save import async_save, save
    from ._signals import Preempted
    from ._stats import TensorStats, stats
    from ._train_state import TrainState

__all__ = [
    "Checkpointer",
    "Converted",
    "Error",
    "Final",
    "Loaded",
    "Planes",
    "Preempted",
    "Reader",
    "SaveHandle",
    "Status",
    "TensorStats",
    "TrainState",
    "Writer",
    "__version__",
    "async_save",
    "convert",
    "environment",
    "export",
    "extension_registry",
    "fence_optimizers",
    "huge_pages",
    "latest",
    "load",
    "load_metadata",
    "paused",
    "pin",
    "read",
    "save",
    "stats",
    "tag",
]

_names.install(__name__)


def __getattr__(name: str) -> Any:
    """A public name, ours or torch's, imported when it is asked for."""
    value = _names.find(name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_names.of_torch()})
