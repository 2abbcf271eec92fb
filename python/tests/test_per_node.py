# SPDX-License-Identifier: BSD-3-Clause
"""``near="per_node"``: each node has a directory for itself, under another path on each.  Ranks are
processes; a letter says which node a rank is on."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
import torch.distributed.checkpoint as dcp
from ranks import RanksFailed, run_ranks

import sidestep


def states(step: int) -> dict[str, Any]:
    """What each rank has: the library writes each of these once, on some rank."""
    return {
        **{f"w{i}": torch.full((300, 70), float(step * 100 + i)) for i in range(6)},
        "note": {"step": step, "text": "x" * 100},
    }


def mirrored(rank: int, root: str, nodes: str, steps: list[int]) -> Optional[tuple[int, str]]:
    """Resume, check what was loaded, and save ``steps``.  Returns what was resumed."""
    mirror = sidestep.Mirror(f"{root}/far", every=2, keep_last_n=2)
    node = f"{root}/{nodes[rank]}/run"
    with sidestep.Checkpointer(node, keep_last_n=2, mirror=mirror) as checkpoints:
        state = states(-1)
        loaded = checkpoints.resume(state)
        if loaded is not None:
            wanted = states(loaded.step)
            assert all(torch.equal(state[f"w{i}"], wanted[f"w{i}"]) for i in range(6))
        for one in steps:
            checkpoints.save(one, states(one))
    return None if loaded is None else (loaded.step, loaded.path)


def test_a_mirror_has_whole_checkpoints(tmp_path: Path) -> None:
    root, far = str(tmp_path), tmp_path / "far"
    assert run_ranks(4, mirrored, root, "aabb", [1, 2, 3]) == [None] * 4
    state = states(-1)
    dcp.load(state, checkpoint_id=far / "step-3", no_dist=True)
    assert torch.equal(state["w5"], states(3)["w5"])
    shutil.rmtree(tmp_path / "b")
    assert run_ranks(4, mirrored, root, "aacc", [4, 5]) == [(3, f"{far}/step-3")] * 4
    sidestep.load({"w0": torch.zeros(300, 70)}, checkpoint_id=far / "step-5", no_dist=True)
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "c")
    assert run_ranks(3, mirrored, root, "dde", []) == [(5, f"{far}/step-5")] * 3
    assert not list(far.glob(".sidestep.*"))
    assert len(list(far.glob("step-*"))) == 2


def test_a_damaged_disk_beside_a_lost_node(tmp_path: Path) -> None:
    """What a rank reads from its own disk is read from the mirror, if it is damaged."""
    root, far = str(tmp_path), tmp_path / "far"
    run_ranks(2, mirrored, root, "ab", [2])
    shutil.rmtree(tmp_path / "b")
    (shard,) = (tmp_path / "a" / "run" / "step-2").glob("*.distcp")
    content = bytearray(shard.read_bytes())
    for at in range(100, len(content) // 2, 100):
        content[at] ^= 1
    shard.write_bytes(content)
    assert run_ranks(2, mirrored, root, "ac", []) == [(2, f"{far}/step-2")] * 2
    events = (tmp_path / "a" / "run" / ".sidestep" / "events.rank-0").read_text()
    assert '"loaded"' in events and '"load_failed"' not in events  # the second attempt succeeded


def work(
    rank: int, root: str, nodes: str, steps: list[int], resumes: bool, step: Optional[int] = None
) -> Optional[int]:
    """Resume, check what was loaded, and save ``steps``.  Returns the step that was resumed."""
    came = None
    with sidestep.Checkpointer(f"{root}/{nodes[rank]}/run", near="per_node") as checkpoints:
        if resumes:
            state = states(-1)
            loaded = checkpoints.resume(state, step=step)
            came = loaded.step if loaded is not None else None
            if came is not None:
                assert Path(loaded.path).parent == Path(root, nodes[rank], "run")
                wanted = states(came)
                assert all(torch.equal(state[f"w{i}"], wanted[f"w{i}"]) for i in range(6))
                assert state["note"] == wanted["note"]
        for one in steps:
            checkpoints.save(one, states(one))
        checkpoints.wait()
    return came


def test_a_run_goes_on_wherever_its_ranks_are(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert run_ranks(4, work, root, "aabb", [], True) == [None] * 4
    run_ranks(4, work, root, "aabb", [1, 2], True)
    assert not list(tmp_path.glob("*/run/*/.metadata"))
    assert run_ranks(4, work, root, "aabb", [], True) == [2] * 4
    assert run_ranks(4, work, root, "baba", [], True) == [2] * 4
    assert run_ranks(3, work, root, "bac", [3], True) == [2] * 3
    assert run_ranks(5, work, root, "aabbc", [], True) == [3] * 5
    assert not list(tmp_path.glob("*/run/.sidestep.*"))


def test_a_step_of_which_a_part_is_lost_is_passed_over(tmp_path: Path) -> None:
    run_ranks(2, work, str(tmp_path), "ab", [1, 2], True)
    shutil.rmtree(tmp_path / "b" / "run" / "step-2")
    assert run_ranks(2, work, str(tmp_path), "ab", [], True) == [1, 1]
    shutil.rmtree(tmp_path / "a" / "run" / "step-1")
    with pytest.raises(RanksFailed) as failed:
        run_ranks(2, work, str(tmp_path), "ab", [], True)
    errors = failed.value.exceptions
    assert {error.status.name for error in errors.values()} == {"EMISMATCH"}
    assert "ranks 0 of the 2" in str(errors[0])


def test_going_back(tmp_path: Path) -> None:
    run_ranks(2, work, str(tmp_path), "ab", [1, 2, 3], True)
    assert run_ranks(2, work, str(tmp_path), "ab", [2], True, 1) == [1, 1]
    assert run_ranks(2, work, str(tmp_path), "ab", [], True) == [2, 2]


def look(rank: int, root: str, nodes: str) -> list[int]:
    """Load without going on from there, and save a later step.  Returns what was loaded."""
    found = []
    with sidestep.Checkpointer(f"{root}/{nodes[rank]}/run", near="per_node") as checkpoints:
        assert checkpoints.resume(states(-1)) is not None
        for step in (1, -1, 2):
            state = states(-1)
            loaded = checkpoints.load(state, step=step)
            wanted = states(loaded.step)
            assert all(torch.equal(state[f"w{i}"], wanted[f"w{i}"]) for i in range(6))
            found.append(loaded.step)
        with pytest.raises(sidestep.Error) as failed:
            checkpoints.load(states(-1), step=9)
        assert failed.value.status.name == "ENOTFOUND"
        checkpoints.save(4, states(4))
        checkpoints.wait()
    return found


def test_a_step_is_loaded_without_going_back(tmp_path: Path) -> None:
    root = str(tmp_path)
    run_ranks(2, work, root, "ab", [1, 2, 3], True)
    assert run_ranks(2, look, root, "ba") == [[1, 3, 2]] * 2
    assert run_ranks(2, work, root, "ab", [], True) == [4, 4]
    assert not list(tmp_path.glob("*/run/.sidestep.*"))


def test_one_directory_has_checkpoints_as_ever(tmp_path: Path) -> None:
    run_ranks(2, work, str(tmp_path), "aa", [1], True)
    assert (tmp_path / "a" / "run" / "step-1" / ".metadata").exists()
    assert run_ranks(2, work, str(tmp_path), "aa", [2, 3], True) == [1, 1]
    assert run_ranks(2, look, str(tmp_path), "aa") == [[1, 3, 2]] * 2


VOCABULARY = b"a b c"


def with_files(rank: int, root: str, nodes: str, steps: list[int], has_mirror: bool) -> int:
    """Resume, read the small files of four ranks, and save ``steps``.  Returns what was resumed."""
    mirror = sidestep.Mirror(f"{root}/far") if has_mirror else None
    node, came = f"{root}/{nodes[rank]}/run", 0
    with sidestep.Checkpointer(node, near="per_node", mirror=mirror) as checkpoints:
        loaded = checkpoints.resume(states(-1))
        if loaded is not None:
            came = loaded.step
            for one in range(4):
                wanted = f"{one} at {came}".encode()
                assert sidestep.read_file(loaded.path, f"state-{one}") == wanted
            names = set(sidestep.load_metadata(loaded.path).files)
            assert names == {"tokenizer/vocab", *(f"state-{one}" for one in range(4))}
            assert Path(loaded.path, "tokenizer", "vocab").read_bytes() == VOCABULARY
        torch.distributed.barrier()
        for step in steps:
            files = {f"state-{rank}": f"{rank} at {step}".encode(), "tokenizer/vocab": VOCABULARY}
            checkpoints.save(step, states(step), files=files)
    return came


@pytest.mark.parametrize("has_mirror", [False, True])
def test_small_files(tmp_path: Path, has_mirror: bool) -> None:
    root = str(tmp_path)
    run_ranks(4, with_files, root, "aabb", [1], has_mirror)
    assert (tmp_path / "a" / "run" / "step-1" / "tokenizer" / "vocab").read_bytes() == VOCABULARY
    assert not (tmp_path / "a" / "run" / "step-1" / "state-2").exists()
    assert run_ranks(4, with_files, root, "baac", [2], has_mirror) == [1] * 4
    if has_mirror:
        far = tmp_path / "far" / "step-2"
        assert sidestep.read_file(far, "state-3") == (far / "state-3").read_bytes() == b"3 at 2"
        shutil.rmtree(tmp_path / "c")
    where = "abb" if has_mirror else "abc"
    assert run_ranks(3, with_files, root, where, [], has_mirror) == [2] * 3
    assert not list(tmp_path.glob("*/run/.sidestep.*"))


def finish(rank: int, root: str, nodes: str) -> None:
    mirror = sidestep.Mirror(f"{root}/far", every=100)
    final = sidestep.Final("torch", only=None)
    node = f"{root}/{nodes[rank]}/run"
    with sidestep.Checkpointer(node, mirror=mirror, final=final) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, states(step), final=True)
            assert Path(root, "far", f"step-{step}", ".metadata").exists()  # on every rank
            found = torch.load(Path(root, "far", "final.pt"))
            assert torch.equal(found["w5"], states(step)["w5"])
            whole = node if nodes == "aaaa" else f"{root}/far"
            assert checkpoints.latest() == f"{whole}/step-{step}"
    assert not Path(node, "final.pt").exists()


@pytest.mark.parametrize("nodes", ["aabb", "aaaa"])
def test_a_last_save_is_at_the_mirror_and_is_exported_there(tmp_path: Path, nodes: str) -> None:
    run_ranks(4, finish, str(tmp_path), nodes)


def without_a_mirror(rank: int, root: str, nodes: str) -> None:
    node, final = f"{root}/{nodes[rank]}/run", sidestep.Final("torch")
    with pytest.raises(sidestep.Error, match="only a mirror has whole checkpoints") as refused:
        sidestep.Checkpointer(node, near="per_node", final=final)
    assert refused.value.status.name == "EUNSUPPORTED"
    with sidestep.Checkpointer(node, near="per_node") as checkpoints:
        checkpoints.save(1, states(1), final=True)


def test_an_export_of_parts_is_refused_at_the_beginning(tmp_path: Path) -> None:
    run_ranks(2, without_a_mirror, str(tmp_path), "ab")


def mirror_of_rank_0(rank: int, root: str) -> None:
    mirror = sidestep.Mirror(f"{root}/far", every=100) if rank == 0 else None
    with sidestep.Checkpointer(f"{root}/near", near="shared", mirror=mirror) as checkpoints:
        checkpoints.save(1, states(1))
        checkpoints.save(2, states(2), final=True)
        assert Path(root, "far", "step-2", ".metadata").exists()


def test_a_mirror_that_only_rank_0_knows(tmp_path: Path) -> None:
    run_ranks(2, mirror_of_rank_0, str(tmp_path))


def disagree(rank: int, root: str, nodes: str) -> None:
    with sidestep.Checkpointer(f"{root}/{nodes[rank]}/run", near="per_node") as checkpoints:
        checkpoints.resume(states(-1))
        with pytest.raises(sidestep.Error, match="ranks 0 and 1 have different files") as failed:
            checkpoints.save(1, states(1), files={"vocab": str(rank).encode()})
        assert failed.value.status.name == "EDISAGREE"


def test_small_files_of_two_nodes_must_agree(tmp_path: Path) -> None:
    run_ranks(2, disagree, str(tmp_path), "ab")
    assert not list(tmp_path.glob("*/run/step-*"))


def test_a_part_is_no_checkpoint(tmp_path: Path) -> None:
    run_ranks(2, work, str(tmp_path), "ab", [1], True)
    part = tmp_path / "a" / "run" / "step-1"
    with pytest.raises(sidestep.Error, match="one of 2 parts, of ranks 0 of 2"):
        sidestep.load({"w0": torch.zeros(300, 70)}, checkpoint_id=part)
    with pytest.raises(ValueError, match="near="):
        sidestep.Checkpointer(tmp_path / "x", near="node")  # type: ignore[arg-type]


def test_check_judges_the_part_of_a_node(tmp_path: Path) -> None:
    run_ranks(2, work, str(tmp_path), "ab", [1, 2], True)
    root = tmp_path / "b" / "run"

    def check(*words: str) -> tuple[int, str]:
        program = Path(os.environ["SIDESTEP_LIBRARY"]).parent / "sidestep"
        done = subprocess.run([program, "check", *words, root], capture_output=True, text=True)
        return done.returncode, done.stdout

    status, said = check("--min-kept", "2", "--max-age", "1d")
    assert status == 0 and "step 2 (the part of this node)" in said
    assert check("--min-kept", "3")[0] == 1
    (shard,) = (root / "step-2").glob("*.distcp")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    assert check()[0] == 0
    status, said = check("--verify", "newest")
    assert status == 1 and "does not verify" in said


def save_until_killed(rank: int, root: str, victim: int, after_s: float, has_said: bool) -> None:
    """Resume and save without an end.  The ``victim`` is killed, so long after its start, or after
    it ``has_said`` something, and the other rank ends when it notices.  What a rank knows to be
    durable on its node, it says by a file."""
    death = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGKILL))
    if rank == victim and not has_said:
        death.start()
    node = f"{root}/{'ab'[rank]}"
    try:
        checkpoints = sidestep.Checkpointer(f"{node}/run", near="per_node", keep_last_n=2)
        loaded = checkpoints.resume(states(-1))
        step = loaded.step if loaded is not None else 0
        while True:
            step += 1
            if checkpoints.save(step, states(step)).wait():
                Path(f"{node}/said-{step}").touch()
            if rank == victim and has_said and step == 2 + (loaded.step if loaded else 0):
                death.start()
    finally:
        os._exit(3)


def said(root: Path) -> int:
    """The newest step of which all nodes have said that it is there."""
    steps = [{int(path.name[5:]) for path in root.glob(f"{node}/said-*")} for node in "ab"]
    return max(steps[0] & steps[1], default=0)


def test_ranks_are_killed(tmp_path: Path) -> None:
    rounds = int(os.environ.get("SIDESTEP_KILLS", "4"))
    chance = random.Random(3)
    for number in range(rounds):
        victim = number % 2
        after_s = chance.uniform(0.3, 1.5)
        is_last = number == rounds - 1
        run_ranks(2, save_until_killed, str(tmp_path), victim, after_s, is_last, may_die={0, 1})
        resumed = run_ranks(2, work, str(tmp_path), "ab", [], True)
        assert resumed[0] == resumed[1]
        assert (resumed[0] or 0) >= said(tmp_path)
        for node in "ab":
            names = os.listdir(tmp_path / node / "run")
            assert not [name for name in names if name.startswith(".sidestep.")], names
            assert len([name for name in names if name.startswith("step-")]) <= 5, names
    assert said(tmp_path) > 0
