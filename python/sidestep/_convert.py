# SPDX-License-Identifier: BSD-3-Clause
"""What is at one path, to another, in another format: the library's conversion."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from . import _abi
from ._cancel import run_cancellable
from ._checked import MAX_STEP, a_count, a_function, a_path, a_text, one_of, some_texts
from ._library import lib

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("sidestep")

PathLike = Union[str, "os.PathLike[str]"]

_FORMATS = {kind.name[len("FORMAT_") :].lower(): kind for kind in _abi.Format}
_OBJECTS = {kind.name[len("OBJECTS_") :].lower(): kind for kind in _abi.Objects}
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20}
_UNITS["GIB"] = 1 << 30


@dataclass(frozen=True)
class Converted:
    """What a conversion made."""

    source_format: str
    """``"sidestep"``, ``"dcp"``, ``"safetensors"`` or ``"torch"``."""
    format: str
    """``"dcp"``, ``"safetensors"``, ``"torch"`` or ``"npz"``."""
    tensors: int
    objects: int
    bytes: int
    """Of the tensors, in the destination."""
    files: tuple[str, ...]
    """Of the destination; those of a checkpoint are not listed."""
    left_out: tuple[str, ...]
    """Names of objects that are not in the destination."""
    aside: Optional[str]
    """The file that has them, with ``objects="aside"``."""
    overflows: tuple[str, ...]
    """``"NAME: COUNT"``: elements that became infinite or NaN by the conversion to ``dtype``."""
    lost: tuple[str, ...]
    """``"NAME: REASON"``: what is damaged, and so left out, with ``partial=True``."""
    bytes_read: int
    """From the files of the source, what describes the tensors not counted."""


def size_of(text: Union[int, str]) -> int:
    """``5_000_000_000`` or ``"5GB"`` as a number of bytes.  ValueError, TypeError if it is none."""
    if not isinstance(text, str):
        return a_count(text, "max_shard_size", most=MAX_STEP)
    word = text.strip().upper().replace(" ", "")
    digits = word.rstrip("KMGTIB")
    unit = word[len(digits) :]
    if unit not in _UNITS or not digits.isdigit():
        raise ValueError(f"{text!r} is no size, as '5GB' is")
    return int(digits) * _UNITS[unit]


def convert(
    source: PathLike,
    destination: PathLike,
    *,
    to: Optional[Literal["dcp", "safetensors", "torch", "npz"]] = None,
    model_only: bool = False,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    rename: Iterable[str] = (),
    mapping: Optional[PathLike] = None,
    dtype: Union[torch.dtype, str, None] = None,
    objects: Literal["refuse", "skip", "aside"] = "refuse",
    max_shard_size: Union[int, str] = "5GB",
    ranks: int = 1,
    compress: Optional[str] = None,
    threads: int = 0,
    partial: bool = False,
    replace: bool = False,
    dry_run: bool = False,
    progress: Optional[Callable[[int, int], None]] = None,
) -> Converted:
    """Write what is at ``source`` to ``destination`` in another format, or in the same with other
    names, dtypes or files.  By this process alone, in pieces, without torch.

    source          a checkpoint (ours or torch's), a file of safetensors, a directory of them, or a
                    file of ``torch.save()``; nothing in it is executed
    to              None: by the name of ``destination``: .safetensors, .npz, .pt, .pth and .bin are
                    files; else a directory: safetensors if ``source`` is a checkpoint, and a
                    checkpoint ("dcp") if it is not, or with ``partial``
    model_only      only the weights: the dict at the top that is called model, model_state_dict,
                    state_dict, module or app.model, without its name; or, where there is none, all
                    that is not the state of optimizers, schedulers, data loaders ...
    include         patterns with ``*``, ``?`` and ``[...]``; none: all names
    exclude         the same
    rename          ``"s/PATTERN/REPLACEMENT/"``, as of sed with extended regular expressions
    mapping         a file with a JSON object of old and new names
    dtype           floating-point tensors are converted to it
    objects         what becomes of those that the format cannot hold: "aside" puts them into
                    objects.pt in the directory, or DESTINATION.objects.pt
    max_shard_size  of a file in a directory of safetensors
    ranks           of a checkpoint: as if so many had saved it
    compress        of a checkpoint: None, "none", "zstd", "zstd:LEVEL", "planes", or "auto", which
                    is planes here
    partial         of a damaged checkpoint: all that can be read and passes verification, which
                    comes first; what does not is in ``lost`` of the result
    replace         what is at ``destination``, if it is what a conversion makes
    dry_run         only say what there would be
    progress        called with bytes that are done, and all; from any thread, one at a time

    ``destination`` is there, whole and durable, when this returns, or not at all.

    Errors: `Error`: EEXISTS, EUNSUPPORTED for what the format cannot hold, EMISMATCH if nothing is
    selected, EINVAL, ENOSPC, EIO, and those of `sidestep.read`.  An interrupt (KeyboardInterrupt)
    stops it, and nothing is left.
    """
    a_function(progress, "progress")
    options, kept = _options(to, objects, dtype, include, exclude, rename, progress)
    options.flags = (
        _abi.CONVERT_REPLACE * bool(replace)
        | _abi.CONVERT_MODEL_ONLY * bool(model_only)
        | _abi.CONVERT_DRY_RUN * bool(dry_run)
        | _abi.CONVERT_PARTIAL * bool(partial)
    )
    options.mapping = None if mapping is None else os.fsencode(a_path(mapping, "mapping"))
    options.compress = None if compress is None else a_text(compress, "compress")
    options.max_shard_bytes = size_of(max_shard_size)
    options.ranks, options.threads = a_count(ranks, "ranks"), a_count(threads, "threads")
    report = _abi.ConvertReport()
    places = a_path(source, "source"), a_path(destination, "destination")
    _run(os.fsencode(places[0]), os.fsencode(places[1]), options, report)
    del kept
    try:
        return _converted(report)
    finally:
        lib().sidestep_convert_report_release(ctypes.byref(report))


def _options(
    to: Optional[str],
    objects: str,
    dtype: Union[torch.dtype, str, None],
    include: Iterable[str],
    exclude: Iterable[str],
    rename: Iterable[str],
    progress: Optional[Callable[[int, int], None]],
) -> tuple[Any, list[Any]]:
    """The options, and what must live as long."""
    options = _abi.sized(_abi.ConvertOptions)
    kept: list[Any] = []
    one_of("to", to, (None, *_FORMATS))
    options.to = _FORMATS[to or "auto"]
    options.objects = _OBJECTS[one_of("objects", objects, _OBJECTS)]
    if dtype is not None:
        name = str(dtype).rpartition(".")[2].upper()
        if name not in _abi.Dtype.__members__:
            raise ValueError(f"dtype={dtype!r} is no dtype of torch's")
        options.dtype = _abi.Dtype[name]
    for field, texts in (("include", include), ("exclude", exclude), ("rename", rename)):
        array = some_texts(texts, field)
        setattr(options, field, (ctypes.c_char_p * max(len(array), 1))(*array))
        setattr(options, f"{field}_count", len(array))
    if progress is not None:

        def tell(context: Optional[int], done: int, total: int) -> None:
            try:
                progress(done, total)
            except Exception:
                logger.exception("the progress callback failed")

        options.on_progress = _abi.OnProgress(tell)
        kept.append(options.on_progress)
    return options, kept


def _run(source: bytes, destination: bytes, options: Any, report: Any) -> None:
    try:
        run_cancellable(
            "sidestep-convert",
            options,
            lambda err: lib().sidestep_convert(
                source, destination, ctypes.byref(options), ctypes.byref(report), err
            ),
        )
    except BaseException:
        lib().sidestep_convert_report_release(ctypes.byref(report))
        raise


def _texts(array: Any, count: int) -> tuple[str, ...]:
    return tuple(os.fsdecode(array[i]) for i in range(count))


def _converted(report: Any) -> Converted:
    return Converted(
        os.fsdecode(getattr(report, "from") or b""),
        os.fsdecode(report.to or b""),
        report.tensor_count,
        report.object_count,
        report.tensor_bytes,
        _texts(report.files, report.file_count),
        _texts(report.left_out, report.left_out_count),
        None if report.aside is None else os.fsdecode(report.aside),
        _texts(report.overflows, report.overflow_count),
        _texts(report.lost, report.lost_count),
        report.bytes_read,
    )
