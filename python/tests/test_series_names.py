# SPDX-License-Identifier: BSD-3-Clause
"""A name that is meant as a template is taken as such, or refused; never taken literally."""

import pytest

import sidestep


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("checkpoint-", "checkpoint-99", "checkpoint-100"),
        ("checkpoint-{step}", "checkpoint-99", "checkpoint-100"),
        ("step_{step:08d}", "step_00000099", "step_00000100"),
        ("iter_{step:02}", "iter_99", "iter_100"),
        ("{step:06}", "000099", "000100"),
        ("{step}", "99", "100"),
        ("step-{step}.dcp", "step-99.dcp", "step-100.dcp"),
        ("größe-{step:03}-v2", "größe-099-v2", "größe-100-v2"),
    ],
)
def test_the_step_stands_where_the_template_says(tmp_path, name, first, second):
    with sidestep.Checkpointer(tmp_path, name=name) as checkpoints:
        checkpoints.save(99, {"a": 1})
        checkpoints.save(100, {"a": 2}, metrics={"loss": 2.5})
    assert sidestep.latest(tmp_path) == str(tmp_path / second)
    with sidestep.Checkpointer(tmp_path, name=name, keep_last_n=1) as checkpoints:
        state = {"a": 0}
        found = checkpoints.load(state, step=99)
        assert (found.step, found.path, state) == (99, str(tmp_path / first), {"a": 1})
        found = checkpoints.load(state)
        assert (found.step, found.path, state) == (100, str(tmp_path / second), {"a": 2})
        found = checkpoints.resume(state)
        assert (found.step, found.path) == (100, str(tmp_path / second))
        checkpoints.pin(99)
        checkpoints.save(101, {"a": 3})
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".sidestep") == sorted(
        [first, second.replace("100", "101")]
    )


@pytest.mark.parametrize(
    "name",
    [
        "iter_%07d",
        "v2",
        "a}",
        "step-{step:7}",
        "step-{step:021}",
        "step-{step}/dcp",
        "epoch={epoch}-step={step}",
        "{step}-{step}",
        "{step}.distcp",
        ".{step}",
        "a/b-",
    ],
)
def test_what_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(sidestep.Error, match="series name") as refused:
        sidestep.Checkpointer(tmp_path / "run", name=name)
    assert refused.value.status == sidestep.Status.EINVAL
