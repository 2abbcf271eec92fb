# SPDX-License-Identifier: BSD-3-Clause
"""`save` and `async_save`, with the arguments of torch.distributed.checkpoint's."""

from __future__ import annotations

import enum
import os
from collections.abc import Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Optional, Union, cast

import torch
from torch.distributed.checkpoint import state_dict_saver as stock
from torch.distributed.checkpoint.stateful import Stateful

from .._c.checked import a_state
from .._c.errors import Error
from .._engine import Engine, engine_for
from .._files import Files
from .._handle import SaveHandle
from .._modes import without_modes
from .._parents import make_parents
from . import originals
from .flatten import flatten
from .plugins import Launcher, start_save
from .state import StateDict
from .stock import (
    Ours,
    Stock,
    call_stock,
    failures_as_errors,
    keeps_still,
    known,
    save_route,
    stages_later,
    takes_storage_second,
)

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import SavePlanner
    from torch.distributed.checkpoint.staging import AsyncStager
    from torch.distributed.checkpoint.state_dict_saver import (
        AsyncCheckpointerType,
        AsyncSaveResponse,
    )
    from torch.distributed.checkpoint.storage import StorageWriter
elif hasattr(stock, "AsyncSaveResponse"):
    AsyncCheckpointerType = stock.AsyncCheckpointerType
    AsyncSaveResponse = stock.AsyncSaveResponse
else:  # torches before 2.8 have no stagers that stage later, and before 2.7 no second type

    class AsyncCheckpointerType(enum.Enum):
        """The same as in newer versions of torch."""

        THREAD = "thread"
        PROCESS = "process"

    AsyncCheckpointerType = getattr(stock, "AsyncCheckpointerType", AsyncCheckpointerType)
    AsyncSaveResponse = object


@without_modes
@takes_storage_second
def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Union[str, os.PathLike[str], None] = None,
    storage_writer: Optional[StorageWriter] = None,
    planner: Optional[SavePlanner] = None,
    process_group: Optional[ProcessGroup] = None,
    no_dist: bool = False,
    use_collectives: bool = True,
    files: Optional[Files] = None,
    strict_objects: bool = False,
) -> Metadata:
    """Save ``state_dict`` as the directory ``checkpoint_id``, and return when it is committed.

    Collective: every rank of ``process_group`` calls it with the same path.  The arguments are
    those of ``torch.distributed.checkpoint.save``; docs/PYTORCH.md says what each does here.

    files  small files that become a part of the checkpoint, by their names in it: contents as
           bytes, or a ``pathlib.Path`` that is copied in the call.  `read_file` reads one.  Ranks
           may give the same name only with the same contents
    strict_objects
           refuse objects that a load would refuse: Error (EUNSAFE).  Otherwise there is a warning

    Returns the checkpoint's ``Metadata``, which is read on first use.
    Errors: `sidestep.Error` on all ranks, which names the rank that failed.  If a ``state_dict()``
    raised, that rank gets its exception.  Then no checkpoint was made, and an older one is
    untouched.
    """
    route = save_route(
        checkpoint_id, storage_writer, planner, use_collectives, files, strict_objects
    )
    if isinstance(route, Stock):
        done = call_stock(
            originals.save,
            route,
            state_dict,
            checkpoint_id=checkpoint_id,
            storage_writer=storage_writer,
            planner=planner,
            process_group=process_group,
            no_dist=no_dist,
            use_collectives=use_collectives,
        )
        return cast("Metadata", done)
    handle = _start(state_dict, route, process_group, no_dist, still=True)
    return cast("Metadata", handle.result())


