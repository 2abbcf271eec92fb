# SPDX-License-Identifier: BSD-3-Clause
"""States of many parts: what is sent, what comes back, and how much memory that takes."""

import os
import subprocess

import programs
import pytest
import servers

MIB = 1 << 20
SCALE = 600  # of support/world.h: about 100 MiB
PART = 5 * MIB
PARTS_IN_MEMORY = 8  # src/object/object_writer.c
OTHER = 48 * MIB  # a client, its connections, and threads


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bodies")
    with servers.strict("--no-tls", "--directory", folder, bucket="runs") as store:
        yield store


def most_memory(store, *words, **more):
    """Of a run of world_tool, which has to succeed: the largest resident size."""
    environment = programs.environment_of(store, **more)
    command = [str(programs.path_of("world_tool")), *map(str, words)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    said = process.stderr.read()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said
    return usage.ru_maxrss * 1024


def test_many_parts(store, tmp_path):
    url = "s3://runs/large/step-1"
    how = [1, "rows", SCALE, 7]
    part = {"SIDESTEP_OBJECT_PART_BYTES": str(PART)}
    local = most_memory(store, "save", tmp_path / "local", *how)
    remote = most_memory(store, "save", url, *how, **part)
    objects = {item["key"]: item["size"] for item in store.control()["objects"]}
    shard = max(objects.values())
    assert shard > 90 * MIB
    sent = [line for line in store.log(operation="UploadPart") if line["status"] == 200]
    assert len(sent) == -(-shard // PART)
    assert not store.control()["uploads"]
    if "ASAN_OPTIONS" not in os.environ:
        assert remote - local < PARTS_IN_MEMORY * PART + OTHER, (remote, local)
    most_memory(store, "load", url, *how)
    programs.sidestep(store, "verify", url)


def test_what_fits_in_a_part_is_one_request(store):
    """A part has 8 MiB if nobody says otherwise."""
    url = "s3://runs/small/step-1"
    most_memory(store, "save", url, 1, "rows", 4, 7)
    assert not [line for line in store.log(operation="UploadPart") if "small" in line["key"]]
