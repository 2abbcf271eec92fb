# SPDX-License-Identifier: BSD-3-Clause
"""Megatron-core: strategies of its ``dist_checkpointing`` that save and load with sidestep.

    from sidestep.megatron import TorchDistLoadShardedStrategy, TorchDistSaveShardedStrategy

    request = dist_checkpointing.save(state, path, TorchDistSaveShardedStrategy(),
                                      async_sharded_save=True)
    state = dist_checkpointing.load(state, path, TorchDistLoadShardedStrategy())

They have the names of Megatron's own, are subclasses of them, and write and read the same files
(``torch_dist``).  ``python -m sidestep.run --adapt megatron`` puts them in their place.
docs/FRAMEWORKS.md has more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import tempfile
import time
import uuid
from typing import Any, Optional

from megatron.core.dist_checkpointing.core import CONFIG_FNAME, CheckpointingConfig
from megatron.core.dist_checkpointing.strategies import common as _common
from megatron.core.dist_checkpointing.strategies import torch as _stock
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest

from ._c.abi import Status
from ._c.errors import Error
from ._directory import tell_once
from ._engine import engine_for
from ._files import Files
from ._handle import SaveHandle
from ._option_groups import SaveOptions, save_options
from ._read import read_file
from ._redirect import in_place
from ._torch import originals
from ._torch.plugins import Reader, leaves_of_plan, start_save
from ._torch.stock import failures_as_errors

_COMMON = _common.COMMON_STATE_FNAME
_ITERATION = re.compile(r"iter_0*(\d+)")
_NO_FILE_OF_OURS = (Status.ENOTFOUND, Status.EUNCOMMITTED, Status.EUNSUPPORTED)
_POLL_S = 0.02
_told: set[str] = set()


# ---------------------------------------------------------------- saves


class TorchDistSaveShardedStrategy(_stock.TorchDistSaveShardedStrategy):
    """Megatron's, with saves by sidestep.  ``options``: how it saves; the other arguments are
    Megatron's.  Its threads, its worker process and its cache of plans are not used.

    ``common.pt`` and ``metadata.json`` are files of the save, too: a copy by ``sidestep cp`` is one
    that Megatron loads.  The files that Megatron itself writes there stay Megatron's.
    """

    def __init__(
        self,
        backend: str = "torch_dist",
        version: int = 1,
        *args: Any,
        options: Optional[SaveOptions] = None,
        **how: Any,
    ) -> None:
        super().__init__(backend, version, *args, **how)
        self.options = save_options(options)

    def async_save(
        self, sharded_state_dict: Any, checkpoint_dir: Any, *more: Any, **how: Any
    ) -> Any:
        """Begin the save, which needs nobody to schedule it.  Collective.

        Returns when the tensors may change.  The request that it returns is over on this rank when
        the save has ended; its first function to finalize waits for the commit, and raises what
        failed on any rank.  So what Megatron does afterwards is done only for a whole checkpoint.
        """
        if _is_remote():
            return super().async_save(sharded_state_dict, checkpoint_dir, *more, **how)
        path = os.fspath(checkpoint_dir)
        handle = self._start(sharded_state_dict, path)
        sign = _Sign()
        handle.add_done_callback(lambda _: sign.close())
        is_first = engine_for(ways=self.options.ways).rank == 0

        def finalize() -> None:
            handle.result()
            if is_first:
                _make_room(path)

        return AsyncRequest(_wait_for, (sign.pid, sign.number, sign.name), [finalize])

    def _start(self, state: Any, path: str) -> SaveHandle:
        engine = engine_for(ways=self.options.ways)
        is_first = engine.rank == 0

        def made() -> Any:
            main = self.keep_only_main_replica
            by_key, *_ = _stock._replace_state_dict_keys_with_sharded_keys(state, main)
            planner = _stock.MCoreSavePlanner(
                dedup_replicated_tensors=not main, flatten_state_dict=False
            )
            planner.set_up_planner(
                _stock.mcore_to_pyt_state_dict(by_key, False), is_coordinator=is_first
            )
            leaves = leaves_of_plan(planner.create_local_plan(), planner)
            return engine.states.get(leaves, strict_objects=self.options.strict_objects)

        iteration = _ITERATION.fullmatch(os.path.basename(os.path.normpath(path)))
        return start_save(
            engine,
            path,
            made,
            files=lambda: self._files(path) if is_first else {},
            step=int(iteration[1]) if iteration else None,
            compress=self.options.compress,
            spread_s=self.options.spread_s,
        )

    def _files(self, path: str) -> Files:
        """What Megatron has written to ``path`` before, and what it writes there afterwards."""
        config = CheckpointingConfig(self.backend, self.version)
        files: dict[str, Any] = {CONFIG_FNAME: json.dumps(dataclasses.asdict(config)).encode()}
        common = pathlib.Path(path, _COMMON)
        if common.exists():
            files[_COMMON] = common
        return files


class _Sign:
    """Tells other processes of this host that something is under way: a descriptor with a name of
    its own, which is open until then.  It leaves nothing behind, however this process ends."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.name = f"sidestep-{uuid.uuid4().hex}"
        self.number = os.memfd_create(self.name)

    def close(self) -> None:
        """It is over.  To be called once."""
        if os.getpid() == self.pid:
            os.close(self.number)