@without_modes
def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Union[str, os.PathLike[str], None] = None,
    storage_writer: Optional[StorageWriter] = None,
    planner: Optional[SavePlanner] = None,
    process_group: Optional[ProcessGroup] = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Optional[AsyncStager] = None,
    no_dist: bool = False,
    use_collectives: bool = True,
    files: Optional[Files] = None,
    strict_objects: bool = False,
) -> Union[SaveHandle, AsyncSaveResponse]:
    """Save ``state_dict`` in the background: returns when it may be modified again.

    The call is collective; the background uses no process group.  The arguments are those of
    ``torch.distributed.checkpoint.async_save``; ``files`` is that of `save`.

    Returns a `SaveHandle`, a ``concurrent.futures.Future`` of the ``Metadata``.  With a stager that
    stages later it returns an ``AsyncSaveResponse``, as torch does, whose ``upload_completion`` is
    the handle.  Errors: those of `save`.  The handle raises those of the background; if nobody asks
    it, the next call raises them.
    """
    route = save_route(
        checkpoint_id, storage_writer, planner, use_collectives, files, strict_objects
    )
    if isinstance(route, Stock):
        done = call_stock(
            originals.async_save,
            route,
            state_dict,
            checkpoint_id=checkpoint_id,
            storage_writer=storage_writer,
            planner=planner,
            process_group=process_group,
            async_checkpointer_type=async_checkpointer_type,
            async_stager=async_stager,
            no_dist=no_dist,
            use_collectives=use_collectives,
        )
        return cast("AsyncSaveResponse", done)
    if not keeps_still(async_stager) and not hasattr(async_stager, "stage"):
        raise TypeError(f"async_stager: a {type(async_stager).__qualname__} has no stage()")
    if keeps_still(async_stager):
        handle = _start(state_dict, route, process_group, no_dist)
        return SaveResponse(handle) if stages_later(async_stager) else handle
    stager = _Asked(async_stager)
    handle = _start(state_dict, route, process_group, no_dist, stager)
    return SaveResponse(handle) if stager.later else handle


class SaveResponse(AsyncSaveResponse):
    """torch's ``AsyncSaveResponse``, with all attributes of its `SaveHandle`."""

    def __init__(self, handle: SaveHandle) -> None:
        self.staging_completion = handle.staging_completion
        self.upload_completion = handle

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "upload_completion":
            raise AttributeError(name)
        return getattr(self.upload_completion, name)

    def __await__(self) -> Generator[Any, None, Any]:
        return self.upload_completion.__await__()  # type: ignore[no-any-return, attr-defined]


class _Asked:
    """A stager of the caller.  What it returns is saved."""

    def __init__(self, stager: Any) -> None:
        self._stager = stager
        self.later = False

    def stage(self, state_dict: dict[str, Any]) -> Any:
        """The staged state.  Waits for it: the ranks agree on the state before the return."""
        staged = self._stager.stage(state_dict)
        if isinstance(staged, Future):
            self.later = True
            return staged.result()
        if self._stager.should_synchronize_after_execute:
            self._stager.synchronize_staging()
        return staged


def _start(
    state_dict: Any,
    route: Ours,
    process_group: Any,
    no_dist: bool,
    stager: Optional[_Asked] = None,
    still: bool = False,
) -> SaveHandle:
    """Start the save.  A failure on this rank alone is reported to the others."""
    engine = engine_for(process_group, no_dist=no_dist, ways=route.options.ways)
    if route.planner is not None:
        return _start_planned(state_dict, route, engine, process_group, no_dist, stager)

    def state() -> StateDict:
        make_parents(route.path)
        values = call_stateful(state_dict)
        if stager is not None:
            values = stager.stage(values)
        leaves = flatten(values, nested=route.nested)
        return engine.states.get(leaves, strict_objects=route.options.strict_objects)

    return start_save(
        engine,
        route.path,
        state,
        files=route.files,
        step=route.step,
        no_replace=route.no_replace,
        compress=route.options.compress,
        spread_s=route.options.spread_s,
        still=still,
    )


def _start_planned(
    state_dict: Any,
    route: Ours,
    engine: Engine,
    process_group: Any,
    no_dist: bool,
    stager: Optional[_Asked],
) -> SaveHandle:
    """Start a save whose planner is not torch's own: torch calls it on this thread."""
    failure: Optional[BaseException] = None
    values: Any = {}
    try:
        values = call_stateful(state_dict)
        if stager is not None:
            values = stager.stage(values)
    except BaseException as reason:
        failure = reason
    writer = Launcher(
        route.path,
        engine,
        failure=failure,
        overwrite=not route.no_replace,
        step=route.step,
        options=route.options,
        files=route.files,
    )
    try:
        with failures_as_errors(f"save '{route.path}'"):
            originals.save(
                values,
                storage_writer=writer,
                planner=route.planner,
                **known(originals.save, process_group=process_group, no_dist=no_dist),
            )
    except Error:
        if failure is not None:
            raise failure from None
        raise
    return cast(SaveHandle, writer.handle)


# Nothing of these types has a state_dict(); asking a protocol takes microseconds for each.
_PLAIN = {torch.Tensor, torch.nn.Parameter, dict, list, tuple, int, float, str, bool, type(None)}


def call_stateful(state_dict: Any) -> dict[Any, Any]:
    """A shallow copy in which ``.state_dict()`` replaces each ``Stateful`` at the top level."""
    a_state(state_dict)
    return {
        key: value.state_dict()
        if type(value) not in _PLAIN and isinstance(value, Stateful)
        else value
        for key, value in state_dict.items()
    }
