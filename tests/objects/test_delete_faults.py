# SPDX-License-Identifier: BSD-3-Clause
"""Every request of a deletion and of a sweep meets every fault of the server.

The oracle: what stays is whole; what goes is whole, or no checkpoint. More than an hour later the
same commands leave nothing of it.
"""

import json

import pytest
import servers
from programs import held, keys, run, save, sidestep
from request_faults import DAMAGES, GONE, ONCE, stride

BUCKET = "runs"
ROOT = f"s3://{BUCKET}/job"
HOUR = 3601
DEAD = "0123456789abcdef" * 2
PRUNE = ["prune", ROOT, "--keep-last", "1", "--yes"]
GC = ["gc", ROOT, "--yes"]
LEFT = [f"job/step-1/__1_0.{DEAD}.distcp", f"job/step-1/.sidestep/{DEAD}/pending",
        f"job/step-3/__0_0.{DEAD}.distcp", f"job/step-3/.sidestep/{DEAD}/yes.0"]  # fmt: skip
UPLOADS = [f"job/step-1/__0_0.{DEAD}.distcp", f"job/step-4/__0_0.{DEAD}.distcp"]
FAULTS = {**ONCE, **GONE}


@pytest.fixture(scope="module")
def server():
    with servers.strict("--no-tls", bucket=BUCKET) as store:
        for step in (1, 2):
            assert save(store, f"{ROOT}/step-{step}", step).returncode == 0
        client = store.client()
        store.kept = {key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
                      for key in keys(store)[0]}  # fmt: skip
        yield store


def begin(store, rules=()):
    """Two checkpoints, and what dead saves left more than an hour ago."""
    store.control(clear=["log", "rules", "late", "objects", "uploads"],
                  settings={"skew": 0, "expired": []})  # fmt: skip
    client = store.client()
    for key, body in {**store.kept, **dict.fromkeys(LEFT, b"target step-1\n")}.items():
        client.put_object(Bucket=BUCKET, Key=key, Body=body)
    for key in UPLOADS:
        client.create_multipart_upload(Bucket=BUCKET, Key=key)
    store.control(clear=["log"], rules=list(rules), settings={"skew": HOUR})


def act(store, words):
    return run(store, "sidestep", *words, SIDESTEP_OBJECT_DEADLINE_MS="1000")


def count(store, words):
    begin(store)
    assert act(store, words).returncode == 0
    return len(store.log())


def meet(store, words, name, step):
    """The action with each of its requests in turn meeting the fault, and what it said."""
    index = list(FAULTS).index(name)
    for at in stride(count(store, words), index, step):
        begin(store, [{**FAULTS[name], "from" if name in GONE else "at": at}])
        done = act(store, words)
        assert done.returncode == 0 or done.stderr, (name, at)
        store.control(rules=[], settings={"expired": []}, land=True)
        yield at, done


def settle(store, what):
    """An hour later there is nothing but checkpoints."""
    store.control(settings={"skew": 3 * HOUR})
    sidestep(store, *GC)
    found, uploads = keys(store, "job/step-")
    assert (set(found) - set(store.kept), uploads) == (set(), []), what


@pytest.mark.parametrize("name", FAULTS)
def test_a_deletion_meets_a_fault(server, name):
    for at, done in meet(server, PRUNE, name, 32):
        assert held(server, f"{ROOT}/step-2", 2) == 2, (name, at)
        assert held(server, f"{ROOT}/step-1", 1) in (1, None), (name, at)
        if done.returncode == 0 and "removed" in done.stdout:
            assert "job/step-1/.metadata" not in keys(server)[0], (name, at)
        settle(server, (name, at))
        sidestep(server, *PRUNE)
        found = keys(server, "job/step-")[0]
        assert found and all(key.startswith("job/step-2/") for key in found), (name, at)


# A sweep puts nothing that could be damaged at rest.
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in DAMAGES])
def test_a_sweep_meets_a_fault(server, name):
    for at, _ in meet(server, GC, name, 16):
        for step in (1, 2):
            assert held(server, f"{ROOT}/step-{step}", step) == step, (name, at)
        settle(server, (name, at))


def refused(key):
    return [{**GONE["refused"], "method": "DELETE", "key": key, "from": 1, "times": 100}]


@pytest.mark.parametrize("words", [[], ["--json"]], ids=["", "json"])
def test_a_refused_deletion_is_told(server, words):
    """By the exit status, too: of .metadata, and of the rest of a checkpoint."""
    begin(server, refused("*/.metadata"))
    done = act(server, [*PRUNE, *words])
    assert done.returncode not in (0, 2), done.stdout
    assert "delete 'step-1'" in done.stderr and "403" in done.stderr
    assert "step-1: " in done.stdout and "freed" not in done.stderr
    assert held(server, f"{ROOT}/step-1", 1) == 1
    begin(server, refused("*.distcp"))
    done = act(server, [*PRUNE, *words])
    assert done.returncode not in (0, 2), done.stdout
    assert "it is deleted, but not all of its files" in done.stderr and "403" in done.stderr
    assert "job/step-1/.metadata" not in keys(server)[0]
    shard = next(key for key in server.kept if "step-1/__0" in key)
    assert shard in keys(server)[0]
    if words:
        assert json.loads(done.stdout)["bytes"] < len(server.kept[shard])
    server.control(rules=[])
    settle(server, "gc has removed the rest")
    assert shard not in keys(server)[0]


def test_the_rig_notices_what_is_torn(server):
    begin(server)
    server.control(settings={"skew": 0})
    shard = next(key for key in server.kept if "step-1/__0" in key)
    server.client().delete_object(Bucket=BUCKET, Key=shard)
    with pytest.raises(AssertionError):
        held(server, f"{ROOT}/step-1", 1)


def test_the_rig_notices_what_is_left(server):
    begin(server)
    server.control(settings={"skew": 3 * HOUR})
    left = {"bucket": BUCKET, "key": f"job/step-5/__0_0.{DEAD}.distcp", "text": "young"}
    server.control(put=[left])
    with pytest.raises(AssertionError):
        settle(server, "an hour has not passed")
