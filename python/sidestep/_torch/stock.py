# SPDX-License-Identifier: BSD-3-Clause
"""Decides from the arguments of a save or a load whether sidestep or stock torch does it.

torch's own writers, readers, planners and stagers only carry options, which sidestep takes over.
This holds only for exactly these classes.  A subclass may do anything, so stock torch must call it.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Optional, TypeVar, Union, cast

from torch.distributed.checkpoint import default_planner, filesystem, staging
from torch.distributed.checkpoint.api import CheckpointException

from .._c.checked import a_flag, a_path
from .._c.errors import Error, make_error, status_of
from .._files import Files
from .._option_groups import SaveOptions
from .extension import compress_of, is_known
from .plugins import Reader, Writer

logger = logging.getLogger("sidestep")


@dataclass(frozen=True)
class Ours:
    """This library reads or writes ``path``.

    nested        dicts and lists are flattened (``flatten_state_dict``)
    planner       not None: a planner of another kind, which must be called
    For a save:
    no_replace    refuse to replace a checkpoint (``overwrite=False``)
    step          the training step to record
    files         small files that are saved with the state
    options       how it is saved
    For a load:
    partial       missing names are no error (``allow_partial_load``)
    allow_pickle  load also objects that only an executing unpickler can make
    """

    path: str
    nested: bool = True
    no_replace: bool = False
    step: Optional[int] = None
    files: Optional[Files] = None
    options: SaveOptions = field(default_factory=SaveOptions)
    partial: bool = False
    allow_pickle: bool = False
    planner: Any = None


@dataclass(frozen=True)
class Stock:
    """torch's own function does it, with the caller's arguments.

    writer  for a save: torch's writer, in place of one of ours that cannot do it
    """

    reason: str
    writer: Any = None


Route = Union[Ours, Stock]
CheckpointId = Optional[Union[str, "os.PathLike[str]"]]


# ---------------------------------------------------------------- saves


def save_route(
    checkpoint_id: CheckpointId,
    storage_writer: Any,
    planner: Any,
    use_collectives: bool = True,
    files: Optional[Files] = None,
    strict_objects: bool = False,
) -> Route:
    """Who does this save.  A writer that only carries options is reset, as torch does.

    Errors: RuntimeError if neither ``checkpoint_id`` nor ``storage_writer`` is given; ValueError if
    there are ``files`` or ``strict_objects``, and torch would do it.
    """
    route = _save_route(checkpoint_id, storage_writer, planner, use_collectives)
    asked = {"files": files is not None, "strict_objects": a_flag(strict_objects, "strict_objects")}
    names = ", ".join(name for name, is_given in asked.items() if is_given)
    if isinstance(route, Stock):
        if names:
            raise ValueError(f"{names}: torch does this save itself, without that: {route.reason}")
        return route
    strict = strict_objects or route.options.strict_objects
    return replace(
        route,
        files=route.files if files is None else files,
        options=replace(route.options, strict_objects=strict),
    )


def _save_route(
    checkpoint_id: CheckpointId, storage_writer: Any, planner: Any, use_collectives: bool
) -> Route:
    if not use_collectives:
        return Stock("use_collectives=False: each rank writes a checkpoint of its own")
    if storage_writer is None:
        route = _route_of_id(checkpoint_id)
    elif type(storage_writer) is Writer:
        _reset(storage_writer, checkpoint_id)
        route = _route_of_writer(storage_writer)
    elif type(storage_writer) is filesystem.FileSystemWriter:
        route = _route_of_stock_writer(storage_writer, checkpoint_id)
    else:
        _check_storage("storage_writer", storage_writer)
        route = Stock(f"storage_writer is a {_name_of(storage_writer)}")
    if planner is None or isinstance(route, Stock):
        return route
    if type(planner) is default_planner.DefaultSavePlanner:
        return replace(route, nested=planner.flatten_state_dict)
    return replace(route, planner=planner)


def _route_of_writer(writer: Writer) -> Route:
    if writer.extensions and writer.options.compress is None:
        stock = filesystem.FileSystemWriter(
            writer.path, overwrite=writer.overwrite, _extensions=writer.extensions
        )
        return Stock("Writer(_extensions=...)", stock)
    return Ours(
        writer.path,
        no_replace=not writer.overwrite,
        step=writer.step,
        files=writer.files,
        options=writer.options,
    )


def _route_of_stock_writer(writer: Any, checkpoint_id: CheckpointId) -> Route:
    if type(writer.fs) is not filesystem.FileSystem:
        return Stock(f"the FileSystemWriter writes to a {_name_of(writer.fs)}")
    extensions = getattr(getattr(writer, "transforms", None), "extensions", ())
    compress = compress_of(extensions)
    if extensions and compress is None:
        return Stock("FileSystemWriter(_extensions=...)")
    serialization = getattr(writer, "serialization_format", None)
    if serialization is not None and serialization.name != "TORCH_SAVE":
        return Stock(f"FileSystemWriter(serialization_format={serialization.name})")
    _reset(writer, checkpoint_id)
    return Ours(
        os.fspath(writer.path),
        no_replace=not getattr(writer, "overwrite", True),
        options=SaveOptions(compress=compress),
    )


def keeps_still(stager: Any) -> bool:
    """Whether ``stager`` only stands for a copy in host memory, which sidestep makes."""
    return type(stager) in _OWN_STAGERS


def stages_later(stager: Any) -> bool:
    """Whether torch returns an AsyncSaveResponse for this stager, not a Future."""
    return bool(getattr(getattr(stager, "_config", None), "use_async_staging", False))


_OWN_STAGERS = {
    type(None),
    filesystem.FileSystemWriter,
    getattr(staging, "DefaultStager", type(None)),  # from torch 2.8 on
    staging.BlockingAsyncStager,
}


# ---------------------------------------------------------------- loads


def load_route(checkpoint_id: CheckpointId, storage_reader: Any, planner: Any) -> Route:
    """Who does this load.  A reader that only carries a path is reset, as torch does.

    Errors: RuntimeError if neither ``checkpoint_id`` nor ``storage_reader`` is given.
    """
    if storage_reader is None:
        route = _route_of_id(checkpoint_id)
    elif type(storage_reader) is Reader:
        _reset(storage_reader, checkpoint_id)
        route = Ours(storage_reader.path, allow_pickle=storage_reader.allow_pickle)
    elif type(storage_reader) is filesystem.FileSystemReader:
        route = _route_of_stock_reader(storage_reader, checkpoint_id)
    else:
        _check_storage("storage_reader", storage_reader)
        route = Stock(f"storage_reader is a {_name_of(storage_reader)}")
    if isinstance(route, Stock):
        return route
    if _is_rank_local(route.path):
        return Stock("it was saved with use_collectives=False, one checkpoint for each rank")
    if planner is None:
        return route
    if type(planner) is default_planner.DefaultLoadPlanner:
        partial = bool(getattr(planner, "allow_partial_load", False))
        return replace(route, nested=planner.flatten_state_dict, partial=partial)
    return replace(route, planner=planner)


def _route_of_stock_reader(reader: Any, checkpoint_id: CheckpointId) -> Route:
    if type(reader.fs) is not filesystem.FileSystem:
        return Stock(f"the FileSystemReader reads from a {_name_of(reader.fs)}")
    registry = getattr(getattr(reader, "transforms", None), "extension_registry", None)
    if registry is not None and not is_known(registry):
        return Stock("FileSystemReader(_extension_registry=...)")
    _reset(reader, checkpoint_id)
    return Ours(os.fspath(reader.path))


def _is_rank_local(path: str) -> bool:
    return os.path.exists(os.path.join(path, "__0.metadata")) and not os.path.exists(
        os.path.join(path, ".metadata")
    )


# ---------------------------------------------------------------- both

Function = TypeVar("Function", bound=Callable[..., Any])


def takes_storage_second(function: Function) -> Function:
    """As in torch, the second positional argument may be the writer or the reader."""
    parameters = inspect.signature(function).parameters
    storage = "storage_writer" if "storage_writer" in parameters else "storage_reader"

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 2:
            if storage in kwargs:
                raise TypeError(f"{function.__name__}() got two values for '{storage}'")
            warnings.warn(
                f"The argument order of {function.__name__} has been changed; "
                f"give the second one as {storage}=",
                stacklevel=3,  # `without_modes` is between
            )
            state_dict, given = args
            return function(state_dict, **{**kwargs, storage: given})
        return function(*args, **kwargs)

    return cast(Function, checked)


def _route_of_id(checkpoint_id: CheckpointId) -> Route:
    if not checkpoint_id:
        raise RuntimeError(
            "`checkpoint_id` must be specified if storage_reader/storage_writer is None."
        )
    try:
        return Ours(a_path(checkpoint_id, "checkpoint_id"))
    except Error as refusal:  # a URL: torch's own storage may know it
        url = os.fsdecode(checkpoint_id)
        if "://" not in url:
            raise
        problem = _problem_of_url(url)
        if problem is not None:
            raise make_error(
                f"{refusal.message}; nor can torch's own storage: {problem}", status=refusal.status
            ) from None
        scheme = url.partition("://")[0]
        return Stock(
            f"checkpoint_id is a URL ({scheme}://), and sidestep knows only file systems and s3://"
        )


def _problem_of_url(url: str) -> Optional[str]:
    """Why torch cannot use this URL with fsspec; None: it can."""
    try:
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

        if FsspecWriter.validate_checkpoint_id(url):
            return None
    except Exception as problem:  # fsspec is missing, or what it needs for this scheme
        return f"{type(problem).__name__}: {problem}"
    return "fsspec does not know the scheme"


def _check_storage(argument: str, storage: Any) -> None:
    """TypeError: it is no writer or reader."""
    if not hasattr(storage, "reset"):
        raise TypeError(
            f"{argument}: a {_name_of(storage)} is not a storage; a path is checkpoint_id"
        )


def _reset(storage: Any, checkpoint_id: CheckpointId) -> None:
    if checkpoint_id is not None:
        storage.reset(checkpoint_id)


def _name_of(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


_told: set[str] = set()


def call_stock(
    function: Callable[..., Any], route: Stock, state_dict: Any, **arguments: Any
) -> Any:
    """torch's ``function``, after a line in the log: a warning the first time for each reason."""
    reason = route.reason
    if route.writer is not None:
        arguments["storage_writer"] = route.writer
    level = logging.DEBUG if reason in _told else logging.WARNING
    _told.add(reason)
    logger.log(level, "torch's own %s() is used: %s", function.__name__, reason)
    return function(state_dict, **known(function, **arguments))


