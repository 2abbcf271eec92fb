# SPDX-License-Identifier: BSD-3-Clause
"""Models of PEFT: which of their tensors are saved, and the files where PEFT looks for them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from ._redirect import in_place

ADAPTER_CONFIG = "adapter_config.json"


def is_peft(model: Any) -> bool:
    """Whether it is a ``PeftModel``; its layers are of PEFT, too, but no models.  PEFT is not
    imported."""
    return any(map(_is_model, type(model).__mro__))


def _is_model(kind: type) -> bool:
    return kind.__name__ == "PeftModel" and kind.__module__.partition(".")[0] == "peft"


def peft_models(module: Any) -> dict[str, Any]:
    """The models of PEFT that ``module`` is or holds, by name, "" for itself; none inside another
    one."""
    found: dict[str, Any] = {}
    for name, part in module.named_modules():
        inside = any(not one or name.startswith(f"{one}.") for one in found)
        if not inside and is_peft(part):
            found[name] = part
    return found


def without_frozen(module: Any, state: dict[str, Any]) -> dict[str, Any]:
    """What of ``state``, the ``state_dict()`` of ``module``, is not of a parameter that is frozen
    in a model of PEFT: adapters, what else is trained, buffers, and all outside of such models.  A
    quantized parameter has more entries, which begin with its name."""
    bases = {
        id(parameter)
        for model in peft_models(module).values()
        for parameter in model.parameters()
        if not parameter.requires_grad
    }
    if not bases:
        return state
    named = module.named_parameters(remove_duplicate=False)
    frozen = {_bare(name) for name, parameter in named if id(parameter) in bases}

    def is_frozen(name: str) -> bool:
        while name not in frozen and "." in name:
            name = name.rpartition(".")[0]
        return name in frozen

    return {name: value for name, value in state.items() if not is_frozen(name)}


def _bare(name: str) -> str:
    """A parameter's name in a ``state_dict()``, where wrappers take theirs out of it."""
    return name.replace("_fsdp_wrapped_module.", "").replace("_checkpoint_wrapped_module.", "")


def write_adapters(module: Any, directory: str, *, writes: bool = True) -> None:
    """Write ``adapter_model.safetensors`` and ``adapter_config.json`` of the model of PEFT that
    ``module`` is or holds; of further ones that it holds, into a directory with their name.

    Of a module that FSDP2 has sharded: collective, and a rank that does not write passes False."""
    for i, (name, model) in enumerate(peft_models(module).items()):
        home = os.path.join(directory, name) if i else directory
        os.makedirs(home, exist_ok=True)
        with _gathered(model, writes):
            model.save_pretrained(home, is_main_process=writes)


@contextlib.contextmanager
def _gathered(model: Any, writes: bool) -> Iterator[None]:
    """Inside, what PEFT takes out of ``model`` to write it is whole: one shard after the other is
    gathered."""
    home = sys.modules[next(base for base in type(model).__mro__ if _is_model(base)).__module__]
    taken = home.get_peft_model_state_dict

    def take(*args: Any, **how: Any) -> dict[str, Any]:
        found = ((name, _whole(value)) for name, value in taken(*args, **how).items())
        return {name: value for name, value in found if writes}

    with in_place("get_peft_model_state_dict", take, home):
        yield


def _whole(value: Any) -> Any:
    if not hasattr(value, "full_tensor"):
        return value
    return value.to(value.device_mesh.device_type).full_tensor().cpu()  # also of offloaded shards
