# SPDX-License-Identifier: BSD-3-Clause
"""Ray Train: the example, with a worker that is killed."""

from environments import TOP

PROGRAM = "ray_killed.py"


def losses(runs, rank):
    return [line.split() for line in (runs / f"losses_{rank}").read_text().splitlines()]


def test_a_killed_worker_and_a_run_that_goes_on(ray, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    ray.run(PROGRAM, whole, 14).ok()
    ended = ray.run(PROGRAM, killed, 14, 8)
    saved = killed / "example" / "checkpoints"
    assert ended.ok() and ended.values("checkpoint") == [str(saved / "step-14")]
    assert (killed / "killed").exists()
    for rank in range(2):
        expected, found = losses(whole, rank), losses(killed, rank)
        assert [step for step, _ in expected] == [str(step) for step in range(1, 15)]
        assert len(found) > len(expected)  # steps were done again
        assert dict(found) == dict(expected) and found[-1] == expected[-1]
        assert all(line in expected for line in found)
    ended = ray.run(TOP / "examples" / "train_ray.py", killed, 17)
    assert ended.ok() and ended.values("checkpoint") == [str(saved / "step-17")]
    assert {path.name for path in saved.iterdir() if path.name[:5] == "step-"} == {
        "step-14",
        "step-15",
        "step-17",
    }
