# SPDX-License-Identifier: BSD-3-Clause
"""Stores of other people, installed by tools/setup objects: `make check-objects` runs this."""

import checks
import servers


def test_radosgw():
    with servers.radosgw() as store:
        checks.check_all(store)
        checks.check_condition(store)
        checks.check_wrong_secret(store)


def test_swift():
    with servers.swift() as store:
        checks.check_all(store)
        checks.check_no_condition(store)
        checks.check_wrong_secret(store)
