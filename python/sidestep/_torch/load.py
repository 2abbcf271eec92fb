# SPDX-License-Identifier: BSD-3-Clause
"""`load`: fills a state dict in place from a checkpoint.

The state and the checkpoint are checked before the first byte of a tensor is written, and all ranks
learn of a failure on one.  The library writes directly into tensors in host memory that have the
stored dtype.  All others (another dtype, on a device, lazy conjugates) are filled through a host
tensor of the stored dtype and ``copy_()``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union

from .._c.abi import Status
from .._c.checked import a_state
from .._c.errors import Error, make_error
from .._checkpoint import Checkpoint, Saved
from .._engine import Engine, engine_for
from .._loaded import Cast, Loaded, cast_of, listed, spelled
from .._modes import as_the_caller, without_modes
from .collecting import no_collection
from .flatten import Leaf, drop_leaf, flatten, flatten_as_2_3, is_stateful, set_leaf
from .missing import missing_error
from .objects import decode
from .parts import Asking, Part, parts_of, told
from .plugins import Reader
from .shards import Piece, Shards, is_loadable, shards_of
from .state import StateDict
from .stock import Ours, Stock, call_stock, failures_as_errors, load_route, takes_storage_second
from .targets import Target, copy_to_targets, dtype_of, materialize, memory_of
from .tensor_classes import check_fit, is_pickled, is_subclass, kind_of, put

if TYPE_CHECKING:
    pass

logger = logging.getLogger("sidestep")

_MANY = 1 << 48  # more than a checkpoint has names


@without_modes
@takes_storage_second
def load(
    state_dict: MutableMapping[Any, Any],
    *,
    checkpoint_id: Union[str, os.PathLike[str], None] = None,
    storage_reader: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> Optional[Loaded]:
    """Fill ``state_dict`` in place from a checkpoint, ours or torch's, saved by any number of ranks
    in any sharding.  Collective over ``process_group`` (None: the default group, if any).

    The arguments are those of ``torch.distributed.checkpoint.load``:

    state_dict      what to load.  Tensors, DTensors and ShardedTensors are written into; other
                    values are replaced.  Of a ``Stateful``, ``state_dict()`` is filled and given to
                    ``load_state_dict()``.  Meta tensors get memory
    checkpoint_id   path of the checkpoint
    storage_reader  `Reader`, or torch's FileSystemReader; any other goes through torch's own load
    planner         DefaultLoadPlanner with its options; any other plans through torch
    no_dist         this process alone, even if there is a process group

    Shapes must match; values are converted to the dtype of the state as ``copy_()`` does.  Names
    that only the checkpoint has are ignored.  Returns what was done, by name; None if torch's own
    load did it.  One warning names the tensors that were converted to a narrower dtype, and one the
    tensors of floating point that nothing filled (with ``allow_partial_load``).

    Errors: `Error` (also torch's CheckpointException), on every rank: EMISMATCH for a missing name
    or another shape, ENOTFOUND, EUNCOMMITTED, ECORRUPT, EUNSAFE for an object that is more than
    data, EIO.  Except for ECORRUPT and EIO, the state is unchanged then.
    """
    route = load_route(checkpoint_id, storage_reader, planner)
    if not isinstance(route, Ours) or route.planner is not None:
        from . import originals

        errors: AbstractContextManager[None] = nullcontext()
        if isinstance(route, Ours):
            checkpoint_id = None
            storage_reader = Reader(route.path, allow_pickle=route.allow_pickle)
            errors = failures_as_errors(f"load '{route.path}'")
            route = Stock(f"the planner is a {type(planner).__qualname__}")
        with errors:
            call_stock(
                originals.load,
                route,
                state_dict,
                checkpoint_id=checkpoint_id,
                storage_reader=storage_reader,
                planner=planner,
                process_group=process_group,
                no_dist=no_dist,
            )
        return None
    options = LoadOptions(
        partial=route.partial, nested=route.nested, allow_pickle=route.allow_pickle
    )
    return fill(state_dict, route.path, engine_for(process_group, no_dist=no_dist), options)


@dataclass(frozen=True)
class LoadOptions:
    """How a load fills a state.

    partial   missing names are left as they are, and reported
    nested    dicts and lists are flattened; else each top-level value is one tensor or object
    optional  says which single leaves may be missing; ``load_state_dict`` does not get those.
              The same holds then for an optimizer's state of a parameter that had none
    whole     the state is one ``Stateful``, and its names have no prefix; else it is a dict
    strict    False: missing and mismatched names are reported, and left as they are
    complete  names under those of the parts of a state that find no place in it are an error, too,
              if ``strict``; else a warning
    cast      "allow": tensors may be converted to a narrower dtype.  None: that is an error if
              ``complete`` and ``strict``; else a warning
    exact     names that this rank does not ask for are an error
    verify    as in `Engine.load`
    """

    partial: bool = False
    nested: bool = True
    allow_pickle: bool = False
    optional: Optional[Callable[[Leaf], bool]] = None
    whole: bool = False
    strict: bool = True
    complete: bool = False
    exact: bool = False
    verify: str = "read"
    cast: Optional[str] = None


def fill(state: Any, path: str, engine: Engine, options: LoadOptions) -> Loaded:
    """`load`, after the decision that sidestep does it."""
    with agreed(engine, path):
        values = _asked_whole(state) if options.whole else _asked(state)
        parts = parts_of(state, values, whole=options.whole) if options.nested else []
        with no_collection():
            filling = _Filling(values, parts, path, options)
    _check_places(filling, engine)
    loaded = _load_into(values, filling, engine)
    for sentence in filling.warnings():
        logger.log(
            logging.DEBUG if engine.rank else logging.WARNING, "load '%s': %s", path, sentence
        )
    with agreed(engine, path), as_the_caller():
        if options.whole:
            state.load_state_dict(values)
        else:
            _give_back(state, values)
    return loaded


def _asked(state: MutableMapping[Any, Any]) -> dict[Any, Any]:
    """The values to be filled.  All ranks use one order: state_dict() may be collective."""
    a_state(state)
    if not hasattr(state, "__setitem__"):
        raise TypeError(f"state_dict: a {type(state).__qualname__} cannot be filled in place")
    values = {}
    for key in sorted(state.keys(), key=str):
        value = state[key]
        values[key] = value.state_dict() if is_stateful(value) else value
    return values


def _asked_whole(state: Any) -> dict[Any, Any]:
    """The same for one ``Stateful``."""
    values = state.state_dict()
    a_state(values, f"what {type(state).__qualname__}.state_dict() returns")
    return dict(values)


def _give_back(state: MutableMapping[Any, Any], values: dict[Any, Any]) -> None:
    """Give the values to ``load_state_dict()``, in the same order."""
    for key, filled in values.items():
        if key not in state:
            continue
        if is_stateful(state[key]):
            state[key].load_state_dict(filled)
        else:
            state[key] = filled


def _load_into(state_dict: MutableMapping[Any, Any], filling: _Filling, engine: Engine) -> Loaded:
    """Load what was planned into ``state_dict``, which has no ``Stateful`` values.  Collective.

    Optional names that are missing are removed from it.
    """
    path, options = filling.path, filling.options
    with _told_to_all(engine, path):
        state = StateDict(filling.leaves, for_load=True)
    # Not partial: missing names are not requested.  Otherwise another save has come between.
    decoded: list[tuple[Leaf, Any]] = []
    report = engine.load(
        path,
        state,
        strict=options.exact,
        verify=options.verify,
        check_objects=lambda: decoded.extend(filling.decode_objects(state)),
    )
    if report.unexpected:
        names, count = listed(report.unexpected), len(report.unexpected)
        logger.debug("load '%s': %d names not asked for: %s", path, count, names)
    with agreed(engine, path):
        copy_to_targets(filling.targets)
        objects = [(leaf.path, put(leaf.name, leaf.value, value)) for leaf, value in decoded]
    for where, value in objects:
        set_leaf(state_dict, where, value)
    for where in filling.lacking:
        drop_leaf(state_dict, where)
    unexpected = [name for name in report.unexpected if name not in filling.mismatched]
    return filling.loaded(unexpected)


def _check_places(filling: _Filling, engine: Engine) -> None:
    """Names of the parts that no rank asks for are an error, or a warning.  Collective; all ranks
    find the same."""
    lost, count = filling.lost, len(filling.saved)
    if engine.size > 1:
        most, names, fewest = engine.maxima([len(lost), count, _MANY - count])
        if names != _MANY - fewest:
            raise make_error(
                f"load '{filling.path}': the checkpoint was replaced during the load",
                status=Status.EMISMATCH,
            )
        if most:
            mine = {
                **dict.fromkeys(lost, 1),
                **{leaf.name: 2 for leaf in filling.leaves},
                **{leaf.name: 2 for leaf, _ in filling.pickled},
            }
            words = engine.maxima([mine.get(name, 0) for name in filling.saved])
            lost = [name for name, word in zip(filling.saved, words) if word == 1]
    if not lost:
        return
    sentence = told(filling.path, lost, filling.parts)
    if filling.options.complete and filling.options.strict:
        raise make_error(
            f"{sentence}.  Nothing was changed; strict=False leaves them out",
            status=Status.EMISMATCH,
            tensor=lost[0],
        )
    if engine.rank == 0:
        logger.warning("%s.  They were left out", sentence)


@contextmanager
def _told_to_all(engine: Engine, path: str) -> Iterator[None]:
    """A failure inside, on this rank, fails the load of all ranks, which are about to begin it."""
    try:
        yield
    except BaseException as failure:
        _tell(engine, path, failure)
        raise


@contextmanager
def agreed(engine: Engine, path: str, kind: type[BaseException] = BaseException) -> Iterator[None]:
    """A failure inside on one rank becomes an error on all ranks, which names that rank.  Only for
    exceptions of this ``kind``.  Collective."""
    failed: Optional[BaseException] = None
    try:
        yield
    except kind as failure:
        failed = failure
    agree(engine, path, failed)


def _tell(engine: Engine, path: str, failure: BaseException) -> None:
    """Make every other rank fail with this rank's ``failure``; the caller raises it here."""
    try:
        engine.load(path, None, failure=failure)
    except Exception as told:
        if told is not failure:
            logger.debug("load '%s': %s", path, told)


def agree(engine: Engine, path: str, failed: Optional[BaseException]) -> None:
    """Collective.  Raises ``failed`` here, and an error that names this rank on all others."""
    if engine.any_rank(failed is not None):
        if failed is None:
            engine.load(path, StateDict([], for_load=True))
        else:
            _tell(engine, path, failed)
    if failed is not None:
        raise failed


# ---------------------------------------------------------------- one load on this rank


class _Mismatch(Exception):
    """A saved tensor does not fit into the state.  ``error``: what a strict load raises."""

    def __init__(self, name: str, message: str, short: str) -> None:
        super().__init__(short)
        self.error = make_error(message, status=Status.EMISMATCH, tensor=name)


class _Filling:
    """Which parts of a state dict are filled from a checkpoint, and how."""

    def __init__(
        self, state: MutableMapping[Any, Any], parts: list[Part], path: str, options: LoadOptions
    ) -> None:
        self.path = path
        self.options = options
        self.parts = parts
        self.mismatched: dict[str, str] = {}  # what was saved and what is wanted, by name
        self.cast: dict[str, Cast] = {}
        self.bytes: dict[str, int] = {}  # as of `Loaded`
        self.leaves: list[Leaf] = []
        self.objects: list[Leaf] = []
        self.pickled: list[tuple[Leaf, Any]] = []  # torch stores them as tensors
        self.targets: list[Target] = []
        leaves = flatten(state, nested=options.nested)
        materialize(state, leaves)
        with Checkpoint(path) as checkpoint:
            if options.nested:
                leaves = _by_the_rule_of(checkpoint, state, leaves)
            asking = Asking(state, leaves, parts, checkpoint)
            leaves, self.saved, self.lost = asking.leaves, asking.saved, asking.lost()
            lacks = [leaf for leaf in leaves if not self._take(leaf, checkpoint)]
            lacks = self._without_tied(leaves, lacks)
            self._refuse_narrow()
            self.missing = [leaf.name for leaf in lacks]
            allowed = {leaf.name: leaf.path for leaf in lacks if self._may_lack(leaf, asking)}
            useless = (asking.added_at(leaf) for leaf in leaves if leaf.name in self.mismatched)
            self.lacking = {*allowed.values(), *(path for path in useless if path is not None)}
            missing = [name for name in self.missing if name not in allowed]
            if missing and options.strict and not options.partial:
                raise missing_error(path, missing, checkpoint.names(), state.keys())
            asked = {leaf.name for leaf in leaves}
            for name in self.saved:
                if name not in asked:
                    self.bytes[name] = getattr(checkpoint.find(name), "bytes", 0)
        self.read = sorted({leaf.name for leaf in leaves} - {*self.missing, *self.mismatched})
        left = {*missing, *self.mismatched}
        self.left = [leaf for leaf in leaves if leaf.name in left and not asking.added_at(leaf)]
        self.bytes.update((leaf.name, _local_bytes(leaf)) for leaf in lacks + self.left)
        if missing:
            logger.debug("load '%s': %d names are missing: %s", path, len(missing), listed(missing))

    def _refuse_narrow(self) -> None:
        """Error: tensors would be converted to a narrower dtype, where that is not allowed."""
        narrow = self._narrow()
        if narrow and self.options.complete and self.options.strict and not self.options.cast:
            raise make_error(
                f"load '{self.path}': tensors would lose precision or range, by a narrower dtype: "
                f'{spelled(narrow)}.  Nothing was changed; cast="allow" converts them',
                status=Status.EMISMATCH,
                tensor=next(iter(narrow)),
            )

    def _narrow(self) -> dict[str, Cast]:
        return {name: cast for name, cast in self.cast.items() if cast.narrows}

    def warnings(self) -> Iterator[str]:
        """What a user has to know of a load that has succeeded."""
        narrow = {} if self.options.cast else self._narrow()
        if narrow:
            yield f"tensors were converted to a narrower dtype: {spelled(narrow)}"
        floats = [leaf.name for leaf in self.left if _is_float(leaf.value)]
        if floats:
            yield f"nothing filled these tensors, which are as they were: {listed(floats)}"

    def loaded(self, unexpected: list[str]) -> Loaded:
        """The result, after the load."""
        for target in self.targets:
            had = self.bytes.get(target.name, 0)
            self.bytes[target.name] = had + target.source.numel() * target.source.itemsize
        missing, mismatched = sorted(self.missing), sorted(self.mismatched.values())
        sizes = {name: self.bytes.get(name, 0) for name in [*self.read, *self.bytes]}
        return Loaded(
            -1, self.path, missing, unexpected, mismatched, "", self.read, self.cast, sizes
        )

    def _may_lack(self, leaf: Leaf, asking: Asking) -> bool:
        optional = self.options.optional
        return optional is not None and (optional(leaf) or asking.has_no_state(leaf))

    def _take(self, leaf: Leaf, checkpoint: Checkpoint) -> bool:
        """Plan one leaf; False if the checkpoint does not have it."""
        import torch

        saved = checkpoint.find(leaf.name)
        if saved is None:
            return False
        if saved.is_object:
            self.objects.append(leaf)
            leaf = Leaf(leaf.name, leaf.path, None)
        elif isinstance(leaf.value, torch.Tensor) and is_pickled(leaf.value):
            self.pickled.append((leaf, self._as_torch_stored(leaf, checkpoint)))
            return True
        elif is_subclass(leaf.value) and self._take_as_torch_stored(leaf, checkpoint):
            return True
        else:
            try:
                leaf = Leaf(leaf.name, leaf.path, self._shards(leaf, saved))
            except _Mismatch as mismatch:
                if self.options.strict:
                    raise mismatch.error from None
                self.mismatched[leaf.name] = f"{leaf.name}: {mismatch}"
                return True
        self.leaves.append(leaf)
        return True

    def _without_tied(self, leaves: list[Leaf], lacks: list[Leaf]) -> list[Leaf]:
        """``lacks`` without tensors in the memory of one that is filled: a tied head, say, which
        other programs save once."""
        if not lacks:
            return lacks
        without = {leaf.name for leaf in lacks} | self.mismatched.keys()
        filled = {memory_of(leaf): leaf.name for leaf in leaves if leaf.name not in without}
        rest = []
        for leaf in lacks:
            memory = memory_of(leaf)
            if memory is None or memory not in filled:
                rest.append(leaf)
                continue
            same = filled[memory]
            logger.debug(
                "load '%s': it lacks %s, which is the same memory as %s", self.path, leaf.name, same
            )
        return rest

    def _shards(self, leaf: Leaf, saved: Saved) -> Shards:
        """Where the library is to put a tensor."""
        import torch

        shards = shards_of(leaf.name, leaf.value, for_load=True)
        was = f"saved {saved.dtype} {list(saved.shape)}"
        if shards is None:
            raise _Mismatch(
                leaf.name,
                f"load '{self.path}': Invalid checkpoint metadata for {leaf.name}, expected "
                "BytesStorageMetadata but found <class 'torch.distributed.checkpoint.metadata."
                "TensorStorageMetadata'>: the "
                f"state has a {type(leaf.value).__qualname__} where the checkpoint has a tensor",
                f"{was}, wanted a {type(leaf.value).__qualname__}",
            )
        if tuple(shards.shape) != saved.shape:
            wanted = str(leaf.value.dtype).rpartition(".")[2]
            raise _Mismatch(
                leaf.name,
                f"load '{self.path}': Size mismatch between saved {torch.Size(saved.shape)} "
                f"and current: {torch.Size(shards.shape)} for {leaf.name}",
                f"{was}, wanted {wanted} {list(shards.shape)}",
            )
        dtype = dtype_of(leaf.name, saved.dtype)
        if leaf.value.dtype != dtype:
            self.cast[leaf.name] = cast_of(dtype, leaf.value.dtype)
        pieces = []
        for piece in shards.pieces:
            target = piece.tensor.detach()
            source = target
            if target.dtype != dtype or not is_loadable(target):
                source = torch.empty(target.shape, dtype=dtype)
            self.targets.append(Target(leaf.name, target, source))
            pieces.append(Piece(piece.offsets, piece.lengths, source))
        return Shards(saved.shape, dtype, pieces)

    def _take_as_torch_stored(self, leaf: Leaf, checkpoint: Checkpoint) -> bool:
        """Take what torch stores by its class; False: the library can read it."""
        try:
            self.pickled.append((leaf, self._as_torch_stored(leaf, checkpoint)))
        except Error as problem:
            if problem.status != Status.EMISMATCH:
                raise
            return False
        return True

    def _as_torch_stored(self, leaf: Leaf, checkpoint: Checkpoint) -> Any:
        """The value of a tensor of the checkpoint, for one without one strided memory."""
        try:
            stored = checkpoint.stored(leaf.name)
        except Error as problem:
            if problem.status != Status.EINVAL:
                raise
            raise make_error(
                f"load '{self.path}': '{leaf.name}' is a plain tensor in the checkpoint, and "
                f"{kind_of(leaf.value)} in the state; load into a plain tensor",
                status=Status.EMISMATCH,
                tensor=leaf.name,
            ) from problem
        return decode(leaf.name, stored, allow_pickle=self.options.allow_pickle)

    def decode_objects(self, state: StateDict) -> list[tuple[Leaf, Any]]:
        """The loaded objects, with their places in the state.  Errors: what is not data, or does
        not fit."""
        loaded = []
        for leaf in self.objects:
            stored = state.stored(leaf.name)
            assert stored is not None, leaf.name  # else the load had failed
            self.bytes[leaf.name] = len(stored)
            value = decode(leaf.name, stored, allow_pickle=self.options.allow_pickle)
            loaded.append((leaf, value))
        loaded += self.pickled
        for leaf, value in loaded:
            check_fit(leaf.name, leaf.value, value)
        return loaded


def _local_bytes(leaf: Leaf) -> int:
    """Of what this rank has of a tensor; 0 for an object."""
    shards = shards_of(leaf.name, leaf.value, for_load=True)
    pieces = [] if shards is None else shards.pieces
    return sum(piece.tensor.numel() * piece.tensor.itemsize for piece in pieces)


def _is_float(value: Any) -> bool:
    return bool(getattr(getattr(value, "dtype", None), "is_floating_point", False))


def _by_the_rule_of(
    checkpoint: Checkpoint, state: MutableMapping[Any, Any], leaves: list[Leaf]
) -> list[Leaf]:
    """``leaves``, by the names of torch before 2.4 if the checkpoint has those."""
    names = {leaf.name for leaf in leaves}
    unknown = [name for name in checkpoint.names() if name not in names]
    if not unknown:
        return leaves
    old = flatten_as_2_3(state)
    return old if not {leaf.name for leaf in old}.isdisjoint(unknown) else leaves
