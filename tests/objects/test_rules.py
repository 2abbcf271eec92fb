# SPDX-License-Identifier: BSD-3-Clause
"""The protocol without one of its rules, each as a negative control of test_schedules.py: one fixed
schedule, in which its oracle finds nothing with the rule, and a fault without it.

``world_tool without POINT`` breaks a rule, by a fault point of the library.  The crash explorer
breaks the same ones (tests/torture/model_mutant.c).  No schedule can show
"object.pending", by which a deletion stops at a save that is under way.  It is a second defence: a
deletion removes only what it has listed and a version that it has read, and the commit finds out
that what it was to replace is gone.  So nothing is lost without it; tests/unit/object_delete_test.c
asks for it.  Nor can one show "object.lease", by which a save that has stood still for half an hour
does not commit: a request under way at such a time ends by its deadline, so the process would have
to stand still between two requests.  The explorer's workload "bucket-frozen" does that.
"""

import concurrent.futures
import contextlib

import pytest
from programs import keys, run
from test_schedules import (
    DAMAGED,
    HOUR,
    MANY,
    OLD,
    RANKS,
    ROOT,
    SERIES,
    SHORT,
    begin,
    find,
    held,
    judge,
    judge_later,
    play_these,
    said,
)

NEW = OLD + 1
COMMIT = "job/many/.metadata"
MANY_WORDS = ("save", MANY, RANKS, "rows", 1, NEW)
FRESH = f"{ROOT}/fresh"
CHAIN = "s3://runs/chain"


def late(then, after=1000):
    """The commit is not answered, and done late; its repetitions meet ``then``."""
    where = {"key": COMMIT, "method": "PUT"}
    again = {"fault": "status", "from": 2, "times": 100, **then}
    return [{"fault": "late", "after": after, **where, "at": 1}, {**again, **where}]


WITHOUT = {  # the fault point that breaks the rule, the program, what its requests meet
    "a late refusal of a commit is no no": (
        *("object.certain", ("many", NEW, MANY_WORDS)),
        late({"status": 403, "code": "AccessDenied"}),
    ),
    "no answer to a commit is no no": (
        *("object.silence", ("many", NEW, MANY_WORDS)),
        late({"status": 503}),
    ),
    ".metadata is deleted first": ("object.delete_order", ("prune", 0, ("prune", SERIES)), []),
}


def play_without(server, point, part, rules):
    kind, seed, words = part
    switch = ("without", point) if point else ()
    begin(server)
    ends = play_these(server, [(kind, seed, ("world_tool", *switch, *words))], rules)
    judge(server, ends)
    judge_later(server, ends)


@pytest.mark.parametrize("rule", WITHOUT)
def test_a_broken_rule_is_found(server, rule):
    point, part, rules = WITHOUT[rule]
    play_without(server, None, part, rules)  # with the rule, nothing is wrong
    with pytest.raises(AssertionError):
        play_without(server, point, part, rules)


def with_and_without(point):
    """Both, by name: nothing must be found, or something."""
    return pytest.mark.parametrize("rule", [None, point], ids=["", f"without {point}"])


def finds(rule):
    """The oracle finds a fault without the rule, and with it (None) nothing."""
    return pytest.raises(AssertionError) if rule else contextlib.nullcontext()


def world(rule, *words):
    return ("world_tool", *(("without", rule) if rule else ()), *words)


def in_between(server, stall, words, act, then=()):
    """Run a program; when its request meets the stall, call act(); then the request is not
    answered, and its repetitions meet the rules ``then``.  What the program said."""
    server.control(rules=[{"fault": "stall", "at": 1, **stall}])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        program = pool.submit(run, server, *words)
        while not server.control()["rules"][0]["fired"]:
            assert not program.done(), program.result()
        act()
        server.control(release=True, rules=list(then))
        return program.result()


AT_COMMIT = {"where": "request", "key": COMMIT, "method": "PUT"}


@with_and_without("object.dead")
def test_a_sweep_waits_for_an_hour(server, rule):
    """The save stands still before it commits, and a sweep goes over what it has put."""
    begin(server)

    def sweep():
        swept = run(server, *world(rule, "gc", ROOT))
        assert swept.returncode == 0, swept.stderr

    ended = in_between(server, AT_COMMIT, world(None, *MANY_WORDS), sweep)
    with finds(rule):
        judge(server, [("many", NEW, said("many", ended), ended.stderr)])


