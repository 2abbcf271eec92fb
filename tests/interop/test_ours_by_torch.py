# SPDX-License-Identifier: BSD-3-Clause
"""What we save, stock torch loads, bit for bit: on one rank, on several, and through its tools."""

import math
import pathlib
import subprocess
import sys

import pytest

from dcp_support import (
    DTYPES,
    HERE,
    NEWER,
    SIDESTEP,
    WORLD,
    WORLD_TOOL,
    Dump,
    described,
    nested,
    ok,
    on_ranks,
    pattern,
    raw,
    save_world,
    torch,
    verify,
    world,
    world_config,
    world_path,
)

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

pytestmark = pytest.mark.filterwarnings("ignore")

SCALE = 3
SAVES = [(1, "rows"), (3, "rows"), (4, "rows"), (3, "columns"), (4, "columns")]
SEEDS = {save: 10 + number for number, save in enumerate(SAVES)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a checkpoint for each of SAVES."""
    folder = tmp_path_factory.mktemp("ours")
    for (ranks, layout), seed in SEEDS.items():
        save_world(folder / f"{layout}-{ranks}", ranks, layout, SCALE, seed)
    return folder


def each_save():
    return pytest.mark.parametrize(
        "save", SAVES, ids=[f"{layout}-{ranks}" for ranks, layout in SAVES]
    )


def where(folder, save):
    return str(folder / f"{save[1]}-{save[0]}")


def at(state, path):
    for key in path:
        state = state[key]
    return state


# ------------------------------------------------------------------ one rank


@each_save()
def test_load_into_plain_tensors(saved, save):
    expected = world(SCALE, SEEDS[save])
    state = nested({name: torch.zeros_like(t) for name, t in expected.items()})
    state["config"] = None
    dcp.load(state, checkpoint_id=where(saved, save))
    for name, tensor in expected.items():
        assert described(at(state, world_path(name))) == described(tensor), name
    assert state["config"] == world_config(SEEDS[save])


@each_save()
def test_dcp_to_torch_save(saved, save, tmp_path):
    """Without a template: shapes, dtypes and nesting are what we wrote of them."""
    dcp_to_torch_save(where(saved, save), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    expected = nested(world(SCALE, SEEDS[save]))
    assert state.pop("config") == world_config(SEEDS[save])
    assert state.keys() == expected.keys() and state["model"].keys() == expected["model"].keys()
    for name in WORLD:
        path = world_path(name)
        assert described(at(state, path)) == described(at(expected, path)), name


def test_a_difference_is_seen(saved):
    """The comparison itself: of another step, every tensor differs."""
    save = SAVES[0]
    other = world(SCALE, SEEDS[save] + 1)
    state = nested({name: torch.zeros_like(t) for name, t in other.items()})
    dcp.load(state, checkpoint_id=where(saved, save))
    for name, tensor in other.items():
        same = described(at(state, world_path(name))) == described(tensor)
        assert same == (tensor.numel() == 0), name


def test_command_line_of_torch(saved, tmp_path):
    save = (3, "columns")
    command = [sys.executable, "-m", "torch.distributed.checkpoint.format_utils"]
    subprocess.run(
        [*command, "dcp_to_torch", where(saved, save), tmp_path / "state.pt"],
        check=True,
        capture_output=True,
    )
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    for name, tensor in world(SCALE, SEEDS[save]).items():
        assert described(at(state, world_path(name))) == described(tensor), name


def test_load_of_some_keys(saved):
    """And of a tensor alone, without its neighbours."""
    save = (4, "rows")
    state = {"model": {"head.weight": torch.zeros(300 * SCALE, 64)}}
    dcp.load(state, checkpoint_id=where(saved, save))
    expected = world(SCALE, SEEDS[save])["model.head.weight"]
    assert raw(state["model"]["head.weight"]) == raw(expected)


# ------------------------------------------------------------------ metadata


def volume(sizes):
    return math.prod(sizes)


@each_save()
def test_metadata(saved, save):
    """Every field that a reader or a planner of torch looks at."""
    path = where(saved, save)
    metadata = dcp.FileSystemReader(path).read_metadata()
    assert metadata.version == "1.0.0"
    assert metadata.storage_meta.save_id == Dump(path).save_id != ""
    assert metadata.planner_data == {
        **{name: world_path(name) for name in WORLD},
        "config": ("config",),
    }
    assert metadata.state_dict_metadata.keys() == metadata.planner_data.keys()
    assert type(metadata.state_dict_metadata["config"]) is dcp.metadata.BytesStorageMetadata
    stored = dict(metadata.storage_data)
    of_files = {}
    for name, tensor in world(SCALE, SEEDS[save]).items():
        entry = metadata.state_dict_metadata[name]
        assert type(entry) is dcp.metadata.TensorStorageMetadata
        assert type(entry.size) is torch.Size and entry.size == tensor.shape
        assert entry.properties == dcp.metadata.TensorProperties(dtype=tensor.dtype)
        seen = torch.zeros(tensor.shape, dtype=torch.uint8)
        for number, chunk in enumerate(entry.chunks):
            assert type(chunk.offsets) is type(chunk.sizes) is torch.Size
            box = tuple(slice(o, o + n) for o, n in zip(chunk.offsets, chunk.sizes))
            assert seen[box].shape == chunk.sizes  # in bounds
            seen[box] += 1
            index = dcp.metadata.MetadataIndex(name, chunk.offsets, number)
            (key,) = [key for key in stored if key == index]
            assert key.index == number
            info = stored.pop(key)
            assert info.length > volume(chunk.sizes) * tensor.element_size()
            of_files.setdefault(info.relative_path, []).append((info.offset, info.length))
        assert entry.chunks and bool((seen == 1).all()), name
    info = stored.pop(dcp.metadata.MetadataIndex("config"))
    of_files.setdefault(info.relative_path, []).append((info.offset, info.length))
    assert not stored
    for file, places in of_files.items():
        end = 0
        for offset, length in sorted(places):
            assert offset >= end
            end = offset + length
        assert end <= (pathlib.Path(path) / file).stat().st_size


# ------------------------------------------------------------------ every dtype and value


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("sample") / "sample"
    ok(WORLD_TOOL, "sample", path, NEWER)
    return str(path)


SHAPES = {
    "scalar": (),
    "empty": (3, 0),
    "vector": (5,),
    "four": (2, 3, 1, 4),
    "transposed": (3, 4),
    "gaps": (2, 3, 2),
    "channels_last": (2, 3, 2, 2),
}
QUOTE = 'quote" \\ tab\t \u00e9 \U0001f600'
VALUES = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "least": -(2**63),
    "most": 2**63 - 1,
    "float": -0.0,
    "infinity": math.inf,
    "str": "gr\u00fc\u00df \U0001f600",
    "bytes": b"a\0\xff\n",
    "list": [],
    "tuple": (),
    "dict": {},
    "nested": {"list": [(b"\0\x80\xff", None, ()), False, {}], 7: 0.1, b"k": "v"},
}


def sample_tensors(dtypes):
    """(name, path, dtype, shape)"""
    for dtype in dtypes:
        for shape in SHAPES:
            yield f"sample.{dtype}.{shape}", ("sample", dtype, shape), dtype, SHAPES[shape]
    for number in range(2):
        name = f"optim.state.{number}.exp_avg"
        yield name, ("optim", "state", number, "exp_avg"), "float32", (2, 3)
    yield "keyed.-7.0.w", ("keyed", "-7", "0", "w"), "float32", (2, 3)  # integer keys, in truth
    yield "dotted.key.here", ("dotted.key", "here"), "float32", (2, 3)
    yield "top level", ("top level",), "float32", (2, 3)
    yield QUOTE, (QUOTE,), "float32", (2, 3)


def check_sample(state):
    for name, path, dtype, shape in sample_tensors(HERE):
        expected = pattern(name, volume(shape) * DTYPES[dtype])
        assert described(at(state, path)) == (dtype, shape, expected), name
    for key, value in VALUES.items():
        assert repr(state["objects"][key]) == repr(value), key  # types and -0.0, too
    assert type(state["optim"]["state"]) is list


def test_sample_without_a_template(sample, tmp_path):
    dcp_to_torch_save(sample, tmp_path / "state.pt")
    check_sample(torch.load(tmp_path / "state.pt", weights_only=False))


def test_sample_into_a_template(sample):
    state = {"optim": {"state": [{}, {}]}, "dotted.key": {}, "objects": dict.fromkeys(VALUES)}
    for _, path, dtype, shape in sample_tensors(HERE):
        branch = state
        for key in path[:-1]:
            branch = branch[key] if isinstance(branch, list) else branch.setdefault(key, {})
        branch[path[-1]] = torch.empty(shape, dtype=getattr(torch, dtype))
    dcp.load(state, checkpoint_id=sample)
    check_sample(state)


def test_sample_by_torch_save(sample, tmp_path):
    """Every dtype and shape converted to a file of torch.save(), read by torch."""
    ok(SIDESTEP, "convert", sample, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    for name, path, dtype, shape in sample_tensors(HERE):
        if path[0] != "keyed":  # whose keys are integers here, as they were
            expected = pattern(name, volume(shape) * DTYPES[dtype])
            assert described(at(state, path)) == (dtype, shape, expected), name
    assert described(state["keyed"][-7][0]["w"])[:2] == ("float32", (2, 3))
    for key, value in VALUES.items():
        assert repr(state["objects"][key]) == repr(value), key


def test_sample_metadata(sample):
    metadata = dcp.FileSystemReader(sample).read_metadata()
    shapes = list(SHAPES)
    for name, path, dtype, shape in sample_tensors(HERE):
        entry = metadata.state_dict_metadata[name]
        grad = path[0] == "sample" and shapes.index(path[-1]) % 2 == 0
        assert entry.properties.requires_grad is grad, name
        assert entry.properties.dtype == getattr(torch, dtype)
        assert entry.size == shape and entry.chunks
        assert metadata.planner_data[name] == path
        assert [type(key) for key in metadata.planner_data[name]] == [type(key) for key in path]
    assert metadata.sidestep_int_keys == {"keyed.-7.0.w": (1, 2)}


def test_sample_by_ourselves(tmp_path):
    """With the dtypes that this torch has not yet."""
    ok(WORLD_TOOL, "sample", tmp_path / "all", "")
    verify(tmp_path / "all")
    dump = Dump(tmp_path / "all")
    assert dump.format == "sidestep"
    assert dump.tensors == {
        name: (dtype, shape, pattern(name, volume(shape) * DTYPES[dtype]))
        for name, _, dtype, shape in sample_tensors(DTYPES)
    }
    assert repr(dict(sorted(dump.objects.items()))) == repr(
        {f"objects.{key}": VALUES[key] for key in sorted(VALUES)}
    )


# ------------------------------------------------------------------ several ranks


def placements(ndim):
    """Ways to lay a tensor on a mesh: (mesh shape, placements)."""
    from torch.distributed.tensor import Replicate, Shard

    size = torch.distributed.get_world_size()
    ways = [((size,), [Replicate()])]
    ways += [((size,), [Shard(dim)]) for dim in range(min(ndim, 2))]
    if size == 4 and ndim >= 2:
        ways += [
            ((2, 2), [Shard(0), Shard(1)]),
            ((2, 2), [Shard(1), Replicate()]),
            ((2, 2), [Shard(0), Shard(0)]),
        ]
    return ways


def load_sharded(path, seed):
    """On each rank: every tensor in every way at once; how many were compared."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, distribute_tensor

    meshes = {}
    compared = 0
    expected = world(SCALE, seed)
    rounds = max(len(placements(tensor.ndim)) for tensor in expected.values())
    for turn in range(rounds):
        flat, wanted = {}, {}
        for number, (name, tensor) in enumerate(expected.items()):
            ways = placements(tensor.ndim)
            shape, way = ways[(turn + number) % len(ways)]
            if shape not in meshes:
                meshes[shape] = init_device_mesh("cpu", shape)
            mesh = meshes[shape]
            # Sharded as bytes would be: not every dtype can be split by torch itself.
            shard = distribute_tensor(torch.zeros(tensor.shape, dtype=torch.uint8), mesh, way)
            local = torch.empty(shard.to_local().shape, dtype=tensor.dtype)
            flat[name] = DTensor.from_local(
                local, mesh, way, run_check=False, shape=tensor.shape, stride=tensor.stride()
            )
            places = torch.arange(tensor.numel()).reshape(tensor.shape)
            wanted[name] = distribute_tensor(places, mesh, way).to_local().flatten()
        state = nested(flat)
        dcp.load(state, checkpoint_id=path)
        for name, tensor in expected.items():
            loaded = at(state, world_path(name)).to_local()
            item = tensor.element_size()
            elements = torch.frombuffer(bytearray(raw(tensor) or b"\0"), dtype=torch.uint8)
            elements = elements[: tensor.numel() * item].reshape(-1, item)[wanted[name]]
            assert raw(loaded) == raw(elements), (name, turn)
            compared += elements.numel()
    return compared


def load_all_sharded(folder, saves):
    paths = [where(pathlib.Path(folder), save) for save in saves]
    with pytest.raises(AssertionError):  # the comparison sees a difference
        load_sharded(paths[0], SEEDS[saves[0]] + 1)
    return [load_sharded(path, SEEDS[save]) for path, save in zip(paths, saves)]


@pytest.mark.parametrize("ranks", [3, 4])
def test_load_into_dtensors(saved, ranks):
    answers = on_ranks(ranks, load_all_sharded, str(saved), SAVES)
    smallest = sum(raw(tensor) != b"" for tensor in world(1, 0).values())
    assert all(compared > smallest for answer in answers for compared in answer)


@pytest.mark.parametrize("ranks", [1, 4])
def test_load_of_zstd(saved, tmp_path, ranks):
    """Compressed by us, with several shards, decoded by torch's own extension."""
    save = (4, "rows")
    path = str(tmp_path / "zstd")
    ok(SIDESTEP, "convert", "--to=dcp", "--compress=zstd", "--ranks=4", where(saved, save), path)
    stored = dcp.FileSystemReader(path).read_metadata().storage_data.values()
    packed = [info for info in stored if info.transform_descriptors]
    assert len({info.relative_path for info in packed}) > 1, "nothing was compressed"
    assert {tuple(info.transform_descriptors) for info in packed} == {("stream.zstd/1",)}
    answers = on_ranks(ranks, load_sharded, path, SEEDS[save])
    assert len(answers) == ranks and all(compared > 0 for compared in answers)
