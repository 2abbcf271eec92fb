# SPDX-License-Identifier: BSD-3-Clause
"""What torch's recipes for DCP teach, as people copy it, with one import line changed.

Each recipe is a script that says ``import torch.distributed.checkpoint as dcp``.  It runs here with
that line replaced by ``import sidestep as dcp``, and where stock can, unchanged as well: what one
saves the other loads.
"""

from __future__ import annotations

import os
import pathlib
import socket
from typing import Any

from ranks import run_ranks

IMPORT = "import torch.distributed.checkpoint as dcp\n"

# "Getting Started with Distributed Checkpoint (DCP)", on the CPU.
COMMON = '''
import os
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class AppState(Stateful):
    """This is a useful wrapper for checkpointing the Application State."""

    def __init__(self, model, optimizer=None):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model_state_dict, optimizer_state_dict = get_state_dict(self.model, self.optimizer)
        return {"model": model_state_dict, "optim": optimizer_state_dict}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optim"],
        )


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(16, 16)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(16, 8)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = MASTER_PORT
    dist.init_process_group("cpu:gloo", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


def sharded_model():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return fully_shard(ToyModel(), mesh=mesh)
'''

SAVE = (
    COMMON
    + """
def run_fsdp_checkpoint_save_example(rank, world_size):
    setup(rank, world_size)
    model = sharded_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    optimizer.zero_grad()
    model(torch.rand(8, 16)).sum().backward()
    optimizer.step()

    state_dict = {"app": AppState(model, optimizer)}
    dcp.save(state_dict, checkpoint_id=CHECKPOINT_DIR)
    return model, optimizer
"""
)

LOAD = (
    COMMON
    + """
def run_fsdp_checkpoint_load_example(rank, world_size):
    setup(rank, world_size)
    model = sharded_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    state_dict = {"app": AppState(model, optimizer)}
    dcp.load(state_dict=state_dict, checkpoint_id=CHECKPOINT_DIR)
    return model, optimizer
"""
)

LOAD_WITHOUT_RANKS = (
    COMMON
    + """
def run_checkpoint_load_example():
    # create the non FSDP-wrapped toy model
    model = ToyModel()
    state_dict = {"app": {"model": model.state_dict()}}
    # since no progress group is initialized, DCP will disable any collectives.
    dcp.load(state_dict=state_dict, checkpoint_id=CHECKPOINT_DIR)
    model.load_state_dict(state_dict["app"]["model"])
    return model
"""
)

# "Formats" of the same recipe: torch.save files and back, and loading one into a sharded model.
FORMATS = (
    COMMON
    + """
from torch.distributed.checkpoint.format_utils import (
    BroadcastingTorchSaveReader,
    DynamicMetaLoadPlanner,
    dcp_to_torch_save,
    torch_save_to_dcp,
)

TORCH_SAVE_CHECKPOINT_DIR = CHECKPOINT_DIR + ".pth"


def convert():
    # convert dcp model to torch.save (assumes checkpoint was generated as above)
    dcp_to_torch_save(CHECKPOINT_DIR, TORCH_SAVE_CHECKPOINT_DIR)
    # converts the torch.save model back to DCP
    torch_save_to_dcp(TORCH_SAVE_CHECKPOINT_DIR, f"{CHECKPOINT_DIR}_new")


def load_torch_save(rank, world_size, path):
    setup(rank, world_size)
    model = ToyModel()  # torch's reader cannot broadcast into DTensors over gloo
    state_dict = {"app": {"model": model.state_dict()}}
    dcp.load(
        state_dict,
        storage_reader=BroadcastingTorchSaveReader(),
        planner=DynamicMetaLoadPlanner(),
        checkpoint_id=path,
    )
    model.load_state_dict(state_dict["app"]["model"])
    return model
"""
)

