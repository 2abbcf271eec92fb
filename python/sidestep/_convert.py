# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints in other formats: `convert`, and the exported last checkpoint of a run."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from ._c import abi
from ._c.calls import report_progress, run_cancellable, texts
from ._c.checked import (
    MAX_STEP,
    a_count,
    a_flag,
    a_function,
    a_path,
    a_text,
    one_of,
    some_texts,
    words_of,
)
from ._c.library import lib
from ._modes import without_modes

if TYPE_CHECKING:
    import torch


PathLike = Union[str, "os.PathLike[str]"]

_FORMATS, _OBJECTS = words_of(abi.Format, "FORMAT_"), words_of(abi.Objects, "OBJECTS_")
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20}
_UNITS["GIB"] = 1 << 30


@dataclass(frozen=True)
class Converted:
    """The result of a conversion.

    source_format  "sidestep", "dcp", "safetensors" or "torch"
    format         "dcp", "safetensors", "torch" or "npz"
    tensors        how many
    objects        how many
    bytes          of the tensors, in the destination
    files          of the destination; those of a checkpoint are not listed
    left_out       names of objects that are not in the destination
    overflows      "NAME: COUNT": elements that became infinite or NaN by the conversion to `dtype`
    narrowed       "NAME: float32 to bfloat16": tensors that got a dtype that lacks values of theirs
    lost           with ``partial=True``, "NAME: REASON": what was left out because it is damaged
    bytes_read     from the files of the source, without metadata
    """

    source_format: str
    format: str
    tensors: int
    objects: int
    bytes: int
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    overflows: tuple[str, ...]
    narrowed: tuple[str, ...]
    lost: tuple[str, ...]
    bytes_read: int


def size_of(text: Union[int, str]) -> int:
    """``5_000_000_000`` or ``"5GB"`` as a number of bytes.  ValueError, TypeError if it is none."""
    if not isinstance(text, str):
        return a_count(text, "max_shard_size", most=MAX_STEP)
    word = text.strip().upper().replace(" ", "")
    digits = word.rstrip("KMGTIB")
    unit = word[len(digits) :]
    if unit not in _UNITS or not digits.isdigit():
        raise ValueError(f"{text!r} is not a size, as '5GB' is")
    return int(digits) * _UNITS[unit]


@without_modes
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
    objects: Literal["refuse", "skip"] = "refuse",
    max_shard_size: Union[int, str] = "5GB",
    ranks: int = 1,
    compress: Optional[str] = None,
    threads: int = 0,
    partial: bool = False,
    replace: bool = False,
    dry_run: bool = False,
    progress: Optional[Callable[[int, int], None]] = None,
) -> Converted:
    """Write what is at ``source`` to ``destination`` in another format, or in the same format with
    other names, dtypes or files.  This process does it alone, in pieces, without torch.

    source          a checkpoint (ours or torch's), a file of safetensors, a directory of them, or a
                    file of ``torch.save()``; nothing in it is executed
    to              "dcp", "safetensors", "torch" or "npz".  None: the name of ``destination``
                    decides.  .safetensors, .npz, .pt, .pth and .bin are files.  Any other name is a
                    directory: of safetensors if ``source`` is a checkpoint, else a checkpoint.
                    With ``partial`` it is always a checkpoint
    model_only      only the weights: the dict at the top that is called model, model_state_dict,
                    state_dict, module or app.model, without that name.  If there is none: all
                    except the states of optimizers, schedulers, data loaders ...
    include         patterns with ``*``, ``?`` and ``[...]`` for names; empty: all names
    exclude         patterns for names that are left out
    rename          ``"s/PATTERN/REPLACEMENT/"``, as in sed with extended regular expressions
    mapping         a file with a JSON object of old and new names
    dtype           convert floating-point tensors to it
    objects         what to do with objects that the format cannot hold: "refuse" or "skip"
    max_shard_size  limit of one file in a directory of safetensors
    ranks           for a checkpoint: write the files as this number of ranks would
    compress        for a checkpoint: None, "none", "zstd", "zstd:LEVEL", "planes", or "auto", which
                    means planes here
    partial         convert what is sound in a damaged checkpoint.  It is verified first; ``lost``
                    of the result lists the rest
    replace         replace what is at ``destination``, if a conversion made it
    dry_run         write nothing; only return what would be written
    progress        called with the bytes done and all bytes; from any thread, one at a time

    When this returns, ``destination`` is whole and durable.  After an error it does not exist.

    Errors: `Error`: EEXISTS, EUNSUPPORTED for what the format cannot hold, EMISMATCH if nothing is
    selected, EINVAL, ENOSPC, EIO, and those of `sidestep.read`.  An interrupt (KeyboardInterrupt)
    stops it and leaves nothing behind.
    """
    options = _options(to, objects, dtype, progress)
    options.flags = (
        abi.CONVERT_REPLACE * a_flag(replace, "replace")
        | abi.CONVERT_MODEL_ONLY * a_flag(model_only, "model_only")
        | abi.CONVERT_DRY_RUN * a_flag(dry_run, "dry_run")
        | abi.CONVERT_PARTIAL * a_flag(partial, "partial")
    )
    for field, words in (("include", include), ("exclude", exclude), ("rename", rename)):
        array = some_texts(words, field)
        setattr(options, field, (ctypes.c_char_p * max(len(array), 1))(*array))
        setattr(options, f"{field}_count", len(array))
    options.mapping = None if mapping is None else os.fsencode(a_path(mapping, "mapping"))
    options.compress = None if compress is None else a_text(compress, "compress")
    options.max_shard_bytes = size_of(max_shard_size)
    options.ranks, options.threads = a_count(ranks, "ranks"), a_count(threads, "threads")
    places = a_path(source, "source"), a_path(destination, "destination")
    report = abi.ConvertReport()
    arguments = *map(os.fsencode, places), options, report
    try:
        run_cancellable("sidestep-convert", options, lib().sidestep_convert, *arguments)
        return _converted(report)
    finally:
        lib().sidestep_convert_report_release(report)


