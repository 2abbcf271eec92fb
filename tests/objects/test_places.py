# SPDX-License-Identifier: BSD-3-Clause
"""Commands answer for a URL as they do for a path: wrong names, slashes, files beside a checkpoint,
and what they measure leaves nothing behind."""

import json
import re
import signal
import subprocess

import programs
import pytest
import servers
from programs import keys, run, save, sidestep

BUCKET = "runs"
ROOT = f"s3://{BUCKET}/job"
QUICK = ("--size=16MiB", "--runs=1")


@pytest.fixture(scope="module")
def store():
    """With steps 10 and 20, and the weights of one as safetensors."""
    with servers.strict("--no-tls", bucket=BUCKET) as found:
        for step in (10, 20):
            assert save(found, f"{ROOT}/step-{step}", step).returncode == 0
        sidestep(found, "convert", "--model-only", f"{ROOT}/step-20", f"{ROOT}/hub")
        yield found


@pytest.mark.parametrize(
    "words",
    [("show",), ("verify",), ("cat", "w"), ("diff", f"{ROOT}/step-10"), ("convert", "x"), ("cp", "x")],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_wrong_name_is_explained(store, words):
    done = run(store, "sidestep", words[0], f"{ROOT}/stpe-20", *words[1:])
    assert done.returncode == 10, done.stderr
    assert f"no object of this name or below it; did you mean '{ROOT}/step-20'" in done.stderr
    done = run(store, "sidestep", words[0], f"s3://{BUCKET}/none/x/step-20", *words[1:])
    assert f"; there is no 's3://{BUCKET}/none'" in done.stderr, done.stderr


def test_a_checkpoint_for_a_root(store):
    said = run(store, "sidestep", "ls", f"{ROOT}/step-10")
    assert (said.returncode, said.stdout) == (0, "")
    assert "is a checkpoint itself: 'sidestep show' says what is in it" in said.stderr
    said = run(store, "sidestep", "ls", f"s3://{BUCKET}/none")
    assert "there is no checkpoint yet" in said.stderr


@pytest.mark.parametrize("name", ["hub", "step-20"])
def test_a_slash_at_the_end(store, name):
    for command in ("show", "verify"):
        plain, slash = (
            sidestep(store, command, f"{ROOT}/{name}{end}").replace("/ ", " ") for end in ("", "/")
        )
        assert re.sub(" +", " ", plain) == re.sub(" +", " ", slash)


def test_a_mapping_in_the_bucket(store):
    shown = json.loads(sidestep(store, "show", "--json", f"{ROOT}/hub"))
    name = shown["tensors"][0]["name"]
    body = json.dumps({name: "renamed"}).encode()
    store.client().put_object(Bucket=BUCKET, Key="job/map.json", Body=body)
    sidestep(store, "convert", "--model-only", f"--mapping={ROOT}/map.json", f"{ROOT}/hub",
             f"{ROOT}/mapped.safetensors")  # fmt: skip
    mapped = json.loads(sidestep(store, "show", "--json", f"{ROOT}/mapped.safetensors"))
    assert "renamed" in [entry["name"] for entry in mapped["tensors"]]
    missing = run(store, "sidestep", "convert", f"--mapping={ROOT}/none.json", f"{ROOT}/hub", "x")
    assert (missing.returncode, "none.json" in missing.stderr) == (10, True), missing.stderr


@pytest.mark.parametrize("words", [("ls",), ("latest",), ("gc", "--yes")], ids=lambda w: w[0])
def test_a_listing_without_end(store, words):
    """What reads a whole listing ends, and says why."""
    store.control(rules=[{"fault": "unending", "kind": "empty", "operation": "ListObjectsV2"}])
    done = run(store, "sidestep", *words, ROOT)
    store.control(rules=[])
    assert done.returncode == 3, done.stdout
    assert "job/: the listing does not end: after 1001 pages" in done.stderr


def test_bench(store):
    """Saves and loads are measured, and nothing is left."""
    before = keys(store)
    report = json.loads(sidestep(store, "bench", "--json", *QUICK, "--state=160MiB", ROOT))
    assert list(report["seconds"]) == ["memory_copy", "save_stall", "save_background", "load"]
    assert report["direct_io"] is None and report["directory"] == ROOT
    told = report["prediction"]
    assert abs(told["load_seconds"] / report["seconds"]["load"][0] - 10) < 1e-6
    sent = {entry["operation"] for entry in store.log()}
    assert {"CreateMultipartUpload", "GetObject"} <= sent, sent
    assert keys(store) == before
    lines = sidestep(store, "bench", *QUICK, ROOT).splitlines()
    assert [line.split(":")[0] for line in lines[1:5]] == ["memory", "save", "save", "load"]


def test_bench_interrupted(store):
    before = keys(store)
    command = [programs.path_of("sidestep"), "bench", "--size=16MiB", "--runs=100", ROOT]
    process = subprocess.Popen(command, env=programs.environment_of(store), stderr=subprocess.PIPE)
    while not any(key.startswith("job/.sidestep-bench.") for key in keys(store)[0]):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=programs.SECONDS)[1]
    assert process.returncode == 130, said
    assert keys(store) == before


def test_bench_without_permission(store):
    """The store's reason is the error."""
    done = run(store, "sidestep", "bench", *QUICK, ROOT, AWS_SECRET_ACCESS_KEY="wrong")
    assert (done.returncode, "403" in done.stderr) == (12, True), done.stderr
