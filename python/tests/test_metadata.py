# SPDX-License-Identifier: BSD-3-Clause
"""torch's Metadata as we read it: equal to stock's, late, and without importing anything."""

import builtins
import copy
import dataclasses
import os
import pathlib
import pickle
import shutil

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import metadata as classes  # noqa: E402

from sidestep import Error, Status, async_save, load  # noqa: E402
from sidestep._torch.metadata import Opaque, lazy_metadata, read_metadata, unpickle  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
CHECKPOINTS = sorted(path.parent for path in GOLDEN.glob("torch-*/*/.metadata"))


def stock_metadata(path):
    found = dcp.FileSystemReader(path).read_metadata()
    found.storage_meta.load_id = None  # stock's reader invents one for each load
    return found


@pytest.fixture
def saved(tmp_path):
    state = {
        "w": torch.arange(12.0).reshape(3, 4),
        "half": torch.ones(5, dtype=torch.bfloat16, requires_grad=True),
        "scalar": torch.tensor(7),
        "empty": torch.empty(0, 3),
        "nested": {"list": [torch.zeros(2), {"step": 3}], "name": "x"},
    }
    dcp.save(state, checkpoint_id=tmp_path / "c", no_dist=True)
    return tmp_path / "c"


def test_golden_files_are_read_as_stock_does():
    compared = 0
    for path in CHECKPOINTS:
        try:
            want = stock_metadata(path)
        except ModuleNotFoundError as error:
            # Written by Python 3.13, whose pathlib pickles by a name that others lack.
            assert error.name == "pathlib._local"
            assert read_metadata(path).state_dict_metadata
            continue
        except ValueError:  # older torch cannot read the strides that 2.15 writes
            assert "torch-2.15" in str(path) and torch.__version__ < "2.15"
            assert read_metadata(path).state_dict_metadata
            continue
        assert read_metadata(path) == want
        assert lazy_metadata(path) == want
        compared += len(want.state_dict_metadata) + len(want.storage_data)
    assert len(CHECKPOINTS) >= 3 and compared >= 20


def test_every_field_is_equal(saved):
    want = stock_metadata(saved)
    got = lazy_metadata(saved)
    assert isinstance(got, classes.Metadata)
    fields = [field.name for field in dataclasses.fields(classes.Metadata)]
    assert len(fields) >= 4
    for name in fields:
        assert getattr(got, name) == getattr(want, name), name
    assert got == want and want == got
    assert repr(lazy_metadata(saved)) == repr(want)
    assert got != dataclasses.replace(want, planner_data=None)
    assert len(got.state_dict_metadata) == 7 and len(got.storage_data) == 7
    properties = got.state_dict_metadata["half"].properties
    assert (properties.dtype, properties.requires_grad) == (torch.bfloat16, True)
    assert properties.memory_format is torch.contiguous_format
    assert properties.layout is torch.strided


def test_nothing_is_read_before_it_is_asked_for(saved, monkeypatch):
    opened = []
    real = pathlib.Path.read_bytes
    monkeypatch.setattr(
        pathlib.Path, "read_bytes", lambda self: opened.append(self.name) or real(self)
    )
    lazy = lazy_metadata(saved)
    assert isinstance(lazy, classes.Metadata) and opened == []
    assert lazy.planner_data["nested.name"] == ("nested", "name")
    assert lazy.storage_meta is not None and lazy.state_dict_metadata
    assert opened == [".metadata"]


def test_the_directory_may_be_relative(saved, monkeypatch):
    monkeypatch.chdir(saved.parent)
    lazy = lazy_metadata("c")
    monkeypatch.chdir("/")
    assert "w" in lazy.state_dict_metadata
    monkeypatch.chdir(saved.parent)
    handle = async_save({"v": torch.ones(2)}, checkpoint_id="d")
    monkeypatch.chdir("/")
    assert "v" in handle.result().state_dict_metadata


