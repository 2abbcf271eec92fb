# SPDX-License-Identifier: BSD-3-Clause
"""Compression: what is saved with it, by which readers it is read, and who asks for it how."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.api import CheckpointException

import sidestep as dcp

extension = pytest.importorskip("torch.distributed.checkpoint._extension")
DTYPES = [
    torch.bfloat16,
    torch.float32,
    torch.float16,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


def a_state(scale: float = 1.0) -> dict[str, Any]:
    """Tensors of many dtypes, most of which shrink, an empty one, a scalar, and an object."""
    torch.manual_seed(5)
    weight = torch.randn(700, 900) * 0.03 * scale
    state: dict[str, Any] = {str(dtype): weight.to(dtype) for dtype in DTYPES}
    state["large"] = torch.randn(1500, 1501) * scale
    state["noise"] = torch.randint(0, 256, (3 << 20,), dtype=torch.uint8)
    state["empty"] = torch.empty(0, 4)
    state["scalar"] = torch.tensor(scale)
    state["text"] = "y" * 9000
    return state


def zeros_like(state: dict[str, Any]) -> dict[str, Any]:
    return {
        key: torch.zeros_like(value) if isinstance(value, torch.Tensor) else ""
        for key, value in state.items()
    }


def assert_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    for key, value in a.items():
        if isinstance(value, torch.Tensor):
            left, right = value.reshape(-1), b[key].reshape(-1)
            assert torch.equal(left.view(torch.uint8), right.view(torch.uint8)), key
        else:
            assert value == b[key], key


def transforms(path: pathlib.Path) -> dict[str, Any]:
    metadata = stock.FileSystemReader(path).read_metadata()
    return {
        index.fqn: getattr(info, "transform_descriptors", None)
        for index, info in metadata.storage_data.items()
    }


def stock_reader(path: pathlib.Path) -> Any:
    return stock.FileSystemReader(path, _extension_registry=dcp.extension_registry())


@pytest.mark.parametrize("compress", ["zstd", "zstd:3", "planes"])
def test_saved_with_it(tmp_path: pathlib.Path, compress: str) -> None:
    if compress != "planes" and not extension.ZStandard.is_available():
        pytest.skip("torch finds no module for zstd here")
    path, state = tmp_path / "a", a_state()
    dcp.save(state, storage_writer=dcp.Writer(path, options=dcp.SaveOptions(compress=compress)))
    names = transforms(path)
    expected = ["sidestep.planes/1" if compress == "planes" else "stream.zstd/1"]
    assert names["torch.bfloat16"] == expected and names["large"] == expected
    assert names["text"] == expected
    assert names["noise"] is None and names["scalar"] is None and names["empty"] is None
    for load, reader in [(dcp.load, None), (stock.load, stock_reader(path))]:
        got = zeros_like(state)
        if reader is None:
            load(got, checkpoint_id=path)
        else:
            load(got, storage_reader=reader)
        assert_same(state, got)


def test_stock_reads_zstd_as_it_is(tmp_path: pathlib.Path) -> None:
    if not extension.ZStandard.is_available():
        pytest.skip("torch finds no module for zstd here")
    state = a_state()
    dcp.save(
        state, storage_writer=dcp.Writer(tmp_path / "a", options=dcp.SaveOptions(compress="zstd"))
    )
    got = zeros_like(state)
    stock.load(got, checkpoint_id=tmp_path / "a")
    assert_same(state, got)


def test_stock_without_the_extension_says_so(tmp_path: pathlib.Path) -> None:
    state = a_state()
    dcp.save(
        state, storage_writer=dcp.Writer(tmp_path / "a", options=dcp.SaveOptions(compress="planes"))
    )
    with pytest.raises(CheckpointException, match=r"sidestep\.planes"):
        stock.load(zeros_like(state), checkpoint_id=tmp_path / "a")


@pytest.mark.parametrize("way", ["environment", "extension", "our extension", "checkpointer"])
def test_ways_to_ask_for_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    path, state, expected = tmp_path / "a", a_state(), "sidestep.planes/1"
    if way == "environment":
        monkeypatch.setenv("SIDESTEP_COMPRESS", "planes")
        dcp.save(state, checkpoint_id=path)
    elif way == "checkpointer":
        with dcp.Checkpointer(
            tmp_path / "run", options=dcp.SaveOptions(compress="planes")
        ) as checkpointer:
            checkpointer.save(3, state)
        path = tmp_path / "run" / "step-3"
    elif way == "our extension":
        dcp.save(state, storage_writer=dcp.Writer(path, _extensions=[dcp.Planes()]))
    else:
        if not extension.ZStandard.is_available():
            pytest.skip("torch finds no module for zstd here")
        expected = "stream.zstd/1"
        writer = filesystem.FileSystemWriter(path, _extensions=[extension.ZStandard()])
        dcp.save(state, storage_writer=writer)
        assert list(path.glob(".sidestep.manifest.*"))
    assert transforms(path)["torch.float32"] == [expected]


class Flipped(extension.StreamTransformExtension):  # type: ignore[misc]
    """A program's own: each bit turned over."""

    @staticmethod
    def registry_name() -> str:
        return "test.flipped"

    @staticmethod
    def from_descriptor(version: str) -> Flipped:
        return Flipped()

    def get_descriptor(self) -> str:
        return "test.flipped/1"

    def transform_to(self, output: Any) -> Any:
        class Stream:
            def write(self, data: Any) -> int:
                return int(output.write(bytes(byte ^ 255 for byte in bytes(data))))

            def flush(self) -> None:
                output.flush()

            def close(self) -> None:
                output.close()

        return Stream()

    def transform_from(self, input: Any) -> Any:
        import io

        return io.BytesIO(bytes(byte ^ 255 for byte in input.read()))


