# SPDX-License-Identifier: BSD-3-Clause
"""Finds names under which ranks have different values: only one of these is saved.

The library finds more, where all ranks write parts of what they have (SIDESTEP_REPLICAS).  Here the
ranks compare hashes with all-reduces, in the first save of an engine.  Each name has a place in
a table by its hash; of names that share a place on a rank, one is compared: objects first, then the
smallest tensors.  Those differ most often: random states, counters.  The table has eight places
for each name.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Optional

from .._c.abi import Status
from .._c.errors import make_error

if TYPE_CHECKING:
    from .._handle import SaveHandle
    from .state import StateDict

log = logging.getLogger("sidestep")

MIN_PLACES = 512
MAX_PLACES = 1 << 16  # 3 MiB
_WORDS = 6  # of a place: a name, a value and a mesh, each with its complement
_ALL = (1 << 64) - 1
_SAMPLE = 2048  # bytes that are hashed at each end of a tensor
_MOST = 8  # names that are told

Maxima = Callable[[list[int]], list[int]]


class _Value(NamedTuple):
    """What this rank has at a place of the table."""

    name: str
    key: int
    value: int
    mesh: int


class Differences:
    """Warns, on rank 0, of names under which ranks have different values.  Each is told once."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size
        self._told: list[str] = []

    def find(self, state: Optional[StateDict], maxima: Maxima) -> None:
        """Compare the values of ``state``, and warn.  Collective."""
        if self._size > 1:
            self._warn(differing(state, self._rank, self._size, maxima))

    def tell(self, save: SaveHandle) -> None:
        """Warn of what the library has found in the call of ``save``."""
        found = save.progress().differs if self._size > 1 and self._rank == 0 else ""
        if found:
            self._warn(found.split(", "))

    def _warn(self, found: list[str]) -> None:
        new = [one for one in found if not any(told.startswith(one) for told in self._told)]
        self._told += new
        if new and self._rank == 0:
            log.warning(
                "ranks have different values under one name, and that of the lowest rank is saved: "
                "%s.  To keep each, give it a name with the rank",
                "; ".join(new),
            )


def _hash(*parts: bytes) -> int:
    found = hashlib.blake2b(digest_size=8)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return int.from_bytes(found.digest(), "little") or 1


def places_for(names: int) -> int:
    """The size of the table if no rank has more names."""
    return int(min(max(MIN_PLACES, 8 * names), MAX_PLACES))


def values_of(state: StateDict, places: int) -> dict[int, _Value]:
    """This rank's values, by their places.  Tensors on devices are not looked at."""
    found: dict[int, tuple[int, _Value]] = {}
    for name, box, data, mesh in state.samples(_SAMPLE):
        key = _hash(name.encode("utf-8", "surrogatepass"), box)
        size = sum(map(len, data)) if box else 0
        before = found.get(key % places)
        if before is None or size < before[0]:
            found[key % places] = size, _Value(name, key, _hash(*data), _hash(mesh))
    return {place: value for place, (_, value) in found.items()}


def sample(address: int, size: int, most: int) -> list[bytes]:
    """The first and last bytes at ``address``."""
    if size <= 2 * most:
        return [ctypes.string_at(address, size)]
    return [ctypes.string_at(address, most), ctypes.string_at(address + size - most, most)]


def differing(state: Optional[StateDict], rank: int, size: int, maxima: Maxima) -> list[str]:
    """A line for each name whose values differ, with the ranks; the same on all.  Collective, also
    without a ``state``.

    Error (EINVAL) on all ranks: they are of DTensors on different meshes.
    """
    count = places_for(maxima([len(state.names) if state is not None else 0])[0])
    mine = values_of(state, count) if state is not None else {}
    words = [0] * (_WORDS * count)
    for place, one in mine.items():
        for i, number in enumerate((one.key, one.value, one.mesh)):
            words[_WORDS * place + 2 * i] = number
            words[_WORDS * place + 2 * i + 1] = _ALL - number
    words = maxima(words)
    places: list[tuple[int, bool]] = []
    for place in range(count):
        key, value, mesh = (
            words[at] == _ALL - words[at + 1]
            for at in range(_WORDS * place, _WORDS * place + _WORDS, 2)
        )
        if words[_WORDS * place] and key and not value:
            places.append((place, mesh))
    return _told(places[:_MOST], mine, rank, size, maxima) if places else []


def _told(
    places: list[tuple[int, bool]], mine: dict[int, _Value], rank: int, size: int, maxima: Maxima
) -> list[str]:
    words = [0] * (len(places) * size)
    for i, (place, _) in enumerate(places):
        if place in mine:
            words[i * size + rank] = mine[place].value
    words = maxima(words)
    lines = []
    for i, (place, is_one_mesh) in enumerate(places):
        ranks = [other for other in range(size) if words[i * size + other]]
        name = mine[place].name if place in mine else "a name that this rank does not have"
        if not is_one_mesh:
            raise make_error(
                f"'{name}' is a DTensor on different meshes with different values, on ranks "
                f"{_listed(ranks)}: give each mesh a name of its own",
                status=Status.EINVAL,
                tensor=name,
            )
        lines.append(f"'{name}' on ranks {_listed(ranks)}")
    return lines


def _listed(ranks: list[int]) -> str:
    more = f" and {len(ranks) - 16} more" if len(ranks) > 16 else ""
    return ", ".join(map(str, ranks[:16])) + more
