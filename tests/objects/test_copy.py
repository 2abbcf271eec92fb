# SPDX-License-Identifier: BSD-3-Clause
"""`sidestep cp` between directories and buckets: the same bytes, whole or not there at all, and it
goes on where it was interrupted."""

import json
import shutil

import botocore.exceptions
import programs
import pytest
import servers
import sidestep as python
from programs import FAST, held, keys, kill_at, run, save, sidestep, well

BUCKET = "runs"
URL = f"s3://{BUCKET}/job/step-1"
COPY = f"s3://{BUCKET}/copies/step-1"
PREFIX = "copies/step-1/"
HOUR = 3601
RANKS = 3


@pytest.fixture
def store(server):
    server.control(clear=["log", "rules", "late", "objects", "uploads"], settings={"skew": 0})
    return server


@pytest.fixture(scope="module")
def made(server, tmp_path_factory):
    """A checkpoint of three ranks in a directory."""
    folder = tmp_path_factory.mktemp("made")
    well(None, "saver_tool", "save", folder / "one", 1)
    sidestep(None, "convert", "--to=dcp", f"--ranks={RANKS}", folder / "one", folder / "three")
    return folder / "three"


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def objects_of(store, prefix):
    client = store.client()
    return {
        key.removeprefix(prefix): client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        for key in keys(store, prefix)[0]
    }


def copy(store, source, destination, *words, **more):
    return json.loads(sidestep(store, "cp", "--json", *words, source, destination, **more))


def is_there(store, prefix=PREFIX):
    return f"{prefix}.metadata" in keys(store, prefix)[0]


# ---- all directions


