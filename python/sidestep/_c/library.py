# SPDX-License-Identifier: BSD-3-Clause
"""Finds libsidestep on first use: by SIDESTEP_LIBRARY, in the package, or on the system.

Importing the package loads nothing, so that a process that only passes names around (a spawned
helper, a documentation build) needs no library.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Optional

from .abi import PROTOTYPES, VERSION

SONAME = "libsidestep.so.0"
VARIABLE = "SIDESTEP_LIBRARY"
NEEDS = "libzstd1 libxxhash0 libisal2 liburing2 libjansson4 libnettle8 zlib1g libcurl4 libexpat1"

_loaded: Optional[ctypes.CDLL] = None
_lock = threading.RLock()


def lib() -> ctypes.CDLL:
    """The library, with its functions declared.  Any thread; calls into it release the GIL.

    ImportError: none can be used; the message lists what was tried, and why each failed.
    """
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def _new_lock() -> None:
    """In a child of fork(): a thread that held the lock does not exist here."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)


def _places() -> list[tuple[str, str]]:
    """(path or soname, its name in messages), first choice first.  If a library was named or
    bundled and cannot be used, the system's is not tried."""
    bundled = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), SONAME)
    named = os.environ.get(VARIABLE)
    places = [(bundled, "of the package")] if os.path.exists(bundled) else []
    places += [(named, f"from {VARIABLE}")] if named else []
    return places or [(SONAME, "the system's")]


def _load() -> ctypes.CDLL:
    """The first that can be used."""
    problems = []
    for path, name in _places():
        try:
            return _open(path)
        except (OSError, ImportError) as error:
            problems.append(f"\n  tried {path} ({name}): {error}")
    raise ImportError(
        f"libsidestep {VERSION} cannot be loaded:{''.join(problems)}\n"
        f"Install the wheel of sidestep, or set {VARIABLE} to the path of {SONAME}.  If a library "
        f"that it needs is missing (on Debian: {NEEDS}), install that.",
        name="libsidestep",
    )


def _open(path: str) -> ctypes.CDLL:
    """Load one library; ImportError: it is not ours, or lacks something that `abi` declares."""
    library = ctypes.CDLL(path)
    try:
        version_of = library.sidestep_version
    except AttributeError:
        raise ImportError("is not libsidestep: it has no sidestep_version()") from None
    version_of.restype = ctypes.c_char_p
    version = version_of().decode("utf-8", "replace")
    if version.split(".")[:2] != VERSION.split(".")[:2]:
        raise ImportError(f"is version {version}; this package needs {VERSION}")
    for name, (result, parameters) in PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"version {version} lacks {name}(): an older build?") from None
        function.restype, function.argtypes = result, parameters
    return library
