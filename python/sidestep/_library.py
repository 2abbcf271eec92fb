# SPDX-License-Identifier: BSD-3-Clause
"""Finds libsidestep on first use: beside this file, as SIDESTEP_LIBRARY says, or the system's.

Importing the package loads nothing, so that a process that only passes names around (a spawned
helper, a documentation build) needs no library.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Optional

from . import _abi
from ._prototypes import PROTOTYPES

SONAME = "libsidestep.so.0"
VARIABLE = "SIDESTEP_LIBRARY"
NEEDS = "libzstd1 libxxhash0 libisal2 liburing2 libjansson4 libnettle8 zlib1g"

_loaded: Optional[ctypes.CDLL] = None
_lock = threading.Lock()


def lib() -> ctypes.CDLL:
    """The library, its functions declared.  From any thread; calls into it release the GIL.

    Raises ImportError, with all that was tried and why it did not do, if there is none that fits.
    """
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def _new_lock() -> None:
    """In a child of fork(): the thread that held the lock, if one did, is not here."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


def _places() -> list[tuple[str, str]]:
    """What to load, first choice first: (path or soname, what to call it in messages).

    The system's is no stand-in for one that was named or bundled and is no use.
    """
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)
    named = os.environ.get(VARIABLE)
    places = [(bundled, "of the package")] if os.path.exists(bundled) else []
    if named:
        places.append((named, f"from {VARIABLE}"))
    elif not places:
        places.append((SONAME, "the system's"))
    return places


def _load() -> ctypes.CDLL:
    """The first place that holds a library that can be used; what was wrong with all if none."""
    problems = []
    for path, name in _places():
        try:
            return _open(path)
        except (OSError, ImportError) as error:
            problems.append(f"{path} ({name}): {error}")
    tried = "".join(f"\n  tried {problem}" for problem in problems)
    raise ImportError(
        f"libsidestep {_abi.VERSION} cannot be loaded:{tried}\n"
        f"Install the wheel of sidestep, or set {VARIABLE} to the path of {SONAME}.  If a library "
        f"that it needs is missing (on Debian: {NEEDS}), install that.",
        name="libsidestep",
    )


def _open(path: str) -> ctypes.CDLL:
    """Load one library and check that it is ours and speaks the language of `_abi`."""
    library = ctypes.CDLL(path)
    try:
        version_of = library.sidestep_version
    except AttributeError:
        raise ImportError("is not libsidestep: it has no sidestep_version()") from None
    version_of.restype = ctypes.c_char_p
    version = version_of().decode("utf-8", "replace")
    if version.split(".")[:2] != _abi.VERSION.split(".")[:2]:
        raise ImportError(f"is version {version}; this package needs {_abi.VERSION}")
    for name, (result, parameters) in PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"version {version} lacks {name}(): an older build?") from None
        function.restype = result
        function.argtypes = parameters
    return library
