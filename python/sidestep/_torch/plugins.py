# SPDX-License-Identifier: BSD-3-Clause
"""`Writer` and `Reader`: sidestep's files, durability and checks under torch's own save and load.

torch plans and asks the planner; the library then writes or reads what the plans say, in one call.
torch may save in a background thread or process, where the ranks cannot agree through its process
group.  So they agree through a key-value store, under a name that the coordinator makes for each
save and sends to all ranks with their plans.
"""

from __future__ import annotations

import io
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any, Optional, TypeVar, Union, cast

import torch
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from .._c.abi import Status
from .._c.checked import a_flag, a_number, a_path, a_step, absolute
from .._c.errors import Error
from .._checkpoint import Checkpoint
from .._comm import Comm, StoreComm
from .._engine import Engine, engine_alone
from .._files import Files, set_files
from .._handle import SaveHandle
from .._modes import without_modes
from .._option_groups import SaveOptions, save_options
from .._parents import make_parents
from . import objects as _objects
from .extension import compress_of
from .flatten import Index, Leaf
from .metadata import file_id, lazy_metadata, read_metadata
from .shards import Piece, Shards, copy_into, is_writable
from .state import StateDict

PathLike = Union[str, "os.PathLike[str]"]
logger = logging.getLogger("sidestep")
T = TypeVar("T")

if tuple(int(number) for number in torch.__version__.split(".")[:2]) < (2, 5):
    raise ImportError(
        f"sidestep needs torch 2.5 or later, and this is {torch.__version__}: it has DTensor "
        "elsewhere, so that FSDP2's tensors would not be known.  Files of this torch can be read "
        "with a later one, or with the command line 'sidestep'"
    )

POOL_BYTES = 128 << 20
"""Staging memory of a `Writer`: torch waits for it, so it need not hold the whole state."""


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


# ---------------------------------------------------------------- the agreement of the ranks


class _Ticket:
    """The place of one rank in one save: its ``index`` of ``count``, and the name of the save."""

    def __init__(self, key: str, index: int, count: int) -> None:
        self.key = key
        self.index = index
        self.count = count

    def __reduce__(self) -> Any:
        return _received, (self.key, self.index, self.count)


_last = threading.local()


def _received(key: str, index: int, count: int) -> _Ticket:
    """What a pickled ticket becomes.

    This thread remembers it as the last ticket.  A planner that caches plans drops the plan that
    came with it, and returns an old plan with the ticket of an earlier save.
    """
    _last.ticket = _Ticket(key, index, count)
    return _last.ticket  # type: ignore[no-any-return]


def _ticket_of(plan: SavePlan) -> _Ticket:
    ticket = vars(_last).pop("ticket", None) or plan.storage_data
    if not isinstance(ticket, _Ticket):
        raise Error(
            "sidestep.Writer got a plan that did not pass through its prepare_global_plan()",
            status=Status.EINVAL,
        )
    return ticket


class _AtPath:
    """The methods that torch calls on both a writer and a reader of a path."""

    path: str

    @property
    def checkpoint_id(self) -> PathLike:
        """The path."""
        return self.path

    def reset(self, checkpoint_id: Optional[PathLike] = None) -> None:
        """A new save or load begins, of another path if one is given."""
        if checkpoint_id:
            self.path = a_path(checkpoint_id, "checkpoint_id")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: PathLike) -> bool:
        """Any path, and ``s3://``; no other ``scheme://``."""
        try:
            a_path(checkpoint_id, "checkpoint_id")
        except (Error, TypeError, ValueError):
            return False
        return True


# ---------------------------------------------------------------- writer


