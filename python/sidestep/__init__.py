# SPDX-License-Identifier: BSD-3-Clause
"""Distributed, asynchronous checkpoints for PyTorch.

``import sidestep as dcp`` replaces ``import torch.distributed.checkpoint as dcp``.  `save`,
`async_save` and `load` take the same arguments and make the same files.  Every other public name of
torch's package and of its modules is here, too.  sidestep's own names are:

- `save`, `async_save`, `load`: torch's functions; a checkpoint exists whole or not at all;
- `fence_optimizers`: copy CUDA tensors during the next forward and backward;
- `SaveHandle`: what `async_save` returns, a ``concurrent.futures.Future`` and more;
- `latest`: the newest checkpoint of a directory;
- `load_metadata`, `read`, `read_file`, `stats`: look into a checkpoint without a template;
- `Checkpointer`: manages the checkpoints of a run; `TrainState`: the state that a run resumes
  from; `Preempted`: ends a run after a signal; `pin`, `tag`: annotate a checkpoint by hand;
- `SchedulePolicy`, `RetentionPolicy`, `PreemptionPolicy`, `FailurePolicy`, `SaveOptions`,
  `Callbacks`: groups of its options; `Mirror`: a second place for its checkpoints;
- `huge_pages`: puts the state on huge pages, which makes snapshots almost free;
- `paused`: stops background writes during a part of training;
- `export`, `Final`: write a checkpoint as safetensors or as one file of `torch.save`;
- `install`: replaces torch's functions, for programs that you cannot edit; see also ``python -m
  sidestep.run``, and docs/FRAMEWORKS.md for frameworks;
- `Writer`, `Reader`: sidestep's storage under torch's own ``save`` and ``load``;
- `Error`: the exception for failures.

Importing this package imports neither torch nor the C library: that happens on first use.  If the
program has imported torch before, the import takes as long as importing
``torch.distributed.checkpoint``, so that the first save does not.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import _names

if TYPE_CHECKING:
    from ._c.abi import VERSION as __version__
    from ._c.abi import Status as Status
    from ._c.errors import Error as Error
    from ._checkpoint import FileMetadata as FileMetadata
    from ._checkpointer import Checkpointer as Checkpointer
    from ._convert import Converted as Converted
    from ._convert import Final as Final
    from ._convert import convert as convert
    from ._convert import export as export
    from ._copy import Copied as Copied
    from ._copy import copy as copy
    from ._environment import environment as environment
    from ._handle import SaveHandle as SaveHandle
    from ._huge_pages import huge_pages as huge_pages
    from ._loaded import Cast as Cast
    from ._loaded import Loaded as Loaded
    from ._mirror import Mirror as Mirror
    from ._option_groups import Callbacks as Callbacks
    from ._option_groups import FailurePolicy as FailurePolicy
    from ._option_groups import PreemptionPolicy as PreemptionPolicy
    from ._option_groups import RetentionPolicy as RetentionPolicy
    from ._option_groups import SaveOptions as SaveOptions
    from ._option_groups import SchedulePolicy as SchedulePolicy
    from ._paused import paused as paused
    from ._read import TensorStats as TensorStats
    from ._read import load_metadata as load_metadata
    from ._read import read as read
    from ._read import read_file as read_file
    from ._read import stats as stats
    from ._roots import latest as latest
    from ._roots import pin as pin
    from ._roots import tag as tag
    from ._signals import Preempted as Preempted
    from ._torch.extension import Planes as Planes
    from ._torch.extension import extension_registry as extension_registry
    from ._torch.fence import fence_optimizers as fence_optimizers
    from ._torch.install import install as install
    from ._torch.install import uninstall as uninstall
    from ._torch.load import load as load
    from ._torch.plugins import Reader as Reader
    from ._torch.plugins import Writer as Writer
    from ._torch.save import async_save as async_save
    from ._torch.save import save as save
    from ._train_state import TrainState as TrainState

__all__ = ["__version__", *_names.OURS]

_names.install(__name__)


def __getattr__(name: str) -> Any:
    """A public name, ours or torch's, imported when it is asked for."""
    value = _names.find(name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_names.of_torch()})


_names.prepare()