def test_to_a_bucket_between_buckets_and_back(store, made, tmp_path):
    told = copy(store, made, COPY)
    assert objects_of(store, PREFIX) == files_of(made)
    assert (told["copied_files"], told["files"]) == (RANKS, RANKS)
    assert told["save_id"] in " ".join(keys(store, PREFIX)[0])
    copy(store, COPY, f"s3://{BUCKET}/again")
    assert objects_of(store, "again/") == files_of(made)
    copy(store, f"s3://{BUCKET}/again", tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(made)
    assert keys(store)[1] == []
    assert held(store, COPY, 1, 2) == 1


def test_of_a_save_to_a_bucket(store, tmp_path):
    assert save(store, URL, 5).returncode == 0
    copy(store, URL, tmp_path / "back")
    assert files_of(tmp_path / "back") == objects_of(store, "job/step-1/")
    assert held(None, tmp_path / "back", 5) == 5


def test_to_moto(made, tmp_path):
    with servers.moto(bucket=BUCKET) as other:
        copy(other, made, COPY)
        copy(other, COPY, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(made)


def test_of_torch_has_checksums_only(store, tmp_path):
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    torch = pytest.importorskip("torch")
    state = {"weight": torch.arange(100000.0), "step": 3}
    dcp.save(state, checkpoint_id=tmp_path / "stock", no_dist=True)
    told = copy(store, tmp_path / "stock", COPY)
    assert told["save_id"] is None
    assert objects_of(store, PREFIX) == files_of(tmp_path / "stock")
    copy(store, COPY, tmp_path / "back")
    loaded = {"weight": torch.zeros(100000), "step": 0}
    dcp.load(loaded, checkpoint_id=tmp_path / "back", no_dist=True)
    assert torch.equal(loaded["weight"], state["weight"]) and loaded["step"] == 3


def test_torchs_files_are_not_replaced_one_by_one(store, tmp_path):
    """Neither where another checkpoint has the same .metadata, nor in the source itself."""
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    torch = pytest.importorskip("torch")
    dcp.save({"weight": torch.zeros(1000)}, checkpoint_id=tmp_path / "stock", no_dist=True)
    copy(store, tmp_path / "stock", COPY)
    there = objects_of(store, PREFIX)
    for source, status, words in [
        (tmp_path / "stock", 1, "__0_0.distcp"),
        (COPY, 2, "one place"),
        (f"{COPY}/", 2, "one place"),
    ]:
        done = run(store, "sidestep", "cp", "--replace", source, COPY)
        assert (done.returncode, words in done.stderr) == (status, True), done.stderr
        assert objects_of(store, PREFIX) == there


def test_of_torch_with_a_flipped_bit(store, tmp_path):
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    torch = pytest.importorskip("torch")
    dcp.save({"weight": torch.arange(100000.0)}, checkpoint_id=tmp_path / "stock", no_dist=True)
    flip(tmp_path / "stock" / "__0_0.distcp", 200000)
    done = run(store, "sidestep", "cp", tmp_path / "stock", COPY)
    assert done.returncode == 3 and "weight" in done.stderr
    assert not is_there(store)


# ---- what is there already


def test_the_same_again_copies_nothing(store, made):
    copy(store, made, COPY)
    store.control(clear=["log"])
    assert copy(store, made, COPY)["copied_files"] == 0
    assert not [entry for entry in store.log() if entry["method"] not in ("GET", "HEAD")]


def test_another_checkpoint_stays(store, made, tmp_path):
    assert save(store, COPY, 2).returncode == 0
    done = run(store, "sidestep", "cp", made, COPY)
    assert done.returncode == 1 and "option replace" in done.stderr and COPY in done.stderr
    assert held(store, COPY, 1, 2) == 2
    copy(store, made, COPY, "--replace")
    assert objects_of(store, PREFIX) == files_of(made)


def test_keys_that_the_replaced_one_has_too_are_refused(store, made, tmp_path):
    """They have no save id: the old checkpoint would be torn before the new one is whole."""
    well(None, "saver_tool", "save", tmp_path / "other", 2)
    copy(store, tmp_path / "other", COPY)
    before = objects_of(store, PREFIX)
    done = run(store, "sidestep", "cp", "--replace", made, COPY)
    assert done.returncode == 1 and "__0_0.distcp" in done.stderr
    assert objects_of(store, PREFIX) == before


def test_two_processes_with_the_same_keys(store, made, tmp_path):
    """Another copy, to the same name, is at work as far as its marker tells."""
    client = store.client()
    marker = f"{PREFIX}.sidestep/{'0' * 32}/pending"
    client.put_object(Bucket=BUCKET, Key=marker, Body=b"target step-1\n")
    done = run(store, "sidestep", "cp", made, COPY)
    assert done.returncode == 11 and "another process" in done.stderr
    assert keys(store, PREFIX)[0] == [marker]
    client.delete_object(Bucket=BUCKET, Key=marker)
    copy(store, made, COPY)


def test_the_marker_of_another_copy_stays(store, made):
    """Of the same checkpoint, to the same name: both have one key.  A copy that has to give way
    takes back only what it made."""
    client, save_id = store.client(), copy(store, made, COPY)["save_id"]
    store.control(clear=["objects"])
    ours, others = (f"{PREFIX}.sidestep/{name}/pending" for name in (save_id, "0" * 32))
    for key in (ours, others):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"target step-1\n")
    assert run(store, "sidestep", "cp", made, COPY).returncode == 11
    assert sorted(keys(store, PREFIX)[0]) == sorted([ours, others])
    # So does its own, if another copy puts its own over it before the listing.
    client.delete_object(Bucket=BUCKET, Key=ours)
    store.control(clear=["log"])
    assert run(store, "sidestep", "cp", made, COPY).returncode == 11
    assert keys(store, PREFIX)[0] == [others]
    listing = max(e["number"] for e in store.log() if e["operation"] == "ListObjectsV2")
    late = {"fault": "late", "operation": "PutObject", "after": listing, "at": 1}
    store.control(clear=["log"], rules=[late])
    with pytest.raises(botocore.exceptions.ConnectionClosedError):
        client.put_object(Bucket=BUCKET, Key=ours, Body=b"target step-1\n")
    assert run(store, "sidestep", "cp", made, COPY).returncode == 11
    assert sorted(keys(store, PREFIX)[0]) == sorted([ours, others])


@pytest.mark.parametrize("conditions", ["501", "ignored"])
def test_without_conditional_requests(made, conditions):
    with servers.strict("--no-tls", "--set", f"conditions={conditions}", bucket=BUCKET) as store:
        copy(store, made, COPY)
        assert objects_of(store, PREFIX) == files_of(made)


# ---- damage


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("at", [3000, -8, -700])
def test_a_flipped_bit_in_the_source(store, made, tmp_path, at):
    """In a tensor, in the trailer, in the footer."""
    shutil.copytree(made, tmp_path / "flipped")
    flip(tmp_path / "flipped" / "__1_0.distcp", at)
    done = run(store, "sidestep", "cp", tmp_path / "flipped", COPY)
    assert done.returncode == 3 and "__1_0.distcp" in done.stderr
    assert not is_there(store)


def test_a_flipped_bit_in_a_bucket(store, made, tmp_path):
    copy(store, made, COPY)
    client = store.client()
    body = bytearray(objects_of(store, PREFIX)["__2_0.distcp"])
    body[5000] ^= 1
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}__2_0.distcp", Body=bytes(body))
    done = run(store, "sidestep", "cp", COPY, tmp_path / "back")
    assert done.returncode == 3 and "__2_0.distcp" in done.stderr
    assert list(tmp_path.iterdir()) == []
    done = run(store, "sidestep", "cp", made, COPY)  # a copy that is damaged is no copy
    assert done.returncode == 1 and "damaged" in done.stderr
    assert copy(store, made, COPY, "--replace")["copied_files"] == 1
    assert objects_of(store, PREFIX) == files_of(made)


