# SPDX-License-Identifier: BSD-3-Clause
"""``python -m sidestep``: the command line, where the command itself is not on PATH."""

from ._cli import main

main()
