# SPDX-License-Identifier: BSD-3-Clause
"""`Writer` and `Reader` under torch's own save, async_save and load."""

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks import run_ranks
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.planner import LoadPlan
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

import sidestep
import sidestep._torch.plugins

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def a_state(value: float = 1.0) -> dict[str, Any]:
    return {
        "model": {"weight": torch.full((4, 6), float(value)), "scale": torch.tensor(value)},
        "list": [torch.arange(3) + int(value), {"deep": int(value)}],
        "step": int(value),
        "none": None,
    }


def zeroed() -> dict[str, Any]:
    return {
        "model": {"weight": torch.zeros(4, 6), "scale": torch.tensor(0.0)},
        "list": [torch.zeros(3, dtype=torch.int64), {"deep": 0}],
        "step": 0,
        "none": 1,
    }


def check(state: dict[str, Any], value: float) -> None:
    want = a_state(value)
    assert torch.equal(state["model"]["weight"], want["model"]["weight"])
    assert torch.equal(state["model"]["scale"], want["model"]["scale"])
    assert torch.equal(state["list"][0], want["list"][0])
    assert state["list"][1] == want["list"][1]
    assert state["step"] == want["step"] and state["none"] is None


def check_path(path: Any, value: float = 1.0) -> None:
    """Read by stock, by stock with our reader, and by us."""
    for arguments in ({"checkpoint_id": str(path)}, {"storage_reader": sidestep.Reader(path)}):
        state = zeroed()
        dcp.load(state, **arguments)
        check(state, value)
    state = zeroed()
    sidestep.load(state, checkpoint_id=path)
    check(state, value)
    assert sidestep.load_metadata(path).format == "sidestep"


# ---------------------------------------------------------------- one process


