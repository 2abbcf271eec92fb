# SPDX-License-Identifier: BSD-3-Clause
"""What the command line says when a store refuses, and that it never says a secret."""

import shutil
import subprocess

import daemons
import programs
import pytest
import servers
from programs import FAST, held, run, save

URL = "s3://runs/job/step-1"
SECRET = "never-to-be-seen-0123456789"


@pytest.fixture(scope="module")
def server():
    with servers.strict("--no-tls", bucket="runs") as store:
        assert save(store, URL, 1).returncode == 0
        yield store


@pytest.fixture
def store(server):
    server.control(clear=["log", "rules", "settings"])
    yield server
    server.control(clear=["rules", "settings"])


def refused(store, status, *words, url=URL, **more):
    """The sentence; a load and a save say the same thing."""
    said = []
    for command in (["sidestep", "verify", url], ["saver_tool", "save", url, 2]):
        done = run(store, *command, **{**FAST, **more})
        assert done.returncode == status, (command, done.returncode, done.stderr)
        said.append(done.stderr)
    for text in said:
        for word in words:
            assert word in text, (word, text)
    return said


def test_no_permission(store):
    store.control(rules=[{"fault": "status", "status": 403, "code": "AccessDenied"}])
    refused(store, 12, "AccessDenied", URL)


def test_a_wrong_secret(store):
    refused(store, 12, "SignatureDoesNotMatch", AWS_SECRET_ACCESS_KEY=SECRET)


def test_an_unknown_key(store):
    refused(store, 12, "InvalidAccessKeyId", AWS_ACCESS_KEY_ID="nobody")


def test_credentials_that_have_ended(store):
    store.control(settings={"expired": [store.access_key]})
    refused(store, 12, "ExpiredToken")


def test_no_credentials(store):
    refused(store, 12, "AWS_ACCESS_KEY_ID", "credentials",
            AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)  # fmt: skip


def test_a_bucket_that_is_not_there(store):
    refused(store, 2, "bucket", "nowhere", url="s3://nowhere/job/step-1")


def test_nobody_listens(store):
    port = daemons.free_ports(1)[0]
    refused(store, 1, f"127.0.0.1:{port}", AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{port}")


def test_settings_that_are_none(store):
    for name in ("PART_BYTES", "DEADLINE_MS", "REQUESTS"):
        variable = f"SIDESTEP_OBJECT_{name}"
        refused(store, 2, variable, "'12 apples'", **{variable: "12 apples"})
    refused(store, 2, "5242880", SIDESTEP_OBJECT_PART_BYTES="5242879")


def test_another_region_is_found(store):
    store.control(settings={"region": "eu-west-1"})
    assert held(store, URL, 1) == 1


@pytest.mark.parametrize("skew", [-7200, 7200])
def test_a_wrong_clock_is_found(store, skew):
    store.control(settings={"skew": skew})
    assert held(store, URL, 1) == 1


# ---- secrets


def dump_at_the_end(store, folder, environment):
    """The memory of a process that has saved and closed its engine."""
    core = folder / "core"
    command = ["gdb", "-batch", "-nx", "-ex", "set startup-with-shell off",
               "-ex", "catch syscall exit_group", "-ex", "run", "-ex", f"gcore {core}",
               "--args", programs.path_of("saver_tool"), "save", URL, "1"]  # fmt: skip
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
    if not core.exists():
        pytest.skip(f"gdb cannot run a program here: {done.stderr.strip()[-200:]}")
    return core.read_bytes()


@pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")
@pytest.mark.parametrize("where", ["file", "environment"])
def test_memory_after_a_save_has_no_secret(store, tmp_path, where):
    """The environment itself is the control: what is in it, a core has."""
    store.control(credentials=[{"access_key": "key-of-file", "secret_key": SECRET, "token": None}])
    environment = programs.environment_of(store, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
    file = tmp_path / "credentials"
    file.write_text(
        f"[default]\naws_access_key_id = key-of-file\naws_secret_access_key = {SECRET}\n"
    )
    environment["AWS_SHARED_CREDENTIALS_FILE"] = str(file)
    if where == "environment":
        environment["AWS_SECRET_ACCESS_KEY"] = SECRET
        environment["AWS_ACCESS_KEY_ID"] = "key-of-file"
    core = dump_at_the_end(store, tmp_path, environment)
    assert len(store.log(operation="PutObject")) > 3
    assert (SECRET.encode() in core) == (where == "environment")
