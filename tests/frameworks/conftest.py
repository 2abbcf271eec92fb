# SPDX-License-Identifier: BSD-3-Clause
"""The environments of the frameworks, as fixtures."""

import sys

import environments
import pytest

sys.path.insert(0, str(environments.TOP / "tests" / "objects"))



def _starts(name, *modules):
    """The environment ``name``, with one process that is forked for each start."""
    forks = environments.Forks(environments.find(name), *modules)
    yield forks
    forks.end()


@pytest.fixture(scope="session")
def lightning():
    yield from _starts("lightning", "sidestep.lightning")


@pytest.fixture(scope="session")
def transformers():
    yield from _starts("transformers", "sidestep.transformers", "sidestep.accelerate")


@pytest.fixture(scope="session")
def torchtitan():
    yield from _starts("torchtitan", "sidestep.torchtitan", "titan_parts")


@pytest.fixture(scope="session")
def torchtune():
    return environments.find("torchtune")


@pytest.fixture(scope="session")
def megatron():
    yield from _starts("megatron", "sidestep.megatron")


@pytest.fixture(scope="session")
def deepspeed():
    yield from _starts("deepspeed", "sidestep.deepspeed")


@pytest.fixture(scope="session")
def ray():
    return environments.find("ray")


@pytest.fixture(scope="module")
def bucket():
    """A strict server with the bucket "runs"."""
    import servers

    with servers.strict("--no-tls", bucket="runs") as store:
        yield store
