# SPDX-License-Identifier: BSD-3-Clause
"""A load reads few large ranges, several tensors with each, and every one of them meets faults.

The oracle: what is loaded is what was saved, or the load says why not.
"""

import contextlib
import json
import os
import subprocess
import sys
import time

import programs
import pytest

MIB = 2**20
RANGE = {"operation": "GetObject", "key": "*.distcp", "header": "range"}
TAIL = 2  # the first of them read the footer: for the names of the tensors, and for the load
ENOUGH = 60  # seconds, for what takes a moment on a machine that is not busy

LOADER = """
import json
import sys
import torch
import sidestep

url = sys.argv[1]
generator = torch.Generator().manual_seed(1)
def values(*shape):
    return torch.rand(*shape, generator=generator)
# Tensors that end within a block, small ones between large ones, and one that is loaded as columns.
state = {"a": values(400_001), "b": values(3), "c": values(2_500_000), "d": values(70_000),
         "e": values(1000, 700), "f": values(9), "g": values(20_000), "h": values(1_300_007)}
sidestep.save(state, checkpoint_id=url)
print(json.dumps(sum(value.nbytes for value in state.values())), flush=True)
for line in sys.stdin:
    target = {name: torch.zeros_like(value) for name, value in state.items()}
    target["e"] = torch.zeros(700, 1000).t()
    try:
        sidestep.load(target, checkpoint_id=url)
        same = all(torch.equal(target[name], state[name]) for name in state)
        print(json.dumps("same" if same else "another state"), flush=True)
    except sidestep.Error as error:
        print(json.dumps([sidestep.Status(error.status).name, str(error)]), flush=True)
"""


class Loader:
    def __init__(self, process):
        self.process = process
        self.bytes = json.loads(process.stdout.readline())

    def begin(self):
        self.process.stdin.write("load\n")
        self.process.stdin.flush()

    def end(self):
        return json.loads(self.process.stdout.readline())

    def load(self):
        self.begin()
        return self.end()

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


@contextlib.contextmanager
def loader(store, url="s3://runs/job/step-1", **environment):
    library = os.environ.get("SIDESTEP_LIBRARY", programs.build() / "libsidestep.so.0")
    process = subprocess.Popen(
        [sys.executable, "-c", LOADER, url],
        env={
            **os.environ,
            "PYTHONPATH": str(programs.tool.ROOT / "python"),
            "SIDESTEP_LIBRARY": str(library),
            **store.environment(),
            **environment,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Loader(process)
    finally:
        process.stdin.close()
        process.wait(programs.SECONDS)
        process.stdout.close()


@pytest.fixture(scope="module")
def loads(server):
    with loader(server) as process:
        yield process


@pytest.fixture(autouse=True)
def no_faults(server):
    yield
    server.control(rules=[], clear=["log"], release=True)


def ranges(server):
    """How many ranges of the shard were read, its end left out."""
    return sum(
        line["operation"] == "GetObject" and (line["key"] or "").endswith(".distcp")
        for line in server.log()
    ) - TAIL


def count(server, loads):
    server.control(clear=["log"], rules=[])
    assert loads.load() == "same"
    return ranges(server)


def test_ranges_are_few_and_large(server, loads):
    assert loads.bytes > 18 * MIB
    assert count(server, loads) == 3


def test_requests_for_a_shard(server, loads):
    """Twice its size and its end with the footer, and the ranges."""
    found = count(server, loads)
    asked = [line["operation"] for line in server.log() if (line["key"] or "").endswith(".distcp")]
    assert asked == ["HeadObject", "GetObject"] * TAIL + ["GetObject"] * found


FAULTS = {
    "busy": {"fault": "status", "status": 503, "code": "SlowDown"},
    "reset": {"fault": "cut", "after": 3 * MIB, "how": "reset"},
    "closed": {"fault": "cut", "after": 1000, "how": "close"},
    "truncated": {"fault": "truncate", "bytes": 2 * MIB},
    "short range": {"fault": "short_range", "bytes": 100},
    "another range": {"fault": "wrong_range", "shift": 2, "moves": True},
    "the whole object": {"fault": "whole"},
    "late": {"fault": "slow", "delay": 0.3, "bytes": 4 * MIB, "seconds": 0.01},
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_range_meets_a_fault(server, loads, name):
    """What came of it before is overwritten by the repetition, wherever it went to."""
    for at in range(1, count(server, loads) + 1):
        server.control(rules=[{**RANGE, **FAULTS[name], "at": TAIL + at}])
        assert loads.load() == "same", (name, at)
        assert server.control()["rules"][0]["fired"] == 1, (name, at)


def test_all_ranges_meet_a_fault_at_once(server, loads):
    found = count(server, loads)
    server.control(rules=[{**RANGE, **FAULTS["reset"], "from": TAIL + 1, "times": found}])
    assert loads.load() == "same"
    assert server.control()["rules"][0]["fired"] == found


def test_a_flipped_bit_is_found_in_every_range(server, loads):
    for at in range(1, count(server, loads) + 1):
        server.control(rules=[{**RANGE, "fault": "flip", "at": TAIL + at}])
        said = loads.load()
        assert said[0] == "ECORRUPT" and "hash" in said[1], (at, said)
    assert loads.load() == "same"


def stalled(server):
    deadline = time.monotonic() + ENOUGH
    while not server.control()["rules"][0]["fired"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_object_that_is_replaced_meanwhile(server):
    """Ranges are of the version that was opened: the others are refused, and nothing is mixed."""
    with loader(server, "s3://runs/replaced/step-1", SIDESTEP_OBJECT_REQUESTS="1") as loads:
        assert loads.load() == "same"
        names = [item["key"] for item in server.control()["objects"]]
        shard = next(name for name in names if name.startswith("replaced/step-1/__"))
        rule = {**RANGE, "fault": "stall", "where": "request", "at": TAIL + 2}
        server.control(clear=["log"], rules=[rule])
        loads.begin()
        stalled(server)
        server.control(put=[{"bucket": "runs", "key": shard, "text": "x" * 30 * MIB}], release=True)
        said = loads.end()
        assert said[0] in ("ENOTFOUND", "ECORRUPT") and "replaced" in said[1], said


def test_no_thread_stays(server, loads):
    """Also after a load that failed while other ranges were on their way."""
    found = count(server, loads)
    before = loads.threads()
    for at in range(1, found + 1):
        server.control(rules=[{**RANGE, "fault": "flip", "at": TAIL + at}])
        assert loads.load() != "same"
    assert count(server, loads) == found
    assert loads.threads() == before
