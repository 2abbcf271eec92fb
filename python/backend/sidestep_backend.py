# SPDX-License-Identifier: BSD-3-Clause
"""Builds the wheel with meson-python, and then names it for what is in it.

The package has a library and a program, but no extension module: it runs on any Python 3.
meson-python takes everything native beside Python files for an extension module of the Python that
builds it ("cp311-cp311"), and has no setting for that.
"""

import pathlib
import subprocess
import sys

from mesonpy import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)
from mesonpy import build_wheel as _build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """As PEP 517 has it; the wheel is py3-none-PLATFORM."""
    name = _build_wheel(wheel_directory, config_settings, metadata_directory)
    command = ["tags", "--remove", "--python-tag=py3", "--abi-tag=none"]
    done = subprocess.run(
        [sys.executable, "-m", "wheel", *command, str(pathlib.Path(wheel_directory, name))],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return pathlib.Path(done.stdout.split()[-1]).name
