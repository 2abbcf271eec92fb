# SPDX-License-Identifier: BSD-3-Clause
"""The commands that keep order under a root, on a bucket, through the real command line."""

import datetime
import json
import os
import pathlib
import re
import subprocess
import urllib.request

import pytest
import servers
import torch
import torch.distributed.checkpoint as dcp

BUCKET = "runs"
ROOT = f"s3://{BUCKET}/job"
PROGRAM = pathlib.Path(os.environ.get("SIDESTEP_BUILD", "build")).resolve() / "sidestep"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small checkpoint of sidestep's on disk."""
    folder = tmp_path_factory.mktemp("checkpoint")
    dcp.save({"w": torch.arange(1000.0)}, checkpoint_id=folder / "torch", no_dist=True)
    subprocess.run(
        [PROGRAM, "convert", "-q", "--to=dcp", folder / "torch", folder / "ours"], check=True
    )
    return folder / "ours"


@pytest.fixture
def root(checkpoint):
    """A store with the checkpoint as steps 1, 2 and 3."""
    with servers.strict(bucket=BUCKET) as store:
        client = store.client()
        for step in (1, 2, 3):
            for path in checkpoint.iterdir():
                client.upload_file(str(path), BUCKET, f"job/step-{step}/{path.name}")
        yield store