_SAYS_NOTHING = {"async_stager": None, "no_dist": False, "use_collectives": True}


def known(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """``arguments`` without those that an older torch does not know, if they have no effect."""
    parameters = inspect.signature(function).parameters
    missing = object()
    return {
        name: value
        for name, value in arguments.items()
        if name in parameters or value is not _SAYS_NOTHING.get(name, missing)
    }


@contextmanager
def failures_as_errors(doing: str) -> Iterator[None]:
    """Inside, a failure of torch's plan exchange becomes an `Error` with the rank that failed."""
    try:
        yield
    except Error:
        raise
    except CheckpointException as told:
        # Ignore ranks that only report the failure of another rank.
        reasons = {r: pair for r, pair in told.failures.items() if not _was_told(r, pair[0])}
        rank = min(reasons or told.failures)
        reason = told.failures[rank][0]
        details: dict[str, Any] = {"status": status_of(reason)}
        if isinstance(reason, Error):
            details.update(errno=reason.errno, tensor=reason.tensor, file=reason.file)
        words = getattr(reason, "message", None) or f"{type(reason).__name__}: {reason}"
        message = f"{doing}: rank {rank}: {words.removeprefix(f'{doing}: ')}"
        raise make_error(message, rank=rank, failures=told.failures, **details) from told


def _was_told(rank: int, failure: BaseException) -> bool:
    return isinstance(failure, Error) and failure.rank not in (None, rank)
