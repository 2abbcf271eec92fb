# SPDX-License-Identifier: BSD-3-Clause
"""Every request of a save meets every fault of the server, and each one kills it.

The oracle: the checkpoint before or the new one is there, whole; a save that says success is the
new one, and one that says failure is not, unless its outcome is unknown.  More than an hour later
a save to the same name leaves three objects for its one rank, and no upload.
"""

import subprocess

import programs
import pytest
from programs import FAST, held, keys, kill_at, run, save
from request_faults import DAMAGES, FATAL, GONE, ONCE, stride

URL = "s3://runs/job/step-1"
HOUR = 3601  # after so many seconds a save without signs of life is dead
OLD, NEW, LATER = 1, 2, 9


def begin(store, rules=(), old=True):
    """An empty bucket, with the old checkpoint in it."""
    store.control(clear=["log", "rules", "late", "objects", "uploads"],
                  settings={"skew": 0, "expired": []})  # fmt: skip
    if old:
        assert save(store, URL, OLD).returncode == 0
    store.control(clear=["log"], rules=list(rules))


def count(store, action, old=True):
    begin(store, old=old)
    assert action(store).returncode == 0
    return len(store.log())


def check(store, done, what, old=True, damaged=False):
    """What is there after a save, and after the next one."""
    store.control(rules=[], settings={"expired": []}, land=True)
    if damaged:
        found = run(store, "saver_tool", "check", URL, OLD, NEW)
        assert found.returncode in (0, 3), (what, found)
    else:
        now = held(store, URL, OLD, NEW)
        assert now is not None or not old, (what, "there is no checkpoint")
        if done is not None and done.returncode == 0:
            assert now == NEW, (what, "a success, but the new state is not there")
        if done is not None and done.returncode != 0 and now == NEW:
            assert "outcome unknown" in done.stderr, (what, done.stderr)
    check_later(store, what)


def check_later(store, what):
    store.control(settings={"skew": HOUR})
    later = save(store, URL, LATER)
    assert later.returncode == 0, (what, later.stderr)
    assert held(store, URL, LATER) == LATER
    found, uploads = keys(store, "job/step-1/")
    assert (len(found), uploads) == (3, []), (what, found, uploads)
    store.control(settings={"skew": 0})


@pytest.mark.parametrize("name", ONCE)
def test_a_save_meets_a_fault_once(server, name):
    index = list(ONCE).index(name)
    for at in stride(count(server, lambda store: save(store, URL, NEW)), index):
        begin(server, [{**ONCE[name], "at": at}])
        done = save(server, URL, NEW, SIDESTEP_OBJECT_DEADLINE_MS="10000")
        check(server, done, (name, at), damaged=name in DAMAGES)


@pytest.mark.parametrize("old", [True, False], ids=["replacing", "first"])
@pytest.mark.parametrize("name", GONE)
def test_the_store_is_gone_in_a_save(server, name, old):
    index = 3 + list(GONE).index(name) + 2 * old
    for at in stride(count(server, lambda store: save(store, URL, NEW), old), index):
        begin(server, [{**GONE[name], "from": at}], old)
        check(server, save(server, URL, NEW, **FAST), (name, at), old)


@pytest.mark.parametrize("name", ONCE)
def test_a_load_meets_a_fault_once(server, name):
    """It gives the state, or says why not; never another one, never "there is none"."""
    if name == "a bit at rest":
        pytest.skip("a load puts nothing")
    action = ["saver_tool", "check", URL, OLD]
    index = list(ONCE).index(name)
    for at in stride(count(server, lambda store: run(store, *action)), index):
        begin(server, [{**ONCE[name], "at": at}])
        done = run(server, *action, SIDESTEP_OBJECT_DEADLINE_MS="10000")
        if done.returncode == 0:
            assert done.stdout.split() == ["seed", str(OLD)], (name, at)
        else:
            assert name in FATAL, (name, at, done.stderr)
            assert done.stderr, (name, at)


