# SPDX-License-Identifier: BSD-3-Clause
"""`sidestep convert` to a bucket: a checkpoint is there, whole, or not at all."""

import collections
import json

import programs
import pytest
from programs import FAST, keys, kill_at, run, save, sidestep, well
from request_faults import GONE, ONCE, stride

URL = "s3://runs/job/step-1"
PREFIX = "job/step-1/"
HOUR = 3601
RANKS = 2
# It is a save, and those meet every fault (test_save_faults.py): here a few that are unlike.
FAULTS = {name: ONCE[name] for name in ("503", "403", "lost", "cut", "a bit of the request")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A checkpoint in a directory."""
    folder = tmp_path_factory.mktemp("made") / "one"
    well(None, "saver_tool", "save", folder, 1)
    return folder


def begin(store, rules=()):
    store.control(clear=["log", "rules", "late", "objects", "uploads"],
                  settings={"skew": 0, "expired": []}, rules=list(rules))  # fmt: skip


def convert(store, made, *words, **more):
    how = ["-q", "--to=dcp", f"--ranks={RANKS}", *words]
    return run(store, "sidestep", "convert", *how, made, URL, **more)


def count(store, made):
    begin(store)
    assert convert(store, made).returncode == 0
    return len(store.log())


def check(store, made, done, what):
    """Whole or not there, as the status says; and an hour later nothing else is left."""
    store.control(rules=[], settings={"expired": []}, land=True)
    is_there = f"{PREFIX}.metadata" in keys(store)[0]
    if is_there:
        assert sidestep(store, "diff", made, URL).startswith("same"), what
    if done is not None and done.returncode == 0:
        assert is_there, what
    elif done is not None and is_there:
        assert "outcome unknown" in done.stderr, (what, done.stderr)
    store.control(settings={"skew": HOUR})
    sidestep(store, "gc", "s3://runs/job")
    found, uploads = keys(store)
    assert (len(found), uploads) == (RANKS + 2 if is_there else 0, []), (what, found)


def test_there_and_back(server, made, tmp_path):
    begin(server)
    assert convert(server, made).returncode == 0
    assert sidestep(server, "verify", URL).startswith("ok")
    assert len(keys(server)[0]) == RANKS + 2
    sidestep(server, "convert", "--to=dcp", URL, tmp_path / "back")
    assert sidestep(server, "diff", made, tmp_path / "back").startswith("same")


def test_what_is_there_stays_unless_it_may_be_replaced(server, made):
    begin(server)
    assert save(server, URL, 2).returncode == 0
    before = keys(server)
    done = convert(server, made)
    assert (done.returncode, URL in done.stderr, keys(server)) == (1, True, before), done.stderr
    assert convert(server, made, "--force").returncode == 0
    assert sidestep(server, "diff", made, URL).startswith("same")
    assert len(keys(server)[0]) == RANKS + 2


def test_requests_of_a_save_by_64_ranks(server, tmp_path):
    """Of 1,000 tensors, each cut into 64: at most nine requests for each rank (with pytest -s: how
    many)."""
    begin(server)
    size = 4 * 4 * 4
    header = {
        f"t{i}": {"dtype": "F32", "shape": [4, 4], "data_offsets": [i * size, (i + 1) * size]}
        for i in range(16000)
    }
    text = json.dumps(header).encode()
    source = tmp_path / "16000.safetensors"
    source.write_bytes(len(text).to_bytes(8, "little") + text + bytes(16000 * size))
    sidestep(server, "convert", "-q", "--to=dcp", "--ranks=64", source, URL)
    print(
        *collections.Counter(entry["operation"] for entry in server.log()).most_common(), sep="\n"
    )
    assert len(server.log()) <= 9 * 64
    names = keys(server)[0]
    assert len(names) == 64 + 3
    # Of so many chunks there is an index, which goes with its checkpoint.
    assert sum(".sidestep.index." in name for name in names) == 1
    assert "t999" in sidestep(server, "show", URL)
    sidestep(server, "verify", "-q", URL)
    sidestep(server, "convert", "-q", "--force", "--to=dcp", "--ranks=64", source, URL)
    assert len(keys(server)[0]) == 64 + 3


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_a_request(server, made, name):
    index = list(FAULTS).index(name)
    for at in stride(count(server, made), index, 12):
        begin(server, [{**FAULTS[name], "at": at}])
        done = convert(server, made, SIDESTEP_OBJECT_DEADLINE_MS="10000")
        check(server, made, done, (name, at))


@pytest.mark.parametrize("name", ["refused", "silent, but done"])
def test_the_store_is_gone(server, made, name):
    for at in stride(count(server, made), 2, 12):
        begin(server, [{**GONE[name], "from": at}])
        check(server, made, convert(server, made, **FAST), (name, at))


@pytest.mark.parametrize("done_first", [True, False], ids=["done", "not done"])
def test_killed_at_a_request(server, made, done_first):
    command = [programs.path_of("sidestep"), "convert", "-q", "--to=dcp"]
    command += [f"--ranks={RANKS}", made, URL]
    for at in stride(count(server, made), 3 + done_first, 8):
        begin(server)
        kill_at(server, at, command, done_first)
        check(server, made, None, at)
