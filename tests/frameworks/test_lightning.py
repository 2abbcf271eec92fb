# SPDX-License-Identifier: BSD-3-Clause
"""Runs of the real Lightning: with one device, under DDP, and sharded by FSDP and FSDP2.

The losses of a run that was killed in a save and resumed are those of one that was not, bit by bit.
"""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import environments
import pytest

import sidestep

RANKS = {"auto": 0, "ddp": 2, "parallel": 2, "fsdp": 2}
STEPS, KILLED, SAVED = 12, 9, 6  # of a run; in which save it is killed; the save before


class Runs:
    """Starts the program, and remembers runs that were not disturbed."""

    def __init__(self, environment, folder):
        self.environment, self.folder = environment, folder
        self.known = {}

    def run(self, root, strategy, *words, **options):
        ranks = RANKS[strategy]
        more = ["--strategy", strategy, "--devices", max(1, ranks)]
        return self.environment.run("lightning_run.py", root, *more, *words, ranks=ranks, **options)

    def undisturbed(self, strategy, *words):
        """Its root, and the losses by step."""
        key = (strategy, *words)
        if key not in self.known:
            root = self.folder / "-".join(word.strip("-") for word in key)
            ended = self.run(root, strategy, *words)
            ended.ok()
            self.known[key] = root, losses_of(ended)
        return self.known[key]


@pytest.fixture(scope="module")
def runs(lightning, tmp_path_factory):
    return Runs(lightning, tmp_path_factory.mktemp("lightning"))


def losses_of(ended):
    return {int(step): value for step, value in map(str.split, ended.values("loss"))}


def of_step(step):
    return f"epoch={(step - 1) // 10}-step={step}.ckpt"


def since(step, losses):
    return {at: value for at, value in losses.items() if at >= step}


def entries(root):
    return sorted(name for name in os.listdir(root) if name.endswith(".ckpt"))


# ---------------------------------------------------------------- killed and resumed


@pytest.mark.parametrize("strategy", RANKS)
def test_killed_in_a_save_and_resumed(runs, tmp_path, strategy):
    _, losses = runs.undisturbed(strategy)
    assert sorted(losses) == list(range(STEPS))
    killed = runs.run(tmp_path, strategy, "--save-last", "true", "--kill", KILLED)
    assert killed.status != 0
    assert sorted(losses_of(killed)) == list(range(KILLED))
    assert entries(tmp_path) == [of_step(3), of_step(SAVED), "last.ckpt"]  # none of step 9
    resumed = runs.run(tmp_path, strategy, "--save-last", "true", "--resume", "last")
    resumed.ok()
    assert losses_of(resumed) == since(SAVED, losses)
    assert of_step(STEPS) in entries(tmp_path)


@pytest.mark.parametrize("strategy", ["ddp", "parallel"])
def test_flipped_bits_are_passed_over(runs, tmp_path, strategy):
    """ckpt_path="last" goes back to the one before; a path that is given does not."""
    _, losses = runs.undisturbed(strategy)
    runs.run(tmp_path, strategy, "--save-last", "true", "--steps", SAVED).ok()
    for name in ("last.ckpt", of_step(SAVED)):
        environments.flip(tmp_path / name, "__0_0.distcp")
    ended = runs.run(tmp_path, strategy, "--resume", tmp_path / "last.ckpt")
    assert ended.status != 0
    assert 'was asked for: ckpt_path="last" takes the newest that is whole' in ended.output
    ended = runs.run(tmp_path, strategy, "--resume", "last")
    ended.ok()
    assert losses_of(ended) == since(3, losses)
    assert f"passed over '{tmp_path / 'last.ckpt'}'" in ended.output