class Writer(_AtPath, StorageWriter):
    """``storage_writer=`` of torch.distributed.checkpoint's save and async_save.

    path        the directory that becomes the checkpoint; missing parents are made
    overwrite   True: replace an existing checkpoint in one step; False: refuse it (EEXISTS)
    step        the training step to record, for ``sidestep ls``; None: none
    timeout     seconds after which a silent rank fails the save
    options     `SaveOptions`; not ``incremental``, which needs a `Checkpointer`
    files       small files that are saved with the state: as in `sidestep.save`
    _extensions torch's spelling: ``[ZStandard()]`` is "zstd", ``[Planes()]`` is "planes".  With any
                other, `sidestep.save` and `async_save` leave the save to torch

    It works in torch's background threads and processes, and it can be pickled.  The checkpoint
    exists as soon as the last rank has written: torch's own last step only looks at it.  Without
    collectives (``use_collectives=False``) the ranks cannot agree, and it refuses.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        overwrite: bool = True,
        step: Optional[int] = None,
        timeout: float = 600.0,
        options: Optional[SaveOptions] = None,
        files: Optional[Files] = None,
        _extensions: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        self.options = save_options(options)
        self.path = a_path(path, "path")
        self.files = files
        if _extensions:
            self.options = replace(self.options, compress=compress_of(_extensions))
        self.extensions = list(_extensions)
        self.overwrite = a_flag(overwrite, "overwrite")
        self.step = None if step is None else a_step(step)
        self.timeout = a_number(timeout, "timeout")
        self.save_id = uuid.uuid4().hex

    @without_modes
    def reset(self, checkpoint_id: Optional[PathLike] = None) -> None:
        """A new save begins, to another path if one is given."""
        super().reset(checkpoint_id)
        self.save_id = uuid.uuid4().hex

    @without_modes
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Refuse a save whose ranks do not communicate."""
        if not kwargs.get("use_collectives", True):
            raise Error(
                f"save '{self.path}': sidestep.Writer makes one checkpoint of all ranks; with "
                "use_collectives=False use torch's FileSystemWriter, or a path for each rank and "
                "no_dist=True",
                status=Status.EUNSUPPORTED,
            )

    def storage_meta(self) -> Optional[StorageMeta]:
        """The path, and torch's id of this save.  (The checkpoint also has an id of sidestep.)"""
        return StorageMeta(checkpoint_id=self.path, save_id=self.save_id)

    @without_modes
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Makes the directories above the path."""
        make_parents(self.path)
        return plan

    @without_modes
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Gives each rank its ticket.  Coordinator only."""
        key = uuid.uuid4().hex
        tickets = [_Ticket(key, index, len(plans)) for index in range(len(plans))]
        return [replace(plan, storage_data=ticket) for plan, ticket in zip(plans, tickets)]

    @without_modes
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the items of ``plan`` and commit, together with all other ranks."""
        if self.extensions and self.options.compress is None:
            raise Error(
                f"save '{self.path}': torch's own functions cannot write these _extensions through "
                "sidestep.Writer: use sidestep.save, or torch's FileSystemWriter",
                status=Status.EUNSUPPORTED,
            )
        with self._engine(plan) as engine:
            handle = start_save(
                engine,
                self.path,
                lambda: engine.states.get(
                    leaves_of_plan(plan, planner), strict_objects=self.options.strict_objects
                ),
                files=self.files,
                step=self.step,
                no_replace=not self.overwrite,
                compress=self.options.compress,
                spread_s=self.options.spread_s,
            )
            self._commit(handle)
        return _done([WriteResult(item.index, _size_of(item), None) for item in plan.items])

    def _engine(self, plan: SavePlan) -> AbstractContextManager[Engine]:
        ticket = _ticket_of(plan)
        comm = Comm()
        if ticket.count > 1:
            from torch.distributed.distributed_c10d import _get_default_store

            prefix = f"sidestep/{ticket.key}"
            store = _get_default_store()
            comm = StoreComm(store, ticket.index, ticket.count, prefix, self.timeout)
        return Engine(comm, pool_bytes=POOL_BYTES, ways=self.options.ways)

    def _commit(self, handle: SaveHandle) -> None:
        handle.result()

    @without_modes
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Record in ``metadata`` where everything was written.  Coordinator only."""
        written = read_metadata(self.path)
        missing = metadata.state_dict_metadata.keys() - written.state_dict_metadata.keys()
        if missing:
            raise Error(
                f"save '{self.path}': the checkpoint lacks '{min(missing)}', which the planner "
                "wanted; no rank had it in its plan",
                status=Status.EMISMATCH,
                tensor=min(missing),
            )
        _tell_of_extras(self.path, metadata)
        metadata.storage_data = written.storage_data
        metadata.storage_meta = self.storage_meta()
        if hasattr(metadata, "version"):
            metadata.version = getattr(written, "version", None)


