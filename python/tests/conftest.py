# SPDX-License-Identifier: BSD-3-Clause
"""What modules of tests share: one server of scripts, since each takes seconds to import torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scripts import Scripts


@pytest.fixture(scope="session")
def scripts() -> Iterator[Scripts]:
    server = Scripts()
    yield server
    server.close()
