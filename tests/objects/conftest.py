# SPDX-License-Identifier: BSD-3-Clause
"""One strict server for all tests of this folder; each test begins with an empty one."""

import pytest
import servers


@pytest.fixture(scope="session")
def strict_server():
    with servers.strict(
        "--bucket", "other", "--credential", "temporary:its-secret:its-token"
    ) as store:
        yield store


@pytest.fixture(scope="module")
def server():
    """A strict server of a file's own, with the bucket "runs"."""
    with servers.strict("--no-tls", bucket="runs") as store:
        yield store


@pytest.fixture(scope="session")
def clients(strict_server):
    """To make a client of boto3 takes longer than most tests."""
    return {name: strict_server.client(tls=name == "https") for name in ("http", "https")}


@pytest.fixture
def store(strict_server):
    strict_server.control(clear=True, settings={"part_bytes": 100})
    return strict_server


@pytest.fixture(params=["http", "https"])
def client(request, store, clients):
    return clients[request.param]
