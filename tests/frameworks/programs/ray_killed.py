# SPDX-License-Identifier: BSD-3-Clause
"""The example of Ray Train, with losses written to files.

    ray_killed.py RUNS STEPS [KILL]

KILL: worker 1 ends itself by SIGKILL after this step, once.  Prints "checkpoint PATH".
"""

import importlib.util
import os
import signal
import sys
from pathlib import Path

import ray

example = Path(__file__).resolve().parents[3] / "examples" / "train_ray.py"
spec = importlib.util.spec_from_file_location("train_ray", example)
train_ray = importlib.util.module_from_spec(spec)
sys.modules["train_ray"] = train_ray
spec.loader.exec_module(train_ray)
runs = Path(sys.argv[1]).resolve()
kill = int(sys.argv[3]) if len(sys.argv) > 3 else 0


def log(rank, step, loss):
    with open(runs / f"losses_{rank}", "a") as file:
        file.write(f"{step} {loss}\n")
    mark = runs / "killed"
    if rank == 1 and step == kill and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


runs.mkdir(exist_ok=True)
path = f"{os.environ['PYTHONPATH']}:{example.parent}"
ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
result = train_ray.run(runs, int(sys.argv[2]), log=log)
print("checkpoint", result.checkpoint.path, flush=True)
