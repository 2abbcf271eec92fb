# SPDX-License-Identifier: BSD-3-Clause
"""torchtune: its DistributedCheckpointer, in a program that does not know of sidestep."""

import shutil

import pytest
from environments import TOP

import sidestep

SLOW = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "5000"}  # a save takes longer than the epoch after it
OURS = (
    *("-m", "sidestep.run", "-v", "python", "-m", "torch.distributed.run"),
    *("--standalone", "--nproc-per-node=2"),
)
PROGRAM = "tune_train.py"


@pytest.fixture(scope="module")
def stock(torchtune, tmp_path_factory):
    """Without sidestep."""
    directory = tmp_path_factory.mktemp("stock")
    ended = torchtune.run(PROGRAM, directory, 4, "async=false", ranks=2)
    ended.ok()
    assert ended.values("functions") == ["torch.distributed.checkpoint.state_dict_saver"]
    return directory, ended


def assert_same_end(ended, whole, epoch):
    ended.ok()
    expected = [line for line in whole.values("loss") if int(line.split()[0]) >= epoch]
    assert expected
    assert ended.values("loss") == expected


def test_killed_in_a_save_and_resumed(torchtune, stock, tmp_path):
    ended = torchtune.run(PROGRAM, tmp_path, 4, "kill=1", launcher=OURS, variables=SLOW)
    assert ended.status != 0
    assert "torch's own" not in ended.output
    names = [path.name for path in tmp_path.iterdir()]
    assert "dist_epoch_0" in names and "dist_epoch_1" not in names
    ended = torchtune.run(PROGRAM, tmp_path, 4, "resume=true", launcher=OURS)
    assert_same_end(ended, stock[1], 1)
    assert ended.values("functions")[0].startswith("sidestep.")


def test_one_goes_on_from_the_other(torchtune, stock, tmp_path):
    torchtune.run(PROGRAM, tmp_path, 2, launcher=OURS).ok()
    ended = torchtune.run(PROGRAM, tmp_path, 3, "resume=true", ranks=2)
    assert ended.ok() and ended.values("loss") == stock[1].values("loss")[2:3]
    ended = torchtune.run(PROGRAM, tmp_path, 4, "resume=true", launcher=OURS)
    assert_same_end(ended, stock[1], 3)


def losses_of(directory):
    """By step, as the recipe's own logger has written them."""
    (log,) = (directory / "logs").iterdir()
    return [line.partition(" lr:")[0] for line in log.read_text().splitlines()]


def test_the_example_runs_a_recipe_and_goes_on(torchtune, tmp_path):
    example = TOP / "examples" / "train_torchtune.py"
    whole, begun = tmp_path / "whole", tmp_path / "begun"
    torchtune.run(example, whole, 3).ok()
    assert sidestep.load_metadata(whole / "dist_epoch_1").format == "sidestep"
    assert (whole / "epoch_2").is_dir()  # the last one, in the form of torchtune's checkpointer
    for name in ("base", "dist_epoch_0"):
        shutil.copytree(whole / name, begun / name)
    torchtune.run(example, begun, 3).ok()
    assert losses_of(begun) == losses_of(whole)[4:]
    assert len(losses_of(whole)) == 12
