# SPDX-License-Identifier: BSD-3-Clause
"""Signals that announce the end of the job (preemption, Slurm's --signal, torchrun's SIGTERM): they
ask for a last checkpoint and the end of the run.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Optional, Union

log = logging.getLogger("sidestep")


class Preempted(SystemExit):
    """The run was asked to end, and its last checkpoint is committed or its grace time is over.

    Like any SystemExit it ends the program with ``code``, and runs ``finally`` and ``with`` blocks.
    ``signal``: the signal that this process got; None: another rank got it
    """

    def __init__(self, number: Optional[int], code: int) -> None:
        super().__init__(code)
        self.signal = number


class Signals:
    """Handlers of signals, from `install` to `remove`.

    The first signal only calls ``request``, because a handler runs between any two instructions of
    the program.  A second signal does what it did before the handler was installed.
    """

    def __init__(self, names: Iterable[Union[str, int]], request: Callable[[], None]) -> None:
        """``request``: a bound method; its object is not kept alive."""
        names = [names] if isinstance(names, (str, int)) else names
        if not isinstance(names, Iterable):
            raise TypeError(f"signals: names or numbers of signals are wanted, not {names!r}")
        self.numbers = list(dict.fromkeys(_number(name) for name in names))
        self.received: Optional[int] = None
        # If nobody removes the handlers, they stay, but keep no object alive.
        self._request = weakref.WeakMethod(request)
        self._before: dict[int, Any] = {}
        self._removed = False  # though, elsewhere than on the main thread, still installed
        self._pid = os.getpid()

    def install(self) -> None:
        """Install the handlers.  Only the main thread can; others warn that signals are ignored."""
        if self.numbers and threading.current_thread() is not threading.main_thread():
            log.warning("signals are not handled: this is not the main thread")
            return
        for number in self.numbers:
            self._before[number] = signal.signal(number, self._handle)

    def remove(self) -> None:
        """Restore the earlier handlers, where nobody has replaced ours."""
        self._removed = True
        if self._pid != os.getpid() or (threading.current_thread() is not threading.main_thread()):
            return
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle and before is not None:
                signal.signal(number, before)
        self._before.clear()

    def _handle(self, number: int, frame: Any) -> None:
        before = self._before.get(number)
        request = self._request()
        is_mine = request is not None and self._pid == os.getpid() and not self._removed
        if request is None or not is_mine or self.received is not None:
            if callable(before):
                before(number, frame)
            elif before != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self.received = number
        request()


def _number(name: Union[str, int]) -> int:
    if not isinstance(name, (str, int)):
        raise TypeError(f"signals: {name!r} is neither the name nor the number of one")
    found: Any = name
    if not isinstance(name, int):
        found = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
    if not isinstance(found, int) or found not in signal.valid_signals():
        raise ValueError(f"{name!r} is not a signal")
    if found in (signal.SIGKILL, signal.SIGSTOP):
        raise ValueError(f"{name!r} cannot be handled")
    return int(found)
