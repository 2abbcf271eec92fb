# SPDX-License-Identifier: BSD-3-Clause
"""The small files of a save."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

from ._c import abi
from ._c.calls import call
from ._c.checked import a_text
from ._c.errors import error_of_os
from ._c.library import lib

Contents = Union[bytes, bytearray, memoryview, "os.PathLike[str]", "FirstRank", "Alias", "Taken"]
Files = Mapping[str, Contents]


@dataclass(frozen=True)
class Taken:
    """The file at a path, which the save reads in the background: it gets a second name, or is
    copied.  Nobody changes or removes it until the save has ended, or writes to it afterwards."""

    path: str


@dataclass(frozen=True)
class FirstRank:
    """A file that several ranks may have: the one of the lowest rank is saved."""

    contents: Union[bytes, bytearray, memoryview, os.PathLike[str], Taken]


class Alias:
    """No file, but a link to the checkpoint itself."""


def set_files(state: Any, files: Files | None) -> None:
    """Let the next save of ``state``, a struct sidestep_state_dict, have these files alone.

    Errors: `Error`: a file cannot be read, or is refused.  TypeError: these are no contents.
    """
    lib().sidestep_state_dict_clear_files(state)
    for name, contents in (files or {}).items():
        flags = 0
        if isinstance(contents, FirstRank):
            flags, contents = abi.FileFlag.FILE_FIRST_RANK, contents.contents
        if isinstance(contents, Alias):
            flags, contents = abi.FileFlag.FILE_ALIAS, b""
        if isinstance(contents, Taken):
            flags |= abi.FileFlag.FILE_TAKE
            contents = os.fsencode(os.path.abspath(contents.path))
        found = _contents_of(name, contents)
        raw = os.fsencode(a_text(name, "the name of a file"))
        call(lib().sidestep_state_dict_add_file, state, raw, found or None, len(found), flags)


def _contents_of(name: str, contents: Any) -> bytes:
    if isinstance(contents, (bytes, bytearray, memoryview)):
        return bytes(contents)
    if not isinstance(contents, os.PathLike):
        raise TypeError(
            f"files[{name!r}] is a {type(contents).__name__}: give its contents as bytes, or a "
            "pathlib.Path to copy it from"
        )
    try:
        with open(contents, "rb") as file:
            return file.read()
    except OSError as reason:
        raise error_of_os(f"file '{name}': read '{os.fspath(contents)}'", reason) from reason
