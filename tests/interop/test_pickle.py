# SPDX-License-Identifier: BSD-3-Clause
"""Pickles and `.metadata`: ours against Python's pickle and torch's classes, both ways.

build/tests/metadata_tool (or $METADATA_TOOL) is our side; see tests/tools/metadata_tool.c.
"""

import collections
import io
import json
import os
import pathlib
import pickle
import pickletools
import struct
import subprocess

import pytest

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings, strategies as st  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("METADATA_TOOL", str(ROOT / "build" / "tests" / "metadata_tool"))
GOLDEN = ROOT / "tests" / "golden"

if not os.access(TOOL, os.X_OK):
    pytest.skip(f"{TOOL} is not built", allow_module_level=True)

settings.register_profile("sidestep", deadline=None, max_examples=150, derandomize=True)
settings.load_profile("sidestep")


class Tool:
    """One process for all requests."""

    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, request, data):
        self.process.stdin.write(request + struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        status, length = struct.unpack("<II", self.process.stdout.read(8))
        return status, self.process.stdout.read(length)

    def ok(self, request, data):
        status, answer = self.ask(request, data)
        assert status == 0, answer.decode()
        return answer

    def fails(self, request, data):
        status, answer = self.ask(request, data)
        assert status != 0
        return answer.decode()


@pytest.fixture(scope="module")
def tool():
    tool = Tool()
    yield tool
    tool.process.stdin.close()
    assert tool.process.wait() == 0


# ------------------------------------------------------------------ values


def as_json(value):
    """What the tool prints for ${value}."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else {"o": None}
    if kind is float:
        return {"f": struct.pack(">d", value).hex()}
    if kind is str:
        return {"s": value.encode("utf-8", "surrogatepass").hex()}
    if kind in (bytes, bytearray):
        return {"b": bytes(value).hex()}
    if kind is list or kind is set:
        return [as_json(v) for v in value]
    if kind is tuple or kind is frozenset:
        return {"t": [as_json(v) for v in value]}
    if kind in (dict, collections.OrderedDict, collections.Counter, collections.defaultdict):
        return {"d": [as_json(v) for pair in value.items() for v in pair]}
    raise AssertionError(kind)


def without_descriptions(printed):
    if isinstance(printed, list):
        return [without_descriptions(v) for v in printed]
    if isinstance(printed, dict):
        return {k: None if k == "o" else without_descriptions(v) for k, v in printed.items()}
    return printed


any_text = st.text(st.characters(codec=None)) | st.text(
    st.characters(min_codepoint=0, max_codepoint=0x2FF)
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | any_text
    | st.binary()
)
keys = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
    | any_text | st.binary(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
values = st.recursive(
    scalars | st.binary().map(bytearray),
    lambda inner: st.lists(inner, max_size=6)
    | st.lists(inner, max_size=6).map(tuple)
    | st.dictionaries(keys, inner, max_size=6)
    | st.dictionaries(keys, inner, max_size=3).map(collections.OrderedDict)
    | st.sets(keys, max_size=3)
    | st.frozensets(keys, max_size=3),
    max_leaves=25,
)


def dumps(value, protocol, python):
    if not python:
        return pickle.dumps(value, protocol)
    out = io.BytesIO()
    pickle._Pickler(out, protocol).dump(value)
    return out.getvalue()


def iterates_equal(value, data):
    """Sets may come back from a pickle in another order; then there is nothing to compare with."""
    return as_json(pickle.loads(data)) == as_json(value)


@given(value=values, protocol=st.integers(0, 5), python=st.booleans())
def test_values_are_read_as_python_reads_them(tool, value, protocol, python):
    data = dumps(value, protocol, python)
    hypothesis.assume(iterates_equal(value, data))
    printed = json.loads(tool.ok(b"v", data))
    assert without_descriptions(printed) == as_json(value)


@given(value=values, protocol=st.integers(2, 5))
def test_optimized_pickles_are_read(tool, value, protocol):
    data = pickletools.optimize(pickle.dumps(value, protocol))
    hypothesis.assume(iterates_equal(value, data))
    assert without_descriptions(json.loads(tool.ok(b"v", data))) == as_json(value)


class NoSharing:
    """Python's pickler memoises by identity; copies of equal leaves make trees without sharing."""

    def __init__(self):
        self.count = 0

    def copy(self, value):
        if isinstance(value, list):
            return [self.copy(v) for v in value]
        if isinstance(value, tuple):
            return tuple(self.copy(v) for v in value)
        if isinstance(value, dict):
            return {self.copy(k): self.copy(v) for k, v in value.items()}
        self.count += 1
        if isinstance(value, str):
            return f"{self.count:x}\u0131{value}"
        if isinstance(value, bytes):
            return b"%x:" % self.count + value
        return value


writable = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | any_text
    | st.binary(),
    lambda inner: st.lists(inner, max_size=6)
    | st.lists(inner, max_size=6).map(tuple)
    | st.dictionaries(any_text | st.integers(-(2**63), 2**63 - 1), inner, max_size=6),
    max_leaves=25,
)


