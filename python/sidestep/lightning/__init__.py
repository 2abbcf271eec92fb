# SPDX-License-Identifier: BSD-3-Clause
"""sidestep in Lightning: checkpoints that are saved while training goes on.

    from sidestep.lightning import SidestepCheckpointIO
    trainer = Trainer(plugins=[SidestepCheckpointIO()])                    # one device, DDP

    from sidestep.lightning import SidestepFSDPStrategy, SidestepModelParallelStrategy
    trainer = Trainer(strategy=SidestepModelParallelStrategy(...))         # sharded

`ModelCheckpoint`, ``ckpt_path`` and ``trainer.save_checkpoint`` are used as ever.  A program that
only loads (``load_from_checkpoint``) imports this module, too, or is given a file:
``python -m sidestep.lightning CHECKPOINT FILE``.  `SaveMetrics` puts what saves cost into the
trainer's logger, and `SaveAdapters` leaves out what PEFT has frozen.  See docs/FRAMEWORKS.md.
"""

from __future__ import annotations

from . import _patches
from ._adapters import SaveAdapters
from ._files import read_directory as read_checkpoint
from ._io import SidestepCheckpointIO
from ._metrics import SaveMetrics
from ._strategies import SidestepFSDPStrategy, SidestepModelParallelStrategy, SidestepSharded

__all__ = [
    "SaveAdapters",
    "SaveMetrics",
    "SidestepCheckpointIO",
    "SidestepFSDPStrategy",
    "SidestepModelParallelStrategy",
    "SidestepSharded",
    "read_checkpoint",
]

_patches.apply()