def _wait_for(pid: int, number: int, name: str) -> None:
    """Wait for the end of a save of process ``pid``, or of that process.  Megatron calls it in a
    process of its own.  In ``pid`` itself nothing is to be done: what follows waits."""
    with contextlib.suppress(OSError):
        while os.getpid() != pid and name in os.readlink(f"/proc/{pid}/fd/{number}"):
            time.sleep(_POLL_S)


def _make_room(path: str) -> None:
    """Megatron writes its ``metadata.json`` now.  Where that name leads to the file of the save, it
    is removed before: Megatron would write into that file."""
    name = os.path.join(path, CONFIG_FNAME)
    stored = [entry for entry in os.scandir(path) if re.fullmatch(r"__0_.*\.file", entry.name)]
    with contextlib.suppress(FileNotFoundError):
        if any(os.path.samefile(name, entry.path) for entry in stored):
            os.remove(name)


def _is_remote() -> bool:
    """Whether Megatron saves through its multi-storage client."""
    enabled = bool(_stock.MultiStorageClientFeature.is_enabled())
    if enabled:
        tell_once("Megatron's own save is used: its multi-storage client is enabled", _told)
    return enabled


# ---------------------------------------------------------------- loads


class TorchDistLoadShardedStrategy(_stock.TorchDistLoadShardedStrategy):
    """Megatron's, with loads by sidestep, of what Megatron has saved, too.  Every byte that is read
    is checked.  ``allow_pickle``: load also objects that are more than data."""

    def __init__(self, *args: Any, allow_pickle: bool = False, **how: Any) -> None:
        super().__init__(*args, **how)
        self.allow_pickle = allow_pickle

    def load(self, sharded_state_dict: Any, checkpoint_dir: Any, *more: Any) -> Any:
        """See Megatron; torch's functions that it calls are ours."""
        reader = Reader(checkpoint_dir, allow_pickle=self.allow_pickle)

        def fill(state: Any, _: Any = None, *, planner: Any = None, no_dist: bool = False) -> None:
            with failures_as_errors(f"load '{reader.path}'"):
                originals.load(state, storage_reader=reader, planner=planner, no_dist=no_dist)

        if _is_remote():
            return super().load(sharded_state_dict, checkpoint_dir, *more)
        with in_place("load_state_dict", fill), in_place("load", fill):
            return super().load(sharded_state_dict, checkpoint_dir, *more)


# Megatron-core after 0.16 saves what is common as one of the objects, and has no such class.
_CommonLoad: Any = getattr(_common, "TorchCommonLoadStrategy", object)


class TorchCommonLoadStrategy(_CommonLoad):
    """Megatron's, which reads the ``common.pt`` that was saved with the tensors, and is checked by
    its hash.  The one in the directory may be of a later save that was killed."""

    def load_common(self, checkpoint_dir: Any) -> Any:
        """See Megatron."""
        if _is_remote():
            return super().load_common(checkpoint_dir)
        try:
            common = read_file(checkpoint_dir, _COMMON)
        except Error as error:
            if error.status not in _NO_FILE_OF_OURS:
                raise
            return super().load_common(checkpoint_dir)
        with tempfile.TemporaryDirectory() as place:
            pathlib.Path(place, _COMMON).write_bytes(common)
            return super().load_common(place)
