# SPDX-License-Identifier: BSD-3-Clause
"""How a `Checkpointer` fills a state from one of its checkpoints, and what it says about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

from ._abi import Status
from ._errors import make_error
from ._flatten import is_stateful
from ._series import Series


@dataclass(frozen=True)
class Loaded:
    """What `Checkpointer.load` and `Checkpointer.resume` found.

    step        of the checkpoint
    path        of it
    missing     names in the state that the checkpoint lacks, as it was allowed to
    unexpected  names in the checkpoint that this rank did not ask for
    mismatched  "name: saved float32 [2,3], wanted float32 [3,3]"
    rejected    newer checkpoints that were passed over, and why; "" if there are none
    """

    step: int
    path: str
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)
    rejected: str = ""


def fill_from(series: Series, step: int, state: Any, *, rejected: str = "", **how: Any) -> Loaded:
    """Fill ``state``, a dict or one ``Stateful``, from the checkpoint of ``step``.  Collective.
    ``how``: strict, exact and verify of `_load.fill`."""
    from ._load import fill

    path = series.path_of(step)
    report = fill(
        state,
        path,
        engine=series.engine,
        optional=_optional(state),
        whole=is_stateful(state),
        **how,
    )
    return Loaded(step, path, report.missing, report.unexpected, report.mismatched, rejected)


def agree_on_latest(series: Series, latest: Callable[[], Optional[str]]) -> int:
    """The step of rank 0's choice, on all ranks."""
    from ._load import agree

    engine = series.engine
    mine = 0  # 1 above the step; 0: none
    failure: Optional[BaseException] = None
    try:
        path = latest() if engine.rank == 0 else None
        step = series.step_of(path) if path is not None else None
        mine = step + 1 if step is not None else 0
    except BaseException as reason:
        failure = reason
    agree(engine, series.root, failure)
    chosen = engine.max_of(mine)
    if chosen == 0:
        raise make_error(f"there is no checkpoint in '{series.root}'", status=Status.ENOTFOUND)
    return chosen - 1


def nothing() -> Any:
    """A state without any tensor: to choose a checkpoint is to load that."""
    from ._state import StateDict

    return StateDict([], for_load=True)


def _optional(state: Any) -> Callable[[str], bool]:
    """What a checkpoint may lack, if any part of the state says so."""

    def may(name: str) -> bool:
        parts = [state] if is_stateful(state) else state.values()
        return any(part.may_lack(name) for part in parts if hasattr(part, "may_lack"))

    return may
