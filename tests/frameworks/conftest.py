# SPDX-License-Identifier: BSD-3-Clause
"""The environments of the frameworks, as fixtures."""

import environments
import pytest


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
