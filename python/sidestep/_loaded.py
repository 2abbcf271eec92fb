# SPDX-License-Identifier: BSD-3-Clause
"""What a load did, by name: read, cast, left as it was, ignored."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Optional

if TYPE_CHECKING:
    import torch

_LISTED = 8
_EPS = {"float8_e5m2fnuz": 0.25}  # torch.finfo() says 0.125


class Cast(NamedTuple):
    """A tensor was saved with one dtype, and wanted with another.

    narrows  some values of the one are none of the other: precision or range is lost
    """

    saved: str
    wanted: str
    narrows: bool


@dataclass(frozen=True)
class Loaded:
    """The result of a load, on this rank.

    step        of the checkpoint; -1 if `load` was given its path
    path        of the checkpoint; if each node has a directory for itself, where its parts were put
                together, with the small files of all ranks, until the next call that loads, saves
                or closes
    missing     names in the state that the checkpoint lacks, where that was allowed: they are as
                they were
    unexpected  names in the checkpoint that this rank did not ask for
    mismatched  "name: saved float32 [2,3], wanted float32 [3,3]": left as they were, too
    rejected    newer checkpoints that were passed over, and why; "" if there are none
    read        names that were loaded
    cast        those of them whose dtype was converted, see `Cast`
    bytes       of each name: what this rank has read of it, or what its tensor has that was left
                as it was; of an unexpected one, the bytes of the whole
    """

    step: int
    path: str
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)
    rejected: str = ""
    read: list[str] = field(default_factory=list)
    cast: dict[str, Cast] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)


def cast_of(saved: torch.dtype, wanted: torch.dtype) -> Cast:
    """What becomes of a tensor of dtype ``saved`` in one of dtype ``wanted``."""
    return Cast(_name(saved), _name(wanted), narrows(saved, wanted))


def narrows(saved: torch.dtype, wanted: torch.dtype) -> bool:
    """Whether ``wanted`` lacks values that ``saved`` has."""
    if saved == wanted:
        return False
    mine, theirs = _range(saved), _range(wanted)
    if mine is None or theirs is None:
        return True
    return any(lacks > has for has, lacks in zip(theirs, mine))


def _range(dtype: torch.dtype) -> Optional[tuple[float, ...]]:
    """(imaginary part, binary digits, largest, minus the smallest, minus the exponent of the
    smallest step): a dtype has all values of another whose numbers are not larger.  None: it is
    packed, or of another kind."""
    import torch

    if dtype is torch.bool:
        return 0, 1, 1, 0, 0
    try:
        if dtype.is_floating_point or dtype.is_complex:
            floats = torch.finfo(dtype)
            digits = 1 - _exponent(_EPS.get(_name(dtype), floats.eps))
            step = _exponent(floats.smallest_normal) - digits + 1
            return float(dtype.is_complex), digits, floats.max, -floats.min, -step
        whole = torch.iinfo(dtype)
    except (TypeError, NotImplementedError):
        return None
    return 0, whole.max.bit_length(), whole.max, -whole.min, 0


def _exponent(power_of_2: float) -> int:
    return math.frexp(power_of_2)[1] - 1


def _name(dtype: torch.dtype) -> str:
    return str(dtype).rpartition(".")[2]


def listed(names: Iterable[str]) -> str:
    """The first of ``names``, for a message."""
    names = list(names)
    return ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")


def spelled(casts: dict[str, Cast]) -> str:
    """The first of ``casts``, for a message."""
    return listed(f"{name} ({cast.saved} to {cast.wanted})" for name, cast in casts.items())