# ---- interrupted


def sweep(store, what):
    """More than an hour later a save to the same name leaves nothing of a dead copy that has keys
    of its own."""
    store.control(settings={"skew": HOUR}, rules=[])
    assert save(store, COPY, 9).returncode == 0
    left = [key for key in keys(store, PREFIX)[0] if ".sidestep/" in key]
    assert (left, keys(store)[1]) == ([], []), what
    store.control(settings={"skew": 0})


def expect_copied(store, made, told, what):
    there = objects_of(store, PREFIX)
    if told["copied_files"] == 0:  # the one before may have left its marker behind the commit
        there = {name: body for name, body in there.items() if ".sidestep/" not in name}
    assert there == files_of(made), what


@pytest.mark.parametrize("done_first", [True, False], ids=["done", "not done"])
def test_killed_at_each_request_to_a_bucket(store, made, done_first):
    copy(store, made, COPY)
    requests = len(store.log())
    command = [programs.path_of("sidestep"), "cp", made, COPY]
    kept = set()
    for at in range(1 + done_first, requests + 1, 2):
        store.control(clear=["log", "rules", "objects", "uploads"])
        kill_at(store, at, command, done_first)
        store.control(clear=["late"])
        if is_there(store):
            assert held(store, COPY, 1, 2) == 1
        told = copy(store, made, COPY)
        kept.add(RANKS - told["copied_files"])
        expect_copied(store, made, told, at)
    assert {0, RANKS} <= kept  # the rig met copies that had nothing to keep, and those with all


def test_killed_at_each_request_from_a_bucket(store, made, tmp_path):
    copy(store, made, COPY)
    store.control(clear=["log"])
    copy(store, COPY, tmp_path / "first")
    requests = len(store.log())
    command = [programs.path_of("sidestep"), "cp", COPY, tmp_path / "back"]
    for at in range(1, requests + 1, 3):
        kill_at(store, at, command, True)
        assert not (tmp_path / "back").exists()
    copy(store, COPY, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(made)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "first"]


@pytest.mark.parametrize("fault", [
    {"fault": "status", "status": 503, "retry_after": 0},
    {"fault": "lost"},
    {"fault": "cut", "after": 25, "how": "close"},
    {"fault": "flip"},
    {"fault": "flip", "side": "request"},
], ids=["503", "lost", "cut", "a bit of the answer", "a bit of the request"])  # fmt: skip
def test_a_fault_at_each_request(store, made, fault):
    """A copy that says success is whole; else the next one goes on."""
    copy(store, made, COPY)
    requests = len(store.log())
    for at in range(1, requests + 1, 3):
        store.control(clear=["log", "rules", "objects", "uploads"], rules=[{**fault, "at": at}])
        done = run(store, "sidestep", "cp", made, COPY, SIDESTEP_OBJECT_DEADLINE_MS="10000")
        store.control(rules=[])
        assert done.returncode == 0 or done.stderr
        if done.returncode != 0:
            copy(store, made, COPY, "--replace")
        assert objects_of(store, PREFIX) == files_of(made), at


def test_a_deletion_that_arrives_late_harms_no_other_copy(store, made, tmp_path):
    """Of a checkpoint that had files of the same names."""
    for step in (1, 2):
        well(None, "saver_tool", "save", tmp_path / f"step-{step}", step)
        copy(store, tmp_path / f"step-{step}", f"s3://{BUCKET}/copies/step-{step}")
    late = {"fault": "late", "after": 10000}
    rules = [{**late, "operation": "DeleteObject", "at": 2}]  # the first one is of .metadata
    store.control(clear=["log"], rules=rules)
    sidestep(store, "prune", "--yes", "--keep-last", "1", f"s3://{BUCKET}/copies")
    assert keys(store, PREFIX)[0] == []
    copy(store, made, COPY)
    assert store.control()["rules"][0]["fired"] == 1
    store.control(land=True)
    assert held(store, COPY, 1, 2) == 1
    assert objects_of(store, PREFIX) == files_of(made)