def sidestep(store, *arguments):
    environment = {**os.environ, **store.environment()}
    return subprocess.run(
        [PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )


def ok(store, *arguments):
    done = sidestep(store, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def keys(store):
    listed = store.client().list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return [item["Key"] for item in listed]


def states(store):
    entries = json.loads(ok(store, "ls", "--json", ROOT + "/"))
    entries = entries["checkpoints"] if isinstance(entries, dict) else entries
    return {entry["name"]: entry["state"] for entry in entries}


def test_list_pin_tag_and_prune(root):
    assert states(root) == {f"step-{step}": "committed" for step in (1, 2, 3)}
    assert ok(root, "latest", ROOT).strip() == f"{ROOT}/step-3"
    ok(root, "pin", f"{ROOT}/step-1")
    ok(root, "tag", f"{ROOT}/step-3", "best")
    assert "job/.sidestep/pin.step-1" in keys(root)
    before = keys(root)
    assert "step-2" in ok(root, "prune", ROOT, "--keep-last", "1", "--dry-run")
    assert keys(root) == before
    ok(root, "prune", ROOT, "--keep-last", "1", "--yes")
    assert states(root) == {"step-1": "committed", "step-3": "committed"}
    assert not [key for key in keys(root) if key.startswith("job/step-2/")]
    assert "job/.sidestep/state" not in keys(root)  # a prune by hand takes no incarnation
    ok(root, "unpin", f"{ROOT}/step-1")
    ok(root, "prune", ROOT, "--keep-last", "1", "--yes")
    assert states(root) == {"step-3": "committed"}


@pytest.mark.parametrize("conditions", ["ignored", "501", "bare"])
def test_prune_where_conditions_are_weak(root, conditions):
    root.control(settings={"conditions": conditions})
    ok(root, "prune", ROOT, "--keep-last", "1", "--yes")
    assert states(root) == {"step-3": "committed"}
    assert not [key for key in keys(root) if key.startswith(("job/step-1/", "job/step-2/"))]


def requests_of(store, *arguments):
    store.control(clear=["log"])
    ok(store, *arguments)
    return store.log()


def test_requests_of_check(root, checkpoint):
    """With an index of the root, three checkpoints take as many requests as twenty."""
    for step in range(4, 21):
        for path in checkpoint.iterdir():
            root.client().upload_file(str(path), BUCKET, f"job/step-{step}/{path.name}")
    without = len(requests_of(root, "check", ROOT))
    ok(root, "prune", ROOT, "--keep-last", "20", "--yes")  # writes the index
    many = requests_of(root, "check", ROOT)
    ok(root, "prune", ROOT, "--keep-last", "3", "--yes")
    few = requests_of(root, "check", ROOT)
    assert (len(many), without) == (len(few), len(few) + 20 - 1)
    assert len(many) == 5  # the list, the index, the owner; .metadata and the footer of the newest


def test_metrics_listen(root, checkpoint):
    """Each scrape looks at the bucket, and at no more of it than check does."""
    ok(root, "prune", ROOT, "--keep-last", "3", "--yes")  # writes the index
    environment = {**os.environ, **root.environment()}
    listener = subprocess.Popen(
        [PROGRAM, "metrics", "--listen", "0", ROOT],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = listener.stderr.readline()
    if "listening on" not in said:
        listener.communicate()
        pytest.skip(said)

    def scrape():
        root.control(clear=["log"])
        with urllib.request.urlopen(said.split()[-1]) as answer:
            found = re.findall(r"last_committed_step\{.*\} (\d+)", answer.read().decode())
        return found, len(root.log())

    try:
        assert scrape() == scrape() == (["3"], 5)
        for path in checkpoint.iterdir():
            root.client().upload_file(str(path), BUCKET, f"job/step-9/{path.name}")
        assert scrape()[0] == ["9"]
        root.client().delete_object(Bucket=BUCKET, Key="job/step-9/.metadata")
        assert scrape()[0] == ["3"]
    finally:
        listener.terminate()
        listener.communicate()


def test_rebuild(root):
    root.client().delete_object(Bucket=BUCKET, Key="job/step-3/.metadata")
    assert states(root)["step-3"] == "damaged"
    assert ok(root, "latest", ROOT).strip() == f"{ROOT}/step-2"
    ok(root, "rebuild", f"{ROOT}/step-3")
    assert ok(root, "latest", ROOT).strip() == f"{ROOT}/step-3"
    ok(root, "verify", f"{ROOT}/step-3")


def test_verify_of_a_root(root):
    """A prefix of keys is no directory, and what is damaged there was not deleted."""
    assert "3 ok, 0 damaged" in ok(root, "verify", ROOT)
    shard = "job/step-2/__0_0.distcp"
    body = bytearray(root.client().get_object(Bucket=BUCKET, Key=shard)["Body"].read())
    body[len(body) // 2] ^= 1
    root.client().put_object(Bucket=BUCKET, Key=shard, Body=bytes(body))
    done = sidestep(root, "verify", ROOT)
    assert "2 ok, 1 damaged" in done.stdout, done.stdout
    assert (done.returncode, sidestep(root, "verify", f"s3://{BUCKET}/none").returncode) == (3, 10)


def test_a_bucket_is_a_root(root, checkpoint):
    for path in checkpoint.iterdir():
        root.client().upload_file(str(path), BUCKET, f"step-7/{path.name}")
    assert "1 ok, 0 damaged" in ok(root, "verify", f"s3://{BUCKET}")


def test_the_age_of_what_others_saved(root, tmp_path):
    """A prefix of keys has no time; its files have."""
    dcp.save({"w": torch.arange(10.0)}, checkpoint_id=tmp_path, no_dist=True)
    for path in tmp_path.iterdir():
        root.client().upload_file(str(path), BUCKET, f"job/step-4/{path.name}")
    listed = json.loads(ok(root, "ls", "--json", ROOT))["checkpoints"]
    found = {entry["name"]: entry for entry in listed}["step-4"]
    head = root.client().head_object(Bucket=BUCKET, Key="job/step-4/.metadata")
    saved_at = datetime.datetime.fromisoformat(found["saved_at"])
    assert (found["state"], saved_at) == ("committed", head["LastModified"])


def test_gc_keeps_what_is_young(root):
    marker = f"job/step-9/.sidestep/{'0123456789abcdef' * 2}/pending"
    root.client().put_object(Bucket=BUCKET, Key=marker, Body=b"target step-9\nowner 1\nhost h\n")
    assert states(root)["step-9"] == "saving"
    listed = json.loads(ok(root, "ls", "--json", ROOT))["checkpoints"]
    assert {entry["name"]: entry["saved_at"] for entry in listed}["step-9"] is None
    assert "less than an hour" in ok(root, "gc", ROOT, "--yes")
    assert marker in keys(root)


def test_watch_sees_a_save(root):
    save_id = "0123456789abcdef" * 2
    for name in ("pending", "yes.0", "alive.1"):
        key = f"job/step-9/.sidestep/{save_id}/{name}"
        root.client().put_object(Bucket=BUCKET, Key=key, Body=b"owner 4711\nhost node-3\n")
    said = ok(root, "watch", "--once", ROOT)
    assert "step-9" in said and "2 ranks, 1 done" in said


@pytest.mark.parametrize(
    ("conditions", "state", "word"),
    [("honoured", "yes", "obeyed"), ("ignored", "partly", "ignored"), ("501", "partly", "refused")],
)
def test_doctor(root, conditions, state, word):
    root.control(settings={"conditions": conditions})
    before = keys(root)
    report = json.loads(ok(root, "doctor", "--json", ROOT))
    found = {finding["name"]: finding for finding in report["findings"]}
    assert root.endpoint in found["endpoint"]["text"]
    assert found["writable"]["state"] == found["deletes"]["state"] == "yes"
    assert ("If-Match" in found["deletes"]["text"]) == (conditions != "honoured")
    assert found["clock"]["state"] == "yes"
    assert found["conditions"]["state"] == state
    assert word in found["conditions"]["text"]
    assert keys(root) == before
