# SPDX-License-Identifier: BSD-3-Clause
"""A signal handler that saves, at each place of a call where the interpreter looks for signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from places import at_place

import sidestep
from sidestep._engine import engine_alone
from sidestep._exit import drain, ending
from sidestep._handle import in_flight

PACKAGE = os.path.dirname(sidestep.__file__)


def handled(job: Callable[[], Any], handler: Callable[[], None], place: int) -> tuple[Any, bool]:
    """Run ``job``, and ``handler`` at the ``place``-th such place in the package.  Returns what the
    job did, and whether it came so far."""
    return at_place(job, place, handler, lambda path: path.startswith(PACKAGE))


def _save(state: dict[str, Any], path: Path) -> None:
    sidestep.save(state, checkpoint_id=path)


def _async_save(state: dict[str, Any], path: Path) -> None:
    sidestep.async_save(state, checkpoint_id=path).result()


def _load(state: dict[str, Any], path: Path) -> None:
    other = {name: torch.zeros_like(value) for name, value in state.items()}
    sidestep.load(other, checkpoint_id=path / "before")
    assert torch.equal(other["w"], torch.full((3,), -1.0))
    _save(state, path)


# Each place takes minutes: STEP=1 in the environment.
STEP = int(os.environ.get("STEP", "23"))


@pytest.mark.parametrize("job", [_save, _async_save, _load])
@pytest.mark.parametrize("same", [True, False], ids=["same layout", "another layout"])
def test_a_handler_saves_wherever_it_comes(
    tmp_path: Path, job: Callable[[dict[str, Any], Path], None], same: bool
) -> None:
    _save({"w": torch.full((3,), -1.0)}, tmp_path / "outer" / "before")
    name = "w" if same else "emergency"

    def handler() -> None:
        _save({name: torch.full((3,), float(place))}, tmp_path / "inner")

    place, came_so_far = 1 + 7 * same, True
    while came_so_far:
        outer = {"w": torch.full((3,), 0.5 - place)}
        _, came_so_far = handled(lambda: job(outer, tmp_path / "outer"), handler, place)  # noqa: B023
        assert torch.equal(sidestep.read(tmp_path / "outer", "w"), outer["w"]), place
        if came_so_far:
            inner = sidestep.read(tmp_path / "inner", name)
            assert torch.equal(inner, torch.full((3,), float(place))), place
        place += STEP
    assert place > 300


@pytest.fixture
def _signal() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("_signal")
def test_while_a_save_waits_for_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Any] = []

    def emergency(*_: Any) -> None:
        saved.append(sidestep.save({"step": 99}, checkpoint_id=tmp_path / "last"))

    signal.signal(signal.SIGUSR1, emergency)
    engine = engine_alone()
    real = type(engine)._wait_for_turn

    def wait(self: Any, queue: int) -> Any:
        if not saved:
            saved.append(None)
            signal.raise_signal(signal.SIGUSR1)
        return real(self, queue)

    monkeypatch.setattr(type(engine), "_wait_for_turn", wait)
    sidestep.async_save({"w": torch.ones(9)}, checkpoint_id=tmp_path / "next").result()
    assert len(saved) == 2
    assert sidestep.read(tmp_path / "last") == {"step": 99}
    assert sidestep.read(tmp_path / "next", "w").sum() == 9


def test_a_handler_that_raises_is_still_heard_after_one_that_saves(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    place, raised = 1, 0
    while place < 400:

        def handler() -> None:
            sidestep.save({"step": place}, checkpoint_id=tmp_path / "inner")  # noqa: B023
            raise Stop

        try:
            _save({"w": torch.ones(1)}, tmp_path / "outer")
            handled(lambda: _save({"w": torch.ones(1)}, tmp_path / "outer"), handler, place)
        except Stop:
            raised += 1
        place += 41
    assert raised > 3


def test_the_end_follows_a_save_that_a_handler_has_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    def handler(_: object) -> None:
        raise Stop

    monkeypatch.setattr(ending, "drained", False)
    monkeypatch.setattr(ending, "until", time.monotonic() + 60)
    drain()  # a test before this one may have cut off a save as well
    with monkeypatch.context() as patch:
        patch.setattr("sidestep._handle.in_background", handler)
        with pytest.raises(Stop):
            sidestep.async_save({"step": 7}, checkpoint_id=tmp_path / "cut")
    assert [handle.path for handle in in_flight()] == [str(tmp_path / "cut")]
    drain()
    assert in_flight() == []
    assert sidestep.read(tmp_path / "cut") == {"step": 7}


FIRST_CALL = """
    import os, signal, sys

    import sidestep

    class Finder:
        "Asks for a save while torch is imported."

        def find_spec(self, name, path, target=None):
            if name == {during!r}:
                sys.meta_path.remove(self)
                os.kill(os.getpid(), signal.SIGUSR1)

    def emergency(*_):
        sidestep.save({{"step": 99}}, checkpoint_id=root + "/last")

    root = sys.argv[1]
    signal.signal(signal.SIGUSR1, emergency)
    sys.meta_path.insert(0, Finder())
    {first}
    import os.path
    assert os.path.exists(root + "/last/.metadata"), os.listdir(root)
    assert os.path.exists(root + "/first"), os.listdir(root)
"""


@pytest.mark.parametrize(
    "first",
    [
        'sidestep.save({"step": 1}, checkpoint_id=root + "/first")',
        'sidestep.Checkpointer(root + "/first", signals=()).save(1, {"step": 1}).result()',
    ],
    ids=["save", "Checkpointer"],
)
@pytest.mark.parametrize("during", ["torch.nn", "torch.distributed.checkpoint.planner"])
def test_during_the_first_call(tmp_path: Path, first: str, during: str) -> None:
    # A real start: the servers of other tests have imported torch.
    script = textwrap.dedent(FIRST_CALL.format(during=during, first=first))
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
