# SPDX-License-Identifier: BSD-3-Clause
"""`TrainState` restores the place in data of torchdata and of Hugging Face's datasets.

Not in a shuffle buffer of the latter: its content is no part of their state."""

import pytest


@pytest.mark.parametrize(
    ("kind", "workers"),
    [("torchdata", 0), ("torchdata", 2), ("loader", 0), ("loader", 2), ("dataset", 0)],
)
def test_the_next_batches_are_those_that_would_have_come(lightning, tmp_path, kind, workers):
    ended = lightning.run("data_position.py", tmp_path / "run", kind, workers)
    ended.ok()
    words = ("goes", "resumed", "anew")
    goes_on, resumed, anew = (ended.values(word)[0].removeprefix("on ") for word in words)
    assert resumed == goes_on
    assert anew != goes_on