@pytest.mark.parametrize("how", ["lost", "kept"])
def test_the_place_in_shuffled_data_under_ddp(lightning, tmp_path, how):
    """It is lost with Lightning's sampler, which a warning says once, and kept with what it names."""
    ended = lightning.run("lightning_position.py", tmp_path, how, ranks=2)
    rows = ended.values("rows")
    ended.ok()
    assert len(rows) == 6
    warnings = [line for line in ended.values("LOG") if "StatefulDistributedSampler(" in line]
    assert len(warnings) == (1 if how == "lost" else 0)
    again = lightning.run("lightning_position.py", tmp_path, how, tmp_path / of_step(3), ranks=2)
    again.ok()
    assert (again.values("rows") == rows[3:]) == (how == "kept")


def test_a_resume_from_elsewhere_has_other_losses(runs, tmp_path):
    """The comparison above does notice: from step 3, where step 6 was meant, they differ."""
    root, losses = runs.undisturbed("auto")
    resumed = runs.run(tmp_path, "auto", "--resume", root / of_step(3))
    resumed.ok()
    assert losses_of(resumed) != since(SAVED, losses)
    assert losses_of(resumed) == since(3, losses)


def test_sigterm_is_handled_by_lightning(runs, tmp_path):
    """Its last checkpoint is there when the process ends, and is what it is without us."""
    resumed = {}
    for name, words in (("stock", ["--stock"]), ("ours", [])):
        ended = runs.run(tmp_path / name, "auto", *words, "--term", 4)
        assert sorted(losses_of(ended)) == list(range(4))
        assert entries(tmp_path / name) == [of_step(3), of_step(4)]
        last = tmp_path / name / of_step(4)
        resumed[name] = runs.run(tmp_path / name, "auto", *words, "--resume", last)
        resumed[name].ok()
    assert sidestep.load_metadata(tmp_path / "ours" / of_step(4)).step == 4
    assert losses_of(resumed["ours"]) == losses_of(resumed["stock"]) != {}


# ---------------------------------------------------------------- stock and ours


@pytest.mark.parametrize("strategy", ["parallel", "fsdp"])
def test_sharded_checkpoints_go_both_ways(runs, tmp_path, strategy):
    ours, losses = runs.undisturbed(strategy)
    stock, stock_losses = runs.undisturbed(strategy, "--stock")
    assert stock_losses == losses
    by_ours = runs.run(tmp_path / "a", strategy, "--resume", stock / of_step(SAVED))
    by_stock = runs.run(tmp_path / "b", strategy, "--stock", "--resume", ours / of_step(SAVED))
    for ended in (by_ours, by_stock):
        ended.ok()
        assert losses_of(ended) == since(SAVED, losses)


@pytest.mark.parametrize("saved_by", [["parallel"], ["parallel", "--stock"], ["ddp"]])
def test_frozen_parameters_keep_their_moments(runs, tmp_path, saved_by):
    """As those of a resume that freezes nothing, also in what it saves, and to the last one."""
    root, _ = runs.undisturbed(*saved_by)
    moments = []
    for name, words, start in (
        ("all", [], root / of_step(SAVED)),
        ("frozen", ["--freeze"], root / of_step(SAVED)),
        ("again", [], tmp_path / "frozen" / of_step(9)),
    ):
        resumed = runs.run(tmp_path / name, "parallel", *words, "--resume", start)
        resumed.ok()
        moments.append(resumed.values("moment"))
    assert len(moments[0]) == 6 and moments == [moments[0]] * 3


def test_a_file_of_lightning_is_resumed(runs, tmp_path):
    """Also where it has to make way for a directory: last.ckpt."""
    _, losses = runs.undisturbed("auto")
    last = "--save-last", "true"
    runs.run(tmp_path, "auto", "--stock", "--steps", SAVED, *last).ok()
    assert (tmp_path / "last.ckpt").is_file()
    resumed = runs.run(tmp_path, "auto", "--resume", "last", *last)
    resumed.ok()
    assert losses_of(resumed) == since(SAVED, losses)
    assert (tmp_path / "last.ckpt").is_dir()
    expected = [of_step(3), of_step(SAVED), of_step(9), of_step(STEPS), "last.ckpt"]
    assert entries(tmp_path) == sorted(expected)