def test_pickled_and_copied_it_is_a_plain_metadata(saved):
    want = stock_metadata(saved)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        got = pickle.loads(pickle.dumps(lazy_metadata(saved), protocol))
        assert type(got) is classes.Metadata and got == want
    assert copy.deepcopy(lazy_metadata(saved)) == want
    assert copy.copy(lazy_metadata(saved)) == want
    replaced = dataclasses.replace(lazy_metadata(saved), planner_data={"a": ("a",)})
    assert replaced.planner_data == {"a": ("a",)} and replaced.storage_data == want.storage_data


def test_fields_can_be_set(saved):
    lazy = lazy_metadata(saved)
    lazy.planner_data = None
    assert lazy.planner_data is None and lazy.state_dict_metadata and lazy.planner_data is None


def test_what_is_not_there(saved):
    lazy = lazy_metadata(saved)
    with pytest.raises(AttributeError, match="no attribute 'mcore_data'"):
        lazy.mcore_data  # noqa: B018
    shutil.rmtree(saved)
    with pytest.raises(Error, match="No such file") as caught:
        lazy_metadata(saved).planner_data  # noqa: B018
    assert caught.value.status == Status.ENOTFOUND


def test_another_save_in_its_place(saved):
    mine = read_metadata(saved).storage_meta.save_id
    assert lazy_metadata(saved, save_id=mine).state_dict_metadata
    with pytest.raises(Error, match="has been replaced") as caught:
        lazy_metadata(saved, save_id="0" * 32).planner_data  # noqa: B018
    assert caught.value.status == Status.ENOTFOUND


def test_attributes_of_others_are_kept_but_not_imported(saved):
    metadata = stock_metadata(saved)
    metadata.mcore_data = {"sharding_type": "fully_sharded_model_space"}
    metadata.strange = Strange(5)
    (saved / ".metadata").write_bytes(pickle.dumps(metadata))
    calls.clear()
    got = lazy_metadata(saved)
    assert got.mcore_data == {"sharding_type": "fully_sharded_model_space"}
    assert isinstance(got.strange, Opaque) and got.strange.class_name.endswith("Strange")
    assert "not imported" in repr(got.strange) and calls == []
    assert got == metadata  # of what a Metadata is, nothing is lost


calls = []


class Strange:
    def __init__(self, value):
        self.value = value
        self.items = [1, 2]

    def __setstate__(self, state):
        calls.append(state)


def hostile(*steps):
    """A .metadata that does ``steps`` (opcodes), then hands back an empty Metadata."""
    module = b"ctorch.distributed.checkpoint.metadata\n"
    good = module + b"Metadata\n)\x81}(X\x13\x00\x00\x00state_dict_metadata}ub"
    return b"\x80\x02" + b"".join(step + b"0" for step in steps) + good + b"."


def test_the_metadata_of_megatron(saved):
    """Before Megatron-core 0.16 it is an object of a class of Megatron's."""
    stock = stock_metadata(saved)
    stock.mcore_data = {"w": {"nd_reformulated_orig_global_shape": (3, 4)}}
    home = b"megatron.core.dist_checkpointing.strategies.torch\nMCoreMetadata\n"
    data = pickle.dumps(stock, 2)
    torchs = b"ctorch.distributed.checkpoint.metadata\nMetadata\n"
    assert data.count(torchs) == 1
    (saved / ".metadata").write_bytes(data.replace(torchs, b"c" + home))
    got = lazy_metadata(saved)
    assert got == stock and got.mcore_data == stock.mcore_data
    target = {"w": torch.zeros(3, 4)}
    load(target, checkpoint_id=saved, no_dist=True)
    assert torch.equal(target["w"], torch.arange(12.0).reshape(3, 4))


