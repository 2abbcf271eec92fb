# SPDX-License-Identifier: BSD-3-Clause
"""torchtitan: its parts in a loop, killed in a save and resumed, beside one that never stopped."""

import json
import shutil

import pytest
from environments import TOP, find, flip, flipped

import sidestep
from sidestep._roots import checkpoints_of

SLOW = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "5000"}  # a save takes longer than the steps after it
PROGRAM = "titan_train.py"
REPLICAS = "titan_ft.py"


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
        ("by=made",),
    ],
    ids=" ".join,
)
def test_the_same_checkpoints_stay(torchtitan, stock, tmp_path, words):
    ended = torchtitan.run(PROGRAM, tmp_path, 7, "keep=2", *words, ranks=2)
    assert_same_end(ended, stock[1], 1)
    assert names(tmp_path) == names(stock[0]) == ["step-4", "step-6", "step-7"]
    mode = words[-1].removeprefix("mode=") if words[-1] != "by=made" else "async"
    assert ended.values("mode") == [mode] * 2


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


def test_flipped_bits_are_passed_over(torchtitan, stock, tmp_path):
    torchtitan.run(PROGRAM, tmp_path, 6, ranks=2).ok()
    flip(tmp_path / "checkpoint" / "step-6", "__1_0.distcp")
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


def test_in_a_bucket(torchtitan, stock, bucket, monkeypatch):
    """Killed in a save and resumed; what is kept; flipped bits are passed over.  Without s3fs."""
    for name, value in bucket.environment().items():
        monkeypatch.setenv(name, value)
    url, how = "s3://runs/titan", {"ranks": 2, "variables": bucket.environment()}

    def steps():
        return [path.rpartition("/")[2] for path in checkpoints_of(f"{url}/checkpoint")]

    slow = {"ranks": 2, "variables": {**bucket.environment(), **SLOW}}
    ended = torchtitan.run(PROGRAM, url, 7, "keep=2", "kill=4", **slow)
    assert ended.status != 0 and steps() == ["step-2"], ended.output
    assert_same_end(torchtitan.run(PROGRAM, url, 7, "keep=2", **how), stock[1], 3)
    assert sorted(steps()) == names(stock[0])
    client = bucket.client()
    found = client.list_objects_v2(Bucket="runs", Prefix="titan/checkpoint/step-7/__1_0")
    key = found["Contents"][0]["Key"]
    data = client.get_object(Bucket="runs", Key=key)["Body"].read()
    client.put_object(Bucket="runs", Key=key, Body=flipped(data))
    ended = torchtitan.run(PROGRAM, url, 7, "keep=2", **how)
    assert_same_end(ended, stock[1], 7)
    assert "passed over" in ended.output


def losses_from(torchtitan, directory, place, last, *words):
    """Of the steps up to ``last`` of a run that begins with ``place``: the same by both."""
    runs = []
    for by in ("stock", "sidestep"):
        more = f"init={place}", f"by={by}", *words
        ended = torchtitan.run(PROGRAM, directory / f"begun-by-{by}", last, *more, ranks=2)
        ended.ok()
        runs.append(ended.values("loss"))
    assert len(runs[0]) == 2
    assert runs[0] == runs[1]
    return runs[0]


@pytest.fixture(params=["stock", "sidestep"])
def by(request):
    """Whose saves they are."""
    return request.param


def test_the_model_alone_and_the_beginning_of_another_run(torchtitan, stock, tmp_path):
    models = []
    for by in ("stock", "sidestep"):
        words = "last=model", "dtype=float16", f"by={by}"
        torchtitan.run(PROGRAM, tmp_path / by, 4, *words, ranks=2).ok()
        place = tmp_path / by / "checkpoint" / "step-4"
        described = sidestep.load_metadata(place)
        assert {one.dtype for one in described.tensors.values()} == {"float16"}
        models.append({name: sidestep.read(place, name).tolist() for name in described.tensors})
    assert len(models[0]) == 4
    assert models[0] == models[1]
    assert losses_from(torchtitan, tmp_path, place, 2) != stock[1].values("loss")[:2]


