# SPDX-License-Identifier: BSD-3-Clause
"""What modules of tests share: one server of scripts, since each takes seconds to import torch."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from scripts import Scripts

# Tests start programs in other folders, where a path such as "python" is none.
for _name in ("PYTHONPATH", "SIDESTEP_LIBRARY"):
    if os.environ.get(_name):
        _paths = os.environ[_name].split(os.pathsep)
        os.environ[_name] = os.pathsep.join(map(os.path.abspath, _paths))


@pytest.fixture(scope="session")
def scripts() -> Iterator[Scripts]:
    server = Scripts()
    yield server
    server.close()
