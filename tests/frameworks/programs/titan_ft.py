# SPDX-License-Identifier: BSD-3-Clause
"""Two replicas of torchft, of one rank each, with torchtitan's parts on processors.

    titan_ft.py DIRECTORY STEPS [NAME=VALUE ...]

by=stock   torchtitan's own TorchFTCheckpointManager; else what with_sidestep() makes of it
mode=WORD  async_mode
kill=STEP  SIGKILL to both replicas when the save of STEP has begun

It starts torchft's lighthouse and the replicas.  All is saved every second step, by the first
replica; the place in the data at each, by both.  A replica prints "place REPLICA N", where its data
begin, and "loss REPLICA STEP VALUE" for each step.
"""

import dataclasses
import os
import signal
import subprocess
import sys

import torch
from forks import free_port, of_rank
from titan_parts import Data, Progress
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchft.coordination import LighthouseServer
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.experiments.torchft.checkpoint import TorchFTCheckpointManager
from torchtitan.experiments.torchft.manager import TorchFTManager
from torchtitan.experiments.torchft.optimizer import TorchFTOptimizersContainer

from sidestep.torchtitan import with_sidestep

options = dict(word.split("=", 1) for word in sys.argv[3:])


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def optimizers_of(model, managed):
    config = default_adamw(lr=0.01)
    config.implementation = "for-loop"
    fields = {one.name: getattr(config, one.name) for one in dataclasses.fields(config)}
    return TorchFTOptimizersContainer.Config(**fields).build(
        model_parts=[model], ft_manager=managed
    )


def train(directory, steps, replica):
    torch.distributed.init_process_group("gloo")
    managed = TorchFTManager.Config(
        enable=True, replica_id=replica, group_size=2, min_replica_size=2
    ).build()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    managed.maybe_set_all_reduce_hook([model])
    optimizers = optimizers_of(model, managed)
    schedulers = LRSchedulersContainer.Config(warmup_steps=2, total_steps=20).build(
        optimizers=optimizers, training_steps=20
    )
    data, progress = Data(replica), Progress()
    kind = TorchFTCheckpointManager
    if options.get("by") != "stock":
        kind = with_sidestep(kind)
    checkpointer = kind.Config(
        enable=True,
        interval=2,
        async_mode=options.get("mode", "async"),
        initial_load_model_only=False,
        last_save_model_only=False,
    ).build(
        dataloader=data,
        model_parts=[model],
        optimizers=optimizers,
        lr_schedulers=schedulers,
        states={"train_state": progress},
        sd_adapter=None,
        base_folder=directory,
        ft_manager=managed,
    )
    checkpointer.load()
    say("place", replica, data.place)
    while progress.step < steps:
        optimizers.zero_grad()
        rows = next(data)
        loss = (model(rows) - rows.sin()).square().mean()
        loss.backward()
        checkpointer.maybe_wait_for_staging()
        optimizers.step()
        schedulers.step()
        progress.step += 1
        say("loss", replica, progress.step, loss.item().hex())
        checkpointer.save(progress.step, last_step=progress.step == steps)
        if options.get("kill") == str(progress.step):
            os.kill(os.getpid(), signal.SIGKILL)
    checkpointer.maybe_wait_for_saving()
    checkpointer.close()
    say("state", sorted(managed.manager.state_dict().items()))
    sys.stdout.flush()
    os._exit(0)  # torchft's threads hold up the end of the interpreter


def launch():
    """Both replicas, each as a job of its own.  The exit status."""
    house = LighthouseServer(bind="[::]:0", min_replicas=2, join_timeout_ms=60000)
    environment = {**os.environ, "TORCHFT_LIGHTHOUSE": house.address()}
    jobs = [
        subprocess.Popen(
            [sys.executable, *sys.argv, f"replica={replica}"],
            env={**environment, **of_rank(0, 1, free_port())},
        )
        for replica in (0, 1)
    ]
    status = max(abs(job.wait()) for job in jobs)
    house.shutdown()
    return status


if __name__ == "__main__":
    if "replica" in options:
        train(sys.argv[1], int(sys.argv[2]), int(options["replica"]))
    else:
        sys.exit(launch())
