# SPDX-License-Identifier: BSD-3-Clause
"""What the elements of stored tensors are like, without loading them: where are NaN?"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _abi
from ._cancel import run_cancellable
from ._checked import a_count, some_texts
from ._checkpoint import Checkpoint, text_of
from ._library import lib

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class TensorStats:
    """Of one tensor."""

    elements: int
    nan: int
    inf: int
    """Elements that are; the others are finite."""
    min: Optional[float]
    max: Optional[float]
    """Of all but NaN.  None: there is none, or they are complex, or bits and no numbers."""
    mean: Optional[float]
    """Of those that are finite; None as above."""


def stats(
    path: PathLike, names: Optional[Iterable[str]] = None, *, threads: int = 0
) -> dict[str, TensorStats]:
    """What the elements of the tensors ``names`` (None: all) at ``path`` are like.

    ``path``: whatever `sidestep.load` reads.  Every byte is read once, by several threads, in
    pieces, and checked.  Like ``sidestep show --stats``.

    Errors: `Error`: ENOTFOUND for a name that is not there, EINVAL for an object's, EUNSUPPORTED
    for a dtype that has no numbers here; those of `sidestep.read`.
    """
    with Checkpoint(path) as checkpoint:
        if names is None:
            names = [name for name in checkpoint.names() if not checkpoint.is_object(name)]
        wanted = some_texts(names, "names")
        found = (_abi.TensorStats * max(len(wanted), 1))()
        for one, name in zip(found, wanted):
            one.name = name
        options = _abi.sized(_abi.VerifyOptions)
        options.threads = a_count(threads, "threads")
        run_cancellable(
            "sidestep-stats",
            options,
            lambda err: lib().sidestep_checkpoint_stats(
                checkpoint.handle, found, len(wanted), ctypes.byref(options), err
            ),
        )
        return {text_of(name): _stats_of(one) for name, one in zip(wanted, found)}


def _stats_of(found: Any) -> TensorStats:
    return TensorStats(
        elements=found.element_count,
        nan=found.nan_count,
        inf=found.inf_count,
        min=found.min if found.has_range else None,
        max=found.max if found.has_range else None,
        mean=found.mean if found.has_mean else None,
    )
