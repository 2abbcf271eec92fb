# SPDX-License-Identifier: BSD-3-Clause
"""One to four programs at once, over a store that meets their requests with faults at random.

A round is made of its number: which programs (saves by one rank and by four, gc, prune, cp,
convert, readers), and which requests are refused, done without an answer, done late, done twice,
answered with an error and done all the same, redirected, slowed down, or refused for certain after
one of these.  Then all that is late arrives, an hour passes, and gc runs.

The oracle: what a program acknowledged is there, whole; what it called a failure is not, and what
was there before is; nothing of others has changed.  SIDESTEP_LONG=1: 10,000 rounds, else ROUNDS.
SIDESTEP_ROUND=N: this one only.  What schedules find if the protocol lacks a rule: test_rules.py.
"""

import concurrent.futures
import os
import random

import pytest
from programs import held, keys, run
from request_faults import LONG

ROUNDS = 20  # one takes about a second on an idle machine
ROOT = "s3://runs/job"
ONE, MANY, COPY = f"{ROOT}/one", f"{ROOT}/many", f"{ROOT}/copy"
SERIES, EXPORT = "s3://runs/series", f"{ROOT}/export"
STEPS = (1, 2)  # of the series; a prune keeps the last one
OLD = 1
RANKS = 4
HOUR = 3601
FOREIGN = {
    "job/notes.txt": b"ours",
    "job/one/README": b"mine",
    "job/copy/.sidestep.txt": b"no",
    "job/export.md": b"mine",
    "series/log": b"mine",
    "series/step-2/log": b"mine",
}
SHORT = {"SIDESTEP_OBJECT_DEADLINE_MS": "3000"}
DAMAGED = 3  # the exit status of a command that found damage

KEYS = ["*", "*/.metadata", "*/yes.*", "*/pending", "*.distcp", "*/outcome", "*manifest*"]
UNSURE = [
    {"fault": "lost"},
    {"fault": "late"},
    {"fault": "late_error"},
    {"fault": "doubled"},
    {"fault": "error_body", "done": True},
]
REFUSED = [
    (403, "AccessDenied"),
    (403, "ExpiredToken"),
    (404, "NoSuchKey"),
    (412, "PreconditionFailed"),
    (301, "PermanentRedirect"),
    (501, "NotImplemented"),
    (507, "InsufficientStorage"),
]
PLAIN = [
    {"fault": "status", "status": 503, "code": "SlowDown"},
    {"fault": "status", "status": 500},
    {"fault": "status", "status": 409, "code": "ConditionalRequestConflict"},
    {"fault": "status", "status": 307, "code": "TemporaryRedirect"},
    {"fault": "reset"},
    {"fault": "slow", "delay": 0.05},
]


OTHERS = ["gc", "prune", "cp", "convert", "verify", "ls"]


def rules_of(rng):
    """Faults at random requests; a third of them is followed by a refusal of the repetition."""
    rules = []
    for _ in range(rng.randint(1, 5)):
        where = {"key": rng.choice(KEYS), "method": rng.choice(["PUT", "PUT", "DELETE", "POST"])}
        at = rng.choice([1, 1, 1, 2, 3, rng.randint(1, 12)])
        kind = rng.random()
        if kind < 0.3:
            rules.append({**rng.choice(PLAIN), **where, "from": at, "times": rng.randint(1, 3)})
            continue
        unsure = dict(rng.choice(UNSURE))
        if unsure["fault"] in ("late", "late_error", "doubled"):
            unsure["after"] = rng.randint(1, 40)
        rules.append({**unsure, **where, "at": at})
        if kind < 0.7:
            status, code = rng.choice(REFUSED)
            refusal = {"fault": "status", "status": status, "code": code}
            rules.append({**refusal, **where, "from": at + 1, "times": rng.choice([1, 2, 100])})
    return rules


