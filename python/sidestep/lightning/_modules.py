# SPDX-License-Identifier: BSD-3-Clause
"""Lightning under the name by which the program has it: ``lightning`` or ``pytorch_lightning``.

The two packages have the same classes twice, and neither takes those of the other.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_IS_OLD_NAME = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
PYTORCH = "pytorch_lightning" if _IS_OLD_NAME else "lightning.pytorch"
FABRIC = "lightning_fabric" if _IS_OLD_NAME else "lightning.fabric"


def of_pytorch(name: str) -> Any:
    """The module ``lightning.pytorch.NAME``."""
    return importlib.import_module(f"{PYTORCH}.{name}")


def of_fabric(name: str) -> Any:
    """The module ``lightning.fabric.NAME``."""
    return importlib.import_module(f"{FABRIC}.{name}")