def test_the_last_save_for_hugging_face(torchtitan, tmp_path):
    """In two files.  It is torchtitan's own in any case; what is loaded of it is the same."""
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    files = {
        f"model.layers.{name}": f"model-{i % 2 + 1}.safetensors" for i, name in enumerate(names)
    }
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    written = []
    for by in ("stock", "sidestep"):
        words = "last=hf", f"index={tmp_path}", f"by={by}"
        torchtitan.run(PROGRAM, tmp_path / by, 4, *words, ranks=2).ok()
        place = tmp_path / by / "checkpoint" / "step-4"
        written.append({path.name: path.read_bytes() for path in place.glob("model*.safetensors")})
    assert len(written[0]) == 2
    assert written[0] == written[1]
    losses_from(torchtitan, tmp_path, place, 2, "hf=true")


def test_all_of_another_run_or_all_but_something(torchtitan, stock, tmp_path, by):
    torchtitan.run(PROGRAM, tmp_path, 3, f"by={by}", ranks=2).ok()
    place = tmp_path / "checkpoint" / "step-2"
    whole = losses_from(torchtitan, tmp_path / "whole", place, 4, "whole=true")
    assert whole == stock[1].values("loss")[2:4]
    words = "whole=true", "exclude=lr_scheduler,dataloader"
    assert losses_from(torchtitan, tmp_path / "rest", place, 4, *words) != whole


def lines_of(ended):
    """What two replicas have printed, in no order between the two."""
    ended.ok()
    return sorted(ended.values("loss")), sorted(ended.values("place"))


@pytest.fixture(scope="module")
def replicas(torchtitan, tmp_path_factory):
    """torchtitan's own saves of two replicas of torchft, 4 steps, and what a run goes on with."""
    directory = tmp_path_factory.mktemp("replicas")
    lines_of(torchtitan.run(REPLICAS, directory / "four", 4, "by=stock"))
    shutil.copytree(directory / "four", directory / "more")
    losses, places = lines_of(torchtitan.run(REPLICAS, directory / "more", 6, "by=stock"))
    assert places == ["0 4", "1 4"]
    assert len({line.split()[2] for line in losses}) == 4
    return directory / "four", (losses, places)


def test_replicas_of_torchft_go_on(torchtitan, replicas, tmp_path):
    """From their own and from each other's saves."""
    shutil.copytree(replicas[0], tmp_path / "stock")
    assert lines_of(torchtitan.run(REPLICAS, tmp_path / "stock", 6)) == replicas[1]
    lines_of(torchtitan.run(REPLICAS, tmp_path / "ours", 4))
    for parent in ("", "ft-replicat-0", "ft-replicat-1"):
        folder = tmp_path / "ours" / "checkpoint" / parent
        steps = [path.name for path in folder.glob("step-*") if (path / ".metadata").exists()]
        assert sorted(steps) == [f"step-{step}" for step in ((1, 2, 3, 4) if parent else (2, 4))]
    ended = torchtitan.run(REPLICAS, tmp_path / "ours", 6, "by=stock", "mode=disabled")
    assert lines_of(ended) == replicas[1]


def test_replicas_of_torchft_are_killed_in_a_save(torchtitan, replicas, tmp_path):
    ended = torchtitan.run(REPLICAS, tmp_path, 6, "kill=5", variables=SLOW)
    assert ended.status != 0
    folders = [tmp_path / "checkpoint" / f"ft-replicat-{replica}" for replica in (0, 1)]
    assert [(one / "step-4").exists() for one in folders] == [True, True]
    assert [(one / "step-5").exists() for one in folders] == [False, False]
    assert lines_of(torchtitan.run(REPLICAS, tmp_path, 6)) == replicas[1]


def test_the_example(tmp_path):
    """Under torchrun, as the others are not."""
    torchtitan, example = find("torchtitan"), TOP / "examples" / "train_torchtitan.py"
    torchtitan.run(example, tmp_path, 10, ranks=2).ok()
    assert names(tmp_path) == ["step-10", "step-5"]
    ended = torchtitan.run(example, tmp_path, 15, ranks=2)
    ended.ok()
    steps = [line.split(":")[0] for line in ended.output.splitlines() if line.startswith("step ")]
    assert steps == ["step 11", "step 12", "step 13", "step 14", "step 15"]
    assert names(tmp_path) == ["step-10", "step-15", "step-5"]  # two, and the last one