def test_hostile_pickles_do_nothing(tmp_path):
    marker = tmp_path / "ran"
    text = str(marker)
    command = b"X" + len(text).to_bytes(4, "little") + text.encode()
    calls_that_would_run = [
        b"cos\nmkdir\n(" + command + b"tR",
        b"cposix\nmkdir\n(" + command + b"tR",
        b"(" + command + b"ios\nmkdir\n",
        b"cbuiltins\nopen\n(" + command + b"X\x01\x00\x00\x00wtR",
        b"cpathlib\nPosixPath.touch\n(" + command + b"tR",
        b"ctorch\nload\n(" + command + b"tR",
    ]
    assert unpickle(hostile(*calls_that_would_run)).state_dict_metadata == {}
    assert not marker.exists() and os.listdir(tmp_path) == []


def test_a_pickle_cannot_change_classes(tmp_path):
    before = dict(vars(classes.TensorStorageMetadata)), dict(vars(classes._MEM_FORMAT_ENCODING))
    changes = {
        "Metadata": b"ctorch.distributed.checkpoint.metadata\nMetadata\n",
        "chunks": b"ctorch.distributed.checkpoint.metadata\nTensorStorageMetadata\n",
        "enum class": b"ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n",
        "enum member": b"ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n(K\x00tR",
        "dtype": b"ctorch\nfloat32\n",
        "function": b"ctorch.serialization\n_get_layout\n",
        "size": b"ctorch\nSize\n",
    }
    state = {
        "dict": b"}X\x04\x00\x00\x00evilK\x01sb",
        "slots": b"N}X\x04\x00\x00\x00evilK\x01s\x86b",
    }
    refused = 0
    for what, target in changes.items():
        for kind, opcodes in state.items():
            with pytest.raises((pickle.UnpicklingError, AttributeError, TypeError)):
                unpickle(hostile(target + opcodes))
                pytest.fail(f"{what} by {kind}")
            refused += 1
    assert refused == 14
    assert before == (
        dict(vars(classes.TensorStorageMetadata)),
        dict(vars(classes._MEM_FORMAT_ENCODING)),
    )
    assert not hasattr(torch.Size, "evil") and not hasattr(classes.Metadata, "evil")
    assert not hasattr(builtins, "evil")


def test_damaged_files_say_so(saved):
    data = (saved / ".metadata").read_bytes()
    for damaged in (b"", data[: len(data) // 2], b"\x80\x04]\x94.", b"\x80\x04N.", b"no pickle"):
        (saved / ".metadata").write_bytes(damaged)
        with pytest.raises(Error, match=r"'.*/\.metadata' is not a metadata file") as caught:
            read_metadata(saved)
        assert caught.value.status == Status.ECORRUPT


def test_old_names_of_classes(saved):
    """Before torch 2.3 TensorProperties lived elsewhere; some Pythons pickle enums by getattr."""
    data = pickle.dumps(stock_metadata(saved), 2)
    new = b"torch.distributed.checkpoint.metadata\nTensorProperties\n"
    old = b"torch.distributed._shard.sharded_tensor.metadata\nTensorProperties\n"
    assert data.count(new) == 1
    data = data.replace(new, old)
    data = data.replace(
        b"torch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n",
        b"torch.distributed._shard.sharded_tensor.metadata\nMEM_FORMAT_ENCODING\n",
    )
    assert unpickle(data) == stock_metadata(saved)
    member = (
        b"cbuiltins\ngetattr\n(ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n"
        b"X\x13\x00\x00\x00TORCH_CHANNELS_LASTtR"
    )
    properties = (
        b"ctorch.distributed.checkpoint.metadata\nTensorProperties\n)\x81("
        b"ctorch\nfloat16\nctorch.serialization\n_get_layout\n(X\x0d\x00\x00\x00torch.stridedtR\x89"
        + member
        + b"\x89tb"
    )
    body = (
        b"ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}"
        b"(X\x13\x00\x00\x00state_dict_metadata}X\x01\x00\x00\x00p" + properties + b"sub."
    )
    made = unpickle(b"\x80\x02" + body).state_dict_metadata["p"]
    assert made == classes.TensorProperties(torch.float16, memory_format=torch.channels_last)
