# SPDX-License-Identifier: BSD-3-Clause
"""Small files are a part of a save: `files=` and `sidestep.read_file`."""

import os
import pathlib
import shutil

import pytest
import torch
import torch.distributed.checkpoint as stock
from ranks import run_ranks

import sidestep as dcp
from sidestep._files import FirstRank

FILES = {"trainer_state.json": b'{"step": 1}', "tokenizer/vocab.txt": b"a b c", "empty": b""}


def state():
    return {"weight": torch.arange(6.0).reshape(2, 3), "step": 7}


def contents(path):
    names = [os.path.join(at, name) for at, _, files in os.walk(path) for name in files]
    return {
        os.path.relpath(name, path): pathlib.Path(name).read_bytes()
        for name in names
        if not os.path.basename(name).startswith((".", "__"))
    }


@pytest.mark.parametrize("save", [dcp.save, dcp.async_save])
def test_they_are_saved_and_read_back(tmp_path, save):
    path = tmp_path / "one"
    done = save(state(), checkpoint_id=path, files=FILES)
    if save is dcp.async_save:
        done.result()
    assert contents(path) == FILES
    found = dcp.load_metadata(path).files
    assert {name: file.bytes for name, file in found.items()} == {
        name: len(data) for name, data in FILES.items()
    }
    assert all(dcp.read_file(path, name) == data for name, data in FILES.items())
    with pytest.raises(dcp.Error, match="file 'other' is not in checkpoint") as caught:
        dcp.read_file(path, "other")
    assert caught.value.status == dcp.Status.ENOTFOUND


def test_stock_torch_loads_the_directory(tmp_path):
    dcp.save(state(), checkpoint_id=tmp_path / "one", files=FILES)
    target = {"weight": torch.zeros(2, 3), "step": 0}
    stock.load(target, checkpoint_id=tmp_path / "one")
    assert torch.equal(target["weight"], state()["weight"]) and target["step"] == 7


def test_the_next_save_does_not_have_them(tmp_path):
    dcp.save(state(), checkpoint_id=tmp_path / "one", files=FILES)
    dcp.save(state(), checkpoint_id=tmp_path / "two")
    assert contents(tmp_path / "two") == {} and dcp.load_metadata(tmp_path / "two").files == {}


def test_a_path_is_copied_in_the_call(tmp_path):
    source = tmp_path / "source.bin"
    source.write_bytes(b"before")
    handle = dcp.async_save(state(), checkpoint_id=tmp_path / "one", files={"a/b": source})
    source.write_bytes(b"after!")
    handle.result()
    assert dcp.read_file(tmp_path / "one", "a/b") == b"before"


def test_a_file_that_was_changed_is_damage(tmp_path):
    dcp.save(state(), checkpoint_id=tmp_path / "one", files=FILES)
    (tmp_path / "one" / "trainer_state.json").write_bytes(b'{"step": 2}')
    with pytest.raises(dcp.Error) as caught:
        dcp.read_file(tmp_path / "one", "trainer_state.json")
    assert caught.value.status == dcp.Status.ECORRUPT


@pytest.mark.parametrize(
    "files, kind, words",
    [
        ({"a": "text"}, TypeError, "as bytes, or a pathlib.Path"),
        ({"a": pathlib.Path("/no/such/file")}, dcp.Error, "/no/such/file"),
        ({"../a": b""}, dcp.Error, "'../a'"),
        ({".metadata": b""}, dcp.Error, "'.metadata'"),
        ({1: b""}, TypeError, "name of a file"),
    ],
)
def test_what_is_refused_makes_no_checkpoint(tmp_path, files, kind, words):
    with pytest.raises(kind, match=words.replace(".", r"\.")):
        dcp.save(state(), checkpoint_id=tmp_path / "one", files=files)
    assert not (tmp_path / "one").exists()
    dcp.save(state(), checkpoint_id=tmp_path / "one")  # the engine still works


def test_torch_saves_no_files(tmp_path):
    writer = type("Mine", (stock.FileSystemWriter,), {})(tmp_path / "one")
    with pytest.raises(
        ValueError, match="files: torch does this save itself, .*storage_writer is a .*Mine"
    ):
        dcp.save(state(), storage_writer=writer, files=FILES)


def test_a_series_has_them(tmp_path):
    with dcp.Checkpointer(tmp_path) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(), files={"note.txt": str(step).encode()})
    assert dcp.read_file(tmp_path / "step-2", "note.txt") == b"2"
    assert (tmp_path / "step-1" / "note.txt").read_bytes() == b"1"


def test_a_copy_has_them(tmp_path):
    dcp.save(state(), checkpoint_id=tmp_path / "one", files=FILES)
    dcp.copy(tmp_path / "one", tmp_path / "two")
    shutil.rmtree(tmp_path / "one")
    assert contents(tmp_path / "two") == FILES
    assert dcp.read_file(tmp_path / "two", "tokenizer/vocab.txt") == b"a b c"


def save_on_ranks(rank, root):
    root = pathlib.Path(root)
    mine = {f"rng_{rank}": str(rank).encode(), "same": b"same"}
    dcp.save(state(), checkpoint_id=root / "one", files=mine)
    hook = {"hook": FirstRank(str(rank).encode())}
    dcp.save(state(), checkpoint_id=root / "two", files=hook)
    words = "ranks 0 and 1 have different files of the name 'hook'"
    with pytest.raises(dcp.Error, match=words):
        differing = {"hook": str(rank).encode()}
        dcp.save(state(), checkpoint_id=root / "three", files=differing)
    with pytest.raises(dcp.Error, match="/no/such"):
        broken = {"x": pathlib.Path("/no/such")} if rank == 1 else {}
        dcp.save(state(), checkpoint_id=root / "four", files=broken)


def test_ranks_give_files_of_their_own(tmp_path):
    run_ranks(2, save_on_ranks, str(tmp_path))
    assert contents(tmp_path / "one") == {"rng_0": b"0", "rng_1": b"1", "same": b"same"}
    assert contents(tmp_path / "two") == {"hook": b"0"}
    assert not (tmp_path / "three").exists() and not (tmp_path / "four").exists()
