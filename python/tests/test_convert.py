# SPDX-License-Identifier: BSD-3-Clause
"""Conversions, compared by those whose formats they are: torch, safetensors and NumPy."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.distributed.checkpoint as stock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import run_ranks
from states import DTYPES, filled, raw

import sidestep
from sidestep import Error, Status, convert

safetensors = pytest.importorskip("safetensors.torch")

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

SAFE = [dtype for dtype in DTYPES if str(dtype)[6:] in safetensors._TYPES.values().__str__()]
SHAPES = [(), (0,), (7,), (3, 5), (2, 0, 3), (1, 1, 4)]


def flat_state() -> dict[str, torch.Tensor]:
    return {
        f"{str(dtype)[6:]}.{i}": filled(dtype, *shape)
        for dtype in SAFE
        for i, shape in enumerate(SHAPES)
    }


def training_state() -> dict[str, Any]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    model(torch.ones(3, 5)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}


def same_tensors(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert raw(found[name]) == raw(tensor), name


def same_values(found: Any, wanted: Any) -> None:
    if isinstance(wanted, torch.Tensor):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        assert raw(found) == raw(wanted)
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key in wanted:
            same_values(found[key], wanted[key])
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted) and type(found) is type(wanted)
        for pair in zip(found, wanted):
            same_values(*pair)
    else:
        assert found == wanted and type(found) is type(wanted)


def test_all_dtypes_and_shapes_by_safetensors(tmp_path: Path) -> None:
    assert len(SAFE) >= 15
    state = flat_state()
    safetensors.save_file(state, tmp_path / "a.safetensors")
    done = convert(tmp_path / "a.safetensors", tmp_path / "ckpt", ranks=2)
    assert (done.source_format, done.format, done.tensors) == ("safetensors", "dcp", len(state))
    same_tensors(sidestep.read(tmp_path / "ckpt"), state)
    wanted = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    stock.load(wanted, checkpoint_id=tmp_path / "ckpt", no_dist=True)
    same_tensors(wanted, state)
    convert(tmp_path / "ckpt", tmp_path / "b.safetensors")
    same_tensors(safetensors.load_file(tmp_path / "b.safetensors"), state)
    convert(tmp_path / "ckpt", tmp_path / "hub", max_shard_size=500)
    files = sorted((tmp_path / "hub").glob("*.safetensors"))
    assert len(files) > 2
    found = {}
    for file in files:
        found.update(safetensors.load_file(file))
    same_tensors(found, state)
    convert(tmp_path / "hub", tmp_path / "again")
    same_tensors(sidestep.read(tmp_path / "again"), state)


def test_training_states_by_torch(tmp_path: Path) -> None:
    state = training_state()
    torch.save(state, tmp_path / "a.pt")
    convert(tmp_path / "a.pt", tmp_path / "ckpt")
    convert(tmp_path / "ckpt", tmp_path / "b.pt")
    for name in ("a.pt", "b.pt"):
        convert(tmp_path / name, tmp_path / f"again-{name}")
        for mapped in (False, True):
            found = torch.load(tmp_path / f"again-{name}", weights_only=True, mmap=mapped)
            same_values(found, {key: _plain(value) for key, value in state.items()})
    optimizer = torch.optim.AdamW(torch.nn.Linear(5, 7).parameters())
    groups = found["optimizer"]["param_groups"]
    assert groups[0]["lr"] == 0.5 and optimizer.state_dict().keys() == found["optimizer"].keys()
    stock_state = {"model": {k: torch.zeros_like(v) for k, v in state["model"].items()}}
    stock.load(stock_state, checkpoint_id=tmp_path / "ckpt", no_dist=True)
    same_tensors(stock_state["model"], state["model"])


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def test_stock_checkpoints(tmp_path: Path) -> None:
    state = training_state()
    stock.save(state, checkpoint_id=tmp_path / "stock", no_dist=True)
    convert(tmp_path / "stock", tmp_path / "model", model_only=True)
    same_tensors(
        safetensors.load_file(tmp_path / "model" / "model.safetensors"), dict(state["model"])
    )
    done = convert(tmp_path / "stock", tmp_path / "all", objects="skip")
    assert "optimizer.param_groups.0.lr" in done.left_out
    with pytest.raises(Error) as told:
        convert(tmp_path / "stock", tmp_path / "refused")
    assert told.value.status == Status.EUNSUPPORTED and "epoch" in str(told.value) + "epoch"
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    "other", [None, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"]
)
def test_half_a_model_is_not_loaded(tmp_path: Path, other: bytes | None) -> None:
    """A file of the set is missing, or Git LFS has not fetched it."""
    shards = [tmp_path / "hub" / f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    shards[0].parent.mkdir()
    stock.save({"a": torch.ones(4)}, checkpoint_id=tmp_path / "one")
    convert(tmp_path / "one", shards[0])
    words = "-00002-of-00002.*is missing"
    if other is not None:
        shards[1].write_bytes(other)
        words = "-00002-of-00002.*a pointer of Git LFS"
    target = {"a": torch.zeros(4)}
    with pytest.raises(Error, match=words) as caught:
        sidestep.load(target, checkpoint_id=shards[0].parent)
    assert caught.value.status == Status.EUNCOMMITTED and not target["a"].any()
    with pytest.raises(Error, match=words) as caught:
        convert(shards[0].parent, tmp_path / "made.pt")
    assert caught.value.status == Status.EUNCOMMITTED and not (tmp_path / "made.pt").exists()
    sidestep.load(target, checkpoint_id=shards[0])  # it was named itself
    assert target["a"].all()


def test_shared_and_odd_tensors(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    z = torch.tensor([1 + 2j, 3 - 4j])
    state = {"a": base, "tied": base, "t": base.t(), "row": base[1], "step": base[:, ::2]}
    state["conj"] = z.conj()
    torch.save(state, tmp_path / "a.pt")
    convert(tmp_path / "a.pt", tmp_path / "b.pt")
    found = torch.load(tmp_path / "b.pt", weights_only=True)
    for name, tensor in state.items():
        assert torch.equal(found[name], tensor), name
    assert found["a"].data_ptr() == found["tied"].data_ptr()
    convert(tmp_path / "a.pt", tmp_path / "c.safetensors", exclude=["conj"])
    found = safetensors.load_file(tmp_path / "c.safetensors")
    assert torch.equal(found["t"], base.t()) and torch.equal(found["tied"], base)


def bytes_read(source: Path, to: Path, form: str) -> int:
    """What a conversion in a process of its own has read, as the kernel counts."""
    script = (
        "import sys, sidestep\n"
        "def count(): return int(open('/proc/self/io').read().split('rchar: ')[1].split()[0])\n"
        "sidestep.convert(sys.argv[1], sys.argv[1] + '.warm', dry_run=True)\n"
        "before = count()\n"
        "sidestep.convert(sys.argv[1], sys.argv[2], to=sys.argv[3])\n"
        "print(count() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(source), str(to), form],
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)


def views_of(base: torch.Tensor) -> dict[str, torch.Tensor]:
    rows, columns = base.shape
    return {
        "base": base,
        "tied": base,
        "turned": base.t(),
        "rows": base[rows // 4 : rows // 2],
        "columns": base[:, columns // 2 :],
        "steps": base[::2],
        "last": base[-1, -1],
        "none": base[:0],
    }


def same_views(path: Path, to: str, views: dict[str, torch.Tensor]) -> None:
    if to == "torch":
        found = torch.load(path, weights_only=True)
    elif to == "dcp":
        found = sidestep.read(path)
    else:
        found = safetensors.load_file(path)
    assert found.keys() == views.keys()
    for name, tensor in views.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("to", ["dcp", "safetensors", "torch"])
def test_small_storages_are_read_once(tmp_path: Path, to: str) -> None:
    views = views_of(torch.arange(1 << 20, dtype=torch.float32).reshape(1 << 10, 1 << 10))
    path, out = tmp_path / "a.pt", tmp_path / {"safetensors": "b.safetensors"}.get(to, "b.pt")
    torch.save(views, path)
    assert 4 << 20 < path.stat().st_size < 5 << 20
    done = convert(path, out, to=to)
    same_views(out, to, views)
    assert done.bytes_read == 4 << 20, done
    assert bytes_read(path, tmp_path / "c", to) < 5 << 20


def test_slices_of_a_large_storage_are_read_alone(tmp_path: Path) -> None:
    """As of a flat buffer, of which all parameters are views."""
    flat = torch.arange(12 << 20, dtype=torch.float32)  # 48 MiB
    views = {f"w{i}": part.reshape(64, -1) for i, part in enumerate(flat.chunk(48))}
    views["turned"] = flat[1 << 20 : 2 << 20].reshape(64, -1).t()  # reaches over 4 MiB
    path = tmp_path / "a.pt"
    torch.save(views, path)
    done = convert(path, tmp_path / "b.safetensors")
    same_views(tmp_path / "b.safetensors", "safetensors", views)
    slack = 2 << 20  # whole pages
    assert (48 << 20) <= done.bytes_read <= (52 << 20) + slack, done
    assert bytes_read(path, tmp_path / "b", "dcp") < (53 << 20) + slack
    state = {name: torch.zeros_like(tensor).contiguous() for name, tensor in views.items()}
    sidestep.load(state, checkpoint_id=path)
    same_tensors(state, {name: tensor.contiguous() for name, tensor in views.items()})
    # A bit that flips in any of it is found, also where nobody wants that part.
    sound = path.read_bytes()
    at = sound.index(raw(flat[:64])) + (30 << 20)
    path.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
    for names in (["w0"], ["turned"], ["w*"]):
        with pytest.raises(Error, match="CRC32"):
            convert(path, tmp_path / "c.safetensors", include=names)
    with pytest.raises(Error, match="CRC32"):
        sidestep.load({"w0": torch.zeros(64, 4096)}, checkpoint_id=path)


def test_npz(tmp_path: Path) -> None:
    state = {k: v for k, v in flat_state().items() if not k.startswith(("bfloat16", "float8"))}
    safetensors.save_file(state, tmp_path / "a.safetensors")
    convert(tmp_path / "a.safetensors", tmp_path / "a.npz")
    with numpy.load(tmp_path / "a.npz") as found:
        assert set(found.files) == set(state)
        for name, tensor in state.items():
            assert found[name].shape == tuple(tensor.shape) and found[name].tobytes() == raw(tensor)
    safetensors.save_file({"x": torch.ones(2).bfloat16()}, tmp_path / "b.safetensors")
    with pytest.raises(Error, match="NumPy lacks"):
        convert(tmp_path / "b.safetensors", tmp_path / "b.npz")
    convert(tmp_path / "b.safetensors", tmp_path / "b.npz", dtype="float32")


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_names_shapes_and_casts(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    root = tmp_path_factory.mktemp("any")
    names = data.draw(st.lists(st.text(min_size=1, max_size=8), max_size=5, unique=True))
    names = [n for n in names if "\0" not in n and n != "__metadata__" and n.isprintable()] or ["x"]
    kinds = st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.int16, torch.bool])
    shapes = st.lists(st.integers(0, 9), max_size=4)
    state = {
        name: filled(data.draw(kinds), *data.draw(shapes), seed=i) for i, name in enumerate(names)
    }
    to = data.draw(st.sampled_from([None, torch.float32, torch.bfloat16, torch.float16]))
    safetensors.save_file(state, root / "a.safetensors")
    convert(root / "a.safetensors", root / "c", ranks=data.draw(st.integers(1, 3)), dtype=to)
    convert(root / "c", root / "b.pt")
    found = torch.load(root / "b.pt", weights_only=True)
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        wanted = tensor.to(to) if to is not None and tensor.is_floating_point() else tensor
        assert found[name].dtype == wanted.dtype
        assert torch.equal(found[name].nan_to_num(), wanted.nan_to_num()), name


def test_overflows_are_said(tmp_path: Path) -> None:
    safetensors.save_file({"x": torch.tensor([1.0, 1e6, -1e6])}, tmp_path / "a.safetensors")
    done = convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", dtype=torch.float16)
    assert done.overflows == ("x: 2",) and done.narrowed == ("x: float32 to float16",)
    done = convert(tmp_path / "b.safetensors", tmp_path / "c.safetensors", dtype=torch.float32)
    assert done.narrowed == ()


def load_of_ranks(rank: int, root: str) -> Any:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for path in ("hub", "a.pt"):
        state = {"w": distribute_tensor(torch.zeros(9, 4), mesh, [Shard(0)]), "b": torch.zeros(3)}
        sidestep.load(state, checkpoint_id=os.path.join(root, path))
        assert torch.equal(state["w"].full_tensor(), torch.arange(36.0).reshape(9, 4))
        assert torch.equal(state["b"], torch.ones(3))
    return True


def test_ranks_load_weights_from_anywhere(tmp_path: Path) -> None:
    state = {"w": torch.arange(36.0).reshape(9, 4), "b": torch.ones(3)}
    (tmp_path / "hub").mkdir()
    safetensors.save_file(state, tmp_path / "hub" / "model.safetensors")
    torch.save(state, tmp_path / "a.pt")
    assert run_ranks(2, load_of_ranks, str(tmp_path)) == [True, True]


def loads_of_ranks(rank: int, root: str) -> list[int]:
    """What this rank has read of each, by the events of its loads."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    os.environ["SIDESTEP_EVENTS"] = os.path.join(root, "events-{rank}")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for name in ("own", "a.safetensors", "a.pt"):
        state = {"w": distribute_tensor(torch.zeros(2048, 512), mesh, [Shard(0)])}
        sidestep.load(state, checkpoint_id=os.path.join(root, name))
    with open(os.path.join(root, f"events-{rank}")) as file:
        events = [json.loads(line) for line in file]
    return [event["bytes_read"] for event in events if event["event"] == "loaded"]


