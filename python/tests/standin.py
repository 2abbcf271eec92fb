# SPDX-License-Identifier: BSD-3-Clause
"""Tensors that say they lie on a CUDA device, and do: on one of the stand-in driver (tests/cuda).

Their memory cannot be touched by the processor, and what torch does to them is queued as a kernel
on a stream of that driver, whose thread does it whenever it likes.  So the package, the library and
torch's optimizers run as they do on a GPU.  Two functions are replaced by the tests: the current
stream, which a torch for the CPU has not, and the check that refuses subclasses of Tensor without
memory of their own, since torch cannot tell that these have some.  Operations are those that the
tests need: in place, clone, detach.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import torch

from sidestep._torch import device as _device
from sidestep._torch import shards as _shards

HEADER = Path(__file__).parents[2] / "tests" / "cuda" / "standin.h"
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
DEVICE = torch.device("cuda:0")
POINTER, SIZE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "reset": (None, INT),
    "allocate": (POINTER, INT, SIZE),
    "allocate_managed": (POINTER, INT, SIZE),
    "reserve": (POINTER, INT, SIZE, SIZE),
    "allocate_on": (POINTER, INT, POINTER, SIZE),
    "free": (None, POINTER),
    "new_stream": (POINTER, INT),
    "new_stream_of": (POINTER, INT, INT),
    "capture": (None, INT, POINTER, ctypes.c_bool),
    "capture_is_spoiled": (ctypes.c_bool,),
    "lose": (None, ctypes.c_ulong),
    "launch": (None, INT, POINTER, KERNEL, POINTER, SIZE, POINTER),
    "synchronize": (None, INT, POINTER),
    "view": (POINTER, POINTER),
    "slow": (None, ctypes.c_uint),
    "copied_bytes": (ctypes.c_uint64,),
    "hold_copies": (None, ctypes.c_uint64),
    "problem": (ctypes.c_char_p,),
    "forgive": (None,),
}


class Driver:
    """What the library takes for NVIDIA's, with one device and one stream."""

    def __init__(self) -> None:
        library = Path(os.environ["SIDESTEP_LIBRARY"]).parent / "tests" / "cuda" / "libcuda.so.1"
        self.calls = ctypes.CDLL(str(library))
        get = self.calls.standin_get
        get.restype = POINTER
        body = HEADER.read_text().split("struct standin {")[1]
        names = re.findall(r"^    \S.*?\(\*(\w+)\)\(", body, re.M)
        table = ctypes.cast(get(), ctypes.POINTER(POINTER))
        for name, (result, *parameters) in PROTOTYPES.items():
            function = ctypes.CFUNCTYPE(result, *parameters)(table[names.index(name)])
            setattr(self, name, function)
        self.reset(1)
        self.stream = self.new_stream(0)
        self.errors: list[BaseException] = []
        self._kernels: dict[int, Callable[[], Any]] = {}
        self._numbers = itertools.count(1)
        self._run = KERNEL(self._run_one)

    def __getattr__(self, name: str) -> Any:  # the functions above
        raise AttributeError(name)

    def _run_one(self, _view: int, _size: int, number: int) -> None:
        try:
            with torch.no_grad():
                self._kernels.pop(number)()
        except BaseException as error:  # on a thread of the driver's
            self.errors.append(error)

    def submit(self, kernel: Callable[[], Any], memory: Memory) -> None:
        """Queue ``kernel``, which writes to ``memory``."""
        number = next(self._numbers)
        self._kernels[number] = kernel
        self.launch(0, self.stream, self._run, memory.address, memory.size, number)

    def wait(self) -> None:
        """For all that was queued."""
        self.synchronize(0, self.stream)
        assert not self.errors, self.errors


def replacements(driver: Driver) -> list[tuple[Any, str, Any]]:
    """What has to be replaced, (object, name, value), for the package to take ``driver`` for that
    of "cuda:0": the current stream is that on which the driver's kernels are queued."""

    def current_stream(*_: Any) -> Any:
        return SimpleNamespace(cuda_stream=driver.stream, device_index=0)

    refusing = _shards.without_subclass  # what has no memory of its own, and DeviceTensor has

    def without_subclass(name: str, value: Any) -> Any:
        return value if type(value) is DeviceTensor else refusing(name, value)

    pickling = _shards.is_pickled

    def is_pickled(value: Any) -> bool:
        return type(value) is not DeviceTensor and pickling(value)

    return [
        (torch.cuda, "current_stream", current_stream),
        (_device, "_known", []),
        (_shards, "without_subclass", without_subclass),
        (_shards, "is_pickled", is_pickled),
    ]


class Memory:
    """An allocation, in the place of a storage: freed with the last reference."""

    def __init__(self, driver: Driver, size: int) -> None:
        self.driver = driver
        self.size = size
        self.address = driver.allocate(0, size)
        self.bytes = (ctypes.c_char * size).from_address(driver.view(self.address))

    def data_ptr(self) -> int:
        """As a storage's."""
        return int(self.address)

    def nbytes(self) -> int:
        """As a storage's."""
        return self.size

    def __del__(self) -> None:
        self.driver.free(self.address)


class DeviceTensor(torch.Tensor):
    """Of "cuda:0"; ``host`` is the same memory as the driver's own threads see it."""

    memory: Memory
    host: torch.Tensor

    @staticmethod
    def __new__(cls, memory: Memory, host: torch.Tensor) -> DeviceTensor:
        """Of the shape and strides of ``host``."""
        tensor: Any = torch.Tensor._make_wrapper_subclass(
            cls, host.shape, strides=host.stride(), dtype=host.dtype, device=DEVICE
        )
        tensor.memory, tensor.host = memory, host
        return tensor  # type: ignore[no-any-return]

    def data_ptr(self) -> int:
        """On the device."""
        return self.memory.data_ptr() + int(self.host.storage_offset()) * self.host.element_size()

    def untyped_storage(self) -> Any:
        """What has to live for the memory to stay."""
        return self.memory

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Queue it."""
        first, name = args[0], func.overloadpacket.__name__
        if name == "detach":
            return DeviceTensor(first.memory, first.host)
        if name == "clone":
            copy = device_tensor(first.memory.driver, torch.zeros_like(first.host))
            first.memory.driver.submit(lambda: copy.host.copy_(first.host), copy.memory)
            return copy
        if not name.endswith("_"):
            raise NotImplementedError(f"{func} of tensors on the stand-in's device")

        def kernel() -> None:  # it keeps the tensors, too
            hosts = [arg.host if isinstance(arg, DeviceTensor) else arg for arg in args]
            func(*hosts, **(kwargs or {}))

        first.memory.driver.submit(kernel, first.memory)
        return first


def device_tensor(driver: Driver, values: torch.Tensor) -> DeviceTensor:
    """A copy of ``values`` on the device, with their strides."""
    size = (values.untyped_storage().nbytes() // values.element_size()) * values.element_size()
    memory = Memory(driver, max(size, 1))
    flat = torch.frombuffer(memory.bytes, dtype=values.dtype)
    host = flat.as_strided(values.shape, values.stride(), values.storage_offset())
    host.copy_(values)
    return DeviceTensor(memory, host)