@pytest.mark.parametrize("writer", [dcp.Writer, filesystem.FileSystemWriter])
def test_extensions_of_programs_are_left_to_torch(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, writer: Any
) -> None:
    path, state = tmp_path / "a", {"x": torch.arange(1000.0), "y": 3}
    dcp.save(state, storage_writer=writer(path, _extensions=[Flipped()]))
    assert transforms(path)["x"] == ["test.flipped/1"]
    registry = extension.ExtensionRegistry()
    registry.register(Flipped)
    got = {"x": torch.zeros(1000), "y": 0}
    dcp.load(got, storage_reader=stock.FileSystemReader(path, _extension_registry=registry))
    assert torch.equal(got["x"], state["x"])
    with pytest.raises(dcp.Error, match=r"test\.flipped") as caught:
        dcp.load(got, checkpoint_id=path)
    assert caught.value.status == dcp.Status.EUNSUPPORTED


def test_gains_are_told(tmp_path: pathlib.Path) -> None:
    handle = dcp.async_save(
        a_state(),
        storage_writer=dcp.Writer(tmp_path / "a", options=dcp.SaveOptions(compress="planes")),
    )
    handle.result()
    progress = handle.progress()
    raw, stored, seconds = progress.gains["bfloat16"]
    assert stored < 0.75 * raw and seconds > 0
    assert progress.gains["objects"][0] > 9000
    assert (
        progress.stored_bytes < progress.raw_bytes < sum(g[0] for g in progress.gains.values()) + 1
    )
    assert (tmp_path / "a" / "__0_0.distcp").stat().st_size < progress.raw_bytes


def test_words_that_are_none_are_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("gzip", "zstd:", "zstd:0", "zstd:20", "zstd:-1", "zstd:³", "planes:3", ""):
        with pytest.raises(
            ValueError, match=f"compress='{text}' is none of: none, zstd, planes, auto, zstd:1 to"
        ):
            dcp.Writer(tmp_path / "a", options=dcp.SaveOptions(compress=text))
    monkeypatch.setenv("SIDESTEP_COMPRESS", "7z")
    with pytest.raises(dcp.Error, match="SIDESTEP_COMPRESS is '7z'"):
        dcp.save(a_state(), checkpoint_id=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_damaged_items_are_refused_by_stock_too(tmp_path: pathlib.Path) -> None:
    from sidestep._torch.extension import decode

    with pytest.raises(dcp.Error, match="planes"):
        decode("sidestep.planes/1", b"SSPLANES" + bytes(60))
    with pytest.raises(ValueError, match="version 9"):
        dcp.Planes.from_descriptor("9")
    with pytest.raises(NotImplementedError):
        dcp.Planes().transform_to(None)
