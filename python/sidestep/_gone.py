# SPDX-License-Identifier: BSD-3-Clause
"""What is given back when an object of ours is collected, and not at the end of the interpreter.

``__del__`` and callbacks of weak references also run while modules are taken down, when the globals
that they need are None already: the user sees a traceback that means nothing.  What belongs to the
process alone needs no giving back then.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


def when_gone(
    owner: Any, function: Callable[..., object], *arguments: Any
) -> weakref.finalize[Any, Any]:
    """Call ``function(*arguments)``, which must not refer to ``owner``, once that is collected: on
    any thread, in the middle of anything.  From the exit handlers of the interpreter on, never."""
    made = weakref.finalize(owner, function, *arguments)
    made.atexit = False
    return made
