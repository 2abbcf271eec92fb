# SPDX-License-Identifier: BSD-3-Clause
"""DeepSpeed's engine with sidestep.deepspeed: ZeRO on processors, with gloo."""

import shutil

import pytest
from environments import find, flip

import sidestep

SLOW = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "3000"}  # a save takes longer than the steps after it
PROGRAM = "deepspeed_train.py"
STAGES = {0: 1, 2: 2, 3: 2}  # of ZeRO, and the ranks


@pytest.fixture(scope="module", params=STAGES)
def stock(request, deepspeed, tmp_path_factory):
    """A stage of ZeRO; DeepSpeed's own training of 6 steps, which was never killed."""
    directory = tmp_path_factory.mktemp("stock")
    ended = run(deepspeed, request.param, directory, 6, "by=stock")
    ended.ok()
    return request.param, directory, ended


def run(deepspeed, stage, directory, steps, *more, **how):
    return deepspeed.run(PROGRAM, stage, directory, steps, *more, ranks=STAGES[stage], **how)


def export(saved, out):
    find("deepspeed").run(saved, out, launcher=("-m", "sidestep.deepspeed")).ok()


def assert_same_end(ended, whole, step):
    ended.ok()
    expected = [line for line in whole.values("loss") if int(line.split()[0]) > step]
    assert expected and ended.values("loss") == expected


def test_killed_in_a_save_and_resumed(deepspeed, stock, tmp_path):
    stage, _, whole = stock
    ended = run(deepspeed, stage, tmp_path, 6, "kill=4", variables=SLOW)
    assert ended.status != 0 and "5" in ended.values("open"), ended.output
    assert (tmp_path / "latest").read_text() == "global_step2"
    assert not (tmp_path / "global_step4").exists()
    ended = run(deepspeed, stage, tmp_path, 6)
    assert_same_end(ended, whole, 2)
    assert set(ended.values("loaded")) == {"global_step2"}
    assert (tmp_path / "latest").read_text() == "global_step6"


def test_both_ways_with_stock(deepspeed, stock, tmp_path):
    stage, theirs, whole = stock
    shutil.copytree(theirs / "global_step2", tmp_path / "mixed" / "global_step2")
    ended = run(deepspeed, stage, tmp_path / "mixed", 4, "tag=global_step2")
    assert ended.ok() and ended.values("loss") == whole.values("loss")[2:4]
    saved = tmp_path / "mixed" / "global_step4"
    assert sidestep.load_metadata(saved).step == 4
    assert {path.name for path in (theirs / "global_step4").iterdir()} <= {
        path.name for path in saved.iterdir()
    }
    out = tmp_path / "theirs" / "global_step4"
    export(saved, out)
    ended = run(deepspeed, stage, out.parent, 6, "by=stock")
    assert_same_end(ended, whole, 4)


def test_files_of_others_stay_and_damage_is_refused(deepspeed, stock, tmp_path):
    """A save into a checkpoint of DeepSpeed's, with a file of the user in it."""
    stage, theirs, whole = stock
    saved = tmp_path / "global_step4"
    shutil.copytree(theirs / "global_step4", saved)
    shutil.copytree(theirs / "global_step2", tmp_path / "global_step2")
    (saved / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in saved.iterdir()}
    run(deepspeed, stage, tmp_path, 4, "tag=global_step2").ok()
    assert all(path.read_bytes() == content for path, content in before.items())
    assert sidestep.load_metadata(saved).step == 4
    assert_same_end(run(deepspeed, stage, tmp_path, 6, "tag=global_step4"), whole, 4)
    flip(tmp_path / "global_step6", "__0_0.distcp")
    ended = run(deepspeed, stage, tmp_path, 8)
    assert ended.status == 1 and "ECORRUPT" in ended.output, ended.output


@pytest.mark.parametrize("kind", ["pipe", "moe"])
def test_pipelines_and_mixtures_of_experts(deepspeed, tmp_path, kind):
    """Killed in a save and resumed; both ways with stock."""
    words, how = (f"model={kind}",), {"ranks": 2}
    whole = deepspeed.run(PROGRAM, 0, tmp_path / "stock", 6, "by=stock", *words, **how)
    whole.ok()
    ours = tmp_path / "ours"
    ended = deepspeed.run(PROGRAM, 0, ours, 6, "kill=4", *words, **how, variables=SLOW)
    assert ended.status != 0 and (ours / "latest").read_text() == "global_step2", ended.output
    assert_same_end(deepspeed.run(PROGRAM, 0, ours, 6, *words, **how), whole, 2)
    shutil.copytree(tmp_path / "stock" / "global_step4", tmp_path / "mixed" / "global_step4")
    more = "tag=global_step4", *words
    assert_same_end(deepspeed.run(PROGRAM, 0, tmp_path / "mixed", 6, *more, **how), whole, 4)
    out = tmp_path / "theirs" / "global_step4"
    export(ours / "global_step4", out)
    ended = deepspeed.run(PROGRAM, 0, out.parent, 6, "by=stock", *more, **how)
    assert_same_end(ended, whole, 4)
