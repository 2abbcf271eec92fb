# SPDX-License-Identifier: BSD-3-Clause
"""Things that are not ours: what a program, a person or another tool may have put beside and into
checkpoints. They are planted everywhere, and must be there afterwards, byte for byte.

    there = plant(root)
    ...
    assert changes(there) == []
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

ID = "0123456789abcdef" * 2
NAMES = [  # close to ours, and not ours
    "notes.txt", ".hidden", "events.out.tfevents.1", "__0_0.distcp.bak", "__0_0.distcp~",
    "__00_0.distcp", "__0_0.DISTCP", ".metadata.old", ".metadata~", "metadata", ".sidestep.notes",
    ".sidestep.txt", f".sidestep.{ID}", f".sidestep.{ID[:-1]}.saving", f".sidestep.{ID}.saving.old",
    f".sidestep.{ID.upper()}.trash", f".sidestep.{ID}.bad.1", f"__0_0.{ID}.distcp.part.1",
    f".sidestep.manifest.{ID}.bak", f"__0.{ID}.yes~", "step-", "step-1.bak", "step-x",
    "model.safetensors.index.json.bak", ".sidestep-bench", "lost+found.txt",
]  # fmt: skip
NOT_FILES = [  # what has a name of ours, and is no file
    f".sidestep.{ID}.outcome", f".sidestep.{ID}.pending", f"__9.{ID}.yes", f"__8.{ID}.failed",
    f"__9_0.{ID}.distcp", f"__9_1.{ID}.distcp.part", f"__9_2.{ID}.file", f".metadata.{ID}",
    f".sidestep.manifest.{ID}", f".sidestep.index.{ID}", f".sidestep.{ID}.export",
]  # fmt: skip
HIDDEN = [f".sidestep.{ID[::-1]}.saving", f".sidestep.{ID[1:]}0.trash", f".sidestep.{ID}.bad"]

Things = dict[str, tuple[object, ...]]


def _look(path: str) -> tuple[object, ...]:
    found = os.lstat(path)
    kind = stat.S_IFMT(found.st_mode)
    content: object = None
    if kind == stat.S_IFREG:
        with open(path, "rb") as file:
            content = file.read()
    elif kind == stat.S_IFLNK:
        content = os.readlink(path)
    return (kind, found.st_ino, found.st_mode, found.st_uid, content)


def _socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)  # because the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def _plant_in(folder: Path, outside: Path) -> list[Path]:
    made = []

    def file(path: Path) -> None:
        path.write_text(f"of somebody else: {path.name}\n")
        made.append(path)

    for name in NAMES:
        file(folder / name)
    (folder / "logs/old").mkdir(parents=True)
    (folder / "empty").mkdir()
    made.extend((folder / "logs", folder / "logs/old", folder / "empty"))
    file(folder / "logs/old/events")
    file(folder / "logs/__0_0.distcp")
    for name, target in (
        ("link", outside / "file"), ("way", outside), ("dangling", outside / "no"), ("self", "self")
    ):  # fmt: skip
        (folder / name).symlink_to(target)
        made.append(folder / name)
    os.mkfifo(folder / "fifo")
    _socket(folder / "socket")
    made += [folder / "fifo", folder / "socket"]
    for number, name in enumerate(NOT_FILES):
        path = folder / name
        if number % 4 == 0:
            os.mkfifo(path)
        elif number % 4 == 1:
            path.symlink_to(outside / "file")
        elif number % 4 == 2:
            path.mkdir()
            file(path / "theirs")
        else:
            _socket(path)
        made.append(path)
    return made


def plant(*folders: Path, hidden: bool = False) -> Things:
    """Plant them in each folder, and return what there is. hidden: in directories that killed saves
    have left, too."""
    made: list[Path] = []
    outside = folders[0].parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "file").write_text("somewhere else\n")
    made += [outside, outside / "file"]
    for folder in folders:
        made += _plant_in(folder, outside)
        for name in HIDDEN if hidden else ():
            (folder / name).mkdir()
            (folder / name / "theirs.txt").write_text("in a hidden directory\n")
            made.append(folder / name / "theirs.txt")
    return {str(path): _look(str(path)) for path in made}


def _now(path: str) -> str:
    """Where a thing is now. A directory of ours is renamed as a whole, before a killed save is
    removed and when a resume sets a damaged checkpoint aside: what is in it goes along."""
    if os.path.lexists(path):
        return path
    fenced = path.replace(".saving/", ".trash/")
    if os.path.lexists(fenced):
        return fenced
    root, name, rest = path.rpartition("/step-4/")
    for aside in Path(root).glob(".sidestep.*.bad") if name else ():
        if os.path.lexists(aside / rest) and (aside / ".metadata").exists():
            return str(aside / rest)
    return path


def changes(there: Things) -> list[str]:
    """What is gone, or not what it was."""
    found = []
    for path, was in there.items():
        now = _now(path)
        if not os.path.lexists(now):
            found.append(f"{path}: gone")
        elif _look(now) != was:
            found.append(f"{path}: {was} became {_look(now)}")
    return found
