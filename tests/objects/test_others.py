# SPDX-License-Identifier: BSD-3-Clause
"""The strict server, and that of moto, which others wrote, answer the same plain requests."""

import checks
import servers


def test_strict_server():
    with servers.strict(bucket=checks.BUCKET) as store:
        checks.check_all(store)
        checks.check_condition(store)
        checks.check_wrong_secret(store)


def test_moto():
    with servers.moto() as store:
        checks.check_all(store)
        checks.check_condition(store)
