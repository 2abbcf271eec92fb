# SPDX-License-Identifier: BSD-3-Clause
"""The command ``sidestep``, or ``python -m sidestep``: runs the program in the wheel."""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Replace this process, so that signals, output and exit status are the program's own."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "sidestep")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(path, ["sidestep", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"sidestep: {path}: {error.strerror}; the wheel of sidestep has it")


if __name__ == "__main__":
    main()
