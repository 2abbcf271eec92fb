# SPDX-License-Identifier: BSD-3-Clause
"""The saves under way of all plugins and strategies of this process, by path.

`ModelCheckpoint` asks whether a file exists, links to it, or has it loaded while it is written.
"""

from __future__ import annotations

import weakref
from typing import Optional

from .._handle import SaveHandle
from .._rotation import Rotation

_rotations: weakref.WeakSet[Rotation] = weakref.WeakSet()


def saves_of(rotation: Rotation) -> None:
    """From now on its saves are found, too."""
    _rotations.add(rotation)


def find(path: str) -> Optional[SaveHandle]:
    """The save to ``path`` that is under way."""
    found = (rotation.find(path) for rotation in list(_rotations))
    return next((save for save in found if save is not None), None)


def rotation_of(save: SaveHandle) -> Rotation:
    """The one that ``save`` was added to."""
    return next(rotation for rotation in list(_rotations) if rotation.find(save.path) is save)
