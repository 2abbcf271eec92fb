# SPDX-License-Identifier: BSD-3-Clause
"""Nothing that is not ours is replaced or deleted in a bucket: each command and each function that
writes or deletes, with objects of others everywhere under the prefix.

More than an hour passes before each of them: everything that is dead may be swept.
"""

import python_programs
import pytest
from programs import keys, run, save, sidestep

BUCKET = "runs"
ROOT, ONE, TWO = (f"s3://{BUCKET}/{path}" for path in ("job", "job/one", "job/two"))
HOUR = 3601
ID = "0123456789abcdef" * 2
PLACES = ["", "job/", "job/one/", "job/two/", "job/step-1/", "job/step-2/", "job/step-4/",
          "job/new/", "job/logs/", "copies/"]  # fmt: skip
NAMES = [  # close to ours, and not ours
    "notes.txt", "logs/old/events", "logs/__0_0.distcp", "__0_0.distcp.bak", "__00_0.distcp",
    "__0_0.DISTCP", f"__0_0.{ID}.distcp.part.1", f"__0_0.{ID}.distcp/theirs", f"__0_0.{ID}x.distcp",
    f"__0.{ID}.yes~", ".metadata.old", ".metadata~", ".metadata/theirs", "metadata", "model.bin",
    ".sidestep/notes.txt", ".sidestep/state.bak", ".sidestep/pin", f".sidestep/{ID}",
    f".sidestep/{ID}.bak/pending", f".sidestep/{ID[:-1]}/pending", f".sidestep/{ID.upper()}/yes.0",
    f".sidestep/{ID}/notes.txt", f".sidestep/{ID}/yes.0.bak", f".sidestep/{ID}/pending/theirs",
    f".sidestep/{ID}/alive.x", f".sidestep/{ID}/yes.00", f".sidestep.manifest.{ID}.bak",
    f".sidestep.{ID}.saving/theirs.txt",
    f".sidestep.{ID}.trash/{ID}", "model-00001-of-00002.safetensors.bak", "step-1.bak",
    "model.safetensors.index.json.bak",
    f"model-{ID}.txt", "a name with spaces", "%2e%2e", "ümlaut",
]  # fmt: skip
OF_FOLDERS = ["job/", "job/one/", "job/empty/", "job/step-1/"]  # as a console makes "folders"

STEPS = """
import sys
import torch
import sidestep

root = sys.argv[1]
state = {"w": torch.zeros(1000)}
with sidestep.Checkpointer(root, keep_last_n=1) as checkpoints:
    for step in range(10, 13):
        checkpoints.save(step, state)
"""

CALLS = """
import contextlib
import sys
import torch
import sidestep
from sidestep import _directory

root = sys.argv[1]
sidestep.save({"w": torch.ones(10)}, checkpoint_id=f"{root}/python")
sidestep.copy(f"{root}/one", f"{root}/copied")
sidestep.copy(f"{root}/two", f"{root}/copied", replace=True)
sidestep.convert(f"{root}/python", f"{root}/converted")
sidestep.export(f"{root}/python", f"{root}/exported")
assert sidestep.latest(root)
for name in ("one", "step-1", "logs", "new", "copied", "python"):
    with contextlib.suppress(sidestep.Error):
        _directory.delete(f"{root}/{name}", "it is tried")
"""


def contents(store, wanted):
    client = store.client()
    return {key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in wanted}


@pytest.fixture(scope="module")
def made(server):
    """A series of four steps, of which the newest is damaged, two checkpoints of their own, and
    what dead saves have left."""
    for name, seed in [("one", 7), ("two", 8), *((f"step-{step}", step) for step in range(1, 5))]:
        done = save(server, f"{ROOT}/{name}", seed)
        assert done.returncode == 0, done.stderr
    found = contents(server, keys(server)[0])
    for key in [key for key in found if "job/step-4/__" in key]:
        del found[key]
    dead = "f" + ID[1:]
    for name in (f"__0_0.{dead}.distcp", f".sidestep/{dead}/pending", f".sidestep/{dead}/yes.0"):
        found[f"job/one/{name}"] = found[f"job/new/{name}"] = b"target one\\n"
    return found


@pytest.fixture
def store(server, made):
    server.control(clear=["log", "rules", "late", "objects", "uploads"], settings={"skew": 0})
    client = server.client()
    for key, body in made.items():
        client.put_object(Bucket=BUCKET, Key=key, Body=body)
    return server


def plant(store):
    """What is not ours: the state of each object, and the uploads of others."""
    wanted = [*(place + name for place in PLACES for name in NAMES), *OF_FOLDERS]
    store.control(put=[{"bucket": BUCKET, "key": key, "text": f"of others: {key}"}
                       for key in wanted])  # fmt: skip
    client = store.client()
    uploads = [place + name for place in ("job/", "job/one/") for name in ("theirs", "__0_0.distcp~")]
    for key in uploads:
        client.create_multipart_upload(Bucket=BUCKET, Key=key)
    return look(store, set(wanted)), set(uploads)


