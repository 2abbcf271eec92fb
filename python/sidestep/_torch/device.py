# SPDX-License-Identifier: BSD-3-Clause
"""Tensors on devices: the library reads and writes CUDA memory; other memory is copied to the host.

Tensors on other devices (ROCm, XPU, NPU, MPS) are copied once per save, on a separate stream, into
memory that the next save uses again.  From there the library copies into its pool before the call
returns.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable
from typing import Any

from .._c import abi
from .._c.calls import when_gone
from .._c.library import lib

ALIGNMENT = 256  # bytes; alignment of each tensor in a buffer
DEFAULT_CAP = 64 << 30
"""Bytes of pinned memory that are kept for the next save; what is beyond is given back."""


class _Lease:
    """Stands for a buffer in use, among the storages of a save.  When it is collected, the buffer
    is free again."""

    __slots__ = ("__weakref__",)


class HostBuffers:
    """Pinned host memory.  At most ``cap`` bytes are kept while they are unused."""

    def __init__(self, cap: int = DEFAULT_CAP) -> None:
        self.cap = cap
        self._free: deque[Any] = deque()  # its append() and remove() are atomic: any thread's GC

    def copy(self, tensors: list[Any]) -> tuple[list[Any], Any]:
        """Contiguous host copies of ``tensors``, and a lease; the copies live as long as the lease.

        The copies are complete when this returns.
        """
        places, total = [], 0
        for tensor in tensors:
            places.append(total)
            size = tensor.numel() * tensor.element_size()
            total += -(-size // ALIGNMENT) * ALIGNMENT
        buffer = self._buffer(total, tensors)
        lease = _Lease()
        when_gone(lease, self._take_back, buffer)
        copies = [
            buffer[place : place + tensor.numel() * tensor.element_size()]
            .view(tensor.dtype)
            .view(tensor.shape)
            for tensor, place in zip(tensors, places)
        ]
        for device in {tensor.device for tensor in tensors}:
            pairs = [(a, b) for a, b in zip(copies, tensors) if b.device == device]
            _copy_from(device, pairs)
        return copies, lease

    def _buffer(self, size: int, tensors: list[Any]) -> Any:
        import torch

        for buffer in sorted(self._free, key=len):
            if len(buffer) >= size:
                with contextlib.suppress(ValueError):  # another thread took it
                    self._free.remove(buffer)
                    return buffer
        self._free.clear()  # all too small: the state has grown
        pin = size <= self.cap and any(tensor.device.type == "cuda" for tensor in tensors)
        return torch.empty(size, dtype=torch.uint8, pin_memory=pin)

    def _take_back(self, buffer: Any) -> None:
        if sum(map(len, list(self._free))) + len(buffer) <= self.cap:
            self._free.append(buffer)


def _copy_from(device: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Copy (host, device) pairs on a side stream, after all work on the current stream."""
    import torch

    module = getattr(torch, device.type, None)
    if module is None or not hasattr(module, "Stream") or device.type == "cpu":
        for host, tensor in pairs:
            host.copy_(tensor.detach())
        return
    with module.device(device):
        side = module.Stream()
        side.wait_stream(module.current_stream())
        with module.stream(side):
            for host, tensor in pairs:
                host.copy_(tensor.detach(), non_blocking=True)
        side.synchronize()


buffers = HostBuffers()
"""Of this process."""


def is_direct(tensor: Any) -> bool:
    """Whether the library can use the device memory of ``tensor`` in place."""
    if tensor.device.type != "cuda":
        return False
    if not _known:
        import torch

        if torch.version.hip is not None:
            _known.append(False)
        elif tensor.data_ptr():
            _known.append(lib().sidestep_device_of(tensor.data_ptr()) >= 0)
    return bool(_known and _known[0])


_known: list[bool] = []


def streams_of(devices: Iterable[int]) -> Any:
    """The current streams of CUDA devices, as the library's array."""
    import torch

    found = sorted(devices)
    streams = (abi.Stream * len(found))()
    for place, device in zip(streams, found):
        place.device = device
        place.stream = torch.cuda.current_stream(device).cuda_stream
    return streams