# "Asynchronous Saving with Distributed Checkpoint (DCP)", on the default group, beside training.
ASYNC = (
    COMMON
    + """
from torch.distributed.checkpoint import FileSystemWriter as StorageWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions


def run_fsdp_checkpoint_save_example(rank, world_size):
    setup(rank, world_size)
    model = sharded_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    checkpoint_future = None
    for step in range(10):
        optimizer.zero_grad()
        model(torch.rand(8, 16)).sum().backward()
        optimizer.step()

        # waits for checkpointing to finish if one exists, avoiding queuing more than one
        # checkpoint request at a time
        if checkpoint_future is not None:
            checkpoint_future.result()

        state_dict = {"app": AppState(model, optimizer)}
        checkpoint_future = dcp.async_save(
            state_dict, checkpoint_id=f"{CHECKPOINT_DIR}_step{step}"
        )
        yield step, model


def run_with_cached_staging(rank, world_size):
    setup(rank, world_size)
    model = sharded_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    # The storage writer defines our 'staging' strategy, where staging is considered the process of
    # copying checkpoints to in-memory buffers. By setting `cached_state_dict=True`, we enable
    # efficient memory copying into a persistent buffer with pinned memory enabled.
    writer = StorageWriter(cache_staged_state_dict=True, path=CHECKPOINT_DIR)
    checkpoint_future = None
    for step in range(10):
        optimizer.zero_grad()
        model(torch.rand(8, 16)).sum().backward()
        optimizer.step()

        state_dict = {"app": AppState(model, optimizer)}
        if checkpoint_future is not None:
            # waits for checkpointing to finish
            checkpoint_future.result()
        checkpoint_future = dcp.async_save(
            state_dict, storage_writer=writer, checkpoint_id=f"{CHECKPOINT_DIR}_step{step}"
        )
        yield step, model
    checkpoint_future.result()


def run_with_async_staging(rank, world_size):
    setup(rank, world_size)
    model = sharded_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    stager = DefaultStager(StagingOptions(False, False, True, False))
    response = None
    for step in range(10):
        optimizer.zero_grad()
        model(torch.rand(8, 16)).sum().backward()
        if response is not None:
            response.staging_completion.result()
        optimizer.step()
        if response is not None:
            response.upload_completion.result()

        state_dict = {"app": AppState(model, optimizer)}
        response = dcp.async_save(
            state_dict, async_stager=stager, checkpoint_id=f"{CHECKPOINT_DIR}_step{step}"
        )
        yield step, model
    response.upload_completion.result()
    stager.close()
"""
)


def script(recipe: str, ours: bool, directory: str, port: int = 0) -> dict[str, Any]:
    """The names that the recipe defines."""
    assert recipe.count(IMPORT) == 1
    if ours:
        recipe = recipe.replace(IMPORT, "import sidestep as dcp\n")
    names: dict[str, Any] = {"CHECKPOINT_DIR": directory, "MASTER_PORT": str(port)}
    exec(compile(recipe, "recipe", "exec"), names)
    return names


