# SPDX-License-Identifier: BSD-3-Clause
"""The options of `Checkpointer` in groups, and what its log says."""

from __future__ import annotations

import inspect
import logging
import os
import signal
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import sidestep
from sidestep._option_groups import GROUPS, OF_SERIES, values_of

NOTHING: dict[str, Any] = dict.fromkeys(GROUPS)


def test_the_first_screen_of_help() -> None:
    parameters = inspect.signature(sidestep.Checkpointer).parameters
    first = ["root", "interval", "keep_last_n", "signals", "final", "name", "mirror", "near"]
    assert list(parameters)[:8] == first
    assert list(parameters)[8:14] == list(GROUPS)
    assert len(parameters) <= 16
    for group, kind in GROUPS.items():
        assert getattr(sidestep, kind.__name__) is kind
        assert f"    {group} " in (sidestep.Checkpointer.__doc__ or "")
        for one in fields(kind):
            assert one.name in (kind.__doc__ or ""), one.name


def test_what_a_group_means() -> None:
    schedule = sidestep.SchedulePolicy(busy="queue", queue=3)
    values = values_of({**NOTHING, "schedule": schedule})
    assert (values["busy"], values["queue"], values["max_lost"]) == ("queue", 3, 0.0)
    assert set(OF_SERIES) < set(values)


def test_a_group_is_taken(tmp_path: Path) -> None:
    with sidestep.Checkpointer(
        tmp_path / "a",
        keep_last_n=1,
        retention=sidestep.RetentionPolicy(keep_every=4),
        callbacks=sidestep.Callbacks(),
    ) as checkpoints:
        for step in range(1, 7):
            checkpoints.save(step, {"weight": torch.ones(2)})
    assert sorted(os.listdir(tmp_path / "a"))[-2:] == ["step-4", "step-6"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep_laast_n": 3}, "unexpected keyword argument 'keep_laast_n'"),
        ({"schedule": sidestep.RetentionPolicy()}, "is not a sidestep.SchedulePolicy"),
        ({"options": {"compress": "zstd"}}, "is not a sidestep.SaveOptions"),
    ],
)
def test_what_makes_no_sense(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        sidestep.Checkpointer(tmp_path / "a", **arguments)
    assert not (tmp_path / "a").exists()


# ---------------------------------------------------------------- the log


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.handler.flush()
    return [r.getMessage() for r in caplog.records if r.name == "sidestep" and r.levelno >= 20]


def test_one_line_for_each_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sidestep")
    root = tmp_path / "a"
    with sidestep.Checkpointer(root, keep_last_n=1) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, {"weight": torch.ones(2)})
            checkpoints.wait()
        checkpoints.close()  # nothing is left for the end of the block
    told = lines_of(caplog)
    for begin in (
        f"saved step 1 as '{root}/step-1': training waited ",
        f"saved step 2 as '{root}/step-2': training waited ",
        f"deleted '{root}/step-1'",
        f"stopped: '{root}' is closed, the last step saved is 2",
    ):
        assert len([line for line in told if line.startswith(begin)]) == 1, (begin, told)
    caplog.clear()
    with pytest.raises(SystemExit), sidestep.Checkpointer(root) as checkpoints:
        state = {"weight": torch.zeros(2)}
        checkpoints.resume(state)
        os.kill(os.getpid(), signal.SIGTERM)
        assert checkpoints.should_save(3)
        checkpoints.save(3, state)
    told = lines_of(caplog)
    for begin in (
        f"resumed step 2 from '{root}/step-2' in ",
        "SIGTERM asks for the end at step 3: at_signal='save'",
        f"saved step 3 as '{root}/step-3'",
        "stopped: ",
    ):
        assert len([line for line in told if line.startswith(begin)]) == 1, (begin, told)


def test_silence_at_level_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sidestep")
    with sidestep.Checkpointer(tmp_path / "a", keep_last_n=1) as checkpoints:
        checkpoints.resume({"weight": torch.ones(2)})
        for step in (1, 2):
            checkpoints.save(step, {"weight": torch.ones(2)})
    assert lines_of(caplog) == []
