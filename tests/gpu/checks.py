# SPDX-License-Identifier: BSD-3-Clause
"""checks.py -- runs tests/gpu/test_gpu.py, and prints one line per test that did not pass."""

from pathlib import Path

import place


class Tally:
    """A plugin of pytest's."""

    def __init__(self):
        self.counts = dict.fromkeys(("passed", "failed", "skipped"), 0)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
        if report.outcome == "failed":
            place.say("test", ok=False, test=report.nodeid, why=str(report.longrepr)[-600:])

    def pytest_sessionfinish(self):
        not_run = self.counts.pop("skipped")
        place.say("tests", ok=self.counts["failed"] == 0, **self.counts, not_run=not_run)


def main(arguments=None):
    """See above."""
    try:
        import pytest
    except ImportError:
        place.say("tests", skipped="pytest is not installed")
        return
    tests = Path(__file__).parent / "test_gpu.py"
    pytest.main(["-q", "-p", "no:cacheprovider", *(arguments or []), str(tests)], [Tally()])


if __name__ == "__main__":
    main()