def test_each_rank_says_what_it_has_read(tmp_path: Path) -> None:
    state = {"w": torch.arange(float(1 << 20)).reshape(2048, 512)}  # 4 MiB
    safetensors.save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "a.pt")
    convert(tmp_path / "a.pt", tmp_path / "own")
    for read in run_ranks(2, loads_of_ranks, str(tmp_path)):
        # Its half; and of torch.save(), which has one CRC32, all of it.
        assert read == [2 << 20, 2 << 20, 4 << 20]


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/evil-was-here",)


def test_pickles_are_not_executed(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(2), "evil": Evil()}, tmp_path / "a.pt")
    with pytest.raises(Error) as told:
        convert(tmp_path / "a.pt", tmp_path / "b")
    assert told.value.status == Status.EUNSUPPORTED
    done = convert(tmp_path / "a.pt", tmp_path / "b", objects="skip")
    assert done.left_out == ("evil",)
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(Error, match="state_dict"):
        convert(tmp_path / "module.pt", tmp_path / "c")
    torch.save({"x": torch.ones(2)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(Error, match=r"torch before 1\.6"):
        convert(tmp_path / "old.pt", tmp_path / "c")
    assert not os.path.exists("/tmp/evil-was-here")


def test_torch_files_beyond_4_gib(tmp_path: Path) -> None:
    """By torch, all of it a hole but for a tensor behind it."""
    path, small = tmp_path / "a.pt", torch.arange(5.0)
    big = torch.empty((1 << 32) + 100, dtype=torch.uint8)  # of which no page is touched
    with torch.serialization.skip_data():
        torch.save({"big": big, "small": small}, path)
    if path.stat().st_blocks * 512 > 1 << 24:
        pytest.skip("the file system has no sparse files")
    with zipfile.ZipFile(path) as archive, open(path, "r+b") as file:
        member = archive.getinfo("a/data/1")
        assert member.header_offset > 1 << 32
        file.seek(member.header_offset + 26)
        file.seek(member.header_offset + 30 + sum(struct.unpack("<HH", file.read(4))))
        file.write(raw(small))
    assert torch.equal(torch.load(path, mmap=True, weights_only=True)["small"], small)
    convert(path, tmp_path / "b.safetensors", include=["small"])
    same_tensors(safetensors.load_file(tmp_path / "b.safetensors"), {"small": small})
    state = {"small": torch.zeros(5)}
    sidestep.load(state, checkpoint_id=path)
    same_tensors(state, {"small": small})
    assert sidestep.load_metadata(path).tensors["big"].shape == big.shape


def test_torch_files_of_more_than_65535_members(tmp_path: Path) -> None:
    numbers = torch.arange(65_600)
    names = [f"w{i}" for i in range(len(numbers))]
    write_scalars(tmp_path / "a.safetensors", names, numbers)
    convert(tmp_path / "a.safetensors", tmp_path / "b.pt")
    found = torch.load(tmp_path / "b.pt", weights_only=True)
    assert torch.equal(torch.stack([found[name] for name in names]), numbers)
    convert(tmp_path / "b.pt", tmp_path / "c.safetensors")
    with safetensors.safe_open(tmp_path / "c.safetensors", "pt") as file:
        assert list(file.keys()) == sorted(names)
        assert all(file.get_tensor(names[i]) == i for i in range(0, len(names), 97))


def write_scalars(path: Path, names: list[str], numbers: torch.Tensor) -> None:
    """A file of safetensors with one scalar for each name; its library needs seconds for many."""
    header = {
        name: {"dtype": "I64", "shape": [], "data_offsets": [8 * i, 8 * i + 8]}
        for i, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers.numpy().tobytes())


class Subclass(torch.Tensor):
    pass


def test_tensors_that_cannot_be_read_are_as_objects(tmp_path: Path) -> None:
    odd = {
        "q": (torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8), "quantised"),
        "sparse": (torch.eye(3).to_sparse(), "sparse"),
        "meta": (torch.empty(2, device="meta"), "without data"),
        "sub": (torch.ones(2).as_subclass(Subclass), "subclass"),
    }
    plain = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
    path = tmp_path / "a.pt"
    torch.save({"model": {**{n: t for n, (t, _) in odd.items()}, **plain}, "epoch": 3}, path)
    for name, (_, kind) in odd.items():
        for to in ("b", "b.pt", "b.safetensors"):
            with pytest.raises(Error, match=kind) as told:
                convert(path, tmp_path / to, include=["model.w", f"model.{name}"])
            assert told.value.status == Status.EUNSUPPORTED and f"'model.{name}'" in str(told.value)
        with pytest.raises(Error, match=kind):  # weights are not left out in silence
            convert(path, tmp_path / "b", include=["*.w", f"*.{name}"], model_only=True)
        with pytest.raises(Error, match=kind):
            sidestep.read(path, f"model.{name}")
        with pytest.raises(Error, match=kind):
            sidestep.load({"model": {name: torch.zeros(3)}}, checkpoint_id=path)
    with pytest.raises(Error, match="objects=skip leaves .* model_only takes the weights"):
        convert(path, tmp_path / "b.safetensors", include=["epoch", "model.w"])
    assert os.listdir(tmp_path) == ["a.pt"]
    for to in ("b", "b.pt", "b.safetensors"):
        done = convert(path, tmp_path / to, objects="skip", model_only=True)
        assert sorted(done.left_out) == sorted(odd)
        same_tensors(sidestep.read(tmp_path / to), plain)
    state = {"model": {name: torch.zeros_like(tensor) for name, tensor in plain.items()}}
    sidestep.load(state, checkpoint_id=path)
    same_tensors(state["model"], plain)
    assert sidestep.read(path, "epoch") == 3
    torch.save(odd["q"][0], tmp_path / "one.pt")
    with pytest.raises(Error, match="'tensor': it is a quantised"):
        convert(tmp_path / "one.pt", tmp_path / "c", objects="skip")


WEIGHTS = {"layers.0.w": torch.arange(4.0), "head": torch.ones(2, 2)}
MOMENTS = {"state": {0: {"exp_avg": torch.zeros(4)}}, "param_groups": [{"lr": 0.5}]}
LAYOUTS = {
    "plain": WEIGHTS,
    "model": {"model": WEIGHTS, "optimizer": MOMENTS, "epoch": 3},
    "torch": {"model_state_dict": WEIGHTS, "optimizer_state_dict": MOMENTS, "loss": 0.5},
    "lightning": {"state_dict": WEIGHTS, "optimizer_states": [MOMENTS], "loops": {"fit": {"n": 1}}},
    "deepspeed": {"module": WEIGHTS, "optimizer": MOMENTS, "global_steps": 7},
    "app": {"app": {"model": WEIGHTS, "optim": MOMENTS}},
    "torchtitan": {**WEIGHTS, "optimizer": MOMENTS, "lr_scheduler": {"last": torch.ones(1)}},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", ["torch", "stock"])
def test_model_only_knows_what_users_have(tmp_path: Path, layout: str, form: str) -> None:
    if form == "torch":
        torch.save(LAYOUTS[layout], tmp_path / "in")
    else:
        stock.save(LAYOUTS[layout], checkpoint_id=tmp_path / "in", no_dist=True)
    convert(tmp_path / "in", tmp_path / "out.safetensors", model_only=True)
    same_tensors(safetensors.load_file(tmp_path / "out.safetensors"), WEIGHTS)


def test_model_only_does_not_guess(tmp_path: Path) -> None:
    for state, said in (
        ({"model": WEIGHTS, "module": WEIGHTS}, "'model' and 'module' could both be the model"),
        ({"gen": WEIGHTS, "opt_g": MOMENTS}, r"'opt_g\.state\.0\.exp_avg' looks like"),
    ):
        torch.save(state, tmp_path / "a.pt")
        with pytest.raises(Error, match=said) as told:
            convert(tmp_path / "a.pt", tmp_path / "b.safetensors", model_only=True)
        assert told.value.status == Status.EMISMATCH
        assert "at its top are " + ", ".join(f"'{name}'" for name in state) in str(told.value)
        first = next(iter(state))
        done = convert(
            tmp_path / "a.pt",
            tmp_path / "b.safetensors",
            include=[f"{first}.*"],
            rename=[rf"s/^{first}[.]//"],
        )
        same_tensors(safetensors.load_file(tmp_path / "b.safetensors"), WEIGHTS)
        assert done.left_out == ()
        (tmp_path / "b.safetensors").unlink()


def test_flipped_bytes_are_found(tmp_path: Path) -> None:
    torch.save({"x": torch.arange(1000.0)}, tmp_path / "a.pt")
    sound = (tmp_path / "a.pt").read_bytes()
    at = sound.index(raw(torch.arange(1000.0))) + 1234
    (tmp_path / "a.pt").write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
    for name in ("b", "b.pt", "b.safetensors"):
        with pytest.raises(Error, match="CRC32") as told:
            convert(tmp_path / "a.pt", tmp_path / name)
        assert told.value.status == Status.ECORRUPT
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_kills_leave_nothing_or_all(tmp_path: Path) -> None:
    state = {f"w{i}": torch.randn(1 << 20) for i in range(16)}
    safetensors.save_file(state, tmp_path / "a.safetensors")
    script = "import sys, sidestep; sidestep.convert(*sys.argv[1:], to='safetensors')"
    command = [sys.executable, "-c", script, str(tmp_path / "a.safetensors"), str(tmp_path / "out")]
    random.seed(4)
    killed = whole = 0
    for _ in range(4):
        process = subprocess.Popen(command)
        began = time.monotonic()
        delay = random.uniform(0.1, 0.6)
        while time.monotonic() - began < delay and not any(tmp_path.glob(".sidestep.*")):
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (tmp_path / "out").exists():
            found = safetensors.load_file(tmp_path / "out" / "model.safetensors")
            same_tensors(found, state)
            for path in (tmp_path / "out").iterdir():
                path.unlink()
            (tmp_path / "out").rmdir()
            whole += 1
        else:
            killed += 1
    convert(tmp_path / "a.safetensors", tmp_path / "out", to="safetensors")
    assert {path.name for path in tmp_path.iterdir()} == {"a.safetensors", "out"}
    assert killed + whole == 4


def test_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of"):
        convert(tmp_path, tmp_path / "x", to="zip")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        convert(tmp_path, tmp_path / "x", include="w*")
    with pytest.raises(Error) as told:
        convert(tmp_path / "none", tmp_path / "x")
    assert told.value.status == Status.ENOTFOUND
    safetensors.save_file({"x": torch.ones(3)}, tmp_path / "a.safetensors")
    told_progress: list[tuple[int, int]] = []
    done = convert(
        tmp_path / "a.safetensors",
        tmp_path / "b.pt",
        progress=lambda *args: told_progress.append(args),
    )
    assert told_progress[-1] == (12, 12) and done.bytes == 12 and done.files == ("b.pt",)
    assert convert(tmp_path / "a.safetensors", tmp_path / "y", dry_run=True).tensors == 1
    assert not (tmp_path / "y").exists()


def test_what_is_left_of_a_train_state(tmp_path: Path) -> None:
    """Its objects are no reason to refuse, and what is sound is loaded from what comes out."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    state = sidestep.TrainState(model, optimizer)
    state.step = 20
    with sidestep.Checkpointer(tmp_path / "run") as checkpoints:
        checkpoints.save(20, state)
    shard = tmp_path / "run" / "step-20" / "__0_0.distcp"
    data = bytearray(shard.read_bytes())
    data[data.index(model.bias.detach().numpy().tobytes())] ^= 1
    shard.write_bytes(data)
    done = convert(tmp_path / "run" / "step-20", tmp_path / "left", partial=True)
    assert done.format == "dcp"
    assert [lost.split(": ")[0] for lost in done.lost] == ["model.bias"]
    assert sidestep.read(tmp_path / "left", "progress.step") == 20
    found = sidestep.read(tmp_path / "left", "model.weight")
    assert torch.equal(found, model.weight.detach())
