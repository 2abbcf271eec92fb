# SPDX-License-Identifier: BSD-3-Clause
"""Small states and held saves, for tests of engines and handles."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sidestep._handle import SaveHandle
from sidestep._torch.flatten import flatten
from sidestep._torch.state import StateDict


def state(engine: Any, values: dict[str, Any]) -> StateDict:
    """``values`` as the library's state, by the engine's cache."""
    return engine.states.get(flatten(values))  # type: ignore[no-any-return]


def save(engine: Any, path: Any, values: dict[str, Any], **options: Any) -> SaveHandle:
    return engine.save_async(path, state(engine, values), **options)  # type: ignore[no-any-return]


def load(engine: Any, path: Any, values: dict[str, Any], **options: Any) -> Any:
    return engine.load(path, StateDict(flatten(values), for_load=True), **options)


@contextmanager
def held_saves() -> Iterator[threading.Event]:
    """Saves do not end, as far as Python knows, until the event is set."""
    go = threading.Event()
    real = SaveHandle._await

    def wait(self: SaveHandle, which: Any) -> Any:
        go.wait(60)
        return real(self, which)

    SaveHandle._await = wait  # type: ignore[method-assign]
    try:
        yield go
    finally:
        go.set()
        SaveHandle._await = real  # type: ignore[method-assign]
