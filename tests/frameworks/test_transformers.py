# SPDX-License-Identifier: BSD-3-Clause
"""Transformers: a real Trainer, killed in a save and resumed, beside one that never stopped."""

import shutil

import pytest
from environments import LAUNCH, LAUNCH_FSDP, TOP, flip

SLOW = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "20000"}  # a save takes longer than the steps after it
PROGRAM = "hf_train.py"


@pytest.fixture(scope="module")
def stock(transformers, tmp_path_factory):
    """Transformers' own training of 6 steps, with checkpoints 2, 4 and 6."""
    directory = tmp_path_factory.mktemp("stock")
    ended = transformers.run(PROGRAM, directory, 6, "by=stock")
    ended.ok()
    return directory, ended


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def losses_from(ended, step):
    return [line for line in ended.values("loss") if int(line.split()[0]) >= step]


def assert_same_end(ended, whole, step):
    ended.ok()
    assert losses_from(ended, 0) == losses_from(whole, step)
    assert losses_from(whole, step)
    assert ended.values("weights") == whole.values("weights")


def test_killed_in_a_save_and_resumed(transformers, stock, tmp_path):
    _, whole = stock
    ended = transformers.run(PROGRAM, tmp_path, 6, "kill=4", variables=SLOW)
    assert ended.status == -9, ended.output
    assert "checkpoint-2" in names(tmp_path)
    assert "checkpoint-4" not in names(tmp_path)
    ended = transformers.run(PROGRAM, tmp_path, 6, "resume=true")
    assert_same_end(ended, whole, 3)
    assert names(tmp_path) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]


def test_a_run_that_begins_anew_has_other_losses_at_these_steps(stock):
    """The comparison can fail: the losses of all steps differ."""
    _, whole = stock
    values = [line.split()[1] for line in whole.values("loss")]
    assert len(set(values)) == len(values) == 6


def test_killed_after_the_commit(transformers, stock, tmp_path):
    _, whole = stock
    ended = transformers.run(PROGRAM, tmp_path, 6, "limit=1", "kill_in=delete")
    assert ended.status == -9, ended.output
    # The next save may have begun.
    seen = [name for name in names(tmp_path) if not name.startswith(".sidestep")]
    assert seen == ["checkpoint-2", "checkpoint-4"]
    ended = transformers.run(PROGRAM, tmp_path, 6, "limit=1", "resume=true")
    assert_same_end(ended, whole, 5)
    assert names(tmp_path) == ["checkpoint-6"]


def test_stock_is_resumed_by_ours(transformers, stock, tmp_path):
    directory, whole = stock
    shutil.copytree(directory / "checkpoint-4", tmp_path / "checkpoint-4")
    ended = transformers.run(PROGRAM, tmp_path, 6, "resume=true")
    assert_same_end(ended, whole, 5)


def test_ours_is_resumed_by_stock(transformers, stock, tmp_path):
    _, whole = stock
    transformers.run(PROGRAM, tmp_path, 6).ok()
    checkpoint = tmp_path / "checkpoint-4"
    ended = transformers.run_module("sidestep.transformers", tmp_path)
    assert ended.status == 1
    assert f"\nsidestep.transformers: '{tmp_path}' is not a checkpoint" in f"\n{ended.output}"
    ended = transformers.run(PROGRAM, tmp_path, 6, "by=stock", f"resume={checkpoint}")
    assert ended.status == 1, "stock reads no checkpoint of ours before the export"
    transformers.run(checkpoint, launcher=("-m", "sidestep.transformers")).ok()
    ended = transformers.run(PROGRAM, tmp_path, 6, "by=stock", f"resume={checkpoint}")
    assert_same_end(ended, whole, 5)


def test_what_is_damaged_or_half_is_passed_over(transformers, stock, tmp_path):
    directory, whole = stock
    transformers.run(PROGRAM, tmp_path, 6).ok()
    (tmp_path / "checkpoint-6" / "__0_0.distcp").unlink()
    shutil.copytree(directory / "checkpoint-6", tmp_path / "checkpoint-7")
    (tmp_path / "checkpoint-7" / "trainer_state.json").unlink()
    ended = transformers.run(PROGRAM, tmp_path, 6, "resume=true")
    assert_same_end(ended, whole, 5)
    assert "passed over" in ended.output


