# SPDX-License-Identifier: BSD-3-Clause
"""One to four programs at once, over a store that meets their requests with faults at random.

A round is made of its number: which programs (saves by one rank and by four, gc, cp, readers), and
which requests are refused, done without an answer, done late, answered with an error and done all
the same, redirected, slowed down, or refused for certain after one of these.  Then all that is late
arrives, an hour passes, and gc runs.

The oracle: what a program acknowledged is there, whole; what it called a failure is not, and what
was there before is; nothing of others has changed.  SIDESTEP_LONG=1: 10,000 rounds, else ROUNDS.
SIDESTEP_ROUND=N: this one only.
"""

import concurrent.futures
import os
import random

import pytest
from programs import held, run
from request_faults import LONG

ROUNDS = 20  # one takes about a second on an idle machine
ROOT = "s3://runs/job"
ONE, MANY, COPY = f"{ROOT}/one", f"{ROOT}/many", f"{ROOT}/copy"
OLD = 1
RANKS = 4
HOUR = 3601
FOREIGN = {"job/notes.txt": b"ours", "job/one/README": b"mine", "job/copy/.sidestep.txt": b"no"}
SHORT = {"SIDESTEP_OBJECT_DEADLINE_MS": "3000"}
DAMAGED = 3  # the exit status of a command that found damage

KEYS = ["*", "*/.metadata", "*/yes.*", "*/pending", "*.distcp", "*/outcome", "*manifest*"]
UNSURE = [
    {"fault": "lost"},
    {"fault": "late"},
    {"fault": "late_error"},
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
        if unsure["fault"].startswith("late"):
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
        kind = rng.choice(["one", "one", "many", "many", "gc", "cp", "verify", "ls"])
        words = {
            "one": ("saver_tool", "save", ONE, OLD + 1 + i),
            "many": ("world_tool", "save", MANY, RANKS, "rows", 1, OLD + 1 + i),
            "gc": ("sidestep", "gc", "--yes", ROOT),
            "cp": ("sidestep", "cp", ONE, COPY),
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


def said(done):
    """How a program says that it ended."""
    if done.returncode == 0:
        return "done"
    return "unknown" if "unknown" in done.stderr else "failed"


def play(server, number):
    """A round: what the programs said, as (kind, seed, word, the rest)."""
    rng = random.Random(number)
    begin(server)
    parts = programs_of(rng)
    server.control(rules=rules_of(rng))
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        ends = list(pool.map(lambda part: run(server, *part[2], **SHORT), parts))
    server.control(rules=[], land=True)
    return [
        (kind, seed, said(done), done.stderr)
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


def judge(server, ends):
    """Raises what is wrong."""
    seeds = [OLD] + [seed for _, seed, _, _ in ends]
    told = {
        kind: {seed: word for k, seed, word, _ in ends if k == kind} for kind in ("one", "many")
    }
    judge_name(held(server, ONE, *seeds), told["one"])
    judge_name(find(server, MANY, seeds), told["many"])
    copied = run(server, "sidestep", "verify", COPY)
    assert copied.returncode != DAMAGED, copied.stdout + copied.stderr
    if any(kind == "cp" and word == "done" for kind, _, word, _ in ends):
        assert copied.returncode == 0, copied.stderr
    for key, body in FOREIGN.items():
        found = server.client().get_object(Bucket="runs", Key=key)["Body"].read()
        assert found == body, f"{key} has changed"


def judge_later(server, ends):
    """The same after more than an hour, and a sweep: what is dead is gone, and nothing else."""
    server.control(settings={"skew": HOUR})
    swept = run(server, "sidestep", "gc", "--yes", ROOT)
    server.control(settings={"skew": 0})
    assert swept.returncode == 0, swept.stderr
    judge(server, ends)


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


BREAKS = [
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
