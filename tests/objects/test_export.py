# SPDX-License-Identifier: BSD-3-Clause
"""`sidestep convert` to files in a bucket that are no checkpoint: a file, or a directory of
safetensors, is there whole or not at all, and nothing else stays."""

import json
import random
import struct

import programs
import pytest
import servers
from programs import FAST, keys, kill_at, run, save, sidestep
from request_faults import GONE, ONCE, stride

FILE = "s3://runs/hub/model.safetensors"
FOLDER = "s3://runs/hub/llama"
INDEX = "model.safetensors.index.json"
HOUR = 3601
PART = str(5 << 20)
WORDS = {FILE: [], FOLDER: ["--to=safetensors", "--max-shard-size=50KB"]}
HEADS = {FILE: "hub/model.safetensors", FOLDER: f"hub/llama/{INDEX}"}
COUNTS = {FILE: 1, FOLDER: 4}
# So that no other request of what was killed is carried out after its last one.
ONE_BY_ONE = ["env", "SIDESTEP_OBJECT_REQUESTS=1", f"SIDESTEP_OBJECT_PART_BYTES={PART}"]
THEIRS = b'{"weight_map": {"a": "theirs.safetensors"}}'
BOTH = pytest.mark.parametrize("url", [FILE, FOLDER], ids=["file", "folder"])