@given(value=writable, protocol=st.integers(0, 5))
def test_written_values_are_pythons_own_bytes(tool, value, protocol):
    value = NoSharing().copy(value)
    written = tool.ok(b"w", pickle.dumps(value, protocol))
    assert written == pickle.dumps(value, 2)


@pytest.mark.parametrize("count", [0, 1, 2, 999, 1000, 1001, 2000, 2001])
def test_batches_are_pythons(tool, count):
    for value in ([float(i) for i in range(count)], {i * 1000: None for i in range(count)}):
        assert tool.ok(b"w", pickle.dumps(value, 4)) == pickle.dumps(value, 2)


INTEGERS = sorted(
    {sign * (2**bits) + delta for bits in range(64) for delta in (-1, 0, 1) for sign in (1, -1)}
    - {2**63, 2**63 + 1, -(2**63) - 1}
)


def test_integers_are_pythons(tool):
    for value in INTEGERS:
        for protocol in range(6):
            data = pickle.dumps(value, protocol)
            assert tool.ok(b"w", data) == pickle.dumps(value, 2)


def test_what_is_written_is_safe_to_load(tool):
    torch = pytest.importorskip("torch")
    scalars_of_all = [1, -1, 2**40, 1.5, None, True, b"", b"\x00\xff", "\u20ac"]
    value = {"a": scalars_of_all, "b": (1, (), (2, 3, 4, 5))}
    written = tool.ok(b"w", pickle.dumps(value, 4))
    safe = torch._weights_only_unpickler.Unpickler(io.BytesIO(written), encoding="utf-8")
    assert safe.load() == value


def test_more_kinds_of_dict(tool):
    for value in (
        collections.Counter("abracadabra"),
        collections.defaultdict(list, {1: [2]}),
        collections.OrderedDict(a=1, b={}),
        collections.OrderedDict(),
    ):
        for protocol in range(6):
            printed = json.loads(tool.ok(b"v", pickle.dumps(value, protocol)))
            assert printed == as_json(value), protocol


class Gadget:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


def test_gadgets_are_inert(tool, tmp_path):
    mark = tmp_path / "ran"
    for call in ((os.system, f"touch {mark}"), (eval, f"open({str(mark)!r}, 'w')"), (exec, "1/0")):
        for protocol in range(6):
            data = pickle.dumps([Gadget(*call)], protocol)
            (printed,) = json.loads(tool.ok(b"v", data))
            assert call[0].__name__ in bytes.fromhex(printed["o"]).decode()
    assert not mark.exists()


# ------------------------------------------------------------------ metadata


def of_torch():
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint.metadata as m
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    return torch, m, _StorageInfo


def make_metadata(seed):
    """Tensors of several dtypes and shapes, in chunks, and objects, as a save would list them."""
    torch, m, _StorageInfo = of_torch()
    entries, storage, planner = {}, {}, {}
    dtypes = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn]
    for i in range(seed * 7):
        name = f"model.layers.{i}.\u00e9weight" + "x" * (i * 37 % 400)
        planner[name] = ("model", "layers", i, "\u00e9weight", 300 * i)
        if i % 5 == 4:
            index = m.MetadataIndex(name)
            entries[name] = m.BytesStorageMetadata()
            storage[index] = _StorageInfo(f"__{i % 3}_0.distcp", 2**33 + i, 5000 * i)
            continue
        ndim = i % 6
        rows = [0, 1, 3, 70000, 2**31, 2**40][i % 6] if ndim else 1
        size = torch.Size([rows * 2] + [3] * (ndim - 1)) if ndim else torch.Size([])
        chunks = []
        for part in range(2 if ndim and rows else 1):
            offsets = torch.Size([rows * part] + [0] * (ndim - 1)) if ndim else torch.Size([])
            sizes = torch.Size([rows] + [3] * (ndim - 1)) if ndim else torch.Size([])
            if ndim and not rows:
                sizes = size
            chunks.append(m.ChunkStorageMetadata(offsets, sizes))
            extra = {"transform_descriptors": ["stream.zstd/1"]} if i % 4 == 3 else {}
            storage[m.MetadataIndex(name, offsets, part)] = _StorageInfo(
                f"__{part}_0.distcp", i * 40960, 1600 + i, **extra
            )
        properties = m.TensorProperties(dtypes[i % 5], requires_grad=bool(i % 2))
        entries[name] = m.TensorStorageMetadata(properties, size, chunks)
    meta = m.StorageMeta(checkpoint_id="/tmp/checkpoint", save_id="4f6d", load_id=None)
    return m.Metadata(entries, planner, storage, meta, version="1.0.0")


def assert_same(ours, theirs):
    assert ours == theirs
    assert type(ours) is type(theirs)
    # MetadataIndex.index is not part of its equality.
    assert {key: key.index for key in ours.storage_data} == {
        key: key.index for key in theirs.storage_data
    }


