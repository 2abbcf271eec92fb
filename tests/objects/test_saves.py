# SPDX-License-Identifier: BSD-3-Clause
"""Saves to object stores, and every command that reads them: on two servers, through the real
command line, and with stock torch over what boto3 has copied."""

import json
import pathlib

import clients
import programs
import pytest
import servers
import torch
import torch.distributed.checkpoint as dcp
from programs import held, save, sidestep

BUCKET = "runs"
ROOT = f"s3://{BUCKET}/job"
STEPS = (f"{ROOT}/step-1", f"{ROOT}/step-2")


@pytest.fixture(scope="module", params=["strict", "moto"])
def filled(request):
    """A store with two checkpoints: of seed 3, which has replaced another, and of seed 2."""
    with getattr(servers, request.param)(bucket=BUCKET) as store:
        for url, seed in ((STEPS[0], 1), (STEPS[0], 3), (STEPS[1], 2)):
            done = save(store, url, seed)
            assert done.returncode == 0, done.stderr
        yield store


def copy_prefix(store, prefix, folder):
    """As `aws s3 cp --recursive` does it."""
    client = store.client()
    for item in client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/")["Contents"]:
        path = folder / item["Key"].removeprefix(f"{prefix}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(BUCKET, item["Key"], str(path))


def load_by_torch(folder, **how):
    """Every tensor of a checkpoint, by stock torch."""
    reader = how.get("reader") or dcp.FileSystemReader(folder)
    state = {
        name: torch.empty(item.size, dtype=item.properties.dtype)
        for name, item in reader.read_metadata().state_dict_metadata.items()
        if hasattr(item, "size")
    }
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state


def bytes_of(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def test_checkpoints_are_whole_and_nothing_else_is_there(filled):
    assert held(filled, STEPS[0], 1, 2, 3) == 3
    assert held(filled, STEPS[1], 1, 2, 3) == 2
    listed = filled.client().list_objects_v2(Bucket=BUCKET)["Contents"]
    names = sorted(item["Key"].rpartition("/")[2].split(".")[0] for item in listed)
    assert names == ["", "", "", "", "__0_0", "__0_0"]  # of each .metadata and the manifest
    assert "Uploads" not in filled.client().list_multipart_uploads(Bucket=BUCKET)


def test_verify(filled):
    for url in STEPS:
        assert sidestep(filled, "verify", url).startswith("ok")


def test_a_listing_and_the_latest(filled):
    listed = json.loads(sidestep(filled, "ls", "--json", ROOT))["checkpoints"]
    assert [(item["name"], item["state"]) for item in listed] == [
        ("step-1", "committed"),
        ("step-2", "committed"),
    ]
    assert sidestep(filled, "latest", ROOT).strip() == STEPS[1]


def test_show_and_cat(filled):
    assert "model.embed.weight" in sidestep(filled, "show", STEPS[0])
    assert '"step":3' in sidestep(filled, "cat", "--value", STEPS[0], "config")
    assert sidestep(filled, "cat", STEPS[0], "model.layers.0.bias")


def test_diff(filled):
    assert programs.run(filled, "sidestep", "diff", STEPS[0], STEPS[0]).returncode == 0
    different = programs.run(filled, "sidestep", "diff", *STEPS)
    assert different.returncode == 1 and "model.embed.weight" in different.stdout


def test_a_copy_is_a_checkpoint_of_files(filled, tmp_path):
    copy_prefix(filled, "job/step-1", tmp_path)
    assert sidestep(filled, "verify", tmp_path).startswith("ok")
    assert sidestep(filled, "diff", STEPS[0], tmp_path).startswith("same")
    assert held(filled, tmp_path, 3) == 3


def test_stock_torch_loads_a_copy(filled, tmp_path):
    """Bit for bit what a save of the same state to a folder gives it."""
    copied, local = tmp_path / "copied", tmp_path / "local"
    copy_prefix(filled, "job/step-1", copied)
    assert save(filled, local, 3).returncode == 0
    ours, theirs = load_by_torch(copied), load_by_torch(local)
    assert ours.keys() == theirs.keys() and len(ours) > 8
    for name, tensor in ours.items():
        assert bytes_of(tensor) == bytes_of(theirs[name]), name


@pytest.mark.skipif(not clients.PYTHON.exists(), reason=clients.MISSING)
def test_stock_torch_loads_from_the_store(filled, tmp_path):
    """By its own reader for fsspec."""
    assert save(filled, tmp_path / "local", 3).returncode == 0
    clients.stock(filled, "load", "s3fs", STEPS[0], tmp_path / "local")


def test_convert_to_a_file(filled, tmp_path):
    target = pathlib.Path(tmp_path) / "model.safetensors"
    sidestep(filled, "convert", "--model-only", STEPS[0], target)
    assert sidestep(filled, "cat", target, "embed.weight") == sidestep(
        filled, "cat", STEPS[0], "model.embed.weight"
    )


def test_convert_to_a_checkpoint(filled, tmp_path):
    sidestep(filled, "convert", "--to=dcp", STEPS[0], tmp_path / "copy")
    assert sidestep(filled, "diff", STEPS[0], tmp_path / "copy").startswith("same")


def test_convert_from_an_index_of_safetensors(filled, tmp_path):
    """Only the files that the index names are read, as on a disk."""
    shards = tmp_path / "model"
    sidestep(filled, "convert", "--model-only", "--max-shard-size=20KiB", STEPS[0], shards)
    names = [path.name for path in shards.iterdir()]
    assert len(names) > 2 and "model.safetensors.index.json" in names
    for name in names:
        filled.client().upload_file(str(shards / name), BUCKET, f"shards/{name}")
    (spare,) = [name for name in names if "-00001-" in name]
    filled.client().upload_file(str(shards / spare), BUCKET, "shards/spare.safetensors")
    url = f"s3://{BUCKET}/shards"
    assert sidestep(filled, "diff", url, shards).startswith("same")
    assert sidestep(filled, "verify", url).startswith("ok")
    filled.client().delete_object(Bucket=BUCKET, Key=f"shards/{spare}")
    done = programs.run(filled, "sidestep", "show", url)
    assert done.returncode != 0 and spare in done.stderr


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt"])
def test_convert_from_a_file(filled, tmp_path, name):
    sidestep(filled, "convert", "--model-only", STEPS[0], tmp_path / name)
    body = (tmp_path / name).read_bytes()
    filled.client().put_object(Bucket=BUCKET, Key=f"cut/{name}", Body=body[: len(body) // 2])
    filled.client().put_object(Bucket=BUCKET, Key=name, Body=body)
    assert sidestep(filled, "verify", f"s3://{BUCKET}/{name}").startswith("ok")
    assert programs.run(filled, "sidestep", "verify", f"s3://{BUCKET}/cut/{name}").returncode == 3
    assert sidestep(filled, "diff", f"s3://{BUCKET}/{name}", tmp_path / name).startswith("same")
    sidestep(filled, "convert", "--to=dcp", f"s3://{BUCKET}/{name}", tmp_path / "made")
    assert sidestep(filled, "diff", tmp_path / "made", tmp_path / name).startswith("same")