@with_and_without("object.named")
def test_a_sweep_spares_what_a_checkpoint_names(server, rule):
    """It goes over what is left of a save whose commit has never arrived."""
    begin(server)
    server.control(rules=late({"status": 503}))
    assert said("many", run(server, "world_tool", *MANY_WORDS, **SHORT)) == "unknown"
    server.control(rules=[], clear=["late"])
    server.control(settings={"skew": 2 * HOUR})
    assert run(server, *world(rule, "gc", ROOT)).returncode == 0
    server.control(settings={"skew": 0})
    with finds(rule):
        judge(server, [])


@with_and_without("object.certain")
def test_a_vote_is_not_taken_back(server, rule):
    """It is there, and counted, but not answered; and its repetition is refused for certain."""
    begin(server)
    vote = {"key": "job/many/.sidestep/*/yes.2", "method": "PUT"}
    denied = {"fault": "status", "status": 403, "code": "AccessDenied", **vote}
    before = server.client().head_object(Bucket="runs", Key=COMMIT)["ETag"]

    def wait_for_the_commit():
        while server.client().head_object(Bucket="runs", Key=COMMIT)["ETag"] == before:
            pass

    words = world(rule, *MANY_WORDS)
    ended = in_between(server, {"where": "answer", **vote}, words, wait_for_the_commit, [denied])
    server.control(rules=[])
    with finds(rule):
        judge(server, [("many", NEW, said("many", ended), ended.stderr)])


@with_and_without("object.delete_version")
def test_a_deletion_is_of_one_version(server, rule):
    """A prune stands still before it deletes the old step, which is replaced meanwhile."""
    begin(server)
    step, seed = f"{SERIES}/step-1", 9

    def replace():
        assert run(server, "saver_tool", "save", step, seed).returncode == 0

    stall = {"where": "request", "operation": ["DeleteObject", "DeleteObjects"]}
    in_between(server, stall, world(rule, "prune", SERIES), replace)
    with finds(rule):
        assert held(server, step, 1, seed) == seed


@with_and_without("object.late_manifest")
def test_a_manifest_that_arrives_late_is_not_alone(server, rule):
    """Its save has failed: without a marker it would look like what is left of a checkpoint."""
    begin(server)
    where = {"key": "job/fresh/.sidestep.manifest.*", "method": "PUT"}
    late_then_busy = [
        {"fault": "late", "after": 1000, "at": 1, **where},
        {"fault": "status", "status": 503, "from": 2, **where},
    ]
    server.control(rules=late_then_busy)
    failed = run(server, *world(rule, "save", FRESH, RANKS, "rows", 1, NEW), **SHORT)
    assert failed.returncode != 0
    server.control(rules=[], land=True)
    with finds(rule):
        verified = run(server, "sidestep", "verify", FRESH)
        assert verified.returncode != DAMAGED, verified.stdout + verified.stderr
    judge_later(server, [])
    assert rule or not keys(server, "job/fresh/")[0]


@with_and_without("object.still_held")
def test_a_save_learns_that_its_series_was_taken(server, rule):
    """Another run resumes from the step before while a save stands still before its commit."""
    begin(server)
    assert run(server, "world_tool", "series", CHAIN, 1).returncode == 0
    resumed = []

    def resume():
        resumed.append(run(server, "saver_tool", "resume", CHAIN).stdout.split())

    stall = {"where": "request", "key": "chain/step-2/.metadata", "method": "PUT"}
    ended = in_between(server, stall, world(rule, "series", CHAIN, 2), resume)
    assert resumed == [["step", "1"]]
    with finds(rule):
        assert "was committed" in ended.stderr and ended.returncode != 0, ended.stderr


@with_and_without("object.condition")
def test_a_commit_that_arrives_late(server, rule):
    """When the next save has already been committed, which it must not replace."""
    first, second = OLD + 1, OLD + 2
    begin(server)
    server.control(rules=late({"status": 503}))
    words = world(rule, *MANY_WORDS)
    assert said("many", run(server, *words, **SHORT)) == "unknown"
    server.control(rules=[])
    assert run(server, "world_tool", *MANY_WORDS[:-1], second).returncode == 0
    server.control(land=True)
    with finds(rule):
        assert find(server, MANY, [OLD, first, second]) == second
