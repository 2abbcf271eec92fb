# SPDX-License-Identifier: BSD-3-Clause
"""torchtitan: its parts in a loop, killed in a save and resumed, beside one that never stopped."""

import pytest
from environments import TOP

SLOW = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "5000"}  # a save takes longer than the steps after it
PROGRAM = "titan_train.py"


@pytest.fixture(scope="module")
def stock(torchtitan, tmp_path_factory):
    """torchtitan's own saves of a run of 7 steps, of which the last two and the last are kept."""
    directory = tmp_path_factory.mktemp("stock")
    words = "by=stock", "keep=2", "mode=disabled"  # otherwise it counts before they are there
    ended = torchtitan.run(PROGRAM, directory, 7, *words, ranks=2)
    ended.ok()
    return directory, ended


def names(directory):
    return sorted(path.name for path in (directory / "checkpoint").iterdir())


def assert_same_end(ended, whole, step, last=7):
    ended.ok()
    expected = whole.values("loss")[step - 1 : last]
    assert expected
    assert ended.values("loss") == expected


@pytest.mark.parametrize(
    "words",
    [
        ("mode=disabled",),
        ("mode=async",),
        ("mode=async_with_pinned_mem",),
        ("by=made", "mode=async"),
    ],
    ids=" ".join,
)
def test_the_same_checkpoints_stay(torchtitan, stock, tmp_path, words):
    ended = torchtitan.run(PROGRAM, tmp_path, 7, "keep=2", *words, ranks=2)
    assert_same_end(ended, stock[1], 1)
    assert names(tmp_path) == names(stock[0]) == ["step-4", "step-6", "step-7"]


def test_killed_in_a_save_and_resumed(torchtitan, stock, tmp_path):
    ended = torchtitan.run(PROGRAM, tmp_path, 7, "kill=4", ranks=2, variables=SLOW)
    assert ended.status != 0
    assert "step-2" in names(tmp_path) and "step-4" not in names(tmp_path)
    assert_same_end(torchtitan.run(PROGRAM, tmp_path, 7, ranks=2), stock[1], 3)
    assert names(tmp_path) == ["step-2", "step-4", "step-6", "step-7"]


def test_one_goes_on_from_the_other(torchtitan, stock, tmp_path):
    """In both directions, in the same folder."""
    torchtitan.run(PROGRAM, tmp_path, 4, ranks=2).ok()
    assert_same_end(torchtitan.run(PROGRAM, tmp_path, 6, "by=stock", ranks=2), stock[1], 5, 6)
    assert_same_end(torchtitan.run(PROGRAM, tmp_path, 7, ranks=2), stock[1], 7)


def test_what_is_damaged_is_passed_over(torchtitan, stock, tmp_path):
    torchtitan.run(PROGRAM, tmp_path, 6, ranks=2).ok()
    (tmp_path / "checkpoint" / "step-6" / "__1_0.distcp").unlink()
    ended = torchtitan.run(PROGRAM, tmp_path, 7, ranks=2)
    assert_same_end(ended, stock[1], 5)
    assert "passed over" in ended.output


def test_it_does_not_begin_anew_where_all_are_damaged(torchtitan, tmp_path):
    torchtitan.run(PROGRAM, tmp_path, 2, ranks=2).ok()
    (tmp_path / "checkpoint" / "step-2" / "__1_0.distcp").unlink()
    ended = torchtitan.run(PROGRAM, tmp_path, 4, ranks=2)
    assert ended.status != 0
    assert ended.values("loss") == []
    assert "is whole; " in ended.output and "to begin anew, move them away" in ended.output


def test_the_model_alone_and_the_beginning_of_another_run(torchtitan, stock, tmp_path):
    sums = []
    for by in ("stock", "sidestep"):
        directory = tmp_path / by
        torchtitan.run(PROGRAM, directory, 4, "last=model", f"by={by}", ranks=2).ok()
        place = directory / "checkpoint" / "step-4"
        for other in ("stock", "sidestep"):
            words = tmp_path / f"{by}-{other}", 2, f"init={place}", f"by={other}"
            ended = torchtitan.run(PROGRAM, *words, ranks=2)
            ended.ok()
            sums.append(ended.values("loss"))
    assert len(sums) == 4
    assert all(one == sums[0] for one in sums)
    assert sums[0] != stock[1].values("loss")[:2]


def test_the_example(torchtitan, tmp_path):
    example = TOP / "examples" / "train_torchtitan.py"
    torchtitan.run(example, tmp_path, 10, ranks=2).ok()
    assert names(tmp_path) == ["step-10", "step-5"]
    ended = torchtitan.run(example, tmp_path, 15, ranks=2)
    ended.ok()
    steps = [line.split(":")[0] for line in ended.output.splitlines() if line.startswith("step ")]
    assert steps == ["step 11", "step 12", "step 13", "step 14", "step 15"]
    assert names(tmp_path) == ["step-10", "step-15", "step-5"]  # two, and the last one
