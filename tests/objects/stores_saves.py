# SPDX-License-Identifier: BSD-3-Clause
"""Whole saves, loads, series and deletions at stores of other people, and at the strict server:
`make check-objects` runs this."""

import json
import signal
import subprocess
import time

import programs
import pytest
import python_programs
import servers
from programs import held, run, save, sidestep, well

BUCKET = "runs"
STORES = ["strict", "moto", "radosgw", "swift"]
WITHOUT_CONDITIONS = ["swift"]
MIB = 1 << 20


@pytest.fixture(scope="module", params=STORES)
def store(request):
    with getattr(servers, request.param)(bucket=BUCKET) as store:
        store.name = request.param
        store.has_conditions = request.param not in WITHOUT_CONDITIONS
        yield store


@pytest.fixture
def root(store, request):
    """A prefix that no other test uses."""
    return f"s3://{BUCKET}/{request.node.originalname}"


def below(store, url):
    """The keys below a URL, without it, and the keys of uploads under way."""
    client = store.client(config={"read_timeout": 60})
    prefix = url.removeprefix(f"s3://{BUCKET}/") + "/"
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    uploads = client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", [])
    return (
        [item["Key"].removeprefix(prefix) for item in listed],
        [item["Key"].removeprefix(prefix) for item in uploads],
    )


def kinds(names):
    """Names of files without their save ids: "__0_0.distcp" and ".sidestep.manifest"."""
    return sorted(".".join(part for part in name.split(".") if len(part) != 32) for name in names)


def test_a_save_replaces_and_leaves_nothing_else(store, root):
    url = f"{root}/step-1"
    for seed in (1, 3):
        done = save(store, url, seed)
        assert done.returncode == 0, done.stderr
        assert held(store, url, 1, 2, 3) == seed
    found, uploads = below(store, url)
    assert kinds(found) == [".metadata", ".sidestep.manifest", "__0_0.distcp"]
    assert uploads == []
    assert sidestep(store, "verify", url).startswith("ok")


def test_four_ranks_send_parts_and_three_load(store, root):
    url = f"{root}/step-1"
    part = {"SIDESTEP_OBJECT_PART_BYTES": str(5 * MIB)}
    well(store, "world_tool", "save", url, 4, "rows", 200, 7, **part)
    well(store, "world_tool", "load", url, 3, "columns", 200, 7)
    found, uploads = below(store, url)
    shards = [f"__{rank}_0.distcp" for rank in range(4)]
    assert (kinds(found), uploads) == ([".metadata", ".sidestep.manifest", *shards], [])
    assert sidestep(store, "verify", url).startswith("ok")


def test_a_listing(store, root):
    for step in (1, 2):
        assert save(store, f"{root}/step-{step}", step).returncode == 0
    listed = json.loads(sidestep(store, "ls", "--json", root))["checkpoints"]
    assert [(item["name"], item["state"]) for item in listed] == [
        ("step-1", "committed"),
        ("step-2", "committed"),
    ]
    assert sidestep(store, "latest", root).strip() == f"{root}/step-2"
    different = run(store, "sidestep", "diff", f"{root}/step-1", f"{root}/step-2")
    assert different.returncode == 1 and "model.embed.weight" in different.stdout


def test_a_series_resumes_and_keeps_the_last_two(store, root):
    python_programs.run(python_programs.SERIES, root, **store.environment())
    found, uploads = below(store, root)
    assert {name.split("/")[0] for name in found} == {".sidestep", "step-3", "step-4"}
    assert uploads == []


def test_a_run_that_was_taken_over_cannot_save(store, root):
    command = [str(programs.path_of("saver_tool")), "hold", root]
    environment = programs.environment_of(store)
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout.readline() == "open\n"
        well(store, "saver_tool", "series", root, 1)
        first.stdin.close()
    assert well(store, "saver_tool", "resume", root) == "step 1\n"


def test_pins_and_a_prune(store, root):
    for step in (1, 2, 3):
        assert save(store, f"{root}/step-{step}", step).returncode == 0
    sidestep(store, "pin", f"{root}/step-1")
    sidestep(store, "tag", f"{root}/step-3", "best")
    said = sidestep(store, "prune", root, "--keep-last", "1", "--yes")
    assert "step-2" in said
    assert below(store, f"{root}/step-2") == ([], [])
    assert held(store, f"{root}/step-1", 1) == 1
    sidestep(store, "unpin", f"{root}/step-1")
    sidestep(store, "prune", root, "--keep-last", "1", "--yes")
    assert below(store, f"{root}/step-1") == ([], [])
    assert held(store, f"{root}/step-3", 3) == 3