def programs_of(rng):
    """What each program is, and its words."""
    found = []
    for i in range(rng.randint(1, 4)):
        kind = rng.choice(["one", "one", "many", "many", *OTHERS])
        words = {
            "one": ("saver_tool", "save", ONE, OLD + 1 + i),
            "many": ("world_tool", "save", MANY, RANKS, "rows", 1, OLD + 1 + i),
            "gc": ("sidestep", "gc", "--yes", ROOT),
            "cp": ("sidestep", "cp", ONE, COPY),
            "prune": ("sidestep", "prune", "--yes", "--keep-last=1", SERIES),
            "convert": ("sidestep", "convert", "--model-only", MANY, EXPORT),
            "verify": ("sidestep", "verify", ONE),
            "ls": ("sidestep", "ls", ROOT),
        }[kind]
        found.append((kind, OLD + 1 + i, words))
    return found


def begin(server):
    server.control(clear=["log", "rules", "late", "objects", "uploads"], settings={"skew": 0})
    for key, body in FOREIGN.items():
        server.client().put_object(Bucket="runs", Key=key, Body=body)
    assert run(server, "saver_tool", "save", ONE, OLD).returncode == 0
    assert run(server, "world_tool", "save", MANY, RANKS, "rows", 1, OLD).returncode == 0
    for step in STEPS:
        assert run(server, "saver_tool", "save", f"{SERIES}/step-{step}", step).returncode == 0


def said(kind, done):
    """How a program says that it ended.  A prune tells what it has removed, and what stays."""
    if done.returncode == 0:
        return "done" if kind != "prune" or f"removed {SERIES}" in done.stdout else "failed"
    is_unsure = "unknown" in done.stderr or "may have taken effect" in done.stderr
    return "unknown" if is_unsure else "failed"


def play(server, number):
    """A round: what the programs said, as (kind, seed, word, the rest)."""
    rng = random.Random(number)
    begin(server)
    parts = programs_of(rng)
    return play_these(server, parts, rules_of(rng))


def play_these(server, parts, rules):
    """The same for these programs and faults."""
    server.control(rules=rules)
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        ends = list(pool.map(lambda part: run(server, *part[2], **SHORT), parts))
    server.control(rules=[], land=True)
    return [
        (kind, seed, said(kind, done), done.stderr)
        for (kind, seed, _), done in zip(parts, ends, strict=True)
    ]


def find(server, path, seeds):
    """The seed of the whole checkpoint of four ranks there; None: there is none."""
    verified = run(server, "sidestep", "verify", path)
    assert verified.returncode != DAMAGED, verified.stdout + verified.stderr
    for seed in seeds if verified.returncode == 0 else ():
        if run(server, "world_tool", "load", path, RANKS, "rows", 1, seed).returncode == 0:
            return seed
    return None


def judge_name(now, ends):
    """What is under a name, after all saves to it.  ends: by seed."""
    assert now is not None, f"there is no checkpoint any more: {ends}"
    assert now == OLD or ends[now] != "failed", f"{now} is there, and failed: {ends}"
    assert now != OLD or "done" not in ends.values(), f"the old one is there: {ends}"


def judge_made(server, path, words):
    """words: how the commands ended that make it.  What a copy that failed has put stays for the
    next one until a sweep, and is no damage."""
    verified = run(server, "sidestep", "verify", path)
    is_whole = verified.returncode == 0
    assert verified.returncode != DAMAGED, verified.stdout + verified.stderr
    assert is_whole or "done" not in words, f"{path}: {verified.stderr}"


def judge_series(server, words):
    """A prune keeps the last step.  words: how the prunes ended.  It deletes .metadata first: until
    a sweep, the rest may be there without it."""
    old, last = STEPS
    assert held(server, f"{SERIES}/step-{last}", *STEPS) == last
    is_there = f"series/step-{old}/.metadata" in keys(server)[0]
    assert not (is_there and "done" in words), "it is there after a prune"
    assert is_there or words, "it is gone without a prune"
    if is_there:
        assert held(server, f"{SERIES}/step-{old}", *STEPS) == old