def free_ports(n: int) -> list[int]:
    probes = [socket.socket() for _ in range(n)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def whole(model: Any) -> dict[str, Any]:
    """Every parameter, unsharded."""
    return {
        name: value.full_tensor().clone() if hasattr(value, "full_tensor") else value.clone()
        for name, value in model.state_dict().items()
    }


def moments(optimizer: Any) -> dict[str, Any]:
    """Every tensor of an Adam's state, unsharded."""
    found = {}
    for key, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            full = value.full_tensor() if hasattr(value, "full_tensor") else value
            found[f"{key}.{name}"] = full.clone()
    return found


def same(a: dict[str, Any], b: dict[str, Any]) -> int:
    import torch

    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
    return len(a)


def save_and_load(rank: int, world: int, root: str, given: list[int]) -> int:
    """Saved by ours, loaded by both; saved by stock, loaded by ours."""
    import torch

    ports = list(given)
    compared = 0
    for i, (saver, loaders) in enumerate([(True, (True, False)), (False, (True,))]):
        directory = os.path.join(root, "ours" if saver else "stock")
        torch.manual_seed(i)
        names = script(SAVE, saver, directory, ports.pop())
        model, optimizer = names["run_fsdp_checkpoint_save_example"](rank, world)
        want, want_moments = whole(model), moments(optimizer)
        names["cleanup"]()
        for loader in loaders:
            torch.manual_seed(100)
            names = script(LOAD, loader, directory, ports.pop())
            model, optimizer = names["run_fsdp_checkpoint_load_example"](rank, world)
            compared += same(whole(model), want) + same(moments(optimizer), want_moments)
            names["cleanup"]()
    names = script(LOAD_WITHOUT_RANKS, True, os.path.join(root, "ours"))
    torch.manual_seed(100)
    model = names["run_checkpoint_load_example"]()
    if rank == 0:
        torch.save(model.state_dict(), os.path.join(root, "plain.pt"))
    return compared


def test_getting_started(tmp_path: pathlib.Path) -> None:
    """4 parameters and 4 x 3 moments, compared three times; then on one process, and converted."""
    import torch

    import sidestep

    compared = run_ranks(2, save_and_load, 2, str(tmp_path), free_ports(5), init=None)
    assert compared == [3 * (4 + 12)] * 2
    assert sidestep.load_metadata(tmp_path / "ours").format == "sidestep"
    plain = torch.load(tmp_path / "plain.pt")

    names = script(FORMATS, True, str(tmp_path / "ours"))
    names["convert"]()
    model = script(LOAD_WITHOUT_RANKS, True, str(tmp_path / "ours_new"))
    assert same(model["run_checkpoint_load_example"]().state_dict(), plain) == 4
    tensors = torch.load(tmp_path / "ours.pth", weights_only=False)["app"]["model"]
    assert same(tensors, plain) == 4
    torch.save({"app": {"model": tensors}}, tmp_path / "model.pth")
    path = str(tmp_path / "model.pth")
    for got in run_ranks(2, load_torch_save, 2, path, free_ports(1)[0], init=None):
        assert same(got, plain) == 4


def load_torch_save(rank: int, world: int, path: str, port: int) -> dict[str, Any]:
    names = script(FORMATS, True, os.path.dirname(path), port)
    result = whole(names["load_torch_save"](rank, world, path))
    names["cleanup"]()
    return result


ASYNC_RECIPES = [
    "run_fsdp_checkpoint_save_example",
    "run_with_cached_staging",
    "run_with_async_staging",
]


def asynchronous(rank: int, world: int, root: str, ports: list[int]) -> list[dict[str, Any]]:
    """The parameters of each recipe after each step."""
    import torch

    seen: list[dict[str, Any]] = []
    for recipe, port in zip(ASYNC_RECIPES, ports):
        torch.manual_seed(len(seen))
        names = script(ASYNC, True, os.path.join(root, recipe), port)
        for _, model in names[recipe](rank, world):
            seen.append(whole(model))
        names["cleanup"]()  # the last save of the first recipe may still be under way
    return seen


def test_asynchronous(tmp_path: pathlib.Path) -> None:
    """Three recipes of 10 steps: the checkpoint of each holds the parameters of just that step."""
    import sidestep

    seen, _ = run_ranks(2, asynchronous, 2, str(tmp_path), free_ports(3), init=None, timeout=120)
    assert len(seen) == 30
    compared = 0
    for i, want in enumerate(seen):
        path = tmp_path / f"{ASYNC_RECIPES[i // 10]}_step{i % 10}"
        assert sidestep.load_metadata(path).world_size == 2
        # get_state_dict() makes names with dots, and names are what they stay.
        compared += same(sidestep.read(path)["app"]["model"], want)
    assert compared == 30 * 4


BESIDE = (
    COMMON
    + '''
def train(rank, world_size, steps):
    """Saves to one path after the other without waiting, on the group that training uses."""
    setup(rank, world_size)
    model = sharded_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    futures = []
    for step in range(steps):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(8, 16)).sum().backward()
            optimizer.step()
            loss = torch.ones(100_000)
            dist.all_reduce(loss)
            dist.barrier()
        state_dict = {"app": AppState(model, optimizer), "step": step}
        futures.append(dcp.async_save(state_dict, checkpoint_id=f"{CHECKPOINT_DIR}/{step}"))
    return [future.result() is not None for future in futures]
'''
)


def beside(rank: int, world: int, root: str, port: int) -> list[bool]:
    names = script(BESIDE, True, root, port)
    done: list[bool] = names["train"](rank, world, 8)
    names["cleanup"]()
    return done


def test_beside_training_on_the_default_group(tmp_path: pathlib.Path) -> None:
    """With stock, gloo aborts or hangs here: two threads make collectives on one group."""
    import sidestep

    port = free_ports(1)[0]
    done = run_ranks(3, beside, 3, str(tmp_path), port, init=None, timeout=90)
    assert done == [[True] * 8] * 3
    steps = [sidestep.read(tmp_path / str(step), "step") for step in range(8)]
    assert steps == list(range(8))
