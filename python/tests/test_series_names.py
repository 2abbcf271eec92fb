# SPDX-License-Identifier: BSD-3-Clause
"""A name that is meant as a template is taken as such, or refused; never taken literally."""

import pytest

import sidestep


@pytest.mark.parametrize("name", ["checkpoint-", "checkpoint-{step}"])
def test_the_step_is_put_at_the_end(tmp_path, name):
    with sidestep.Checkpointer(tmp_path, name=name) as checkpoints:
        checkpoints.save(7, {"a": 1})
    assert sidestep.latest(tmp_path) == str(tmp_path / "checkpoint-7")
    with sidestep.Checkpointer(tmp_path, name="checkpoint-{step}") as checkpoints:
        state = {"a": 0}
        assert checkpoints.resume(state).step == 7 and state == {"a": 1}


@pytest.mark.parametrize(
    "name",
    [
        "iter_%07d",
        "{step}",
        "step-{step:07d}",
        "{step}.ckpt",
        "step-{step}/dcp",
        "epoch={epoch}-step={step}",
        "a/b-",
    ],
)
def test_what_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(sidestep.Error, match="series prefix") as refused:
        sidestep.Checkpointer(tmp_path / "run", name=name)
    assert refused.value.status == sidestep.Status.EINVAL