@pytest.mark.parametrize("seed", [0, 1, 2, 5])
@pytest.mark.parametrize("protocol", range(6))
def test_metadata_comes_back_equal(tool, seed, protocol):
    of_torch()
    theirs = make_metadata(seed)
    ours = pickle.loads(tool.ok(b"m", pickle.dumps(theirs, protocol)))
    assert_same(ours, theirs)


@pytest.mark.parametrize("protocol", range(6))
def test_properties_of_torch_2_0(tool, protocol):
    torch, m, _StorageInfo = of_torch()
    from torch.distributed._shard.sharded_tensor import metadata as old

    theirs = make_metadata(2)
    plain = pickle.loads(pickle.dumps(theirs))
    for entry in theirs.state_dict_metadata.values():
        if isinstance(entry, m.TensorStorageMetadata):
            new = entry.properties
            entry.properties = old.TensorProperties(new.dtype, requires_grad=new.requires_grad)
    data = pickle.dumps(theirs, protocol)
    assert b"sharded_tensor" in data
    assert_same(pickle.loads(tool.ok(b"m", data)), plain)


@pytest.mark.parametrize("unpickler", [pickle.Unpickler, pickle._Unpickler])
def test_metadata_loads_from_a_stream(tool, unpickler):
    of_torch()
    theirs = make_metadata(3)
    written = tool.ok(b"m", pickle.dumps(theirs))
    stream = io.BytesIO(written + b"tail")
    assert_same(unpickler(stream).load(), theirs)
    assert stream.read() == b"tail"


def test_many_entries(tool):
    """More than one batch, and memo numbers of every width."""
    torch, m, _StorageInfo = of_torch()
    theirs = make_metadata(1)
    for i in range(2500):
        theirs.state_dict_metadata[f"o{i}"] = m.BytesStorageMetadata()
        theirs.storage_data[m.MetadataIndex(f"o{i}")] = _StorageInfo(f"file-{i % 7}", i, i)
        theirs.planner_data[f"o{i}"] = (f"o{i}",)
    chunks = []
    for i in range(1001):
        chunks.append(m.ChunkStorageMetadata(torch.Size([i]), torch.Size([1])))
        theirs.storage_data[m.MetadataIndex("many", torch.Size([i]), i)] = _StorageInfo("f", i, 1)
    theirs.state_dict_metadata["many"] = m.TensorStorageMetadata(
        m.TensorProperties(torch.uint8), torch.Size([1001]), chunks
    )
    theirs.planner_data["many"] = ("many",)
    assert pickle.loads(tool.ok(b"m", pickle.dumps(theirs))) == theirs


def golden_metadata():
    return sorted(GOLDEN.glob("torch-*/*/.metadata"))


@pytest.mark.parametrize("path", golden_metadata(), ids=lambda p: "/".join(p.parts[-3:-1]))
def test_golden_metadata(tool, path):
    """What we write of it is what torch reads in it."""
    torch, m, _StorageInfo = of_torch()

    class Paths(pickle.Unpickler):
        def find_class(self, module, name):
            # Python 3.13's name of the module.
            return super().find_class("pathlib" if module == "pathlib._local" else module, name)

    if "torch-2.15" in str(path) and torch.__version__ < "2.15":
        pytest.skip("older torch cannot read the strides that 2.15 writes")
    theirs = Paths(io.BytesIO(path.read_bytes())).load()
    ours = pickle.loads(tool.ok(b"m", path.read_bytes()))
    for entry in theirs.state_dict_metadata.values():
        if hasattr(getattr(entry, "properties", None), "strides"):
            entry.properties.strides = None  # we write what older torch can read
    assert ours.state_dict_metadata == theirs.state_dict_metadata
    assert ours.storage_data == theirs.storage_data
    assert ours.planner_data == theirs.planner_data
    assert ours.storage_meta.save_id == theirs.storage_meta.save_id
    assert ours.storage_meta.checkpoint_id == str(theirs.storage_meta.checkpoint_id)


def test_metadata_of_others(tool):
    """Attributes that nobody asks for may hold anything."""
    of_torch()
    theirs = make_metadata(2)
    plain = pickle.loads(pickle.dumps(theirs))
    theirs.mcore_data = {"x": Gadget(os.system, "exit 1")}
    theirs.all_local_plans = [collections.Counter("aa"), pathlib.PurePosixPath("/x")]
    ours = pickle.loads(tool.ok(b"m", pickle.dumps(theirs)))
    assert ours == plain


def test_metadata_with_a_gadget_is_refused(tool):
    torch, m, _StorageInfo = of_torch()
    gadget = Gadget(os.system, "exit 1")
    for damage in (
        lambda d: d.state_dict_metadata.update(w=gadget),
        lambda d: setattr(d, "storage_data", gadget),
        lambda d: setattr(d, "state_dict_metadata", gadget),
        lambda d: setattr(d.storage_meta, "save_id", gadget),
        lambda d: setattr(d.storage_meta, "checkpoint_id", gadget),
        lambda d: setattr(next(iter(d.storage_data.values())), "length", gadget),
    ):
        metadata = make_metadata(1)
        damage(metadata)
        assert "'posix system', which is not run" in tool.fails(b"m", pickle.dumps(metadata))
