# SPDX-License-Identifier: BSD-3-Clause
"""Keeps the storages of a save until it is RELEASED, and finds out if the program has moved one.

The library knows only addresses.  Python knows which tensor had which address, and sees whether its
storage has other memory now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Optional

from .._c.errors import Error, reworded


class Kept:
    """The storages of a state, by shard, and other objects that must live as long.

    ``names`` returns the names of the shards; it is called only when they are needed.
    """

    __slots__ = ("_addresses", "_names", "storages")

    def __init__(
        self, names: Callable[[], Iterable[str]], addresses: list[int], storages: list[Any]
    ) -> None:
        self._names = names
        self._addresses = addresses
        self.storages = storages

    def moved(self) -> Optional[tuple[str, str]]:
        """The name of the first tensor whose storage has other memory now, and what happened to the
        storage."""
        for name, address, storage in zip(self._names(), self._addresses, self.storages):
            if storage is None or not address:
                continue
            begin = storage.data_ptr()
            if begin <= address < begin + storage.nbytes():
                continue
            if begin and storage.is_shared():
                return name, (
                    "has been moved to shared memory (share_memory_(), or a queue of "
                    "torch.multiprocessing, does that)"
                )
            return name, "has been resized or freed"
        return None


def with_cause(error: Error, kept: Optional[Kept]) -> Error:
    """The ``error`` of a save before RELEASED; it names the tensor that was moved, if one was."""
    moved = kept.moved() if kept is not None else None
    if moved is None:
        return error
    name, what = moved
    return reworded(error, f"{error.message}; the storage of tensor '{name}' {what}", tensor=name)
