# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of torch with tensors that only torch can decode: whole, and what commands say."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock
from test_foreign_files import PROGRAM
from test_tensor_classes import MADE, Flat, Scaled, TwoTensor, plain

import sidestep
from sidestep import Error, Status


class WithMemory(torch.Tensor):
    """A subclass whose data is in its own memory."""


class Rebuilt(Scaled):
    """A class that pickles itself in a way of its own, as TransformerEngine's do."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (rebuild, (self.values_, self.scale_))


def rebuild(values: torch.Tensor, scale: torch.Tensor) -> Rebuilt:
    return Rebuilt(values, scale)


def _by_type(n: int) -> Any:
    return (torch.ones(6) * n).as_subclass(WithMemory)


KINDS: dict[str, tuple[Callable[[int], Any], str]] = {
    "flattened": (MADE["flattened"], "test_tensor_classes.Flat"),
    "no protocol": (MADE["no protocol"], "test_tensor_classes.Scaled"),
    "of two": (MADE["of two"], "torch.testing._internal.two_tensor.TwoTensor"),
    "quantized": (MADE["quantized"], "a quantised tensor"),
    "by channel": (MADE["by channel"], "a quantised tensor"),
    "with memory": (_by_type, "test_stock_classes.WithMemory"),
    "rebuilt": (
        lambda n: Rebuilt(torch.arange(6, dtype=torch.int8) * n, torch.tensor(0.5)),
        "test_stock_classes.rebuild(...)",
    ),
}


@pytest.fixture(autouse=True)
def _allowed() -> Iterator[None]:
    allowed = [Scaled, Flat, TwoTensor, WithMemory, Rebuilt, rebuild]
    with torch.serialization.safe_globals(allowed):
        yield


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def save(path: Path, value: Any, **how: Any) -> Path:
    writer = stock.FileSystemWriter(path, **how)
    stock.save({"w": value, "bias": torch.ones(3), "step": 3}, storage_writer=writer)
    return path


def run(*words: Any) -> subprocess.CompletedProcess[str]:
    command = [PROGRAM / "sidestep", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_it_is_whole(tmp_path: Path, kind: Any) -> None:
    make, _ = kind
    path = save(tmp_path / "a", make(2))
    done = run("verify", path)
    assert done.returncode == 0 and done.stdout.startswith("ok "), done
    assert run("cp", path, tmp_path / "b").returncode == 0
    files = sorted(file.name for file in path.iterdir())
    assert files == sorted(file.name for file in (tmp_path / "b").iterdir())
    for name in files:
        assert (path / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    listed = json.loads(run("ls", "--json", tmp_path).stdout)["checkpoints"]
    assert [entry["state"] for entry in listed] == ["committed"] * 2, listed
    found = {"w": make(1)}
    stock.load(found, checkpoint_id=tmp_path / "b")
    assert torch.equal(_values(found["w"]), _values(make(2)))


def _values(value: Any) -> Any:
    return value.as_subclass(torch.Tensor) if isinstance(value, WithMemory) else plain(value)


def test_damage_is_found_all_the_same(tmp_path: Path, kind: Any) -> None:
    path = save(tmp_path / "a", kind[0](2))
    file = path / "__0_0.distcp"
    whole = file.read_bytes()
    name = kind[1].partition("(")[0].rpartition(".")[2].encode()
    item = whole.index(b"_rebuild_qtensor" if b"quantised" in name else name)
    where = whole.index(b"data/0", item) + 80  # padding follows, and the data
    for broken in (whole[:where] + bytes([whole[where] ^ 1]) + whole[where + 1 :], whole[:-700]):
        file.write_bytes(broken)
        done = run("verify", path)
        assert done.returncode == 3 and done.stdout.startswith("DAMAGED"), done
        assert run("cp", path, tmp_path / "b").returncode != 0


def test_show_names_the_class(tmp_path: Path, kind: Any) -> None:
    make, name = kind
    path = save(tmp_path / "a", make(2))
    assert name in run("show", path).stdout
    assert name in run("show", "--tree", path).stdout
    tensors = json.loads(run("show", "--json", path).stdout)["tensors"]
    assert [(entry["name"], entry["class"]) for entry in tensors] == [("bias", None), ("w", name)]
    done = run("show", "--stats", path)
    assert done.returncode == 0 and "bias" in done.stdout
    assert f"'w' has no statistics: only PyTorch can decode it ({name})" in done.stderr


def test_show_says_nothing_of_classes_where_there_are_none(tmp_path: Path) -> None:
    path = save(tmp_path / "a", torch.nn.Parameter(torch.ones(3)))
    assert "CLASS" not in run("show", path).stdout


def test_diff_compares_what_is_stored(tmp_path: Path, kind: Any) -> None:
    make, _ = kind
    a, b, c = (save(tmp_path / name, make(n)) for name, n in (("a", 2), ("b", 2), ("c", 3)))
    assert run("diff", a, b).returncode == 0
    done = run("diff", a, c)
    assert done.returncode == 1 and "w: the stored bytes differ" in done.stdout, done
    plain = save(tmp_path / "d", torch.ones_like(torch.empty(make(2).shape)))
    done = run("diff", a, plain)
    assert done.returncode == 1 and "different: 2 alike, 1 not" in done.stdout, done


def test_diff_of_objects_of_classes(tmp_path: Path) -> None:
    """What they are is the same, their data not."""
    for name, number in (("a", 2), ("b", 2), ("c", 3)):
        sidestep.save({"w": MADE["flattened"](number)}, checkpoint_id=tmp_path / name)
    assert run("diff", tmp_path / "a", tmp_path / "b").returncode == 0
    done = run("diff", tmp_path / "a", tmp_path / "c")
    assert done.returncode == 1 and "w: the values differ" in done.stdout, done
    assert "<test_tensor_classes.Flat>" in run("show", tmp_path / "a").stdout


def test_what_cannot_decode_it_names_it(tmp_path: Path, kind: Any) -> None:
    make, name = kind
    path = save(tmp_path / "a", make(2))
    what = "has dtype qint8" if "quantised" in name else name.split("(")[0].split(".")[-1]
    for words in (("convert", path, tmp_path / "out.pt"), ("cat", path, "w")):
        done = run(*words)
        assert done.returncode == 5 or "rebuild" in name, done
        assert done.returncode != 0 and "'w'" in done.stderr and what in done.stderr, done
    assert not (tmp_path / "out.pt").exists()
    assert run("convert", "--exclude=w", path, tmp_path / "out.pt").returncode == 0


@pytest.mark.parametrize("compressed", [False, True])
def test_it_is_read_and_loaded(tmp_path: Path, kind: Any, compressed: bool) -> None:
    make, _ = kind
    how: dict[str, Any] = {}
    if compressed:
        pytest.importorskip("zstandard")
        extension = pytest.importorskip("torch.distributed.checkpoint._extension")
        how["_extensions"] = [extension.ZStandard()]
    path = save(tmp_path / "a", make(2), **how)
    assert run("verify", path).returncode == 0
    assert torch.equal(_values(sidestep.read(path, "w")), _values(make(2)))
    got = {"w": make(1), "bias": torch.zeros(3)}
    sidestep.load(got, checkpoint_id=path)
    assert torch.equal(_values(got["w"]), _values(make(2))) and got["bias"].sum() == 3


def test_a_plain_tensor_is_no_object(tmp_path: Path) -> None:
    path = save(tmp_path / "a", torch.ones(6))
    with pytest.raises(Error, match="'w' is a plain tensor in the checkpoint") as caught:
        sidestep.load({"w": MADE["flattened"](1)}, checkpoint_id=path)
    assert caught.value.status == Status.EMISMATCH