def test_a_store_that_goes_away(store, made):
    copy(store, made, COPY)
    requests = len(store.log())
    for at in range(2, requests, 4):
        rules = [{"fault": "status", "status": 403, "code": "AccessDenied", "from": at}]
        store.control(clear=["log", "rules", "objects", "uploads"], rules=rules)
        done = run(store, "sidestep", "cp", made, COPY, **FAST)
        store.control(rules=[])
        assert (done.returncode == 0) <= is_there(store)
        expect_copied(store, made, copy(store, made, COPY), at)
    sweep(store, "refused")


@pytest.mark.parametrize("key", [".metadata", f"__{RANKS - 1}_0.distcp"])
def test_a_copy_that_failed_is_no_damage(store, tmp_path, key):
    """It did not end, as long as its marker is there.  A lost .metadata is damage, as ever."""
    url = f"s3://{BUCKET}/job/many"
    well(store, "world_tool", "save", url, RANKS, "rows", 1, 1)
    key = key if key == ".metadata" else key.replace(".distcp", ".*.distcp")
    refused = {"fault": "status", "status": 403, "code": "AccessDenied", "method": "PUT"}
    store.control(rules=[{**refused, "key": f"{PREFIX}{key}"}])
    assert run(store, "sidestep", "cp", url, COPY).returncode != 0
    store.control(rules=[])
    # A shard may be refused before anything of the copy has come there.
    begun = ["there is no .metadata"] if key != ".metadata" else []
    for command, told in (("verify", "the save did not finish"), ("show", "has not ended")):
        there = run(store, "sidestep", command, COPY)
        assert there.returncode == 4, there
        assert any(words in there.stdout + there.stderr for words in [told, *begun]), there
    copy(store, url, COPY)
    store.client().delete_object(Bucket=BUCKET, Key=f"{PREFIX}.metadata")
    assert run(store, "sidestep", "verify", COPY).returncode == 3


def test_a_copy_that_fails_deletes_nothing_of_another(store, tmp_path):
    """Both are of one checkpoint, to one name: the other one may just publish the same objects."""
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    for seed in (1, 2):  # the second one is saved in place: the names of its shards have its id
        well(None, "world_tool", "save", whole, RANKS, "rows", 1, seed)
    shutil.copytree(whole, damaged)
    shard = next(damaged.glob("__1_0.*.distcp"))
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    refused = {"fault": "status", "status": 403, "code": "AccessDenied", "method": "PUT"}
    store.control(rules=[{**refused, "key": f"{PREFIX}.metadata"}])
    assert run(store, "sidestep", "cp", whole, COPY).returncode != 0
    store.control(rules=[])
    store.client().delete_object(Bucket=BUCKET, Key=f"{PREFIX}{shard.name}")
    there = {key for key in keys(store, PREFIX)[0] if key.endswith(".distcp")}
    assert len(there) == RANKS - 1
    done = run(store, "sidestep", "cp", damaged, COPY)
    assert done.returncode == 3, done
    assert there <= set(keys(store, PREFIX)[0])
    assert copy(store, whole, COPY)["copied_files"] == 1
    well(store, "sidestep", "verify", COPY)


def test_a_copy_with_small_files_can_be_deleted(store, tmp_path):
    """The copy has them under their own names, and they go with it, unless somebody changed one."""
    files = {"config.json": b"{}", "inner/notes.txt": b"notes"}
    for step in (1, 2):
        python.save({"a": 1}, checkpoint_id=tmp_path / f"step-{step}", files=files)
        copy(store, tmp_path / f"step-{step}", f"s3://{BUCKET}/copies/step-{step}")
    assert set(files) <= set(objects_of(store, PREFIX))
    there = keys(store, PREFIX)[0]
    changed = f"{PREFIX}config.json"
    store.client().put_object(Bucket=BUCKET, Key=changed, Body=b"{!")
    said = json.loads(sidestep(store, "prune", "--json", "--yes", "--keep-last=1", f"s3://{BUCKET}/copies"))
    assert "that sidestep did not write" in said["kept"][0] and said["removed"] == []
    assert keys(store, PREFIX)[0] == there
    store.client().put_object(Bucket=BUCKET, Key=changed, Body=b"{}")
    sidestep(store, "prune", "--yes", "--keep-last=1", f"s3://{BUCKET}/copies")
    assert keys(store, PREFIX)[0] == []
    assert set(files) <= set(objects_of(store, "copies/step-2/"))
