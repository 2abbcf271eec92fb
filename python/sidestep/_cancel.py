# SPDX-License-Identifier: BSD-3-Clause
"""Long calls of the library that an interrupt stops: each in a thread, so that this one sees it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from ._abi import ErrorInfo
from ._errors import check


def run_cancellable(name: str, options: Any, call: Callable[[Any], int]) -> None:
    """``call(err)`` in a thread called ``name``; an interrupt cancels it by ``options.cancel``, and
    is raised when it has ended.  Errors: `Error`."""
    cancel = ctypes.c_bool(False)
    err = ErrorInfo()
    status = [0]
    options.cancel = ctypes.pointer(cancel)

    def run() -> None:
        status[0] = call(ctypes.byref(err))

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    except BaseException:
        cancel.value = True
        thread.join()
        raise
    check(status[0], err)
