# SPDX-License-Identifier: BSD-3-Clause
"""Every state that people have, saved by stock torch and loaded by us, and the reverse, bit by bit.

Each test says how many values it compared.  The worlds are as few as can be: one of four ranks that
saves everything, one of three that loads it again.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as stock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import run_ranks
from states import blank, both_ways, filled, same
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import sidestep

pytestmark = pytest.mark.filterwarnings("ignore")

# ---------------------------------------------------------------- models on many ranks

WIDTH = 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        # Not fewer elements than ranks: where a rank has no part of a ShardedTensor, stock takes
        # the checkpoint for one of old torch, and cannot load what it has saved.
        self.scale = nn.Parameter(torch.full((WIDTH,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x * self.scale


def parallel(model: Model, mesh: DeviceMesh) -> None:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def sharded(model: Model, mesh: DeviceMesh) -> None:
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def grid(world: int) -> tuple[int, int]:
    return (2, world // 2) if world % 2 == 0 else (1, world)


def build(kind: str, world: int, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model of one of KINDS with its optimizer, after one step."""
    torch.manual_seed(seed)
    model: nn.Module = Model()
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp2":
        sharded(model, init_device_mesh("cpu", (world,)))
    elif kind == "hsdp":
        sharded(model, init_device_mesh("cpu", grid(world), mesh_dim_names=("dp", "fsdp")))
    elif kind == "tp":
        parallel(model, init_device_mesh("cpu", (world,)))
    elif kind == "tp x fsdp2":
        mesh = init_device_mesh("cpu", grid(world), mesh_dim_names=("dp", "tp"))
        parallel(model, mesh["tp"])
        sharded(model, mesh["dp"])
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        model = FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            sharding_strategy=ShardingStrategy.FULL_SHARD,
            use_orig_params=True,
            device_id=torch.device("cpu"),
        )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    model(torch.arange(7)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


KINDS = ["ddp", "fsdp1", "fsdp2", "hsdp", "tp", "tp x fsdp2"]


def state_of(model: nn.Module, optimizer: Any, options: Any = None) -> dict[str, Any]:
    parts = get_state_dict(model, optimizer, options=options)
    return {"model": parts[0], "optim": parts[1], "step": 5}


def whole(model: nn.Module, optimizer: Any) -> dict[str, Any]:
    """Everything unsharded.  (With cpu_offload=True, FSDP1 on the host crashes.)"""
    return state_of(model, optimizer, StateDictOptions(full_state_dict=True))


def kinds_of_tensors(state: Any) -> set[str]:
    if isinstance(state, dict):
        return set().union(*map(kinds_of_tensors, state.values()), set())
    if isinstance(state, DTensor):
        return {type(placement).__name__ for placement in state.placements}
    return {type(state).__name__}


def save_models(path: str) -> tuple[Counter[str], dict[str, set[str]]]:
    counts: Counter[str] = Counter()
    seen = {}
    for kind in KINDS:
        model, optimizer = build(kind, dist.get_world_size(), seed=1)
        state = state_of(model, optimizer)
        seen[kind] = kinds_of_tensors(state)
        counts[kind] = both_ways(state, f"{path}/{kind}")
        reference = whole(model, optimizer)
        if dist.get_rank() == 0:
            torch.save(reference, f"{path}/{kind}-whole")
    return counts, seen


def load_models(path: str) -> Counter[str]:
    """Into models of another number of ranks, of the same kind and of another."""
    counts: Counter[str] = Counter()
    for i, kind in enumerate(KINDS):
        other = KINDS[(i + 2) % len(KINDS)]
        loads = [
            (kind if i % 2 else other, sidestep.load, "stock"),
            (other if i % 2 else kind, stock.load if i % 3 else sidestep.load, "ours"),
        ]
        for into, load, writer in loads:
            model, optimizer = build(into, dist.get_world_size(), seed=2)
            state = state_of(model, optimizer)
            state = {**blank(state), "optim": {**blank(state["optim"])}}
            load(state, checkpoint_id=f"{path}/{kind}-{writer}")
            assert state["step"] == 5
            set_state_dict(
                model,
                optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optim"],
            )
            got = whole(model, optimizer)
            if dist.get_rank() == 0:
                want = torch.load(f"{path}/{kind}-whole", weights_only=False)
                counts[kind] += same(by_name(got["model"]), by_name(want["model"]))
                counts[kind] += same(by_name(got["optim"]), by_name(want["optim"]))
    return counts


def by_name(value: Any) -> Any:
    """In one order of keys: that of flattened parameters differs between kinds of models."""
    if isinstance(value, dict):
        return {key: by_name(value[key]) for key in sorted(value)}
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return sorted(value)
    return [by_name(item) for item in value] if isinstance(value, list) else value


# ---------------------------------------------------------------- tensors on many ranks


def odd_tensors(world: int) -> dict[str, Any]:
    """DTensors as no model has them, and ShardedTensors."""
    mesh = init_device_mesh("cpu", (world,))
    square = init_device_mesh("cpu", grid(world))
    first_two = DeviceMesh("cpu", [0, 1])
    x = torch.arange(77.0).reshape(7, 11)

    def spread(tensor: torch.Tensor, where: DeviceMesh, *placements: Any) -> DTensor:
        return distribute_tensor(tensor, where, placements)

    return {
        "uneven rows": spread(x, mesh, Shard(0)),
        "uneven columns": spread(x.clone(), mesh, Shard(1)),
        "fewer rows than ranks": spread(x[:2].clone(), mesh, Shard(0)),
        "replicated": spread(x + 1, mesh, Replicate()),
        "both dimensions": spread(x + 2, square, Shard(0), Shard(1)),
        "one dimension twice": spread(x + 3, square, Shard(0), Shard(0)),
        "mixed": spread(x + 4, square, Replicate(), Shard(1)),
        "mixed the other way": spread(x + 5, square, Shard(1), Replicate()),
        "two ranks only": spread(x + 6, first_two, Shard(0)),
        "none": spread(torch.empty(0, 4), mesh, Shard(0)),
        "scalar": spread(torch.tensor(4.5), mesh, Replicate()),
        "half": spread(x.bfloat16(), mesh, Shard(1)),
        "plain": x - 1,
        "sharded": sharded_tensor(x + 7),
        "rows": {i: {"t": spread(x + 8 + i, mesh, Shard(i)), "n": i} for i in range(2)},
    }


def sharded_tensor(full: torch.Tensor) -> Any:
    from torch.distributed._shard import sharded_tensor as st_module
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    world = dist.get_world_size()
    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{r}/cpu" for r in range(world)])
    made = st_module.empty(spec, *full.shape, dtype=full.dtype)
    for shard in made.local_shards():
        start, rows = shard.metadata.shard_offsets[0], shard.metadata.shard_sizes[0]
        shard.tensor.copy_(full[start : start + rows])
    return made


def strings_for_keys(state: dict[str, Any]) -> dict[str, Any]:
    """What stock makes of it: it puts objects under the strings of integer keys."""
    return {**state, "rows": {str(key): value for key, value in state["rows"].items()}}


def odd_both_ways(path: str) -> int:
    return both_ways(strings_for_keys(odd_tensors(dist.get_world_size())), f"{path}/odd")


def load_odd(path: str) -> int:
    """By three ranks what four have saved: each rank's part is cut another way."""
    want = odd_tensors(dist.get_world_size())
    compared = 0
    for writer in ("stock", "ours"):
        target = blank(want)
        sidestep.load(target, checkpoint_id=f"{path}/odd-{writer}")
        compared += same(target, want)
    target = blank(strings_for_keys(want))
    stock.load(target, checkpoint_id=f"{path}/odd-ours")
    return compared + same(target, strings_for_keys(want))


# ---------------------------------------------------------------- any placement into any other

MESHES = [(4,), (2, 2), (4, 1), (1, 4)]
Case = dict[str, Any]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Tensors, and for save and for load a mesh and placements."""
    shape = draw(st.lists(st.integers(0, 7), min_size=0, max_size=3))

    def spread() -> tuple[int, list[Any]]:
        mesh = draw(st.integers(0, len(MESHES) - 1))
        dims = st.none() if not shape else st.one_of(st.none(), st.integers(0, len(shape) - 1))
        return mesh, [draw(dims) for _ in MESHES[mesh]]

    return {
        "shape": shape,
        "dtype": draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool])),
        "save": spread(),
        "load": spread(),
        "key": draw(st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), max_size=5)),
        "value": draw(st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=4))),
        "depth": draw(st.integers(0, 3)),
        "ours first": draw(st.booleans()),
    }


def drawn(count: int) -> list[Case]:
    """The same cases in every run: ranks must agree on them."""
    found: list[Case] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found


def nested(case: Case, value: Any, number: int) -> dict[str, Any]:
    state: Any = {"t": value, "v": case["value"]}
    for level in range(case["depth"]):
        state = {case["key"]: state} if level % 2 else [state, torch.tensor(number)]
    return {"state": state, f"n{number}": number}


def run_cases(path: str, found: list[Case]) -> int:
    meshes = [init_device_mesh("cpu", shape) for shape in MESHES]
    compared = 0
    for number, case in enumerate(found):
        full = filled(case["dtype"], *case["shape"], seed=number)

        def spread(which: str, case: Case = case, full: torch.Tensor = full) -> DTensor:
            mesh, dims = case[which]
            placements = [Replicate() if dim is None else Shard(dim) for dim in dims]
            return distribute_tensor(full, meshes[mesh], placements)

        save, load = stock.save, sidestep.load
        if case["ours first"]:
            save, load = sidestep.save, stock.load
        save(nested(case, spread("save"), number), checkpoint_id=f"{path}/case-{number}")
        want = nested(case, spread("load"), number)
        target = blank(want)
        load(target, checkpoint_id=f"{path}/case-{number}")
        compared += same(target, want)
    return compared


# ---------------------------------------------------------------- the worlds


def four_ranks(rank: int, path: str, found: list[Case]) -> dict[str, Any]:
    torch.set_num_threads(1)
    counts, seen = save_models(path)
    return {
        "models": counts,
        "seen": seen,
        "odd": odd_both_ways(path),
        "cases": run_cases(path, found),
    }


def three_ranks(rank: int, path: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    return {"models": load_models(path), "odd": load_odd(path)}


CASES = 30


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    path = str(tmp_path_factory.mktemp("world"))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return path, run_ranks(4, four_ranks, path, drawn(CASES), timeout=150)


def test_four_ranks_both_ways(saved: tuple[str, list[dict[str, Any]]]) -> None:
    _, results = saved
    for found in results:
        assert set(found["models"]) == set(KINDS)
        # 12 parameters, with step and two moments each; and the groups.
        assert min(found["models"].values()) >= 3 * 12 * 4, found["models"]
        assert found["odd"] == 3 * 18
    seen = results[0]["seen"]
    assert "_StridedShard" in seen["tp x fsdp2"] and "Replicate" in seen["hsdp"]
    assert "Shard" in seen["fsdp2"] and "Shard" in seen["tp"]
    assert seen["fsdp1"] & {"ShardedTensor", "Shard"} and "Tensor" in seen["ddp"]


def test_any_placement_into_any_other(saved: tuple[str, list[dict[str, Any]]]) -> None:
    _, results = saved
    for found in results:
        assert found["cases"] >= 3 * CASES


def test_four_ranks_to_three(saved: tuple[str, list[dict[str, Any]]]) -> None:
    path, _ = saved
    results = run_ranks(3, three_ranks, path, timeout=150)
    assert min(results[0]["models"].values()) >= 2 * 12 * 4, results[0]["models"]
    assert [found["odd"] for found in results] == [3 * 18] * 3
