# SPDX-License-Identifier: BSD-3-Clause
"""Fences: tensors that optimizers write to are copied during the next forward and backward.

Each step of an optimizer waits, on the device, for saves whose copies are not done.  torch calls a
hook before every step of every optimizer, also of in-backward ones, and the hook makes the step
wait.  A step that is compiled, or replayed from a CUDA graph, runs no hooks.  So tensors may be
copied late only if the hook of their optimizer has run since the save before.

The hook also sees in which order optimizers step.  Their tensors are copied in that order, and each
step waits for those of its own turn and of earlier ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._handle import SaveHandle


Turns = weakref.WeakKeyDictionary[Any, int]
"""Optimizers, and when each of them steps."""


class Fences:
    """The hook, the optimizers that it has seen, and the saves that their steps wait for."""

    def __init__(self) -> None:
        self._hook: Any = None
        # Since the save before, in the order of their first steps.
        self._stepped: Turns = weakref.WeakKeyDictionary()
        self._turns: Turns = weakref.WeakKeyDictionary()  # in the save that is being made
        self._captured: weakref.WeakSet[Any] = weakref.WeakSet()  # captured in a graph, for good
        self._pending: list[tuple[weakref.ref[SaveHandle], Turns]] = []

    @property
    def on(self) -> bool:
        """Whether steps of optimizers are fenced."""
        return self._hook is not None

    def switch(self, on: bool) -> None:
        """Install the hook, before all others, or remove it."""
        if on == self.on:
            return
        if not on:
            self._hook.remove()
            self._hook = None
            self._stepped.clear()
            return
        from torch.optim import optimizer

        self._hook = optimizer.register_optimizer_step_pre_hook(self._before_step)
        # First, because another hook of the program may write to parameters.
        optimizer._global_optimizer_pre_hooks.move_to_end(  # type: ignore[attr-defined]
            self._hook.id, last=False
        )

    def _before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if is_capturing():
            self._captured.add(optimizer)
        self._stepped.setdefault(optimizer, 0)
        pending, self._pending = self._pending, []
        for reference, turns in pending:
            handle = reference()
            if handle is not None and not handle.staged.done():
                handle._fence_until(turns.get(optimizer))
                self._pending.append((reference, turns))  # other optimizers have other streams

    def add(self, handle: SaveHandle) -> None:
        """Add a save with tensors that may be copied late: steps wait for it."""
        self._pending.append((weakref.ref(handle), self._turns))

    def late_storages(self) -> dict[int, int]:
        """Addresses of the storages that only fenced steps write to, with their turns.  The turn is
        that of the first optimizer that writes there.  The next save starts anew."""
        self._turns = weakref.WeakKeyDictionary()
        found: dict[int, int] = {}
        if not self.on:
            return found
        stepped, self._stepped = self._stepped, weakref.WeakKeyDictionary()
        for optimizer in list(stepped):
            if optimizer not in self._captured and not may_be_captured(optimizer):
                turn = self._turns[optimizer] = len(self._turns)
                for storage in _storages(optimizer):
                    found.setdefault(storage, turn)
        return found


def may_be_captured(optimizer: Any) -> bool:
    """Whether its steps may be replayed from a CUDA graph, which runs no hooks."""
    return any(group.get("capturable") for group in optimizer.param_groups)


def is_capturing() -> bool:
    """Whether the current stream captures a CUDA graph."""
    import torch

    cuda: Any = torch.cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def _storages(optimizer: Any) -> Iterator[int]:
    """Addresses of the storages of its parameters and states."""
    for group in optimizer.param_groups:
        yield from _storages_of(group["params"])
    for state in optimizer.state.values():
        if isinstance(state, dict):
            yield from _storages_of(state.values())


def _storages_of(values: Iterable[Any]) -> list[int]:
    tensors = [getattr(value, "_local_tensor", value) for value in values]
    return [t.untyped_storage().data_ptr() for t in tensors if hasattr(t, "untyped_storage")]


fences = Fences()
"""Of this process."""


def fence_optimizers(on: bool = True) -> None:
    """From now on `async_save` does not wait for the copies of tensors on CUDA devices.

    Parameters and states of torch's optimizers (and of classes derived from them) are copied during
    the next forward and backward; each step of an optimizer waits for that, on the device.  For all
    other tensors the current stream waits, also on the device.  So a program may write to its state
    on the stream that is current in the call, and in ``step()``.  For other streams use
    `SaveHandle.fence`.  `Checkpointer` calls this function by default.
    """
    fences.switch(on)
