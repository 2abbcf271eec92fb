# SPDX-License-Identifier: BSD-3-Clause
"""``python -m sidestep.lightning CHECKPOINT FILE``: a directory as a file of Lightning."""

from __future__ import annotations

import argparse
import sys

import torch

from .._c.errors import Error
from .._put import whole_file
from ._files import read_directory


def main() -> int:
    """The exit status: 0, or 1 with a message."""
    parser = argparse.ArgumentParser(
        prog="python -m sidestep.lightning",
        description="Write the checkpoint in the directory CHECKPOINT as FILE, a .ckpt that "
        "Lightning loads without sidestep.  Holds all of it in memory.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="also read objects that are more than data, which runs code from the checkpoint",
    )
    given = parser.parse_args()
    try:
        weights_only = False if given.trust else None
        with whole_file(given.file) as part:
            torch.save(read_directory(given.checkpoint, weights_only=weights_only), part)
    except (Error, OSError) as error:
        print(f"sidestep.lightning: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
