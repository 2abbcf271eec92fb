# SPDX-License-Identifier: BSD-3-Clause
"""The command ``sidestep``: becomes the program that the wheel carries."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def program() -> str:
    """Path of the command line program in this package; it need not exist."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "sidestep")


def main() -> NoReturn:
    """Replace this process, so that signals, output and exit status are the program's own."""
    path = program()
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(path, ["sidestep", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"sidestep: {path}: {error.strerror}; the wheel of sidestep has it")
