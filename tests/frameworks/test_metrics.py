# SPDX-License-Identifier: BSD-3-Clause
"""What saves cost, in TensorBoard, Weights & Biases and MLflow, through each framework's logger."""

import environments
import pytest

NAMES = ("stall_ms", "background_s", "bytes")
ALL = "report=tensorboard,wandb,mlflow"


def variables(place):
    """Where Transformers lets its loggers write, and where MLflow does."""
    return {
        "TENSORBOARD_LOGGING_DIR": str(place / "tensorboard"),
        "WANDB_DIR": str(place),
        "MLFLOW_TRACKING_URI": f"file://{place}/mlflow",
    }


@pytest.mark.parametrize(
    ("name", "program", "words", "ranks", "steps"),
    [
        ("lightning", "lightning_run.py", ("--report", "--steps", 6), 0, {3, 6}),
        ("transformers", "hf_train.py", (6, ALL), 0, {2, 4, 6}),
        ("transformers", "accelerate_train.py", (6, ALL, "wait=true"), 0, {3, 5, 6}),
        ("torchtitan", "titan_train.py", (5, "report=true", "wait=true"), 2, {3, 5}),
    ],
    ids=["lightning", "transformers", "accelerate", "torchtitan"],
)
def test_what_loggers_have(tmp_path, name, program, words, ranks, steps):
    environment = environments.find(name)
    wait = {"SIDESTEP_WAIT": "1"} if "wait=true" in words else {}
    how = {**variables(tmp_path), **wait}
    environment.run(program, tmp_path, *words, ranks=ranks, variables=how).ok()
    ended = environment.run("read_logs.py", tmp_path)
    ended.ok()
    for kind in ("tensorboard", "wandb", *([] if name == "torchtitan" else ["mlflow"])):
        rows = [line.split() for line in ended.values(kind)]
        for metric in NAMES:
            mine = [row for row in rows if row[0].endswith(f"sidestep/{metric}")]
            assert {int(step) for _, step, _ in mine} == steps
            assert all(float(value) > 0 for _, _, value in mine)
