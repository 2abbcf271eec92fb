# SPDX-License-Identifier: BSD-3-Clause
"""Tensors without one strided memory of their own: quantized, sparse and nested ones, and those of
classes that keep their data in other tensors.  They are saved as objects, pickled by torch.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from .._c.abi import Status
from .._c.errors import Error, make_error, refuse


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def is_pickled(value: Any) -> bool:
    """Whether the tensor ``value`` is saved as an object.  Not, if it has no data."""
    import torch

    cls = type(value)
    if value.device.type == "meta":
        return False
    if cls is torch.Tensor or cls is torch.nn.Parameter:
        return bool(value.is_quantized or value.is_nested or value.layout is not torch.strided)
    if hasattr(value, "__create_chunk_list__") or _is_of(value, *_SHARDED):
        return False
    if _is_fake(value) or torch.nn.parameter.is_lazy(value) or hasattr(value, "trigger_wait"):
        return False
    if hasattr(cls, "__tensor_flatten__"):
        return True
    return value.device.type == "cpu" and _plain(value) is None


def is_subclass(value: Any) -> bool:
    """Whether ``value`` is a tensor of a class of its own, with a memory of its own."""
    import torch

    cls = type(value)
    return (
        isinstance(value, torch.Tensor)
        and cls is not torch.Tensor
        and cls is not torch.nn.Parameter
        and not cls.__module__.startswith("torch.")
    )


def kind_of(value: Any) -> str:
    """What such a tensor is, in a message."""
    if type(value).__module__.startswith("torch") and not value.is_nested:
        return "a quantized tensor" if value.is_quantized else f"a tensor of layout {value.layout}"
    return "a nested tensor" if value.is_nested else f"a {_class_name(type(value))}"


# Modules, and classes in them: if none is imported, no value can be of its class.
_SHARDED = (
    ("torch.distributed.tensor", "DTensor"),
    ("torch.distributed._shard.sharded_tensor", "ShardedTensor"),
)


def _is_of(value: Any, *classes: tuple[str, str]) -> bool:
    found = (getattr(sys.modules.get(module), name, None) for module, name in classes)
    return isinstance(value, tuple(cls for cls in found if cls is not None))


def _is_fake(value: Any) -> bool:
    return _is_of(value, ("torch._subclasses.fake_tensor", "FakeTensor"))


def _plain(value: Any) -> Any:
    """The plain tensor on the memory of an instance of a subclass; None: it has none."""
    import torch
    from torch.utils._mode_utils import no_dispatch

    try:
        with torch._C.DisableTorchFunctionSubclass(), no_dispatch():
            plain = value.detach().as_subclass(torch.Tensor)
            memory = plain.data_ptr() if plain.layout is torch.strided else 0
            size = plain.numel() if plain.layout is torch.strided else 0
    except RuntimeError:
        return None
    if type(plain) is not torch.Tensor or (memory == 0 and size and plain.device.type != "meta"):
        return None
    return plain


def without_subclass(name: str, value: Any) -> Any:
    """The plain tensor on the memory of an instance of a subclass, or a refusal."""
    import torch

    if _is_fake(value):
        refuse(name, "a FakeTensor has no data; save outside of FakeTensorMode")
    if torch.nn.parameter.is_lazy(value):
        refuse(name, "a parameter that is not initialized yet; run the lazy module once first")
    while hasattr(value, "trigger_wait"):  # AsyncCollectiveTensor
        value = value.trigger_wait()
        if type(value) is torch.Tensor:
            return value
    plain = None if hasattr(type(value), "__tensor_flatten__") else _plain(value)
    if plain is None:
        _refuse_wrapper(name, type(value))
    return plain


def _refuse_wrapper(name: str, cls: type) -> NoReturn:
    refuse(
        name,
        f"a {_class_name(cls)} keeps its data in other tensors, not in one memory of its own; as a "
        "shard it cannot be saved or loaded: save the tensors it is made of, or the plain tensor "
        "it stands for",
    )


# ---------------------------------------------------------------- loads


def check_fit(name: str, target: Any, value: Any) -> None:
    """Error (EMISMATCH): the loaded tensor ``value`` has not the shape of the tensor ``target``."""
    if _is_copied(target, value) and (why := _other_shape(target, value)):
        raise _misfit(name, target, value, why)


def put(name: str, target: Any, value: Any) -> Any:
    """The loaded object ``value``; if it and ``target`` are tensors, ``target`` with its contents.

    Error (EMISMATCH): it does not fit into ``target``.
    """
    import torch

    if not _is_copied(target, value):
        return value
    try:
        with torch.inference_mode(target.is_inference()), torch.no_grad():
            _copy(target, value)
    except Exception as problem:
        raise _misfit(name, target, value, problem) from problem
    return target


def _is_copied(target: Any, value: Any) -> bool:
    import torch

    both = isinstance(target, torch.Tensor) and isinstance(value, torch.Tensor)
    return both and target is not value and target.device.type != "meta"


def _misfit(name: str, target: Any, value: Any, why: object) -> Error:
    return make_error(
        f"'{name}': the checkpoint has a {_class_name(type(value))}, which cannot be copied into "
        f"the {_class_name(type(target))} of the state: {why}",
        status=Status.EMISMATCH,
        tensor=name,
    )


def _other_shape(target: Any, value: Any) -> str:
    """How the shapes differ; "": they do not, or one tensor has no single shape (nested)."""
    if target.is_nested or value.is_nested or target.shape == value.shape:
        return ""
    return f"shape {list(value.shape)}, wanted {list(target.shape)}"


def _copy(target: Any, value: Any) -> None:
    """``target.copy_(value)``; between two of one class, tensor by tensor if they fit."""
    if why := _other_shape(target, value):
        raise ValueError(why)
    cls = type(target)
    if cls is type(value) and hasattr(cls, "__tensor_flatten__") and not target.is_nested:
        names, context = target.__tensor_flatten__()
        if (names, context) == tuple(value.__tensor_flatten__()):
            for name in names:
                _copy(getattr(target, name), getattr(value, name))
            return
    target.copy_(value)