def judge(server, ends):
    """Raises what is wrong."""
    seeds = [OLD] + [seed for _, seed, _, _ in ends]
    told = {
        kind: {seed: word for k, seed, word, _ in ends if k == kind} for kind in ("one", "many")
    }
    judge_name(held(server, ONE, *seeds), told["one"])
    judge_name(find(server, MANY, seeds), told["many"])
    words = {kind: [word for k, _, word, _ in ends if k == kind] for kind in OTHERS}
    judge_series(server, words["prune"])
    judge_made(server, COPY, words["cp"])
    judge_made(server, EXPORT, words["convert"])
    for key, body in FOREIGN.items():
        found = server.client().get_object(Bucket="runs", Key=key)["Body"].read()
        assert found == body, f"{key} has changed"


def judge_later(server, ends):
    """The same after more than an hour, and a sweep: what is dead is gone, and nothing else."""
    server.control(settings={"skew": HOUR})
    for root in (ROOT, SERIES):
        swept = run(server, "sidestep", "gc", "--yes", root)
        assert swept.returncode == 0, swept.stderr
    server.control(settings={"skew": 0})
    judge(server, ends)
    for path in (COPY, EXPORT):
        swept = run(server, "sidestep", "verify", path)
        assert swept.returncode != DAMAGED, swept.stdout
    left = keys(server, f"series/step-{STEPS[0]}/")[0]
    assert not left or f"series/step-{STEPS[0]}/.metadata" in left, left


def rounds():
    only = os.environ.get("SIDESTEP_ROUND")
    return [int(only)] if only else range(10000 if LONG else ROUNDS)


def test_schedules(server):
    wrong = []
    for number in rounds():
        try:
            ends = play(server, number)
            judge(server, ends)
            judge_later(server, ends)
        except AssertionError as error:
            wrong.append(f"SIDESTEP_ROUND={number}: {str(error)[:1000]}")
            if len(wrong) == 5:
                break
    assert not wrong, "\n".join(wrong)


# ---- negative controls: what the oracle must not let pass


def forget_a_shard(server, _):
    key = next(item["key"] for item in server.control()["objects"] if "/many/__" in item["key"])
    server.client().delete_object(Bucket="runs", Key=key)


def forget_the_old(server, _):
    server.client().delete_object(Bucket="runs", Key="job/one/.metadata")


def change_a_foreign_file(server, _):
    server.client().put_object(Bucket="runs", Key="job/one/README", Body=b"mine?")


def claim_a_save(_, ends):
    ends.append(("one", 77, "done", ""))


def claim_a_failure(server, ends):
    assert run(server, "saver_tool", "save", ONE, 78).returncode == 0
    ends.append(("one", 78, "failed", ""))


def claim_a_copy(_, ends):
    ends.append(("cp", 79, "done", ""))


def claim_an_export(_, ends):
    ends.append(("convert", 80, "done", ""))


def claim_a_prune(_, ends):
    ends.append(("prune", 81, "done", ""))


def forget_a_step(server, _):
    server.client().delete_object(Bucket="runs", Key=f"series/step-{STEPS[0]}/.metadata")


def forget_the_last_step(server, ends):
    server.client().delete_object(Bucket="runs", Key=f"series/step-{STEPS[1]}/.metadata")
    ends.append(("prune", 82, "failed", ""))


BREAKS = [
    claim_an_export,
    claim_a_prune,
    forget_a_step,
    forget_the_last_step,
    forget_a_shard,
    forget_the_old,
    change_a_foreign_file,
    claim_a_save,
    claim_a_failure,
    claim_a_copy,
]


@pytest.mark.parametrize("breaks", BREAKS, ids=lambda breaks: breaks.__name__)
def test_the_oracle_notices(server, breaks):
    begin(server)
    ends = []
    judge(server, ends)
    breaks(server, ends)
    with pytest.raises(AssertionError):
        judge(server, ends)