@pytest.mark.parametrize(
    ("name", "share"),
    [("__0_0.distcp", 0.2), ("__0_0.distcp", 0.8), ("scheduler.pt", 0.5)],
    ids=["early", "late", "small"],
)
def test_flipped_bits_are_passed_over(transformers, stock, tmp_path, name, share):
    transformers.run(PROGRAM, tmp_path, 6).ok()
    flip(tmp_path / "checkpoint-6", name, share)
    words = PROGRAM, tmp_path, 6
    if name.startswith("__"):
        ended = transformers.run(*words, f"resume={tmp_path / 'checkpoint-6'}")
        assert ended.status == 1
        assert "was asked for: resume_from_checkpoint=True takes" in ended.output
    ended = transformers.run(*words, "resume=true")
    assert_same_end(ended, stock[1], 5)
    assert f"passed over '{tmp_path / 'checkpoint-6'}'" in ended.output
    for step in (2, 4, 6):
        flip(tmp_path / f"checkpoint-{step}", "__0_0.distcp")
    assert transformers.run(*words, "resume=true").status == 1, "it does not begin anew"


def test_what_is_kept_and_the_best(transformers, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    words = 8, "best=true", "limit=2"
    stock = transformers.run(PROGRAM, theirs, *words, "by=stock")
    ended = transformers.run(PROGRAM, ours, *words, f"final={tmp_path / 'final'}")
    assert names(ours) == names(theirs), stock.ok() + ended.ok()
    assert ended.values("weights") == stock.values("weights")
    assert ended.values("best")[0].endswith(stock.values("best")[0].rpartition("/")[2])
    assert {"config.json", "model.safetensors"} <= set(names(tmp_path / "final"))


def test_two_ranks_under_accelerate_launch(transformers, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    whole = transformers.run(PROGRAM, theirs, 6, "by=stock", launcher=LAUNCH)
    ended = transformers.run(PROGRAM, ours, 6, "kill=4", launcher=LAUNCH, variables=SLOW)
    assert ended.status != 0, whole.ok()
    assert "checkpoint-4" not in names(ours)
    ended = transformers.run(PROGRAM, ours, 6, "resume=true", launcher=LAUNCH)
    assert_same_end(ended, whole, 3)


def test_two_ranks_of_fsdp(transformers, tmp_path):
    """Killed in a save and resumed; stock takes ours as it is, and ours takes stock's."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    fsdp = {"launcher": LAUNCH_FSDP}
    whole = transformers.run(PROGRAM, theirs, 6, "fsdp=true", "by=stock", **fsdp)
    ended = transformers.run(PROGRAM, ours, 6, "fsdp=true", "kill=4", **fsdp, variables=SLOW)
    assert ended.status != 0, whole.ok()
    assert "checkpoint-2" in names(ours) and "checkpoint-4" not in names(ours)
    ended = transformers.run(PROGRAM, ours, 6, "fsdp=true", "resume=true", **fsdp)
    assert_same_end(ended, whole, 3)
    words = 6, "fsdp=true", f"resume={ours / 'checkpoint-4'}"
    assert_same_end(transformers.run(PROGRAM, ours, *words, "by=stock", **fsdp), whole, 5)
    words = 6, "fsdp=true", f"resume={theirs / 'checkpoint-4'}"
    assert_same_end(transformers.run(PROGRAM, ours, *words, **fsdp), whole, 5)
    flip(ours / "checkpoint-6", "__1_0.distcp")
    ended = transformers.run(PROGRAM, ours, 6, "fsdp=true", "resume=true", **fsdp)
    assert_same_end(ended, whole, 5)


def test_the_example(transformers, tmp_path):
    example = TOP / "examples" / "train_transformers.py"
    transformers.run(example, tmp_path, 10).ok()
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-5", "final"]
    transformers.run(example, tmp_path, 15).ok()
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-15", "final"]


def test_what_hangs_on_its_hooks(transformers, tmp_path):
    ended = transformers.run("hf_hooks.py", tmp_path)
    ended.ok()
    assert len(ended.values("passed")) == 3
