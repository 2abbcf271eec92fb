# SPDX-License-Identifier: BSD-3-Clause
"""`load_metadata` and `read`: looking into a checkpoint without a template, and without torch."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock
from states import DTYPES, filled, ordered, same

import sidestep
from sidestep import Error, Status, load_metadata, read
from sidestep._torch.flatten import Index

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

STATE: dict[Any, Any] = {
    "model": {"w": filled(torch.float32, 6, 4).nan_to_num(), "b": filled(torch.bfloat16, 6)},
    "opt": {"state": {0: {"step": 3, "m": torch.ones(2)}, 10: {"m": torch.zeros(2)}}, "lr": 0.5},
    "list": [torch.tensor(7), {"x": "y"}, [torch.empty(0, 2), None]],
    "tuple": (1, 2),
    7: {"7": "text", 8: "number"},
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("read") / "ours")
    sidestep.save(STATE, checkpoint_id=path, storage_writer=sidestep.Writer(path, step=12))
    return path


@pytest.fixture(scope="module")
def stocks(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("read") / "stock")
    stock.save(STATE, checkpoint_id=path)
    return path


def test_what_lies_in_sound_files(tmp_path: pathlib.Path) -> None:
    path, rest = str(tmp_path / "two"), tmp_path / "rest"
    state = {f"w{i}": torch.full((1000,), float(i)) for i in range(8)}
    sidestep.save(state, checkpoint_id=str(tmp_path / "one"))
    sidestep.convert(tmp_path / "one", path, to="dcp", ranks=2)
    whole = load_metadata(path)
    assert whole.damage is None and whole.unread is None
    os.remove(os.path.join(path, "__1_0.distcp"))
    found = load_metadata(path)
    assert found.damage == "file '__1_0.distcp': it is missing" and found.unread is None
    lost = set()
    for name, tensor in load_metadata(path).tensors.items():
        if tensor.chunks[0].file == "__0_0.distcp":
            assert torch.equal(read(path, name), state[name])
            continue
        lost.add(name)
        with pytest.raises(Error, match="it is missing") as info:
            read(path, name)
        assert info.value.status == Status.ECORRUPT
        assert (info.value.tensor, info.value.file) == (name, "__1_0.distcp")
    assert 0 < len(lost) < len(state)
    with pytest.raises(Error, match="it is missing"):
        read(path)
    with pytest.raises(Error, match="it is missing"):
        sidestep.load({name: torch.zeros(1000) for name in state}, checkpoint_id=path)
    with pytest.raises(Error, match="it is missing"):
        sidestep.convert(path, rest, to="dcp")
    made = sidestep.convert(path, rest, to="dcp", partial=True)
    assert {text.partition(":")[0] for text in made.lost} == lost and made.tensors == 8 - len(lost)
    assert set(read(rest)) == set(state) - lost


def test_metadata_of_ours(ours: str) -> None:
    found = load_metadata(pathlib.Path(ours))
    assert (found.format, found.step, found.world_size) == ("sidestep", 12, 1)
    assert found.path.endswith("/ours") and found.save_id is not None and len(found.save_id) == 32
    assert len(found.tensors) == 6 and len(found.objects) == 7
    weight = found.tensors["model.w"]
    assert (weight.dtype, weight.shape, weight.bytes) == ("float32", (6, 4), 96)
    assert weight.path == ("model", "w")
    (chunk,) = weight.chunks
    assert (chunk.offsets, chunk.lengths, chunk.transform) == ((0, 0), (6, 4), None)
    assert os.path.getsize(os.path.join(ours, chunk.file)) >= chunk.file_offset + chunk.file_bytes
    assert found.tensors["model.b"].dtype == "bfloat16"
    assert found.tensors["opt.state.10.m"].path == ("opt", "state", 10, "m")
    assert found.tensors["list.2.0"].path == ("list", Index(2), Index(0))
    assert found.objects["7.7"].path == (7, "7") and found.objects["7.8"].path == (7, 8)
    assert found.objects["tuple"].bytes > 0 and found.objects["tuple"].file
    assert found.bytes == sum(entry.stat().st_size for entry in pathlib.Path(ours).iterdir())


def test_metadata_of_stock(stocks: str) -> None:
    found = load_metadata(stocks)
    assert (found.format, found.step) == ("dcp", None)
    assert found.tensors["opt.state.10.m"].path == ("opt", "state", "10", "m")
    assert found.tensors["list.0"].path == ("list", Index(0))
    with pytest.raises(AttributeError):
        found.step = 3  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(found)) == found


def test_the_whole_state_with_its_keys(ours: str) -> None:
    assert same(read(ours), ordered(STATE)) == 14


def test_the_whole_state_of_stock_has_its_string_keys(stocks: str) -> None:
    found = read(stocks)
    assert list(found["opt"]["state"]) == ["0", "10"] or list(found["opt"]["state"]) == ["10", "0"]
    found["opt"]["state"] = {int(key): item for key, item in found["opt"]["state"].items()}
    found[7] = {"7": found["7"]["7"], 8: found.pop("7")["8"]}
    assert same(ordered(found), ordered(STATE)) == 14


@pytest.mark.parametrize("writer", ["ours", "stocks"])
def test_single_values(writer: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(writer)
    assert same(read(path, "model.w"), STATE["model"]["w"]) == 1
    assert same(read(path, "model.b"), STATE["model"]["b"]) == 1
    assert read(path, "opt.lr") == 0.5 and read(path, "tuple") == (1, 2)
    part = read(path, "model.w", offsets=[2, 1], lengths=[3, 2])
    assert same(part, STATE["model"]["w"][2:5, 1:3].contiguous()) == 1
    assert read(path, "model.w", offsets=(6, 0), lengths=(0, 4)).shape == (0, 4)
    assert read(path, "list.0", offsets=[], lengths=[]).item() == 7
    assert read(path, "list.2.0").shape == (0, 2)


def test_what_is_asked_wrongly(ours: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(Error, match="has no tensor or object 'model'") as caught:
        read(ours, "model")
    assert caught.value.status == Status.ENOTFOUND and caught.value.tensor == "model"
    with pytest.raises(Error, match="object 'w'; it has 'model.w'"):
        read(ours, "w")
    for offsets, lengths in [([0], [1]), ([0, 0], [7, 1]), ([-1, 0], [1, 1]), ([0, 0], None)]:
        with pytest.raises(ValueError, match="model.w"):
            read(ours, "model.w", offsets=offsets, lengths=lengths)
    with pytest.raises(ValueError, match="'tuple' is an object"):
        read(ours, "tuple", offsets=[0], lengths=[1])
    with pytest.raises(ValueError, match="which name"):
        read(ours, offsets=[0], lengths=[1])
    with pytest.raises(Error) as caught:
        load_metadata(tmp_path / "nothing")
    assert caught.value.status == Status.ENOTFOUND


def test_every_dtype(tmp_path: pathlib.Path) -> None:
    state = {str(dtype): filled(dtype, 2, 3, seed=i) for i, dtype in enumerate(DTYPES)}
    sidestep.save(state, checkpoint_id=str(tmp_path / "c"))
    assert same(read(tmp_path / "c"), ordered(state)) == len(DTYPES)


class Custom:
    pass


def test_objects_that_are_more_than_data(tmp_path: pathlib.Path) -> None:
    stock.save({"o": Custom(), "n": 1}, checkpoint_id=tmp_path / "c")
    assert read(tmp_path / "c", "n") == 1
    for arguments in ((), ("o",)):
        with pytest.raises(Error, match="'o' needs .*Custom"):
            read(tmp_path / "c", *arguments)
    assert type(read(tmp_path / "c", "o", allow_pickle=True)) is Custom
    assert type(read(tmp_path / "c", allow_pickle=True)["o"]) is Custom


def test_a_nesting_that_contradicts_itself(tmp_path: pathlib.Path) -> None:
    stock.save({"a": {"b": torch.ones(1)}, "c": 2}, checkpoint_id=tmp_path / "c")
    file = tmp_path / "c" / ".metadata"
    metadata = pickle.loads(file.read_bytes())
    metadata.state_dict_metadata["a"] = metadata.state_dict_metadata.pop("c")
    metadata.storage_data = {
        index if index.fqn != "c" else type(index)("a"): info
        for index, info in metadata.storage_data.items()
    }
    metadata.planner_data = {"a.b": ("a", "b"), "a": ("a",)}
    file.write_bytes(pickle.dumps(metadata))
    with pytest.raises(Error, match="contradicts itself") as caught:
        read(tmp_path / "c")
    assert caught.value.status == Status.ECORRUPT


WITHOUT_TORCH = """
import sys
{block}
import sidestep
path = {path!r}
assert sidestep.load_metadata(path).tensors["model.w"].shape == (6, 4)
weight = sidestep.read(path, "model.w", offsets=[1, 0], lengths=[2, 4])
half = sidestep.read(path, "model.b")
state = sidestep.read(path)
assert state["opt"]["state"][0]["step"] == 3 and state["list"][1] == {{"x": "y"}}
print(type(weight).__name__, type(half).__name__, bytes(half).hex(), bytes(weight).hex())
print("torch" in sys.modules and sys.modules["torch"] is not None)
"""


@pytest.mark.parametrize(
    ("block", "flags", "kind"),
    [
        ("sys.modules['torch'] = None", [], "ndarray"),
        ("", ["-S"], "memoryview"),
    ],
)
def test_without_torch(ours: str, block: str, flags: list[str], kind: str) -> None:
    package = pathlib.Path(sidestep.__file__).parents[1]
    if kind == "ndarray":
        pytest.importorskip("numpy")
    done = subprocess.run(
        [sys.executable, *flags, "-c", WITHOUT_TORCH.format(block=block, path=ours)],
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    weight = STATE["model"]["w"][1:3].contiguous().view(torch.uint8).reshape(-1).tolist()
    half = STATE["model"]["b"].view(torch.uint8).tolist()
    assert first.split() == [kind, "memoryview", bytes(half).hex(), bytes(weight).hex()]
    assert second == "False"


# ---------------------------------------------------------------- stats


def test_stats_are_numpys(tmp_path: pathlib.Path, ours: str) -> None:
    values = torch.randn(300, 77, dtype=torch.float64)
    values[3, 4], values[5, 6], values[7, 8] = float("nan"), float("inf"), -float("inf")
    state = {
        "values": values,
        "clean": torch.arange(-5, 20, dtype=torch.int16),
        "nothing": torch.empty(0, 3),
        "nan": torch.full((4,), float("nan"), dtype=torch.bfloat16),
        "complex": torch.ones(3, dtype=torch.complex64),
        "text": "an object",
    }
    for compress in ("none", "planes"):
        path = tmp_path / compress
        sidestep.save(
            state,
            storage_writer=sidestep.Writer(path, options=sidestep.SaveOptions(compress=compress)),
        )
        found = sidestep.stats(path)
        assert sorted(found) == ["clean", "complex", "nan", "nothing", "values"]
        finite = values[torch.isfinite(values)]
        one = found["values"]
        assert (one.elements, one.nan, one.inf) == (300 * 77, 1, 2)
        assert (one.min, one.max) == (-float("inf"), float("inf"))
        assert one.mean == pytest.approx(finite.mean().item(), rel=1e-9, abs=1e-12)
        assert found["clean"] == sidestep.TensorStats(25, 0, 0, -5, 19, 7)
        assert found["nothing"] == sidestep.TensorStats(0, 0, 0, None, None, None)
        assert found["nan"] == sidestep.TensorStats(4, 4, 0, None, None, None)
        assert found["complex"] == sidestep.TensorStats(3, 0, 0, None, None, None)
    assert list(sidestep.stats(ours, ["model.w"], threads=1)) == ["model.w"]
    assert sidestep.stats(ours, []) == {}


def test_stats_of_what_has_none(ours: str) -> None:
    with pytest.raises(Error, match="'nobody' is not in") as missing:
        sidestep.stats(ours, ["model.w", "nobody"])
    assert missing.value.status == Status.ENOTFOUND
    with pytest.raises(Error, match="is an object") as objects:
        sidestep.stats(ours, ["opt.lr"])
    assert objects.value.status == Status.EINVAL
    with pytest.raises(Error) as nowhere:
        sidestep.stats(ours + "-not")
    assert nowhere.value.status == Status.ENOTFOUND
