# SPDX-License-Identifier: BSD-3-Clause
"""Models of PEFT: which of their tensors are saved, and the files where PEFT looks for them."""

from __future__ import annotations

import os
from typing import Any

ADAPTER_CONFIG = "adapter_config.json"


def is_peft(model: Any) -> bool:
    """Whether it is a ``PeftModel``; its layers are of PEFT, too, but no models.  PEFT is not
    imported."""
    return any(
        base.__name__ == "PeftModel" and base.__module__.partition(".")[0] == "peft"
        for base in type(model).__mro__
    )


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


def write_adapters(module: Any, directory: str) -> None:
    """Write ``adapter_model.safetensors`` and ``adapter_config.json`` of the model of PEFT that
    ``module`` is or holds; of further ones that it holds, into a directory with their name."""
    for i, (name, model) in enumerate(peft_models(module).items()):
        home = os.path.join(directory, name) if i else directory
        os.makedirs(home, exist_ok=True)
        model.save_pretrained(home)
