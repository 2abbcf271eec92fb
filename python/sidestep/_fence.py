# SPDX-License-Identifier: BSD-3-Clause
"""Fences: what optimizers write to may be copied beside the next forward and backward, since their
steps wait, on the device, for saves whose copies are not done.

A hook that torch calls before every step of every optimizer, in-backward ones too, does that.  Its
tensors may be late only if the hook was seen to run since the save before: a step that is replayed
from a CUDA graph, or compiled, runs no hooks.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from ._handle import SaveHandle


class Fences:
    """The hook, the optimizers that were seen, and the saves that their steps wait for."""

    def __init__(self) -> None:
        self._hook: Any = None
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()  # since the save before
        self._captured: weakref.WeakSet[Any] = weakref.WeakSet()  # in a graph, for good
        self._pending: list[weakref.ref[SaveHandle]] = []

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
        # Another hook of the program's may write to parameters itself.
        optimizer._global_optimizer_pre_hooks.move_to_end(  # type: ignore[attr-defined]
            self._hook.id, last=False
        )

    def _before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if is_capturing():
            self._captured.add(optimizer)
        self._stepped.add(optimizer)
        pending, self._pending = self._pending, []
        for reference in pending:
            handle = reference()
            if handle is not None and not handle.staged.done():
                handle.fence()
                self._pending.append(reference)  # other optimizers have other streams

    def add(self, handle: SaveHandle) -> None:
        """A save with tensors that may be late: steps wait for it."""
        self._pending.append(weakref.ref(handle))

    def late_storages(self) -> frozenset[int]:
        """Addresses of the storages that only fenced steps write to; the next save starts anew."""
        if not self.on:
            return frozenset()
        stepped, self._stepped = self._stepped, weakref.WeakSet()
        found: set[int] = set()
        for optimizer in stepped:
            if optimizer not in self._captured and not may_be_captured(optimizer):
                found.update(_storages(optimizer))
        return frozenset(found)


def may_be_captured(optimizer: Any) -> bool:
    """Whether its steps may be replayed from a graph, of which nobody is told."""
    return any(group.get("capturable") for group in optimizer.param_groups)


def is_capturing() -> bool:
    """Whether the current stream captures a CUDA graph."""
    import torch

    cuda: Any = torch.cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def _storages(optimizer: Any) -> Iterator[int]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield from _storage_of(parameter)
    for state in optimizer.state.values():
        if isinstance(state, dict):
            for value in state.values():
                yield from _storage_of(value)


def _storage_of(value: Any) -> Iterator[int]:
    local: Optional[Any] = getattr(value, "_local_tensor", value)
    if hasattr(local, "untyped_storage"):
        yield local.untyped_storage().data_ptr()  # type: ignore[union-attr]


fences = Fences()
"""Of this process."""


def fence_optimizers(on: bool = True) -> None:
    """From now on `async_save` does not wait for the copies of tensors on CUDA devices.

    Parameters and states of torch's optimizers (and of what derives from them) are copied beside
    the next forward and backward, and each step of an optimizer waits for that, on the device; for
    all else the current stream waits, on the device, too.  So this is for programs that write to
    the tensors of their state on the stream that is current in the call, or in ``step()``; for
    other streams there is `SaveHandle.fence`.  `Checkpointer` switches it on.
    """
    fences.switch(on)
