# SPDX-License-Identifier: BSD-3-Clause
"""A name that is meant as a template is refused, not taken literally."""

import pytest

import sidestep


@pytest.mark.parametrize("name", ["iter_%07d", "{step}", "step-{step:07d}", "a/b-"])
def test_what_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(sidestep.Error, match="series prefix") as refused:
        sidestep.Checkpointer(tmp_path / "run", name=name)
    assert refused.value.status == sidestep.Status.EINVAL
