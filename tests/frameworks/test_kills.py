# SPDX-License-Identifier: BSD-3-Clause
"""The adapters in real frameworks, killed by SIGKILL again and again: the losses are those of a run
that was never killed, and every file of a user is there afterwards, byte for byte.

SIDESTEP_KILLS says how often each is killed.  `make kills` sets it.
"""

import os

import environments
import pytest

KILLS = int(os.environ.get("SIDESTEP_KILLS", "13"))
HOMES = {
    "accelerate": "transformers",
    "transformers": "transformers",
    "lightning": "lightning",
    "torchtitan": "torchtitan",
}


def run(kind, place, kills, *more):
    environment = environments.find(HOMES[kind])
    words = "killed_again.py", kind, place, kills, *more
    ended = environment.run(*words, timeout=300 + 60 * kills)
    ended.ok()
    return ended


@pytest.mark.parametrize("kind", HOMES)
def test_nothing_is_lost(tmp_path, kind):
    ended = run(kind, tmp_path, KILLS)
    assert ended.values("wrong") == [], ended.output
    count, _, _, _, resumed, *_ = ended.values("kills")[0].split()
    assert int(count) == KILLS and int(resumed) >= KILLS // 2
    print(f"{kind}: {ended.values('kills')[0]}")


@pytest.mark.parametrize(
    ("control", "wrong"),
    [
        ("delete", "is gone, or not what it was"),
        ("random", "losses differ"),
        ("anew", "start goes back"),
    ],
)
def test_what_is_wrong_is_noticed(tmp_path, control, wrong):
    ended = run("accelerate", tmp_path, 6, f"control={control}")
    assert any(wrong in line for line in ended.values("wrong")), ended.output
