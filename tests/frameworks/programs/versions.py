# SPDX-License-Identifier: BSD-3-Clause
"""Prints where the package comes from, and the versions of the packages that it is given."""

import importlib.metadata
import sys

import sidestep

print("sidestep", sidestep.__file__)
for name in sys.argv[1:]:
    print(name, importlib.metadata.version(name))
