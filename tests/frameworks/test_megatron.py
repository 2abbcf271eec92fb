# SPDX-License-Identifier: BSD-3-Clause
"""Megatron-core's dist_checkpointing, with our strategies in it."""

import json

import pytest
from environments import find

import sidestep

SLOW = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "5000"}  # a save takes longer than the steps after it
PROGRAM = "megatron_train.py"
RANKS = [1, 2]


@pytest.fixture(scope="module")
def whole(megatron, tmp_path_factory):
    """By number of ranks: a run with Megatron's own strategies that was never killed, and its
    directory."""

    class Runs(dict):
        def __missing__(self, ranks):
            place = tmp_path_factory.mktemp(f"stock{ranks}")
            ended = megatron.run(PROGRAM, place, 6, "save=stock", "load=stock", ranks=ranks)
            ended.ok()
            self[ranks] = place, ended
            return self[ranks]

    return Runs()


def losses_from(ended, step):
    return [line for line in ended.values("loss") if int(line.split()[0]) > step]


def assert_same_end(ended, whole, step):
    ended.ok()
    assert losses_from(whole, step)
    assert ended.values("loss") == losses_from(whole, step)


@pytest.mark.parametrize("ranks", RANKS)
def test_killed_in_a_save_and_resumed(megatron, whole, tmp_path, ranks):
    words = tmp_path, 6, "async=true"
    ended = megatron.run(PROGRAM, *words, "kill=4", ranks=ranks, variables=SLOW)
    assert ended.status != 0 and ended.values("done") == ["2"]
    assert "3" in ended.values("open")  # training went on during the save of step 2
    assert (tmp_path / "iter_0000004" / "common.pt").exists()
    assert not (tmp_path / "iter_0000004" / ".metadata").exists()
    assert not (tmp_path / "iter_0000004" / "metadata.json").exists()
    mine = tmp_path / "iter_0000004" / "notes.txt"
    mine.write_text("mine")
    ended = megatron.run(PROGRAM, *words, ranks=ranks)
    assert_same_end(ended, whole[ranks][1], 2)
    assert ended.values("done") == ["4", "6"]
    assert mine.read_text() == "mine"
    left = [path.name for path in mine.parent.iterdir() if path.name.startswith(".sidestep")]
    assert len(left) == 1 and left[0].startswith(".sidestep.manifest.")


@pytest.mark.parametrize("ranks", RANKS)
def test_one_goes_on_from_the_other(megatron, whole, tmp_path, ranks):
    """Ours from Megatron's, Megatron's from ours; what is loaded is the same bit by bit."""
    megatron.run(PROGRAM, tmp_path, 2, "save=stock", "load=stock", ranks=ranks).ok()
    ours = megatron.run(PROGRAM, tmp_path, 4, ranks=ranks)
    assert ours.ok() and ours.values("loss") == losses_from(whole[ranks][1], 2)[:2]
    stock = megatron.run(PROGRAM, tmp_path, 4, "load=stock", "stop=true", ranks=ranks)
    mine = megatron.run(PROGRAM, tmp_path, 4, "stop=true", ranks=ranks)
    stock.ok()
    mine.ok()
    assert len(stock.values("loaded")) == ranks
    assert sorted(stock.values("loaded")) == sorted(mine.values("loaded"))
    ended = megatron.run(PROGRAM, tmp_path, 6, "save=stock", "load=stock", ranks=ranks)
    assert_same_end(ended, whole[ranks][1], 4)


def test_other_numbers_of_ranks(megatron, tmp_path):
    megatron.run(PROGRAM, tmp_path, 2, "rng=false", ranks=2).ok()
    words = tmp_path, 2, "rng=false", "stop=true"
    stock = megatron.run(PROGRAM, *words, "load=stock", ranks=1)
    mine = megatron.run(PROGRAM, *words, ranks=1)
    assert stock.ok() and mine.ok() and mine.values("loaded")
    assert mine.values("loaded") == stock.values("loaded")


