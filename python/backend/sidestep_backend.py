# SPDX-License-Identifier: BSD-3-Clause
"""Builds the wheel with meson-python, and then names it for what is in it.

The package has a library and a program, but no extension module: it runs on any Python 3.
meson-python takes everything native beside Python files for an extension module of the Python that
builds it ("cp311-cp311"), and has no setting for that.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

from mesonpy import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)
from mesonpy import build_sdist as _build_sdist
from mesonpy import build_wheel as _build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]


def build_sdist(sdist_directory, config_settings=None):
    """As PEP 517 has it; with the sources that tools/get-libraries has fetched.

    Then a build of it needs nothing but gcc and make.
    """
    name = _build_sdist(sdist_directory, config_settings)
    path = pathlib.Path(sdist_directory, name)
    whole = path.with_suffix(".part")
    with tarfile.open(path) as made, tarfile.open(whole, "w:gz") as out:
        for member in made:
            out.addfile(member, made.extractfile(member) if member.isfile() else None)
        for source in sorted(pathlib.Path("subprojects/packagefiles").glob("*.tar")):
            out.add(source, f"{name[: -len('.tar.gz')]}/{source}")
    whole.replace(path)
    return name


def _look_for_compiler(config_settings):
    """Meson's own words name no package. Settings may name a compiler."""
    known = config_settings or "CC" in os.environ
    if not known and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        sys.exit(
            "sidestep: there is no C compiler: apt-get install gcc libc6-dev\n"
            "Or install the wheel of sidestep, which needs none."
        )


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """As PEP 517 has it; the wheel is py3-none-PLATFORM."""
    _look_for_compiler(config_settings)
    name = _build_wheel(wheel_directory, config_settings, metadata_directory)
    command = ["tags", "--remove", "--python-tag=py3", "--abi-tag=none"]
    done = subprocess.run(
        [sys.executable, "-m", "wheel", *command, str(pathlib.Path(wheel_directory, name))],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return pathlib.Path(done.stdout.split()[-1]).name
