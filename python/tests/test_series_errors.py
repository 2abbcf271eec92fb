# SPDX-License-Identifier: BSD-3-Clause
"""Where one rank of a `Checkpointer` fails, all ranks get an error that names it and says why, at
once: none is left waiting for one that will not come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import sidestep
from sidestep import Checkpointer


class Part:
    """Raises on one rank, in the method that is asked for."""

    def __init__(self, raises: str = "", rank: int = -1) -> None:
        self.w = torch.zeros(8)
        self._raises = raises if dist.get_rank() == rank else ""

    def state_dict(self) -> dict[str, Any]:
        return self._do("state_dict", {"w": self.w})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._do("load_state_dict", state)

    def may_lack(self, name: str) -> bool:
        return bool(self._do("may_lack", True))

    def _do(self, method: str, result: Any) -> Any:
        if self._raises == method:
            raise ValueError(f"no {method} today")
        return result


def told(call: Callable[[], object]) -> str:
    began = time.monotonic()
    try:
        call()
        return "no error"
    except Exception as error:
        assert time.monotonic() - began < 30
        return f"{type(error).__name__}: {error}"


def all_places(rank: int, root: str) -> dict[str, str]:
    """Each place where one rank can fail by itself, and what this one was told."""
    found = {}
    with Checkpointer(root, signals=()) as checkpoints:
        checkpoints.save(1, Part()).wait()
        for method in ("state_dict", "load_state_dict"):
            for culprit in (0, 1):
                part = Part(method, culprit)
                at = f"{method} {culprit}"
                found[f"load {at}"] = told(lambda part=part: checkpoints.load(part))
                found[f"resume {at}"] = told(lambda part=part: checkpoints.resume(part))
                found[f"in a dict {at}"] = told(
                    lambda part=part: sidestep.load({"part": part}, checkpoint_id=f"{root}-parts")
                )
        found["save state_dict 1"] = told(lambda: checkpoints.save(2, Part("state_dict", 1)))
        lacks = {"part": Part("may_lack", 1)}
        found["load may_lack 1"] = told(lambda: checkpoints.load(lacks))
        real = checkpoints.latest

        def no_latest() -> Any:
            raise OSError("no listing today")

        checkpoints.latest = no_latest  # type: ignore[method-assign]
        found["load latest 0"] = told(lambda: checkpoints.load(Part()))
        checkpoints.latest = real  # type: ignore[method-assign]
        assert checkpoints.load(Part()).step == 1  # all are in step
    return found


def test_one_rank_fails_and_all_are_told(tmp_path: Path) -> None:
    sidestep.save({"part": {"w": torch.zeros(8)}}, checkpoint_id=tmp_path / "r-parts", no_dist=True)
    for rank, found in enumerate(run_ranks(2, all_places, str(tmp_path / "r"))):
        assert len(found) == 15
        for place, said in found.items():
            method, culprit = place.split()[-2:]
            reason = "no listing today" if method == "latest" else f"no {method} today"
            assert reason in said, (rank, place, said)
            assert (f"rank {culprit}" in said) == (int(culprit) != rank), (rank, place, said)
            kind = "OSError" if method == "latest" else "ValueError"
            assert said.startswith(kind) == (int(culprit) == rank), (rank, place, said)


def note_at_the_end(rank: int, root: str) -> str:
    """Rank 0's word counts, so it alone finds out that it is none."""
    with Checkpointer(root, signals=()) as checkpoints:
        checkpoints.save(1, Part()).wait()
        metrics = {"no note": 1.0}
        said = told(lambda: checkpoints.save(1, Part(), final=True, metrics=metrics))
        checkpoints.save(2, Part()).wait()  # all are in step
    return said


def test_a_last_note_that_fails(tmp_path: Path) -> None:
    mine, theirs = run_ranks(2, note_at_the_end, str(tmp_path / "r"))
    assert "metric 'no note'" in mine and "rank 0" not in mine
    assert "metric 'no note'" in theirs and "rank 0" in theirs


def test_a_forgotten_resume_is_named(tmp_path: Path) -> None:
    """In Python's words, and before anything is written."""
    with Checkpointer(tmp_path) as checkpoints:
        checkpoints.save(1, {"w": torch.ones(8)})
    with Checkpointer(tmp_path) as checkpoints:
        with pytest.raises(sidestep.Error) as refused:
            checkpoints.save(1, {"w": torch.zeros(8)})
        assert refused.value.status == sidestep.Status.EEXISTS
        assert "has to resume before its first save (resume())" in refused.value.message
        assert "sidestep_" not in refused.value.message
        checkpoints.resume({"w": torch.zeros(8)})
        with pytest.raises(sidestep.Error, match="this run has resumed from it"):
            checkpoints.save(1, {"w": torch.zeros(8)})
    assert (sidestep.read(tmp_path / "step-1", "w") == 1).all()