def write_safetensors(path, seed, count):
    """Three tensors of 32-bit numbers."""
    header, data = {}, b""
    for name in "abc":
        values = random.Random(f"{name}{seed}").randbytes(4 * count)
        offsets = [len(data), len(data) + len(values)]
        header[name] = {"dtype": "I32", "shape": [count], "data_offsets": offsets}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two sources for each: a file of two parts, or three files and an index."""
    folder = tmp_path_factory.mktemp("made")
    return {
        url: [write_safetensors(folder / f"{count}.{i}.safetensors", i, count) for i in range(2)]
        for url, count in {FILE: 500_000, FOLDER: 10_000}.items()
    }


def begin(store, rules=()):
    store.control(clear=["log", "rules", "late", "objects", "uploads"],
                  settings={"skew": 0, "expired": []}, rules=list(rules))  # fmt: skip


def convert(store, source, url, *words, **more):
    more.setdefault("SIDESTEP_OBJECT_PART_BYTES", PART)
    return run(store, "sidestep", "convert", "-q", *WORDS[url], *words, source, url, **more)


def same(store, source, url):
    return run(store, "sidestep", "diff", source, url).stdout.startswith("same")


def count(store, source, url, *words):
    store.control(clear=["log"])
    assert convert(store, source, url, *words).returncode == 0
    return len(store.log())


def check(store, url, done, what, new, old=None):
    """Whole or not there, as the status says; and an hour later nothing else is left."""
    store.control(rules=[], settings={"expired": []}, land=True)
    is_new = HEADS[url] in keys(store)[0] and same(store, new, url)
    if done is not None and done.returncode == 0:
        assert is_new, what
    elif done is not None and is_new:
        assert "may be there" in done.stderr or "could not be deleted" in done.stderr, what
    there = is_new or old is not None
    store.control(settings={"skew": HOUR})
    sidestep(store, "gc", "s3://runs/hub")
    found, uploads = keys(store)
    if what[0] == "late":  # an upload that was begun twice looks like one of another program's
        uploads = [key for key in uploads if key != HEADS[url]]
    assert (len(found), uploads) == (COUNTS[url] * there, []), (what, found)
    if there:
        assert same(store, new if is_new else old, url), what


@BOTH
def test_whole_with_nothing_beside_it(server, made, url, tmp_path):
    begin(server)
    assert convert(server, made[url][0], url).returncode == 0
    found, uploads = keys(server)
    assert (len(found), uploads, HEADS[url] in found) == (COUNTS[url], [], True)
    assert same(server, made[url][0], url)
    assert any(entry["method"] == "POST" for entry in server.log()) == (url == FILE)  # in parts


def test_safetensors_reads_a_copy(server, made, tmp_path):
    safetensors = pytest.importorskip("safetensors")
    pytest.importorskip("numpy")
    begin(server)
    for url in (FILE, FOLDER):
        assert convert(server, made[url][1], url).returncode == 0
    client = server.client()
    for key in keys(server)[0]:
        name = key.rpartition("/")[2]
        (tmp_path / name).write_bytes(client.get_object(Bucket="runs", Key=key)["Body"].read())
    places = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    for names, url in ((dict.fromkeys("abc", "model.safetensors"), FILE), (places, FOLDER)):
        with safetensors.safe_open(made[url][1], "numpy") as source:
            for tensor, name in names.items():
                with safetensors.safe_open(tmp_path / name, "numpy") as file:
                    assert (file.get_tensor(tensor) == source.get_tensor(tensor)).all(), name
    assert len(set(places.values())) == 3


@BOTH
def test_what_is_there_stays_unless_it_may_be_replaced(server, made, url):
    begin(server)
    assert convert(server, made[url][0], url).returncode == 0
    before = keys(server)
    done = convert(server, made[url][1], url)
    assert (done.returncode, url in done.stderr, keys(server)) == (1, True, before), done.stderr
    assert convert(server, made[url][1], url, "--force").returncode == 0
    assert same(server, made[url][1], url) and len(keys(server)[0]) == COUNTS[url]


def test_one_file_takes_the_place_of_several(server, made):
    begin(server)
    assert convert(server, made[FOLDER][0], FOLDER).returncode == 0
    for words, size in ((["--max-shard-size=1GB"], 1), ([], 4)):
        assert convert(server, made[FOLDER][1], FOLDER, "--force", *words).returncode == 0
        assert (same(server, made[FOLDER][1], FOLDER), len(keys(server)[0])) == (True, size)


def test_other_files_and_checkpoints_are_not_replaced(server, made):
    begin(server)
    client = server.client()
    for name in ("README.md", "sub/model.safetensors"):
        client.put_object(Bucket="runs", Key=f"hub/llama/{name}", Body=b"1")
        done = convert(server, made[FOLDER][0], FOLDER, "--force")
        assert (done.returncode, name in done.stderr) == (1, True), done.stderr
        assert keys(server)[0] == [f"hub/llama/{name}"]
        client.delete_object(Bucket="runs", Key=f"hub/llama/{name}")
    assert save(server, FOLDER, 1).returncode == 0
    before = keys(server)[0]
    assert convert(server, made[FOLDER][0], FOLDER, "--force").returncode == 1
    assert keys(server)[0] == before


def test_other_formats(server, made, tmp_path):
    begin(server)
    for name in ("w.pt", "w.npz"):
        sidestep(server, "convert", "-q", made[FOLDER][0], f"s3://runs/hub/{name}")
        sidestep(server, "convert", "-q", made[FOLDER][0], tmp_path / name)
        body = server.client().get_object(Bucket="runs", Key=f"hub/{name}")["Body"].read()
        assert body == (tmp_path / name).read_bytes()


@BOTH
@pytest.mark.parametrize("conditions", ["501", "ignored"])
def test_without_conditional_requests(made, url, conditions):
    with servers.strict("--no-tls", "--set", f"conditions={conditions}", bucket="runs") as store:
        assert convert(store, made[url][0], url).returncode == 0
        assert convert(store, made[url][1], url).returncode == 1
        assert convert(store, made[url][1], url, "--force").returncode == 0
        assert same(store, made[url][1], url) and len(keys(store)[0]) == COUNTS[url]


def last_request_for_head(store, url):
    log = enumerate(store.log(), 1)
    return [n for n, entry in log if entry["key"] == HEADS[url] and entry["method"] != "HEAD"][-1]


def race(store, source, url, at):
    """Their head is put while our request waits to be carried out: our exit status."""
    store.control(clear=["log"], rules=[{"fault": "stall", "where": "request", "at": at}])
    command = [*ONE_BY_ONE, programs.path_of("sidestep"), "convert", "-q", *WORDS[url]]
    with programs.started(store, *command, source, url) as process:
        while not store.control()["rules"][0]["fired"]:
            assert process.poll() is None
        store.client().put_object(Bucket="runs", Key=HEADS[url], Body=THEIRS)
        store.control(release=True, rules=[])
        return process.wait(programs.SECONDS)


def body_of(store, key):
    return store.client().get_object(Bucket="runs", Key=key)["Body"].read()


@BOTH
@pytest.mark.parametrize("conditions", ["honoured", "ignored"])
def test_another_process_was_there_first(made, url, conditions):
    """Theirs stays: only the condition can know it in the last moment."""
    with servers.strict("--no-tls", "--set", f"conditions={conditions}", bucket="runs") as store:
        store.control(clear=["log"])
        assert convert(store, made[url][0], url, SIDESTEP_OBJECT_REQUESTS="1").returncode == 0
        last = last_request_for_head(store, url)
        for at in (last // 2, last):
            begin(store)
            is_ours = at == last and conditions == "ignored"
            assert race(store, made[url][0], url, at) == (0 if is_ours else 1)
            assert is_ours or body_of(store, HEADS[url]) == THEIRS
            # Our stalled put of the head had no answer and may still come, so its files stay for gc.
            assert is_ours or at == last or keys(store)[0] == [HEADS[url]]


FAULTS = {
    name: ONCE[name] for name in ("503", "403", "lost", "cut", "late", "a bit of the request")
}


@BOTH
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_a_request(server, made, url, name):
    begin(server)
    requests = count(server, made[url][0], url)
    for at in stride(requests, list(FAULTS).index(name), 18):
        begin(server, [{**FAULTS[name], "at": at}])
        done = convert(server, made[url][0], url, SIDESTEP_OBJECT_DEADLINE_MS="10000")
        check(server, url, done, (name, at), made[url][0])


@BOTH
@pytest.mark.parametrize("name", ["refused", "silent, but done"])
def test_the_store_is_gone(server, made, url, name):
    begin(server)
    requests = count(server, made[url][0], url)
    for at in stride(requests, 2, 12):
        begin(server, [{**GONE[name], "from": at}])
        check(server, url, convert(server, made[url][0], url, **FAST), (name, at), made[url][0])


@BOTH
@pytest.mark.parametrize("done_first", [True, False], ids=["done", "not done"])
def test_killed_at_a_request(server, made, url, done_first):
    command = [*ONE_BY_ONE, programs.path_of("sidestep"), "convert", "-q", *WORDS[url]]
    begin(server)
    requests = count(server, made[url][0], url)
    for at in stride(requests, 6 * done_first, 12):
        begin(server)
        kill_at(server, at, [*command, made[url][0], url], done_first)
        check(server, url, None, ("killed", at), made[url][0])


@BOTH
@pytest.mark.parametrize("done_first", [True, False], ids=["done", "not done"])
def test_killed_while_it_replaces(server, made, url, done_first):
    """The old one stays until the new one is there."""
    command = [*ONE_BY_ONE, programs.path_of("sidestep"), "convert", "-q", "--force", *WORDS[url]]
    begin(server)
    assert convert(server, made[url][1], url).returncode == 0
    requests = count(server, made[url][0], url, "--force")
    for at in stride(requests, 6 * done_first, 12):
        begin(server)
        assert convert(server, made[url][1], url).returncode == 0
        kill_at(server, at, [*command, made[url][0], url], done_first)
        check(server, url, None, ("killed", at), made[url][0], made[url][1])
