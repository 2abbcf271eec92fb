# SPDX-License-Identifier: BSD-3-Clause
"""The last save of a run: what it waits for, and what it is exported to."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Callable, Optional

from ._after_exit import leave_process
from ._c import abi
from ._c.abi import Status
from ._c.checked import a_path, absolute
from ._c.errors import Error, make_error
from ._convert import Final, export
from ._mirror import Mirror, cancelled_when, close_series

if TYPE_CHECKING:
    from ._handle import SaveHandle
    from ._series import Series

log = logging.getLogger("sidestep")


class LastSave:
    """``final``, ``mirror`` and ``near`` of a `Checkpointer`.  TypeError: one is not valid."""

    def __init__(
        self, root: str, final: Optional[Final], mirror: Optional[Mirror], near: Optional[str]
    ) -> None:
        if final is not None and not isinstance(final, Final):
            raise TypeError(f"final={final!r} is not a sidestep.Final")
        self._final = final
        self._mirror = mirror
        self._hands_over = mirror is not None and mirror.after_exit
        # With near="shared", other ranks than 0 need not know of the mirror.
        self._is_together = final is not None or mirror is not None or near == "shared"
        self._may_hand_over = mirror is not None or near == "shared"
        # The place that lasts longest: what is exported lies there.
        self.root = root if mirror is None else absolute(a_path(mirror.root, "mirror: root"))

    def opened(self, series: Series) -> Series:
        """``series``, when it was opened.  `Error`, on all ranks: the end of the run will not work;
        then it is closed.  EUNSUPPORTED: no place that rank 0 sees will have what is to be
        exported; or see `leave_process`."""
        try:
            self._prepare(series)
        except Exception:
            series.close()
            raise
        return series

    def _prepare(self, series: Series) -> None:
        from ._torch.load import agreed

        if self._final is not None and series.is_per_node and self._mirror is None:
            raise make_error(
                f"final={self._final!r}: each node has a directory for itself at '{series.root}', "
                "so only a mirror has whole checkpoints, and there is none",
                status=Status.EUNSUPPORTED,
            )
        if not self._may_hand_over:
            return
        any_rank, waits = series.engine.any_rank, self._mirror is not None and not self._hands_over
        self._hands_over, others_wait = any_rank(self._hands_over), any_rank(waits)
        if self._hands_over and others_wait:
            raise make_error(
                f"open '{series.root}': the ranks have different after_exit of their mirrors",
                status=Status.EDISAGREE,
            )
        with agreed(series.engine, series.root, Exception):
            if self._hands_over and self._mirror is not None and series.leads:
                leave_process(series.root, self._mirror)

    def finish(
        self,
        series: Series,
        handle: SaveHandle,
        step: int,
        mirror: Optional[abi.MirrorOptions],
        give_up: Callable[[str], None],
    ) -> None:
        """Wait for the commit, until the mirror has it, and for the export.  ``give_up`` is called,
        with the reason, if it is not committed when the engine's time is over.  ``mirror``: see
        `attach`.  Collective, if there is more than the commit to wait for."""
        from ._torch.load import agreed

        engine = series.engine
        together = agreed(engine, handle.path, Exception)
        with together if self._is_together else contextlib.nullcontext():
            if not handle._wait_until(engine.comm.waits_until):
                give_up(f"save '{handle.path}' was not committed within the grace time")
        must_wait = not self._hands_over or (self._final is not None and series.is_per_node)
        if self._is_together and must_wait:
            with cancelled_when(mirror, engine.comm.waits_until):
                series.flush()
        if self._final is not None:
            with agreed(engine, handle.path, Exception):
                self._export(self._final, series, handle, step)

    def close(
        self,
        series: Series,
        mirror: Optional[abi.MirrorOptions],
        may_give_up: Callable[[], bool],
    ) -> None:
        """Close ``series``: see `close_series`.  With ``after_exit`` nothing is sent."""
        mirror = mirror if series.engine.rank == 0 else None  # the others wait for rank 0
        if not self._hands_over:
            close_series(series, mirror, series.engine.comm.waits_until, may_give_up)
            return
        if mirror is not None:
            mirror.cancel.contents.value = True
        try:
            series.close()
        except Error as unsent:
            if unsent.status is not Status.ECANCELLED:
                raise
        log.info("%s: what the mirror lacks is sent when this process has ended", series.root)

    def _export(self, final: Final, series: Series, handle: SaveHandle, step: int) -> None:
        """On rank 0, from the nearest place that has the whole checkpoint."""
        if series.engine.rank != 0:
            return
        source, path = handle.path, final.path_in(self.root)
        if series.is_per_node:
            source = os.path.join(self.root, os.path.basename(source))
        export(source, path, final)
        series.exported(step, path)
