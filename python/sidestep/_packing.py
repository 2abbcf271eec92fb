# SPDX-License-Identifier: BSD-3-Clause
"""What a framework would pickle as a state of sidestep: tensors by name, and the rest.

The rest is an object, or a file of ``torch.save``, in which a tuple with its name stands for each
tensor that was taken out.  So what comes back has every type, every empty dict and the order of the
original, and ``weights_only`` means what it means for a file of Lightning.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Optional

import torch

REST = "lightning"  # the name of the object in a checkpoint
_MARK = "sidestep.tensor"
_LARGE = 65536  # bytes; smaller tensors outside of models and optimizers stay in the rest
_STATES = ("state_dict", "optimizer_states")


def pack(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The state to be saved.  Its tensors are those of ``checkpoint``, not copies."""
    tensors: dict[str, Any] = {}
    rest = {
        key: take(value, str(key), tensors, 0 if key in _STATES else _LARGE)
        for key, value in checkpoint.items()
    }
    return {**tensors, REST: to_bytes(rest)}


def unpack(
    state: dict[str, Any], *, weights_only: Optional[bool], place: Callable[[Any], Any]
) -> dict[str, Any]:
    """The checkpoint of which `pack` made ``state``.

    place  puts a tensor where it is wanted
    """
    rest = from_bytes(state[REST], weights_only=weights_only)
    return {key: put_back(value, state, place) for key, value in rest.items()}


def to_bytes(value: Any) -> bytes:
    """A file of ``torch.save``."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def from_bytes(data: bytes, *, weights_only: Optional[bool]) -> Any:
    """What is in a file of ``torch.save``, on the host."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=weights_only)


def take(value: Any, name: str, tensors: dict[str, Any], least: int) -> Any:
    """``value`` with a mark for each tensor of at least ``least`` bytes, which goes to ``tensors``.

    Only dicts and lists are gone through: tuples and other objects stay as they are.  Unless
    ``least`` is 0, so do parameters, and what has a gradient: it comes back as it was.
    """
    if _is_plain(value, least > 0) and value.numel() * value.element_size() >= least:
        while name in tensors or name == REST:
            name += "'"  # "a.b" is a key, and so are "a" and, in it, "b"
        tensors[name] = value.detach()
        return _MARK, name
    if isinstance(value, dict):
        taken = [(key, take(one, f"{name}.{key}", tensors, least)) for key, one in value.items()]
        return _like(value, taken)
    if type(value) is list:
        return [take(one, f"{name}.{i}", tensors, least) for i, one in enumerate(value)]
    return value


def _like(value: dict[Any, Any], items: list[tuple[Any, Any]]) -> Any:
    """A dict with these items: an OrderedDict, with its attributes, if ``value`` is one."""
    if type(value) is dict:
        return dict(items)
    made = value.copy()
    made.update(items)
    return made


def put_back(value: Any, tensors: dict[str, Any], place: Callable[[Any], Any]) -> Any:
    """What `take` was given, of what it has returned.  ``place``: see `unpack`."""
    if isinstance(value, tuple) and len(value) == 2 and value[0] == _MARK:
        return place(tensors[value[1]])
    if isinstance(value, dict):
        for key, one in value.items():
            value[key] = put_back(one, tensors, place)
        return value
    if type(value) is list:
        return [put_back(one, tensors, place) for one in value]
    return value


def _is_plain(value: Any, keeps_kind: bool) -> bool:
    """Whether it is a tensor that sidestep saves as one; all others are objects here."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and not (keeps_kind and (type(value) is torch.nn.Parameter or value.requires_grad))
        and value.layout is torch.strided
        and not value.is_quantized
        and value.device.type != "meta"
    )