def test_writer(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "missing" / "parents" / "a"
    metadata = dcp.save(a_state(), storage_writer=sidestep.Writer(path, step=12))
    read = dcp.FileSystemReader(path).read_metadata()
    assert metadata.storage_data == read.storage_data and len(read.storage_data) == 6
    for entry in metadata.state_dict_metadata.values():
        if hasattr(getattr(entry, "properties", None), "strides"):
            entry.properties.strides = None  # torch 2.15 has it; older ones cannot read it
    assert metadata.state_dict_metadata == read.state_dict_metadata
    assert metadata.planner_data == read.planner_data
    assert sidestep.load_metadata(path).step == 12
    check_path(path)
    dcp.save(a_state(2), storage_writer=sidestep.Writer(path))  # replaces it
    check_path(path, 2)


def test_stock_takes_what_nested_paths_say(tmp_path: pathlib.Path) -> None:
    """The nesting is recorded as torch's planner knows it: a whole state is rebuilt from it."""
    dcp.save(a_state(5), storage_writer=sidestep.Writer(tmp_path / "a"))
    made: dict[str, Any] = {}
    for reader in (dcp.FileSystemReader(tmp_path / "a"), sidestep.Reader(tmp_path / "a")):
        made = {}
        dcp.state_dict_loader._load_state_dict(
            made,
            storage_reader=reader,
            planner=dcp.default_planner._EmptyStateDictLoadPlanner(),
            no_dist=True,
        )
        check(made, 5)
    check(sidestep.read(tmp_path / "a"), 5)


def test_they_pickle(tmp_path: pathlib.Path) -> None:
    writer = sidestep.Writer(tmp_path / "a", overwrite=False, step=3, timeout=5.0)
    dcp.save(a_state(), storage_writer=writer)
    again = pickle.loads(pickle.dumps(writer))
    assert (again.path, again.overwrite, again.step, again.timeout) == (
        str(tmp_path / "a"),
        False,
        3,
        5.0,
    )
    reader = sidestep.Reader(tmp_path / "a", allow_pickle=True)
    dcp.load(zeroed(), storage_reader=reader)
    copy = pickle.loads(pickle.dumps(reader))
    assert (copy.path, copy.allow_pickle) == (str(tmp_path / "a"), True)
    state = zeroed()
    dcp.load(state, storage_reader=copy)
    check(state, 1)


def test_validate_checkpoint_id(tmp_path: pathlib.Path) -> None:
    for kind in (sidestep.Writer, sidestep.Reader):
        assert kind.validate_checkpoint_id(tmp_path)
        assert kind.validate_checkpoint_id("some/path")
        assert kind.validate_checkpoint_id("s3://bucket/path")
        assert not kind.validate_checkpoint_id("gs://bucket/path")


def test_reset(tmp_path: pathlib.Path) -> None:
    writer = sidestep.Writer(tmp_path / "a")
    before = writer.storage_meta()
    dcp.save(a_state(2), checkpoint_id=tmp_path / "b", storage_writer=writer)
    after = writer.storage_meta()
    assert writer.checkpoint_id == str(tmp_path / "b") and not (tmp_path / "a").exists()
    assert before is not None and after is not None and before.save_id != after.save_id
    reader = sidestep.Reader(tmp_path / "a")
    state = zeroed()
    dcp.load(state, checkpoint_id=str(tmp_path / "b"), storage_reader=reader)
    check(state, 2)


def test_overwrite_false(tmp_path: pathlib.Path) -> None:
    dcp.save(a_state(), storage_writer=sidestep.Writer(tmp_path / "a"))
    with pytest.raises(CheckpointException) as caught:
        dcp.save(a_state(2), storage_writer=sidestep.Writer(tmp_path / "a", overwrite=False))
    (failure, _) = caught.value.failures[0]
    assert isinstance(failure, sidestep.Error) and failure.status == sidestep.Status.EEXISTS
    check_path(tmp_path / "a")


def test_without_collectives_it_refuses(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sidestep.Error, match="use_collectives=False") as caught:
        dcp.save(a_state(), storage_writer=sidestep.Writer(tmp_path / "a"), use_collectives=False)
    assert caught.value.status == sidestep.Status.EUNSUPPORTED
    assert not (tmp_path / "a").exists()


class MegatronLike(DefaultSavePlanner):
    """Attaches something of its own to the Metadata."""

    def create_global_plan(self, all_plans: Any) -> Any:
        plans, metadata = super().create_global_plan(all_plans)
        metadata.mcore_data = {"weight": {"shape": [1]}}
        return plans, metadata


def test_what_a_planner_attaches_is_told_of(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    dcp.save(a_state(), storage_writer=sidestep.Writer(tmp_path / "a"), planner=MegatronLike())
    said = [r.getMessage() for r in caplog.records if r.name == "sidestep"]
    assert len(said) == 1 and "the planner's own mcore_data is not stored" in said[0]
    check_path(tmp_path / "a")
    caplog.clear()
    dcp.save(a_state(), storage_writer=sidestep.Writer(tmp_path / "a"))
    assert not [r for r in caplog.records if r.name == "sidestep" and r.levelno > logging.INFO]


class Reshaping(DefaultSavePlanner):
    def resolve_data(self, write_item: Any) -> Any:
        data = super().resolve_data(write_item)
        return data.flatten() if isinstance(data, torch.Tensor) and data.ndim == 2 else data


def test_data_that_is_not_as_planned(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CheckpointException, match=r"'model.weight': the planner's data has shape"):
        dcp.save(a_state(), storage_writer=sidestep.Writer(tmp_path / "a"), planner=Reshaping())
    assert not (tmp_path / "a").exists()


class Halving(DefaultSavePlanner):
    """Makes what it gives anew: its tensors live only as long as somebody keeps them."""

    def resolve_data(self, write_item: Any) -> Any:
        data = super().resolve_data(write_item)
        return data.to(torch.bfloat16) / 2 if isinstance(data, torch.Tensor) else data


def test_a_planner_that_converts(tmp_path: pathlib.Path) -> None:
    state = {f"w{i}": torch.full((1000,), float(i)) for i in range(50)}
    dcp.save(state, storage_writer=sidestep.Writer(tmp_path / "a"), planner=Halving())
    entries = sidestep.load_metadata(tmp_path / "a").tensors
    assert {entry.dtype for entry in entries.values()} == {"bfloat16"}
    target = {name: torch.zeros(1000) for name in state}
    dcp.load(target, storage_reader=sidestep.Reader(tmp_path / "a"))
    for i in range(50):
        assert torch.equal(target[f"w{i}"], torch.full((1000,), i / 2)), i


def test_a_state_larger_than_the_staging_memory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidestep._torch.plugins, "POOL_BYTES", 16 << 20)
    state = {f"w{i}": torch.arange(1 << 18) * (i + 1) for i in range(24)}  # 2 MiB each
    dcp.save(state, storage_writer=sidestep.Writer(tmp_path / "a"))
    target = {name: torch.zeros_like(value) for name, value in state.items()}
    dcp.load(target, storage_reader=sidestep.Reader(tmp_path / "a"))
    assert sum(torch.equal(target[name], state[name]) for name in state) == 24


# ---------------------------------------------------------------- reader


def test_targets_of_all_kinds(tmp_path: pathlib.Path) -> None:
    saved = torch.arange(24.0).reshape(4, 6)
    dcp.save({"w": saved, "other": torch.ones(2)}, checkpoint_id=str(tmp_path / "a"))
    targets = {
        "same": torch.zeros(4, 6),
        "float64": torch.zeros(4, 6, dtype=torch.float64),
        "bfloat16": torch.zeros(4, 6, dtype=torch.bfloat16),
        "transposed": torch.zeros(6, 4).t(),
        "view": torch.zeros(8, 12)[::2, ::2],
        "parameter": torch.nn.Parameter(torch.zeros(4, 6)),
        "negated": torch.zeros(4, 6, dtype=torch.complex64).conj().imag,
    }
    assert targets["negated"].is_neg()
    for name, target in targets.items():
        dcp.load({"w": target}, storage_reader=sidestep.Reader(tmp_path / "a"))
        assert torch.equal(target.detach().double(), saved.double()), name


def test_the_same_box_for_two_targets(tmp_path: pathlib.Path) -> None:
    class Twice(DefaultLoadPlanner):
        """Reads each tensor a second time."""

        def create_local_plan(self) -> Any:
            self.second = torch.zeros(4)
            plan = super().create_local_plan()
            plan.items = plan.items * 2
            return plan

        def lookup_tensor(self, index: Any) -> torch.Tensor:
            self.asked = getattr(self, "asked", 0) + 1
            return super().lookup_tensor(index) if self.asked == 1 else self.second

    dcp.save({"w": torch.arange(4.0)}, checkpoint_id=str(tmp_path / "a"))
    state, planner = {"w": torch.zeros(4)}, Twice()
    dcp.load(state, storage_reader=sidestep.Reader(tmp_path / "a"), planner=planner)
    assert state["w"].tolist() == planner.second.tolist() == [0, 1, 2, 3]


class Custom:
    def __init__(self) -> None:
        self.value = 5


def test_objects_that_are_more_than_data(tmp_path: pathlib.Path) -> None:
    dcp.save({"a": Custom(), "b": {1, 2}}, checkpoint_id=str(tmp_path / "a"))
    state: dict[str, Any] = {"a": None, "b": None}
    with pytest.raises(CheckpointException) as caught:
        dcp.load(state, storage_reader=sidestep.Reader(tmp_path / "a"))
    (failure, _) = caught.value.failures[0]
    assert isinstance(failure, sidestep.Error) and failure.status == sidestep.Status.EUNSAFE
    assert failure.tensor == "a" and "test_plugins.Custom" in str(failure)
    assert state["a"] is None
    dcp.load(state, storage_reader=sidestep.Reader(tmp_path / "a", allow_pickle=True))
    assert state["a"].value == 5 and state["b"] == {1, 2}
    only_b: dict[str, Any] = {"b": None}
    dcp.load(only_b, storage_reader=sidestep.Reader(tmp_path / "a"))
    assert only_b["b"] == {1, 2}


def test_damage_is_found(tmp_path: pathlib.Path) -> None:
    dcp.save({"w": torch.arange(1000.0)}, storage_writer=sidestep.Writer(tmp_path / "a"))
    (file,) = (tmp_path / "a").glob("*.distcp")
    data = bytearray(file.read_bytes())
    at = data.find(torch.arange(500.0, 510.0).numpy().tobytes())
    assert at > 0
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.raises(CheckpointException) as caught:
        dcp.load({"w": torch.zeros(1000)}, storage_reader=sidestep.Reader(tmp_path / "a"))
    (failure, _) = caught.value.failures[0]
    assert isinstance(failure, sidestep.Error) and failure.status == sidestep.Status.ECORRUPT


class Meanwhile(DefaultLoadPlanner):
    """Somebody saves to the path again, between the objects and the tensors."""

    path: Any

    def load_bytes(self, read_item: Any, value: Any) -> None:
        super().load_bytes(read_item, value)
        if self.path is not None:
            sidestep.save(a_state(2.0), checkpoint_id=self.path)
            self.path = None


def test_what_is_loaded_is_of_one_save(tmp_path: pathlib.Path) -> None:
    sidestep.save(a_state(), checkpoint_id=tmp_path / "a")
    planner, state = Meanwhile(), zeroed()
    planner.path = tmp_path / "a"
    with pytest.raises(CheckpointException) as caught:
        dcp.load(state, storage_reader=sidestep.Reader(tmp_path / "a"), planner=planner)
    (failure, _) = caught.value.failures[0]
    assert isinstance(failure, sidestep.Error) and failure.status == sidestep.Status.EDISAGREE
    state = zeroed()
    dcp.load(state, storage_reader=sidestep.Reader(tmp_path / "a"), planner=planner)
    check(state, 2)


def test_ranks_load_the_same_save(tmp_path: pathlib.Path) -> None:
    plans = []
    reader = sidestep.Reader(tmp_path / "a")
    for value in (1.0, 2.0):
        sidestep.save(a_state(value), checkpoint_id=tmp_path / "a")
        reader.set_up_storage_reader(reader.read_metadata(), True)
        plans.append(reader.prepare_local_plan(LoadPlan([])))
    assert reader.prepare_global_plan(plans[1:] * 2) == plans[1:] * 2
    with pytest.raises(sidestep.Error, match="not the same checkpoint on all ranks"):
        reader.prepare_global_plan(plans)


def test_no_checkpoint(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CheckpointException, match=str(tmp_path / "a")):
        dcp.load(zeroed(), storage_reader=sidestep.Reader(tmp_path / "a"))


def test_format_utils(tmp_path: pathlib.Path) -> None:
    """torch's own converter, and its command line, on our directories."""
    from sidestep.format_utils import dcp_to_torch_save, torch_save_to_dcp

    sidestep.save(a_state(3), checkpoint_id=tmp_path / "ours")
    dcp_to_torch_save(tmp_path / "ours", tmp_path / "all.pt")
    check(torch.load(tmp_path / "all.pt", weights_only=False), 3)
    torch_save_to_dcp(tmp_path / "all.pt", tmp_path / "theirs")
    state = zeroed()
    sidestep.load(state, checkpoint_id=tmp_path / "theirs")
    check(state, 3)
    command = [sys.executable, "-m", "torch.distributed.checkpoint.format_utils", "dcp_to_torch"]
    subprocess.run(
        [*command, tmp_path / "ours", tmp_path / "again.pt"], check=True, capture_output=True
    )
    check(torch.load(tmp_path / "again.pt", weights_only=False), 3)


def test_thread_without_ranks(tmp_path: pathlib.Path) -> None:
    future = dcp.async_save(a_state(3), storage_writer=sidestep.Writer(tmp_path / "a"))
    assert isinstance(future, concurrent.futures.Future)
    future.result()
    check_path(tmp_path / "a", 3)


# ---------------------------------------------------------------- ranks


def sharded(rank: int, value: float) -> dict[str, Any]:
    """A DTensor cut in two, a replicated one, a plain tensor, what only one rank has, objects."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(35.0).reshape(7, 5) + value
    return {
        "shard": distribute_tensor(whole, mesh, [Shard(0)]),
        "replica": distribute_tensor(whole, mesh, [Replicate()]),
        "nested": {"plain": torch.full((3,), float(value)), f"of-{rank}": torch.full((2,), value)},
        "step": int(value),
    }


def check_sharded(rank: int, path: str, value: float) -> int:
    whole = torch.arange(35.0).reshape(7, 5) + value
    compared = 0
    for arguments in ({"checkpoint_id": path}, {"storage_reader": sidestep.Reader(path)}):
        state = sharded(rank, -9.0)
        dcp.load(state, **arguments)
        assert torch.equal(state["shard"].full_tensor(), whole)
        assert torch.equal(state["replica"].full_tensor(), whole)
        assert state["nested"]["plain"].tolist() == [value] * 3
        assert state["nested"][f"of-{rank}"].tolist() == [value] * 2
        assert state["step"] == value
        compared += 5
    return compared


def planned_ranks(rank: int, root: str) -> int:
    compared = 0
    path = f"{root}/a"
    writer = sidestep.Writer(path, timeout=20)
    # Plans in a cache of torch's: saves 2 and 3 are told "as before", save 4 is not.
    for step in range(1, 5):
        state = sharded(rank, float(step))
        if step == 4 and rank == 1:
            state["extra"] = torch.ones(3)
        planner = DefaultSavePlanner(enable_plan_caching=True)
        dcp.save(state, storage_writer=writer, planner=planner)
        compared += check_sharded(rank, path, float(step))
    extra = {"extra": torch.zeros(3)}
    dcp.load(extra, storage_reader=sidestep.Reader(path))
    assert extra["extra"].tolist() == [1, 1, 1]

    class Late(DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            if rank == 1:
                raise ValueError("cannot be resolved")
            return super().resolve_data(write_item)

    try:
        dcp.save(sharded(rank, 9.0), storage_writer=writer, planner=Late())
    except CheckpointException as error:
        assert isinstance(error.failures[1][0], ValueError)
        told = error.failures[0][0]
        assert isinstance(told, sidestep.Error) and told.rank == 1, told
        assert "cannot be resolved" in str(told)
    else:
        raise AssertionError("nothing was raised")
    compared += check_sharded(rank, path, 4.0)

    # Each rank alone, and a part of the ranks.
    dcp.save(
        {"mine": torch.full((2,), rank)},
        storage_writer=sidestep.Writer(f"{root}/alone-{rank}"),
        no_dist=True,
    )
    alone = {"mine": torch.zeros(2, dtype=torch.int64)}
    dcp.load(alone, storage_reader=sidestep.Reader(f"{root}/alone-{rank}"), no_dist=True)
    assert alone["mine"].tolist() == [rank, rank]
    groups = [dist.new_group([0, 1]), dist.new_group([2])]
    group = groups[rank // 2]
    dcp.save(
        {f"of-{rank}": torch.full((2,), rank)},
        storage_writer=sidestep.Writer(f"{root}/group-{rank // 2}"),
        process_group=group,
    )
    dist.barrier()
    parts: dict[str, Any] = {"of-0": torch.zeros(2, dtype=torch.int64), "of-1": torch.zeros(2)}
    dcp.load(parts, storage_reader=sidestep.Reader(f"{root}/group-0"))
    assert parts["of-0"].tolist() == [0, 0] and parts["of-1"].tolist() == [1, 1]
    return compared


def test_ranks(tmp_path: pathlib.Path) -> None:
    assert run_ranks(3, planned_ranks, str(tmp_path)) == [50] * 3


def background_ranks(rank: int, root: str) -> int:
    """torch's background thread, on a group of its own as torch wants it, and its process."""
    compared = 0
    group = dist.new_group(backend="gloo")
    for step in (1, 2):
        future = dcp.async_save(
            sharded(rank, float(step)),
            storage_writer=sidestep.Writer(f"{root}/thread", timeout=20),
            process_group=group,
        )
        total = torch.ones(100)
        for _ in range(10):
            dist.all_reduce(total)
            total /= 2
        assert isinstance(future, concurrent.futures.Future)
        future.result()
        compared += check_sharded(rank, f"{root}/thread", float(step))
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    # Ranks of tests are daemons, which may have no children.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    for step in (3, 4):
        future = dcp.async_save(
            {"nested": {"plain": torch.full((3,), float(step)), f"of-{rank}": torch.ones(2)}},
            storage_writer=sidestep.Writer(f"{root}/process", timeout=20),
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        )
        assert isinstance(future, concurrent.futures.Future)
        metadata = future.result()
        assert len(metadata.storage_data) == 3
        state = {"nested": {"plain": torch.zeros(3), f"of-{rank}": torch.zeros(2)}}
        dcp.load(state, storage_reader=sidestep.Reader(f"{root}/process"))
        assert state["nested"]["plain"].tolist() == [step] * 3
        assert state["nested"][f"of-{rank}"].tolist() == [1, 1]
        compared += 2
    return compared


def test_torchs_background_thread_and_process(tmp_path: pathlib.Path) -> None:
    assert run_ranks(2, background_ranks, str(tmp_path), timeout=120) == [24, 24]