def look(store, wanted):
    return {item["key"]: item for item in store.control()["objects"] if item["key"] in wanted}


def changes(store, there):
    objects, uploads = there
    now, under_way = look(store, set(objects)), set(keys(store)[1])
    found = [f"{key}: gone" for key in objects if key not in now]
    found += [f"{key}: changed" for key in now if now[key] != objects[key]]
    return found + [f"{key}: the upload is gone" for key in uploads - under_way]


def each(words, places):
    """A command, onto each place; whatever it says about it."""

    def act(store):
        for place in places:
            done = run(store, "sidestep", *words, f"{ROOT}/{place}".rstrip("/"))
            assert done.returncode == 0 or done.stderr or done.stdout

    return act


def command(*words):
    return lambda store: sidestep(store, *words)


TO = ["two", "step-1", "logs", "notes.txt", "new", "new", "way/new", ""]


def python(program):
    return lambda store: python_programs.run(program, ROOT, **store.environment())


ACTIONS = {
    "save": lambda store: [save(store, f"{ROOT}/{name}", 3) for name in ("one", "new", "logs")],
    "resume": lambda store: run(store, "saver_tool", "resume", ROOT),
    "series": lambda store: [run(store, "saver_tool", "series", ROOT, step) for step in (5, 6)],
    "rotate": python(STEPS),
    "python": python(CALLS),
    "cp": each(["cp", ONE], TO),
    "cp --replace": each(["cp", "--replace", ONE], TO),
    "convert to dcp": each(["convert", "--to=dcp", ONE], TO),
    "convert to safetensors": each(["convert", "--to=safetensors", ONE], TO),
    "convert to safetensors by force": each(["convert", "--to=safetensors", "--force", ONE], TO),
    "convert to torch": each(["convert", "--to=torch", ONE], TO),
    "convert to npz": each(["convert", "--to=npz", ONE], TO),
    "prune": each(["prune", "--keep-last=1", "--yes"], [""]),
    "gc": each(["gc", "--yes"], ["", "one", "new", "logs"]),
    "gc dry": each(["gc", "--dry-run"], [""]),
    "pin": each(["pin"], ["step-1", "one"]),
    "unpin": each(["unpin"], ["step-1", "one"]),
    "tag": lambda store: sidestep(store, "tag", f"{ROOT}/step-1", "x"),
    "rebuild": each(["rebuild"], ["one", "step-4", "logs"]),
    "doctor": each(["doctor"], [""]),
    "bench": each(["bench", "--size=16MiB", "--runs=1"], [""]),
    "readers": lambda store: [
        each(words, ["", "one"])(store)
        for words in (["ls"], ["latest"], ["verify"], ["show"], ["check"], ["metrics"])
    ],
}


@pytest.mark.parametrize("name", ACTIONS)
def test_what_is_not_ours_stays(store, name):
    there = plant(store)
    store.control(settings={"skew": HOUR})
    ACTIONS[name](store)
    assert changes(store, there) == []


def test_the_commands_did_their_work(store):
    """With things of others everywhere: what is dead goes, what is asked for is made."""
    plant(store)
    store.control(settings={"skew": HOUR})
    sidestep(store, "gc", "--yes", ROOT)
    found = keys(store)[0]
    assert not [key for key in found if "f" + ID[1:] in key]
    sidestep(store, "cp", ONE, f"{ROOT}/logs")
    assert "job/logs/.metadata" in keys(store)[0]
    told = sidestep(store, "prune", "--keep-last=1", "--yes", ROOT)
    assert "kept s3://runs/job/step-1: it holds files that sidestep did not write" in told


@pytest.mark.parametrize("change", ["gone", "other bytes", "the same bytes anew", "upload"])
def test_that_the_check_finds(store, change):
    """The control: what a command must not do, done to one thing at a time."""
    there = plant(store)
    client, key = store.client(), "job/one/notes.txt"
    assert changes(store, there) == []
    if change == "gone":
        client.delete_object(Bucket=BUCKET, Key=key)
    elif change == "upload":
        upload = next(item for item in store.control()["uploads"] if item["key"] == "job/theirs")
        client.abort_multipart_upload(
            Bucket=BUCKET, Key=upload["key"], UploadId=upload["upload"]
        )
    else:
        text = "of others?" if change == "other bytes" else f"of others: {key}"
        store.control(put=[{"bucket": BUCKET, "key": key, "text": text}])
    assert len(changes(store, there)) == 1