# ---- an earlier attempt may have been carried out, and the repetition is refused for certain

REFUSALS = {403: "AccessDenied", 404: "NoSuchKey", 301: "PermanentRedirect", 501: "NotImplemented",
            507: "InsufficientStorage", 412: "PreconditionFailed"}  # fmt: skip
UNSURE = {
    "lost": {"fault": "lost"},
    "late": {"fault": "late", "after": 4},
    "late, after an error": {"fault": "late_error", "after": 4},
}


def refused_at_last(key, first, status):
    refusal = {"fault": "status", "status": status, "code": REFUSALS[status], "key": key}
    return [{**UNSURE[first], "key": key, "method": "PUT", "at": 1},
            {**refusal, "method": "PUT", "from": 2}]  # fmt: skip


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("first", UNSURE)
def test_a_commit_whose_repetition_is_refused(server, first, status):
    """It is committed, or its outcome is unknown, and nothing is deleted: it may still arrive."""
    begin(server, refused_at_last("*/.metadata", first, status))
    done = save(server, URL, NEW, SIDESTEP_OBJECT_DEADLINE_MS="10000")
    if done.returncode != 0:
        assert "outcome unknown" in done.stderr, done.stderr
    server.control(rules=[], land=True)
    assert held(server, URL, OLD, NEW) == NEW
    check_later(server, (first, status))


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("first", UNSURE)
def test_a_vote_whose_repetition_is_refused(server, first, status):
    """Rank 0 may have counted it: what it commits is whole."""
    begin(server, refused_at_last("*/yes.2", first, status))
    world = ["save", URL, 4, "rows", 1, NEW]
    done = run(server, "world_tool", *world, SIDESTEP_OBJECT_DEADLINE_MS="10000")
    server.control(rules=[], land=True)
    if done.returncode == 0:
        programs.well(server, "sidestep", "verify", URL)
    else:
        assert held(server, URL, OLD) == OLD


@pytest.mark.parametrize("first", UNSURE)
def test_a_marker_whose_repetition_is_refused(server, first):
    """It is that of this save, if it is there."""
    begin(server, refused_at_last("*/pending", first, 412))
    done = save(server, URL, NEW)
    assert (done.returncode == 0) == (first == "lost"), done.stderr
    server.control(rules=[], land=True)
    held(server, URL, OLD, NEW)
    check_later(server, first)


# ---- killed at each request


def saver(seed):
    return [programs.path_of("saver_tool"), "save", URL, seed]


def ranks(seed):
    return [programs.path_of("world_tool"), "save", URL, 4, "rows", 1, seed]


def count_command(store, command):
    begin(store)
    subprocess.run(list(map(str, command)), env=programs.environment_of(store), check=True)
    return len(store.log())


@pytest.mark.parametrize("done_first", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("command", [saver, ranks], ids=["one rank", "four ranks"])
def test_a_save_is_killed_at_a_request(server, command, done_first):
    for at in stride(count_command(server, command(NEW)), done_first):
        begin(server)
        kill_at(server, at, command(NEW), done_first)
        check(server, None, (command.__name__, at))


# ---- the rig notices


def test_the_rig_catches_a_careless_saver(server):
    """It puts .metadata before the shard that it names, and asks nobody."""
    begin(server)
    assert save(server, "s3://runs/other/step-1", NEW).returncode == 0
    client = server.client()
    found, _ = keys(server, "other/step-1/")
    found.sort(key=lambda key: not key.endswith(".metadata"))
    client.copy_object(Bucket="runs", Key="job/step-1/.metadata",
                       CopySource={"Bucket": "runs", "Key": found[0]})  # fmt: skip
    with pytest.raises(AssertionError):
        check(server, None, "killed after .metadata")


def test_the_rig_catches_what_is_left(server):
    begin(server)
    server.client().put_object(Bucket="runs", Key="job/step-1/left", Body=b"x")
    with pytest.raises(AssertionError):
        check(server, None, "an object is left")