@pytest.mark.parametrize(
    "name, words",
    [
        ("model.safetensors", []),
        ("weights.pt", ["--to=torch"]),
        ("hub", ["--to=safetensors", "--max-shard-size=100KB"]),
    ],
)
def test_a_conversion_replaces_and_leaves_nothing_else(store, root, tmp_path, name, words):
    url = f"{root}/{name}"
    convert = ["convert", "-q", "--model-only", *words]
    for seed in (1, 3):
        assert save(store, f"{root}/step-{seed}", seed).returncode == 0
        on_disk = tmp_path / f"{seed}-{name}"
        sidestep(store, *convert, f"{root}/step-{seed}", on_disk)
        sidestep(store, *convert, "--force", f"{root}/step-{seed}", url)
        assert sidestep(store, "verify", url).startswith("ok")
        assert sidestep(store, "diff", on_disk, url).startswith("same")
    found, uploads = below(store, url)
    ids = {part for key in found for part in key.split(".") if len(part) == 32}
    assert (len(ids), uploads) == (name == "hub", [])
    refused = run(store, "sidestep", *convert, f"{root}/step-1", url)
    assert refused.returncode != 0 and "exist" in refused.stderr


def is_under_way(store, url):
    found, _ = below(store, url)
    return any(name.endswith("/pending") for name in found)


def kill_in_the_middle(store, url):
    """A save of parts that are sent slowly, once its marker is there."""
    slow = {"SIDESTEP_OBJECT_BYTES_PER_SECOND": str(MIB), "SIDESTEP_OBJECT_REQUESTS": "1",
            "SIDESTEP_OBJECT_PART_BYTES": str(5 * MIB)}  # fmt: skip
    command = [programs.path_of("world_tool"), "save", url, 2, "rows", 200, 5]
    with subprocess.Popen(
        list(map(str, command)), env=programs.environment_of(store, **slow)
    ) as process:
        try:
            deadline = time.monotonic() + programs.SECONDS
            while not is_under_way(store, url):
                assert process.poll() is None and time.monotonic() < deadline
        finally:
            process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_gc_leaves_a_young_save_alone(store, root):
    url = f"{root}/step-1"
    kill_in_the_middle(store, url)
    listed = json.loads(sidestep(store, "ls", "--json", root))["checkpoints"]
    assert [item["state"] for item in listed] == ["saving"]
    before = below(store, url)
    assert "less than an hour" in sidestep(store, "gc", root, "--yes")
    assert below(store, url) == before
    assert held(store, url, 5) is None
    assert save(store, url, 6).returncode == 0
    assert held(store, url, 6) == 6


def start_saves(store, url, seeds):
    program = str(programs.path_of("saver_tool"))
    return [
        subprocess.Popen(
            [program, "save", url, str(seed)],
            env=programs.environment_of(store),
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in seeds
    ]


@pytest.mark.parametrize("attempt", range(4))
def test_savers_that_race(store, root, attempt):
    """One of those that succeed is there, whole.  With conditions, a loser says so and leaves
    nothing.  Without, one that was replaced at once says that its outcome is unknown, so it
    deletes nothing: its objects stay until they are an hour old."""
    url, seeds = f"{root}/step-{attempt}", range(10, 13)
    ended = [(process.communicate()[1], process) for process in start_saves(store, url, seeds)]
    won = [seed for seed, (_, process) in zip(seeds, ended) if process.returncode == 0]
    assert held(store, url, *seeds) in won, [said for said, _ in ended]
    for said, process in ended:
        assert process.returncode in (0, 1), said
        if process.returncode != 0 and not (
            "in the same moment" in said and not store.has_conditions
        ):
            assert "another checkpoint" in said, said
    found, uploads = below(store, url)
    assert uploads == []
    if store.has_conditions:
        assert kinds(found) == [".metadata", ".sidestep.manifest", "__0_0.distcp"]


def test_doctor_knows_the_conditions(store, root):
    report = json.loads(sidestep(store, "doctor", "--json", root))
    found = {item["name"]: item for item in report["findings"]}
    assert (found["conditions"]["state"] == "yes") == store.has_conditions, found
    assert found["writable"]["state"] == found["deletes"]["state"] == "yes"


def test_sentences(store, root):
    if store.name == "moto":
        pytest.skip("moto looks at no signature")
    url = f"{root}/step-1"
    done = save(store, url, 1, AWS_SECRET_ACCESS_KEY="of-somebody-else")
    assert done.returncode == 12 and "SignatureDoesNotMatch" in done.stderr
    assert url in done.stderr and "AWS_SECRET_ACCESS_KEY" in done.stderr
    done = save(store, "s3://nowhere/step-1", 1)
    assert done.returncode == 2 and "no such bucket" in done.stderr, done.stderr
