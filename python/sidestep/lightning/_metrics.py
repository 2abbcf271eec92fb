# SPDX-License-Identifier: BSD-3-Clause
"""`SaveMetrics`: what saves cost, in the logger of the trainer."""

from __future__ import annotations

from typing import Any

from .._metrics import Costs
from ._modules import of_pytorch

_Callback: Any = of_pytorch("callbacks").Callback


class SaveMetrics(_Callback):
    """``Trainer(callbacks=[SaveMetrics()])``: ``sidestep/stall_ms``, ``sidestep/background_s`` and
    ``sidestep/bytes`` of each save, at the step that was saved, once it is committed.

    They go to whatever logger the trainer has: TensorBoard, Weights & Biases, MLflow, CSV.
    """

    def __init__(self) -> None:
        super().__init__()
        self._costs = Costs()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Log the saves that have ended meanwhile."""
        self._log(trainer)

    def on_fit_end(self, trainer: Any, *_: Any) -> None:
        """Log those that have ended since the last batch."""
        self._log(trainer)

    def _log(self, trainer: Any) -> None:
        rotation = getattr(trainer.strategy, "rotation", None)
        if rotation is None:
            rotation = getattr(trainer.strategy.checkpoint_io, "rotation", None)
        if rotation is None or not trainer.is_global_zero:
            return
        for step, values in self._costs.of(rotation.recent()):
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step)