def test_in_wrappers_and_by_name(whole, tmp_path):
    """In Megatron's FullyParallel wrappers, in a program that does not know of sidestep."""
    megatron = find("megatron")  # with a launcher, as the others are not
    launcher = (
        *("-m", "sidestep.run", "--adapt", "megatron", "python", "-m", "torch.distributed.run"),
        *("--standalone", "--nproc-per-node=2"),
    )
    words = "by=names", "save=parallel", "load=parallel"
    ended = megatron.run(PROGRAM, tmp_path, 4, *words, launcher=launcher)
    assert ended.ok() and ended.values("saved") == ["sidestep.megatron"]
    # A later save that was killed has written over Megatron's common.pt, and not over ours.
    (tmp_path / "iter_0000004" / "common.pt").write_bytes(b"torn")
    ended = megatron.run(PROGRAM, tmp_path, 6, *words, launcher=launcher)
    assert_same_end(ended, whole[2][1], 4)


def test_the_small_files_are_files_of_the_save(megatron, whole, tmp_path):
    megatron.run(PROGRAM, tmp_path, 2, ranks=1).ok()
    saved, copied = tmp_path / "iter_0000002", tmp_path / "copy" / "iter_0000002"
    found = sidestep.load_metadata(saved)
    assert found.format == "sidestep" and found.step == 2
    assert set(found.files) == {"common.pt", "metadata.json"}
    stock = json.loads((whole[1][0] / "iter_0000002" / "metadata.json").read_text())
    assert json.loads(sidestep.read_file(saved, "metadata.json")) == stock
    # Megatron loads a copy that has only what the save has.
    copied.parent.mkdir()
    sidestep.copy(saved, copied)
    assert (copied / "metadata.json").exists()
    (copied.parent / "latest_checkpointed_iteration.txt").write_text("2")
    ended = megatron.run(PROGRAM, copied.parent, 6, "load=stock", "save=stock", ranks=1)
    assert_same_end(ended, whole[1][1], 2)
    # A later save that was killed has written over Megatron's common.pt, and not over ours.
    (saved / "common.pt").write_bytes(b"torn")
    ended = megatron.run(PROGRAM, tmp_path, 6, ranks=1)
    assert_same_end(ended, whole[1][1], 2)


WAITER = """
import multiprocessing, sys
from sidestep.megatron import _Sign, _wait_for

if __name__ == "__main__":
    sign = _Sign()
    context = multiprocessing.get_context(sys.argv[1])
    waiting = context.Process(target=_wait_for, args=(sign.pid, sign.number, sign.name))
    waiting.start()
    waiting.join(3)
    print("waits", waiting.is_alive())
    sign.close()
    waiting.join(60)
    print("ended", waiting.exitcode)
"""


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_the_worker_of_megatron_waits_for_the_end(tmp_path, how):
    """Its queue forks a process for each save, or has one that it spawned."""
    megatron = find("megatron")
    program = tmp_path / "waiter.py"
    program.write_text(WAITER)
    ended = megatron.run(program, how)
    ended.ok()
    assert ended.values("waits") == ["True"] and ended.values("ended") == ["0"]


RENAMED = """
import pickle, sys
from megatron.core.dist_checkpointing.strategies.torch import MCoreMetadata

with open(sys.argv[1], "rb") as file:
    metadata = pickle.load(file)
other = MCoreMetadata.__new__(MCoreMetadata)
vars(other).update(vars(metadata))
with open(sys.argv[1], "wb") as file:
    pickle.dump(other, file)
"""


def test_metadata_of_megatrons_own_class(megatron, whole, tmp_path):
    """As Megatron before 0.16 saved it."""
    megatron.run(PROGRAM, tmp_path, 2, "save=stock", "load=stock", ranks=1).ok()
    program = tmp_path / "renamed.py"
    program.write_text(RENAMED)
    megatron.run(program, tmp_path / "iter_0000002" / ".metadata").ok()
    found = sidestep.load_metadata(tmp_path / "iter_0000002")
    assert set(found.tensors) >= {"rows", "bias", "layers"}
    ended = megatron.run(PROGRAM, tmp_path, 6, ranks=1)
    assert_same_end(ended, whole[1][1], 2)
