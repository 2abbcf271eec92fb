# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints in other formats, read by those whose formats they are."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks
from states import DTYPES, filled, raw

import sidestep
from sidestep import Checkpointer, Error, Final, Status

_SAFE_NAMES = {"float32": "F32", "bfloat16": "BF16", "int64": "I64"}


def model() -> dict[str, torch.Tensor]:
    state = {f"m.{i}": filled(torch.float32, 10, 20 + i, seed=i) for i in range(6)}
    state["half"] = torch.linspace(-3, 3, 64).to(torch.bfloat16)
    state["count"] = torch.tensor(7)
    state["nothing"] = torch.empty(0, 3)
    return state


def saved(root: Path) -> str:
    state = {"model": model(), "optimizer": {"x": torch.ones(5)}, "step": 3}
    sidestep.save(state, checkpoint_id=root / "step-3", no_dist=True)
    return str(root / "step-3")


def read_safetensors(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """By the format's own description: dtype, shape and bytes of each tensor."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    found, end = {}, 0
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        assert begin == end  # no holes
        end = stop
        body = data[8 + length + begin : 8 + length + stop]
        found[name] = (entry["dtype"], entry["shape"], body)
    assert 8 + length + end == len(data)
    return found


def test_safetensors(tmp_path: Path) -> None:
    source = saved(tmp_path)
    sidestep.export(source, tmp_path / "one", Final())
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["model.safetensors"]
    found = read_safetensors(tmp_path / "one" / "model.safetensors")
    assert found.keys() == model().keys()
    for name, tensor in model().items():
        kind = _SAFE_NAMES[str(tensor.dtype)[6:]]
        assert found[name] == (kind, list(tensor.shape), raw(tensor))


def test_dcp_of_another_dtype(tmp_path: Path) -> None:
    """The last save of a run, read by stock torch; twice, since a run may end twice."""
    import torch.distributed.checkpoint as stock

    final = Final("dcp", dtype=torch.bfloat16)
    with Checkpointer(tmp_path, no_dist=True, signals=(), final=final) as checkpoints:
        for step in (3, 4):
            state = {"model": model(), "optimizer": {"x": torch.ones(5)}, "step": step}
            checkpoints.save(step, state, final=True)
        assert checkpoints.latest() == str(tmp_path / "step-4")
    reader = stock.FileSystemReader(tmp_path / "final")
    assert reader.read_metadata().state_dict_metadata.keys() == model().keys()
    wanted = {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        for name, tensor in model().items()
    }
    found = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
    stock.load(found, storage_reader=reader, no_dist=True)
    for name, tensor in wanted.items():
        saved_as = reader.read_metadata().state_dict_metadata[name].properties.dtype
        assert saved_as == tensor.dtype, name
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, equal_nan=True)
    with pytest.raises(ValueError, match="format='onnx' is none of"):
        Final("onnx")  # type: ignore[arg-type]


def test_shards_and_an_index(tmp_path: Path) -> None:
    source = saved(tmp_path)
    sidestep.export(source, tmp_path / "many", Final(max_shard_size="2KB"))
    sidestep.export(source, tmp_path / "many", Final(max_shard_size="2KB"))  # replaced
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == model().keys()
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 2 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    total = 0
    for name, tensor in model().items():
        found = read_safetensors(tmp_path / "many" / index["weight_map"][name])
        assert found[name][2] == raw(tensor)
        total += len(raw(tensor))
    assert index["metadata"]["total_size"] == total
    assert {path.name for path in tmp_path.iterdir()} == {"step-3", "many"}


def test_safetensors_library(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    sidestep.export(saved(tmp_path), tmp_path / "one", Final())
    found = safetensors.load_file(tmp_path / "one" / "model.safetensors")
    assert all(raw(found[name]) == raw(tensor) for name, tensor in model().items())


def test_torch_save(tmp_path: Path) -> None:
    source = saved(tmp_path)
    path = tmp_path / "weights.pt"
    sidestep.export(source, path, Final("torch"))
    for mapped in (False, True):
        found = torch.load(path, mmap=mapped, weights_only=True)
        assert sorted(found) == sorted(model())
        for name, tensor in model().items():
            assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
            assert raw(found[name]) == raw(tensor)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None  # sums are right too


def test_every_dtype_that_torch_has(tmp_path: Path) -> None:
    state = {str(dtype)[6:]: filled(dtype, 3, 4) for dtype in DTYPES}
    sidestep.save(state, checkpoint_id=tmp_path / "all", no_dist=True)
    sidestep.export(tmp_path / "all", tmp_path / "all.pt", Final("torch", only=None))
    found = torch.load(tmp_path / "all.pt")
    assert len(found) == len(state)
    for name, tensor in state.items():
        assert raw(found[name]) == raw(tensor), name


def test_dtypes_are_converted(tmp_path: Path) -> None:
    final = Final(dtype=torch.bfloat16)
    sidestep.export(saved(tmp_path), tmp_path / "half", final)
    found = read_safetensors(tmp_path / "half" / "model.safetensors")
    for name, tensor in model().items():
        wanted = tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        assert found[name][0] == ("BF16" if tensor.is_floating_point() else "I64")
        body = torch.frombuffer(bytearray(found[name][2] or b"\0\0"), dtype=wanted.dtype)
        body = body[: wanted.numel()].reshape(wanted.shape)
        # torch has several NaN, one for each way to convert
        assert torch.equal(body.nan_to_num(7), wanted.nan_to_num(7)), name


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    source = saved(tmp_path)
    with pytest.raises(Error) as told:
        sidestep.export(source, tmp_path / "out", Final(only="nobody"))
    assert told.value.status == Status.EMISMATCH
    strange = {"bits": filled(torch.bits8, 3)}
    sidestep.save(strange, checkpoint_id=tmp_path / "strange", no_dist=True)
    with pytest.raises(Error, match="bits8"):
        sidestep.export(tmp_path / "strange", tmp_path / "out")
    data = bytearray((tmp_path / "step-3" / "__0_0.distcp").read_bytes())
    data[data.index(raw(model()["m.3"])) + 100] ^= 1
    (tmp_path / "step-3" / "__0_0.distcp").write_bytes(data)
    with pytest.raises(Error):
        sidestep.export(source, tmp_path / "out")
    with pytest.raises(ValueError):
        sidestep.export(source, tmp_path / "out", Final(max_shard_size="many"))
    assert {path.name for path in tmp_path.iterdir()} == {"step-3", "strange"}


def final_of_ranks(rank: int, root: str) -> Any:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(40.0).reshape(8, 5)
    state = {"model": {"w": distribute_tensor(whole, mesh, [Shard(0)])}}
    with Checkpointer(root, final=Final("torch", dtype=torch.float16)) as checkpoints:
        checkpoints.save(5, state, final=True)
        found = torch.load(Path(root) / "final.pt")  # committed and there, on every rank
        assert bool((found["w"] == whole.half()).all())
        return sorted(path.name for path in Path(root).iterdir())


def test_the_last_save_of_ranks(tmp_path: Path) -> None:
    for names in run_ranks(2, final_of_ranks, str(tmp_path)):
        assert names == [".sidestep", "final.pt", "step-5"]


def failing_of_ranks(rank: int, root: str) -> list[str]:
    """What each of two ranks is told: rank 0 cannot export, then rank 1 cannot wait."""
    from sidestep._handle import SaveHandle

    def refuse(*_: Any) -> Any:
        raise sidestep.Error("no more of this", status=Status.EIO, rank=rank)

    told, state = [], {"model": {"w": torch.ones(3)}}
    with Checkpointer(root, signals=(), final=Final("torch")) as checkpoints:
        (Path(root) / "final.pt").mkdir(exist_ok=True)
        with pytest.raises(Error) as caught:
            checkpoints.save(5, state, final=True)
        told.append(str(caught.value))
        if rank == 0:
            (Path(root) / "final.pt").rmdir()
        with pytest.MonkeyPatch.context() as patch:
            if rank == 1:
                patch.setattr(SaveHandle, "_wait_until", refuse)
            with pytest.raises(Error) as caught:
                checkpoints.save(6, state, final=True)
            told.append(str(caught.value))
    return told


def test_a_last_save_that_fails_on_one_rank_is_told_to_all(tmp_path: Path) -> None:
    first, second = run_ranks(2, failing_of_ranks, str(tmp_path))
    assert "final.pt" in first[0] and "rank 0" in second[0], (first, second)
    assert "rank 1" in first[1] and "no more of this" in second[1], (first, second)


def test_the_last_step_was_saved_already(tmp_path: Path) -> None:
    """As any other one, because it was due: a final save exports it.  Not after going back."""
    state = {"model": {"w": torch.ones(3)}}
    with Checkpointer(tmp_path, no_dist=True, signals=(), final=Final("torch")) as checkpoints:
        checkpoints.save(4, state).wait()
        first = checkpoints.save(5, state)
        (tmp_path / "final.pt").mkdir()
        with pytest.raises(Error):
            checkpoints.save(5, state, final=True)
        (tmp_path / "final.pt").rmdir()
        assert checkpoints.save(5, state, metrics={"loss": 0.5}, final=True) is first
        assert torch.equal(torch.load(tmp_path / "final.pt")["w"], torch.ones(3))
        assert (tmp_path / ".sidestep" / "metrics.step-5").exists()
        with pytest.raises(Error) as caught:
            checkpoints.save(5, state)
        assert caught.value.status == Status.EEXISTS
        checkpoints.resume(state, step=4)
        state["model"]["w"] += 1
        assert checkpoints.save(5, state, final=True) is not first
        assert torch.equal(torch.load(tmp_path / "final.pt")["w"], torch.full((3,), 2.0))
