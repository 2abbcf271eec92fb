# SPDX-License-Identifier: BSD-3-Clause
"""Prints "base MODULE.NAME" for each base of the class that is named."""

import importlib
import sys

module, _, name = sys.argv[1].rpartition(".")
for base in getattr(importlib.import_module(module), name).__mro__:
    print("base", f"{base.__module__}.{base.__name__}")
