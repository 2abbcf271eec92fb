# SPDX-License-Identifier: BSD-3-Clause
"""The client at stores of other people: `make check-objects` runs this."""

import client_checks
import servers
from tool import Tool


def test_radosgw():
    with servers.radosgw() as store:
        client_checks.check_all(store)
        client_checks.check_refusals(store)
        with Tool(store) as tool:
            client_checks.check_conditions(tool)


def test_swift():
    with servers.swift() as store:
        client_checks.check_all(store)
        client_checks.check_refusals(store)
        with Tool(store) as tool:  # it knows no conditions, and says so
            tool.fails("EUNSUPPORTED", "put", "c", 10, 1, "absent")
            tool.fails("ENOTFOUND", "head", "c")