def files_in(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def by_name(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def plant(folder):
    """Files of others, with names that might be ours; the names, and what is in them."""
    mine = {name: name.encode() for name in ("last-before.ckpt", "last.ckpt.part", "notes.txt")}
    for name, content in mine.items():
        (folder / name).write_bytes(content)
        os.utime(folder / name, (0, 0))  # Lightning takes the newest of last*.ckpt
    return mine


def is_ours(path):
    try:
        return sidestep.load_metadata(path).format == "sidestep"
    except sidestep.Error:
        return False


@pytest.mark.parametrize(
    ("strategy", "place"),
    [
        ("auto", "put_file_aside"),
        ("auto", "start_save"),
        ("auto", "soon20"),
        ("parallel", "start_save"),
        ("parallel", "soon20"),
    ],
)
def test_what_lightning_saved_last_outlives_a_killed_save(runs, tmp_path, strategy, place):
    """Its last.ckpt, a file or a directory of shards, is there until ours is committed in its
    place.  Before that, both go on from it; afterwards, ours does.  Files of others stay."""
    _, losses = runs.undisturbed(strategy)
    root, last = tmp_path / "root", ["--save-last", "true"]
    runs.run(root, strategy, "--stock", "--steps", SAVED, *last).ok()
    mine = plant(root)
    theirs = set(files_in(root).values())
    words = "--resume", "last", "--kill", KILLED, "--kill-in", place
    killed = runs.run(root, strategy, *last, *words)
    assert killed.status != 0 and max(losses_of(killed)) >= KILLED - 1, killed.output
    is_committed = is_ours(root / "last.ckpt")
    assert not is_committed or place.startswith("soon")
    assert is_committed or theirs <= set(files_in(root).values())
    for words in [[]] if is_committed else [[], ["--stock"]]:
        copy = tmp_path / "-".join(["copy", *words])
        shutil.copytree(root, copy, symlinks=True)
        resumed = runs.run(copy, strategy, *last, *words, "--resume", "last")
        resumed.ok()
        assert losses_of(resumed) == since(KILLED if is_committed else SAVED, losses)
        assert mine.items() <= by_name(copy).items()


def test_lightning_resumes_from_a_file_made_of_ours(runs, lightning, tmp_path):
    root, losses = runs.undisturbed("auto")
    file = tmp_path / "file.ckpt"
    lightning.run_module("sidestep.lightning", root / of_step(SAVED), file).ok()
    resumed = runs.run(tmp_path, "auto", "--stock", "--resume", file)
    resumed.ok()
    assert losses_of(resumed) == since(SAVED, losses)


def test_one_device_resumes_what_was_sharded(runs, tmp_path):
    """By two ranks, whose data it does not have: it goes on from the same weights."""
    root, losses = runs.undisturbed("parallel")
    resumed = runs.run(tmp_path, "auto", "--resume", root / of_step(SAVED))
    resumed.ok()
    assert losses_of(resumed)[SAVED] == losses[SAVED]


@pytest.mark.parametrize("strategy", ["parallel", "fsdp"])
def test_shards_resume_what_ddp_has_saved(runs, tmp_path, strategy):
    """As stock Lightning resumes from its file."""
    losses = {}
    for name, words in (("stock", ["--stock"]), ("ours", [])):
        root, _ = runs.undisturbed("ddp", *words)
        before = sorted(os.listdir(root))
        resumed = runs.run(tmp_path / name, strategy, *words, "--resume", root / of_step(SAVED))
        resumed.ok()
        losses[name] = losses_of(resumed)
        assert sorted(os.listdir(root)) == before
    assert losses["ours"] == losses["stock"] != {}


# ---------------------------------------------------------------- ModelCheckpoint as it is


@pytest.mark.parametrize(
    "words",
    [
        ("--top-k", "1", "--save-last", "true"),
        ("--top-k", "1", "--save-last", "link"),
        ("--top-k", "2", "--monitor", "train_loss"),
        ("--top-k", "3", "--monitor", "train_loss", "--filename", "best"),
    ],
    ids=lambda words: "-".join(words).replace("--", ""),
)
def test_the_same_checkpoints_stay(runs, tmp_path, words):
    stock = runs.run(tmp_path / "stock", "auto", "--stock", *words, "--every", 1)
    ours = runs.run(tmp_path / "ours", "auto", *words, "--every", 1)
    stock.ok()
    ours.ok()
    assert entries(tmp_path / "ours") == entries(tmp_path / "stock")
    for word in ("best", "last"):
        (mine,), (other,) = ours.values(word), stock.values(word)
        assert Path(mine).name == Path(other).name
    for name in entries(tmp_path / "ours"):
        path = tmp_path / "ours" / name
        assert sidestep.load_metadata(path.resolve()).format == "sidestep"
        assert path.is_symlink() == (tmp_path / "stock" / name).is_symlink()


def test_programs_load_what_was_saved(lightning, tmp_path):
    ended = lightning.run("lightning_load.py", tmp_path)
    ended.ok()
    assert ended.values("step") == ["4"]
    (left_out,) = ended.values("left_out")
    assert {"callbacks", "lr_schedulers", "optimizer_states"} <= set(left_out.split())
    assert ended.values("file")[0].startswith("FileNotFoundError Checkpoint file not found")
    assert ended.values("directory")[0].startswith("Error ")
    assert ended.values("options")[0].startswith("storage_options: ")
    assert ended.values("linked") == ["2", "2"]


def test_the_older_name_of_lightning():
    """In a process that has not imported the newer one."""
    ended = environments.find("lightning").run("lightning_names.py")
    ended.ok()
    assert ended.values("plugin") == ["SidestepCheckpointIO"]


# ---------------------------------------------------------------- what it says


def test_log_and_metrics(runs, tmp_path):
    words = "--tell", "--top-k", "1", "--steps", 6
    ended = runs.run(tmp_path, "auto", *words)
    ended.ok()
    lines = ended.values("LOG")
    assert [line for line in lines if not line.startswith("INFO ")] == []
    saved = [line for line in lines if line.startswith("INFO saved step ")]
    assert [line.split()[3] for line in saved] == ["3", "6"]
    deleted = [line.split("'")[1] for line in lines if " deleted " in line]
    assert deleted == [str(tmp_path / of_step(3))]
    with open(tmp_path / "log" / "version_0" / "metrics.csv") as file:
        rows = [row for row in csv.DictReader(file) if row.get("sidestep/bytes")]
    assert [int(row["step"]) for row in rows] == [3, 6]
    assert all(float(row["sidestep/bytes"]) > 10000 for row in rows)
    assert all(float(row["sidestep/stall_ms"]) > 0 for row in rows)
    assert all(float(row["sidestep/background_s"]) > 0 for row in rows)
    resumed = runs.run(tmp_path, "auto", "--tell", "--resume", tmp_path / of_step(6))
    resumed.ok()
    assert any(line.startswith("INFO loaded step 6 from ") for line in resumed.values("LOG"))


def test_the_example_runs_and_goes_on(lightning, tmp_path):
    example = environments.TOP / "examples" / "train_lightning.py"
    for steps, first in ((60, "step 0:"), (120, "step 50:")):
        ended = lightning.run(example, "--root", tmp_path, "--steps", steps)
        ended.ok()
        assert next(line for line in ended.output.splitlines() if "loss" in line).startswith(first)
        assert ended.values("saved:") == [str(tmp_path / "last.ckpt")]
    assert sidestep.load_metadata(tmp_path / "last.ckpt").step == 100
