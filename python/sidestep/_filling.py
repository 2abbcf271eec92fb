# SPDX-License-Identifier: BSD-3-Clause
"""How a `Checkpointer` fills a state from a checkpoint, and what it reports."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Optional

from ._c.abi import Status
from ._c.checked import a_flag, a_state, one_of
from ._c.errors import Error, make_error, reworded
from ._loaded import Loaded
from ._series import Series
from ._torch.flatten import Leaf, is_stateful

log = logging.getLogger("sidestep")


def check_request(state: Any, how: dict[str, Any]) -> None:
    """TypeError, ValueError: no checkpoint can fill ``state``, or not in this way.  Checked even if
    there is no checkpoint yet."""
    if not is_stateful(state):
        a_state(state, "state")
    for name in ("strict", "exact"):
        a_flag(how[name], name)
    one_of("cast", how["cast"], (None, "allow"))


def given_by(state: Any) -> Any:
    """What ``state`` gives to a save."""
    from ._torch.save import call_stateful

    if not is_stateful(state):
        return call_stateful(state)
    values = state.state_dict()
    a_state(values, f"what {type(state).__qualname__}.state_dict() returns")
    return values


def fill_from(series: Series, step: int, state: Any, *, rejected: str = "", **how: Any) -> Loaded:
    """Fill ``state``, a dict or one ``Stateful``, from the checkpoint of ``step``.  Collective.
    ``how``: strict, exact, verify and cast of `LoadOptions`."""
    from ._torch.load import LoadOptions, fill

    options = LoadOptions(optional=_optional(state), whole=is_stateful(state), complete=True, **how)
    loaded = fill(state, series.place_of(step), series.engine, options)
    return replace(loaded, step=step, rejected=rejected)


def resume(series: Series, state: Any, step: Optional[int], **how: Any) -> Optional[Loaded]:
    """Fill ``state`` from the checkpoint of ``step``, or from the newest valid one, and go on from
    there."""
    if step is None:
        return go_on(series, state, **how)
    return go_back(series, step, state, **how)


def go_back(series: Series, step: int, state: Any, **how: Any) -> Loaded:
    """Fill ``state`` like `fill_from`, and go on from there: newer checkpoints are left behind."""
    if series.is_per_node:  # then the parts are put together first
        series.load(_nothing(), step=step, verify="structure", partial=True)
        return fill_from(series, step, state, **how)
    loaded = fill_from(series, step, state, **how)
    series.load(_nothing(), step=step, verify="structure", partial=True)
    return loaded


def go_on(series: Series, state: Any, *, verify: str, **how: Any) -> Optional[Loaded]:
    """Fill ``state`` from the newest valid checkpoint, and go on from there; None: there is none.

    Collective.  A checkpoint in which "read" finds damage is set aside, and an older one is taken.
    """
    while True:
        try:
            choosing = "structure" if verify == "read" else verify  # it is checked when it is read
            found, _, rejected = series.load(_nothing(), verify=choosing, partial=True)
        except Error as error:
            if error.status == Status.ENOTFOUND:
                return None
            raise
        if rejected and series.engine.rank == 0:
            log.warning("resume from '%s': passed over: %s", series.loaded_path(found), rejected)
        try:
            reading = "structure" if verify == "structure" else "read"
            return fill_from(series, found, state, rejected=rejected, verify=reading, **how)
        except Error as error:
            if error.status != Status.ECORRUPT or verify == "before":
                raise
            log.warning("%s; looking for an older one", error)
            verify = "before"


def is_over_already(error: Error, path: str) -> Error:
    """The error of a last save by a run that has done no step since it resumed."""
    return reworded(
        error,
        f"{error.message}; call save(..., final=True) only at another step than resume() has "
        f"returned, and export what is there by sidestep.export('{path}', ...)",
    )


def agree_on_latest(series: Series, latest: Callable[[], Optional[str]]) -> int:
    """The step of the checkpoint that rank 0 chooses; the same on all ranks."""
    from ._torch.load import agreed

    engine = series.engine
    mine = 0  # the step + 1; 0: none
    with agreed(engine, series.root):
        path = latest() if engine.rank == 0 else None
        step = series.step_of(path) if path is not None else None
        mine = step + 1 if step is not None else 0
    chosen = engine.max_of(mine)
    if chosen == 0:
        raise make_error(f"there is no checkpoint in '{series.root}'", status=Status.ENOTFOUND)
    return chosen - 1


def _nothing() -> Any:
    """A state without tensors: loading it chooses a checkpoint, and reads nothing."""
    from ._torch.state import StateDict

    return StateDict([], for_load=True)


def _optional(state: Any) -> Callable[[Leaf], bool]:
    """A function that says which names a checkpoint may lack; each part of a state decides for its
    own names."""

    def may(leaf: Leaf) -> bool:
        part, name = state, leaf.name
        if not is_stateful(state):
            key = leaf.path[0]
            part, name = state[key], name[len(f"{key}.") :]
        return hasattr(part, "may_lack") and bool(part.may_lack(name))

    return may
