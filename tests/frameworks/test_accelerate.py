# SPDX-License-Identifier: BSD-3-Clause
"""Accelerate: a real loop, killed in a save and resumed, beside one that never stopped."""

import shutil

import pytest
from environments import LAUNCH, LAUNCH_FSDP, TOP, flip

SLOW = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "5000"}  # a save takes longer than the steps after it
PROGRAM = "accelerate_train.py"


@pytest.fixture(scope="module")
def stock(transformers, tmp_path_factory):
    """Accelerate's own saves of a run of 6 steps: checkpoints 0, 1 and 2."""
    directory = tmp_path_factory.mktemp("stock")
    ended = transformers.run(PROGRAM, directory, 6, "by=stock")
    ended.ok()
    return directory, ended


def names(directory):
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


def assert_same_end(ended, whole, step):
    ended.ok()
    expected = [line for line in whole.values("loss") if int(line.split()[0]) >= step]
    assert expected
    assert ended.values("loss") == expected


def test_killed_in_a_save_and_resumed(transformers, stock, tmp_path):
    ended = transformers.run(PROGRAM, tmp_path, 6, "kill=4", variables=SLOW)
    assert ended.status == -9, ended.output
    left, committed = names(tmp_path)
    assert left.endswith(".saving") and committed == "checkpoint_0"
    ended = transformers.run(PROGRAM, tmp_path, 6, "resume=auto")
    assert_same_end(ended, stock[1], 3)
    assert names(tmp_path) == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]


def test_killed_after_the_commit(transformers, stock, tmp_path):
    ended = transformers.run(PROGRAM, tmp_path, 6, "limit=1", "kill_in=delete")
    assert ended.status == -9, ended.output
    assert {"checkpoint_0", "checkpoint_1"} <= set(names(tmp_path))
    ended = transformers.run(PROGRAM, tmp_path, 6, "limit=1", "resume=auto")
    assert_same_end(ended, stock[1], 5)
    assert names(tmp_path) == ["checkpoint_2"]


@pytest.mark.parametrize("name", ["__0_0.distcp", "random_states_0.pkl"])
def test_flipped_bits_are_passed_over(transformers, stock, tmp_path, name):
    transformers.run(PROGRAM, tmp_path, 6).ok()
    newest = tmp_path / "checkpoints" / "checkpoint_2"
    flip(newest, name)
    ended = transformers.run(PROGRAM, tmp_path, 6, f"resume={newest}")
    assert ended.status == 1
    assert "was asked for: load an older one; load_state() without a name takes" in ended.output
    ended = transformers.run(PROGRAM, tmp_path, 6, "resume=auto")
    assert_same_end(ended, stock[1], 5)
    assert f"passed over '{newest}'" in ended.output


def test_stock_is_loaded_by_ours(transformers, stock, tmp_path):
    checkpoint = stock[0] / "checkpoints" / "checkpoint_1"
    ended = transformers.run(PROGRAM, tmp_path, 6, f"resume={checkpoint}")
    assert_same_end(ended, stock[1], 5)


def test_ours_is_loaded_by_stock_after_an_export(transformers, stock, tmp_path):
    transformers.run(PROGRAM, tmp_path, 4).ok()
    checkpoint = tmp_path / "checkpoints" / "checkpoint_1"
    words = tmp_path / "second", 6, "by=stock", f"resume={checkpoint}"
    assert transformers.run(PROGRAM, *words).status == 1
    transformers.run(checkpoint, launcher=("-m", "sidestep.accelerate")).ok()
    assert_same_end(transformers.run(PROGRAM, *words), stock[1], 5)


def test_hooks_and_total_limit(transformers, stock, tmp_path):
    ended = transformers.run(PROGRAM, tmp_path, 6, "hooks=true", "limit=2")
    assert_same_end(ended, stock[1], 1)
    assert names(tmp_path) == ["checkpoint_1", "checkpoint_2"]
    checkpoint = tmp_path / "checkpoints" / "checkpoint_1"
    assert (checkpoint / "hook_0.pt").exists()
    shutil.rmtree(tmp_path / "checkpoints" / "checkpoint_2")
    ended = transformers.run(PROGRAM, tmp_path, 6, "hooks=true", "resume=auto")
    assert_same_end(ended, stock[1], 5)


def test_the_place_in_a_stateful_loader_and_what_is_said(transformers, tmp_path):
    """One line for each save, for what is deleted and for the load, with the names that are there;
    none names the temporary files that Accelerate writes."""
    words = 6, "loader=true", "tell=true", "limit=2"
    whole = transformers.run(PROGRAM, tmp_path / "whole", *words)
    saved = tmp_path / "whole" / "checkpoints" / "checkpoint_1"
    ended = transformers.run(PROGRAM, tmp_path / "second", *words, f"resume={saved}")
    assert_same_end(ended, whole, 5)
    assert [line.split("'")[1] for line in whole.values("LOG") if " saved '" in line] == [
        str(saved.parent / f"checkpoint_{number}") for number in range(3)
    ]
    assert sum(" deleted '" in line for line in whole.values("LOG")) == 1
    assert any(f" loaded '{saved}' in " in line for line in ended.values("LOG"))
    said = [*whole.values("LOG"), *ended.values("LOG")]
    assert [line for line in said if "/sidestep-" in line] == []


@pytest.mark.parametrize(
    ("launcher", "more"), [(LAUNCH, ()), (LAUNCH_FSDP, ("fsdp=true",))], ids=["ddp", "fsdp2"]
)
def test_two_ranks_under_accelerate_launch(transformers, tmp_path, launcher, more):
    how = {"launcher": launcher}
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    whole = transformers.run(PROGRAM, theirs, 6, "by=stock", *more, **how)
    ended = transformers.run(PROGRAM, ours, 6, "kill=4", *more, **how, variables=SLOW)
    assert ended.status != 0, whole.ok()
    assert "checkpoint_0" in names(ours) and "checkpoint_1" not in names(ours)
    ended = transformers.run(PROGRAM, ours, 6, "resume=auto", *more, **how)
    assert_same_end(ended, whole, 3)
    saved = ours / "checkpoints" / "checkpoint_1"
    if not more:
        transformers.run(saved, launcher=("-m", "sidestep.accelerate")).ok()
    words = tmp_path / "third", 6, f"resume={saved}", *more
    assert_same_end(transformers.run(PROGRAM, *words, "by=stock", **how), whole, 5)
    saved = theirs / "checkpoints" / "checkpoint_1"
    words = tmp_path / "fourth", 6, f"resume={saved}", *more
    assert_same_end(transformers.run(PROGRAM, *words, **how), whole, 5)


def test_the_example(transformers, tmp_path):
    example = TOP / "examples" / "train_accelerate.py"
    transformers.run(example, tmp_path, 10).ok()
    assert names(tmp_path) == ["checkpoint_0", "checkpoint_1"]
    transformers.run(example, tmp_path, 20).ok()
    assert names(tmp_path) == ["checkpoint_2", "checkpoint_3"]


def test_where_it_saves_to_and_what_was_there(transformers, bucket, tmp_path):
    variables = bucket.environment()
    ended = transformers.run(
        "accelerate_places.py", tmp_path, "s3://runs/accelerate", variables=variables
    )
    ended.ok()
    assert len(ended.values("passed")) == 7
