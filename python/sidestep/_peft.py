# SPDX-License-Identifier: BSD-3-Clause
"""Models of PEFT: which of their tensors are saved, and the files where PEFT looks for them."""

from __future__ import annotations

import os
from typing import Any

ADAPTER_CONFIG = "adapter_config.json"


def is_peft(model: Any) -> bool:
    """Whether it is a model of PEFT.  PEFT is not imported."""
    return any(base.__module__.partition(".")[0] == "peft" for base in type(model).__mro__)


def without_frozen(model: Any, state: dict[str, Any]) -> dict[str, Any]:
    """What of ``state``, its ``state_dict()``, is not of a frozen parameter: adapters, what else is
    trained, and buffers.  A quantized parameter has more entries, which begin with its name."""
    named = model.named_parameters(remove_duplicate=False)
    frozen = {name for name, parameter in named if not parameter.requires_grad}

    def is_frozen(name: str) -> bool:
        while name not in frozen and "." in name:
            name = name.rpartition(".")[0]
        return name in frozen

    return {name: value for name, value in state.items() if not is_frozen(name)}


def write_adapters(model: Any, directory: str) -> None:
    """Write ``adapter_model.safetensors`` and ``adapter_config.json``."""
    os.makedirs(directory, exist_ok=True)
    model.save_pretrained(directory)
