# SPDX-License-Identifier: BSD-3-Clause
"""The environments of the frameworks, as fixtures."""

import sys

import environments
import pytest

sys.path.insert(0, str(environments.TOP / "tests" / "objects"))


@pytest.fixture(scope="session")
def lightning():
    return environments.find("lightning")


@pytest.fixture(scope="session")
def transformers():
    return environments.find("transformers")


@pytest.fixture(scope="session")
def torchtitan():
    return environments.find("torchtitan")


@pytest.fixture(scope="session")
def torchtune():
    return environments.find("torchtune")


@pytest.fixture(scope="session")
def megatron():
    return environments.find("megatron")


@pytest.fixture(scope="session")
def deepspeed():
    return environments.find("deepspeed")


@pytest.fixture(scope="session")
def ray():
    return environments.find("ray")


@pytest.fixture(scope="module")
def bucket():
    """A strict server with the bucket "runs"."""
    import servers

    with servers.strict("--no-tls", bucket="runs") as store:
        yield store