class Launcher(Writer):
    """A `Writer` on the caller's thread, with the caller's ranks.  It starts the save in
    `write_data`; ``handle`` waits for it.

    ``failure``: why this rank cannot take part.  torch's plan exchange sends it to the others.
    """

    def __init__(
        self, path: str, engine: Engine, *, failure: Optional[BaseException] = None, **options: Any
    ) -> None:
        super().__init__(path, **options)
        self._bound = engine
        self._failure = failure
        self.handle: Optional[SaveHandle] = None

    def storage_meta(self) -> Optional[StorageMeta]:
        """torch calls this first."""
        if self._failure is not None:
            raise self._failure
        return super().storage_meta()

    def _engine(self, plan: SavePlan) -> AbstractContextManager[Engine]:
        return nullcontext(self._bound)

    def _commit(self, handle: SaveHandle) -> None:
        self.handle = handle

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Nothing is there yet."""
        _tell_of_extras(self.path, metadata)


def _size_of(item: Any) -> int:
    return item.tensor_storage_size() or 0 if hasattr(item, "tensor_storage_size") else 0


def _tell_of_extras(path: str, metadata: Metadata) -> None:
    """Warn about what a planner of another kind put into its Metadata: it is not stored."""
    known = {field.name for field in fields(Metadata)}
    extras = sorted(name for name in vars(metadata) if name not in known and name[0] != "_")
    data = metadata.planner_data
    if data is not None and not (
        isinstance(data, dict) and data.keys() <= metadata.state_dict_metadata.keys()
    ):
        extras.append("planner_data")
    if extras:
        logger.warning("save '%s': the planner's own %s is not stored", path, ", ".join(extras))


def start_save(
    engine: Engine,
    path: str,
    make_state: Callable[[], StateDict],
    *,
    files: Union[Files, Callable[[], Files], None] = None,
    **options: Any,
) -> SaveHandle:
    """Start the save of what ``make_state`` returns, with small files.  If that, or a function that
    returns the files, raises, the save fails on all ranks.

    Collective.  The handle's result is the ``Metadata`` of exactly this save.
    """
    try:
        state = make_state()
        set_files(state.pointer, files() if callable(files) else files)
    except BaseException as failure:
        engine.save_async(path, None, failure=failure)
        raise

    at = absolute(path)  # absolute: the working directory may change before the save ends

    def metadata() -> Metadata:
        return lazy_metadata(at, save_id=handle.progress().save_id)

    handle = engine.save_async(path, state, result=metadata, **options)
    return handle


def leaves_of_plan(plan: SavePlan, planner: SavePlanner) -> list[Leaf]:
    """The items of ``plan`` with their data, the items of one tensor together."""
    values: dict[str, Any] = {}
    for item in plan.items:
        name = item.index.fqn
        data = planner.resolve_data(item)
        if item.type == WriteItemType.BYTE_IO:
            values[name] = _objects.Stored(_bytes_of(data))
            continue
        assert item.tensor_data is not None
        chunk = item.tensor_data.chunk
        tensor = cast(torch.Tensor, data).detach()
        _check_shape(name, "data", tensor, chunk.sizes)
        shards = values.setdefault(name, Shards(tuple(item.tensor_data.size), tensor.dtype, []))
        shards.pieces.append(Piece(tuple(chunk.offsets), tuple(chunk.sizes), tensor))
    return [Leaf(name, _path_of(plan, name), value) for name, value in values.items()]


def _check_shape(name: str, what: str, tensor: Any, planned: Sequence[int]) -> None:
    if tuple(tensor.shape) != tuple(planned):
        shapes = f"has shape {list(tensor.shape)}, its plan says {list(planned)}"
        message = f"'{name}': the planner's {what} {shapes}"
        raise Error(message, status=Status.EMISMATCH, tensor=name)


def _bytes_of(data: Any) -> bytes:
    return data.getvalue() if isinstance(data, io.BytesIO) else bytes(data)


def _path_of(plan: SavePlan, name: str) -> tuple[Any, ...]:
    """The path that the default planner recorded, in which integers are indices of lists."""
    paths = plan.planner_data
    path = paths.get(name) if isinstance(paths, dict) else None
    if not isinstance(path, tuple) or ".".join(map(str, path)) != name:
        return (name,)
    return tuple(Index(key) if isinstance(key, int) else str(key) for key in path)


# ---------------------------------------------------------------- reader


class Reader(_AtPath, StorageReader):
    """``storage_reader=`` of torch's load.  Reads our checkpoints and torch's.

    Every byte that is read is checked.  ``allow_pickle``: load also objects that are more than
    data, which executes code from the checkpoint.  Without it they are refused by name (EUNSAFE).
    """

    def __init__(self, path: PathLike, *, allow_pickle: bool = False) -> None:
        super().__init__()
        self.path = a_path(path, "path")
        self.allow_pickle = a_flag(allow_pickle, "allow_pickle")
        self.load_id = uuid.uuid4().hex
        self._metadata: Optional[Metadata] = None
        self._file: Optional[tuple[int, ...]] = None  # that it was read from

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_metadata": None, "_file": None}

    @without_modes
    def reset(self, checkpoint_id: Optional[PathLike] = None) -> None:
        """A new load begins, of another path if one is given."""
        super().reset(checkpoint_id)
        self.load_id = uuid.uuid4().hex
        self._metadata = None
        self._file = None

    @without_modes
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint holds; nothing in it is executed."""
        self._file = file_id(self.path)
        metadata = read_metadata(self.path)
        if metadata.storage_meta is not None:
            metadata.storage_meta.load_id = self.load_id
        return metadata

    @without_modes
    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Keep ``metadata``."""
        self._metadata = metadata

    @without_modes
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Add the id of the save that this rank sees."""
        meta = getattr(self._metadata, "storage_meta", None)
        return replace(plan, storage_data=getattr(meta, "save_id", None))

    @without_modes
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans unchanged if all ranks see the same save.  Coordinator only."""
        if any(plan.storage_data != plans[0].storage_data for plan in plans):
            raise Error(
                f"'{self.path}' is not the same checkpoint on all ranks: was it replaced just now, "
                "or is it not on shared storage?",
                status=Status.EDISAGREE,
            )
        return plans

    @without_modes
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read all items of ``plan`` into the places that ``planner`` names."""
        objects = [item for item in plan.items if item.type == LoadItemType.BYTE_IO]
        if objects:
            self._read_objects(objects, planner)
        self._read_tensors([i for i in plan.items if i.type != LoadItemType.BYTE_IO], planner)
        # Objects and tensors are opened one after the other.
        if self._file is not None and file_id(self.path) != self._file:
            raise Error(
                f"load '{self.path}': another save has replaced it meanwhile; what was loaded may "
                "be of both",
                status=Status.EDISAGREE,
            )
        return _done(None)

    def _read_objects(self, items: Iterable[Any], planner: LoadPlanner) -> None:
        with Checkpoint(self.path) as checkpoint:
            for item in items:
                name = item.storage_index.fqn
                stored = checkpoint.stored(name)
                value = _objects.decode(name, stored, allow_pickle=self.allow_pickle)
                # The planner unpickles what it gets: a pickle of what was decoded safely.
                file = io.BytesIO()
                torch.save(value, file)
                file.seek(0)
                planner.load_bytes(item, file)

    def _read_tensors(self, items: list[Any], planner: LoadPlanner) -> None:
        shards: dict[str, Shards] = {}
        sources: dict[Any, torch.Tensor] = {}  # what the library fills, by name and box
        targets = [self._target(item, planner, shards, sources) for item in items]
        leaves = [Leaf(name, (name,), value) for name, value in shards.items()]
        if leaves:
            engine_alone().load(self.path, StateDict(leaves, for_load=True))
        for item, (target, source) in zip(items, targets):
            if target is not source:
                copy_into(target, source)
            planner.commit_tensor(item, target)

    def _target(self, item: Any, planner: LoadPlanner, shards: Any, sources: Any) -> Any:
        """(the planner's tensor, what the library fills for it: the same one where it can)."""
        name = item.storage_index.fqn
        assert self._metadata is not None
        saved: Any = self._metadata.state_dict_metadata[name]
        dtype = saved.properties.dtype
        base = item.storage_index.offset or (0,) * len(item.lengths)
        offsets = tuple(int(a) + int(b) for a, b in zip(base, item.storage_offsets))
        lengths = tuple(int(n) for n in item.lengths)
        target = planner.resolve_tensor(item).detach()
        _check_shape(name, "target", target, lengths)
        source = sources.get((name, offsets, lengths))
        if source is None:
            plain = type(target) in (torch.Tensor, torch.nn.Parameter)
            direct = plain and target.dtype == dtype and is_writable(target)
            source = target if direct else torch.empty(lengths, dtype=dtype)
            sources[name, offsets, lengths] = source
            box = shards.setdefault(name, Shards(tuple(saved.size), dtype, []))
            box.pieces.append(Piece(offsets, lengths, source))
        return target, source