def _dtype(dtype: Any) -> int:
    """The library's number of a dtype.  ValueError: torch has no such dtype."""
    name = str(dtype).rpartition(".")[2].upper()
    if name not in abi.Dtype.__members__:
        raise ValueError(f"dtype={dtype!r} is not a dtype of torch's")
    return abi.Dtype[name]


def _options(
    to: Optional[str],
    objects: str,
    dtype: Union[torch.dtype, str, None],
    progress: Optional[Callable[[int, int], None]],
) -> Any:
    a_function(progress, "progress")
    one_of("to", to, (None, *_FORMATS))
    options = abi.ConvertOptions(
        to=_FORMATS[to or "auto"], objects=_OBJECTS[one_of("objects", objects, _OBJECTS)]
    )
    if dtype is not None:
        options.dtype = _dtype(dtype)
    report_progress(options, progress)
    return options


def _converted(report: Any) -> Converted:
    return Converted(
        os.fsdecode(getattr(report, "from") or b""),
        os.fsdecode(report.to or b""),
        report.tensor_count,
        report.object_count,
        report.tensor_bytes,
        texts(report.files, report.file_count),
        texts(report.left_out, report.left_out_count),
        texts(report.overflows, report.overflow_count),
        texts(report.narrowed, report.narrowed_count),
        texts(report.lost, report.lost_count),
        report.bytes_read,
    )


# ---------------------------------------------------------------- the last checkpoint of a run


@dataclass(frozen=True)
class Final:
    """The format of the last checkpoint of a run.

    format          "safetensors": a directory with ``model.safetensors``, or several files and
                    ``model.safetensors.index.json``; "torch": one file, for ``torch.load``; "dcp":
                    a checkpoint, of the model alone or with another dtype
    path            relative to the root of the mirror, if there is one, else of the checkpoints;
                    None: "final" or "final.pt"
    only            take names that begin with this and a dot, without this prefix; None: all
                    tensors
    dtype           convert floating-point tensors to it; None: keep their dtypes
    max_shard_size  of a file of safetensors: bytes, or "5GB"
    """

    format: Literal["safetensors", "torch", "dcp"] = "safetensors"
    path: Optional[str] = None
    only: Optional[str] = "model"
    dtype: Optional[torch.dtype] = None
    max_shard_size: Union[int, str] = "5GB"

    def __post_init__(self) -> None:
        one_of("format", self.format, ("safetensors", "torch", "dcp"))
        size_of(self.max_shard_size)
        if self.path is not None:
            a_path(self.path, "path")
        if self.only is not None:
            a_text(self.only, "only")
        if self.dtype is not None:
            _dtype(self.dtype)

    def path_in(self, root: str) -> str:
        """The path to write to, for a root."""
        return os.path.join(root, self.path or ("final.pt" if self.format == "torch" else "final"))


@without_modes
def export(checkpoint: PathLike, path: PathLike, final: Optional[Final] = None) -> None:
    """Write the tensors of ``checkpoint`` (ours or torch's) to ``path`` in another format: a
    `convert` with the options of a `Final`.  An earlier export at ``path`` is replaced.

    Errors: those of `convert`.
    """
    if not isinstance(final, (Final, type(None))):
        raise TypeError(f"final={final!r} is not a sidestep.Final")
    final = final or Final(only=None)
    include: list[str] = []
    rename: list[str] = []
    if final.only:
        include = [re.sub(r"([*?\[\\])", r"[\1]", final.only) + ".*"]
        rename = [f"s\x01^{re.escape(final.only)}[.]\x01\x01"]
    convert(
        checkpoint,
        path,
        to=final.format,
        include=include,
        rename=rename,
        dtype=final.dtype,
        objects="skip",
        max_shard_size=final.max_shard_size,
        replace=True,
    )
