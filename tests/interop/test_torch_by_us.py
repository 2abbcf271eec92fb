# SPDX-License-Identifier: BSD-3-Clause
"""What stock torch saves, in all its ways, we read, bit for bit; and what we make of it again."""

import io
import json

import numpy
import pytest

from dcp_support import (
    DTYPES,
    HERE,
    SIDESTEP,
    WORLD,
    WORLD_TOOL,
    Dump,
    Opaque,
    described,
    fails,
    from_raw,
    ok,
    on_ranks,
    pattern,
    raw,
    torch,
    verify,
    world,
    world_config,
)

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

pytestmark = pytest.mark.filterwarnings("ignore")

INT64 = range(-(2**63), 2**63)


def decoded(value):
    """What we make of an object, so that == compares types, too; Opaque if it is none of our kinds.
    A set becomes a list, a frozenset and a torch.Size a tuple."""
    if type(value) in (list, set):
        return ["list", *(decoded(item) for item in value)]
    if type(value) in (tuple, frozenset, torch.Size):
        return ["tuple", *(decoded(item) for item in value)]
    if isinstance(value, dict):
        return ["dict", *([decoded(key), decoded(item)] for key, item in value.items())]
    if type(value) is int and value not in INT64:
        return Opaque
    return repr(value) if type(value) in (type(None), bool, int, float, str, bytes) else Opaque


def check(path, state, flat=None):
    """Everything in ${path} is as in ${state}, by every way we have of looking at it."""
    flat = flat if flat is not None else flatten_state_dict(state)[0]
    tensors = {name: value for name, value in flat.items() if isinstance(value, torch.Tensor)}
    objects = {name: value for name, value in flat.items() if name not in tensors}
    dump = Dump(path)
    assert dump.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert dump.tensors[name] == described(tensor), name
    assert dump.objects.keys() == objects.keys()
    for name, value in objects.items():
        assert decoded(dump.objects[name]) == decoded(value), name
    verify(path)
    shown = json.loads(ok(SIDESTEP, "show", "--json", path))
    assert shown["format"] == dump.format
    assert [(t["name"], t["dtype"], tuple(t["shape"]), t["bytes"]) for t in shown["tensors"]] == [
        (name, dtype, shape, len(data)) for name, (dtype, shape, data) in dump.tensors.items()
    ]
    assert [entry["name"] for entry in shown["objects"]] == list(dump.objects)
    return dump


# ------------------------------------------------------------------ one rank

# DCP cannot plan a save of these: torch does not know how large their elements are.
UNSAVABLE = {"bits8", "bits1x8", "bits2x4", "bits4x2", "bits16"}
SAVABLE = [dtype for dtype in HERE if dtype not in UNSAVABLE]
SHAPES = {"scalar": (), "empty": (0, 3), "vector": (7,), "matrix": (3, 5), "four": (2, 1, 3, 2)}


def of_pattern(name, dtype, shape):
    return from_raw(dtype, shape, pattern(name, int(numpy.prod(shape)) * DTYPES[dtype]))


def every_dtype():
    return {
        "all": {
            dtype: {
                name: of_pattern(f"all.{dtype}.{name}", dtype, shape)
                for name, shape in SHAPES.items()
            }
            for dtype in SAVABLE
        }
    }


def views():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    z = torch.complex(base + 1, base + 0.5)
    image = torch.arange(120.0).reshape(2, 3, 4, 5)
    return {
        "transposed": base.t(),
        "permuted": torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
        "channels_last": image.contiguous(memory_format=torch.channels_last),
        "channels_last_slice": image.contiguous(memory_format=torch.channels_last)[:, 1:],
        "channels_last_3d": torch.arange(48.0)
        .reshape(1, 2, 2, 3, 4)
        .contiguous(memory_format=torch.channels_last_3d),
        "slice": base[1:3, 2:5],
        "row": base[2],
        "column": base[:, 3],
        "steps": base[::2, ::3],
        "diagonal": base.diagonal(),
        "windows": torch.arange(9.0).unfold(0, 4, 2),
        "expanded": torch.tensor([1.5, 2.5]).expand(3, 2),
        "expanded_scalar": torch.tensor(7).expand(2, 5),
        "conj": z.conj(),
        "conj_transposed": z.t().conj(),
        "neg": torch._neg_view(base),
        "imag_of_conj": z.conj().imag,
        "real": z.real,
        "scalar_of_many": base[3, 5],
        "nothing_of_many": base[4:],
        "shared": base,
        "bfloat16_t": base.bfloat16().t(),
        "bool_t": (base > 7).t(),
        "parameter": torch.nn.Parameter(base.clone()),
        "buffer": torch.nn.Buffer(base.clone()),
        "ones": torch.ones(1, 1, 1, 1, 1, 1),
    }


def training():
    """A model and an optimizer after a step: integer keys, lists of dicts, tuples, 0-d steps."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 5, 3), torch.nn.BatchNorm2d(5), torch.nn.Flatten(), torch.nn.Linear(20, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    model(torch.randn(2, 3, 4, 4)).sum().backward()
    optimizer.step()
    scheduler.step()
    return {
        "model": model.state_dict(),
        "optim": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng": torch.get_rng_state(),
        "list": [torch.ones(2), [torch.zeros(1), 5], {"deep": [torch.arange(3)]}],
        "epoch": 3,
    }


def objects():
    return {
        "none": None,
        "true": True,
        "false": False,
        "int": 123456,
        "least": -(2**63),
        "most": 2**63 - 1,
        "big": 2**63,
        "bigger": -(10**40),
        "float": 0.1,
        "nan": float("nan"),
        "negative_zero": -0.0,
        "str": "gr\u00fc\u00df \U0001f600 \0 end",
        "empty_str": "",
        "bytes": b"\x00\xff bytes",
        "tuple": (1, (2.5, "three", (None, ())), [4, {"k": (5,)}]),
        "list": [1, "two", [3.0]],
        "empty_list": [],
        "empty_dict": {},
        "empty_tuple": (),
        "dict_in_tuple": ({1: "one", "two": 2, (3, 4): b"5", None: True},),
        "set": {7},
        "frozenset": frozenset("a"),
        "size": torch.Size([2, 3]),
        "numpy_scalar": numpy.float64(1.5),
        "numpy_array": numpy.arange(3),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "complex": 1 + 2j,
        "slice": slice(1, 2),
        "tuple_of_tensors": (torch.ones(3), torch.zeros(2, 2)),
        "range": range(3),
        "function": len,
        "long_list": [list(range(3000))],
        "long_str": "x" * 100000,
    }


STATES = {"dtypes": every_dtype, "views": views, "training": training, "objects": objects}
WRITERS = {
    "default": {},
    "threads": {"thread_count": 3},
    "file_per_item": {"single_file_per_rank": False},
    "zstd": {"_extensions": [ZStandard()]},
    "zstd_threads": {"_extensions": [ZStandard()], "thread_count": 3},
    "no_sync": {"sync_files": False},
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("state", STATES)
def test_one_rank(tmp_path, state, writer):
    path = str(tmp_path / "checkpoint")
    state = STATES[state]()
    dcp.save(state, storage_writer=dcp.FileSystemWriter(path, **WRITERS[writer]))
    dump = check(path, state)
    assert dump.format == "dcp"
    transforms = ["stream.zstd/1"] if writer.startswith("zstd") else None
    for info in dcp.FileSystemReader(path).read_metadata().storage_data.values():
        assert info.transform_descriptors == transforms  # the case is what it says


@pytest.mark.parametrize("state", STATES)
def test_without_flattening(tmp_path, state):
    """planner_data is None; nested dicts are objects with tensors in them."""
    path = str(tmp_path / "checkpoint")
    state = STATES[state]()
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    dcp.save(state, checkpoint_id=path, planner=planner)
    check(path, state, flat=state)


def test_without_collectives(tmp_path):
    path = str(tmp_path / "checkpoint")
    state = training()
    dcp.save(state, checkpoint_id=path, use_collectives=False, no_dist=True)
    assert (tmp_path / "checkpoint" / "__0.metadata").exists()
    assert not (tmp_path / "checkpoint" / ".metadata").exists()
    check(path, state)


def test_a_difference_is_seen(tmp_path):
    """The comparison itself, on what it must not take for the same."""
    path = str(tmp_path / "checkpoint")
    state = {"w": torch.arange(6.0).reshape(2, 3), "n": (1, 2)}
    dcp.save(state, checkpoint_id=path)
    check(path, state)
    for other in (
        {"w": torch.arange(6.0).reshape(3, 2), "n": (1, 2)},
        {"w": torch.arange(6.0).reshape(2, 3).double(), "n": (1, 2)},
        {"w": torch.tensor([[-0.0, 1, 2], [3, 4, 5]]), "n": (1, 2)},
        {"w": state["w"], "n": [1, 2]},
        {"w": state["w"], "n": (1, True)},
        {"w": state["w"]},
        {"w": state["w"], "n": (1, 2), "x": 1},
    ):
        with pytest.raises(AssertionError):
            check(path, other, flat=other)


# ------------------------------------------------------------------ the command line

NUMPY = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "float16", "float32", "float64", "complex64", "complex128"}  # fmt: skip


def test_command_line(tmp_path):
    path = str(tmp_path / "checkpoint")
    state = every_dtype()
    dcp.save(state, checkpoint_id=path)
    for name, tensor in flatten_state_dict(state)[0].items():
        if name.split(".")[2] not in ("scalar", "empty", "four"):
            continue
        dtype = name.split(".")[1]
        if dtype in NUMPY:
            loaded = numpy.load(io.BytesIO(ok(SIDESTEP, "cat", "--npy", path, name)))
            theirs = tensor.numpy()
            assert (loaded.dtype, loaded.shape) == (theirs.dtype, theirs.shape), name
            assert loaded.tobytes() == theirs.tobytes(), name
        else:
            assert ok(SIDESTEP, "cat", path, name) == raw(tensor), name
    listed = json.loads(ok(SIDESTEP, "ls", "--json", tmp_path))["checkpoints"]
    assert [(entry["name"], entry["state"]) for entry in listed] == [("checkpoint", "committed")]
    text = ok(SIDESTEP, "show", path, "all.float32.*").decode()
    assert "all.float32.four" in text and "all.float64.four" not in text


def test_objects_on_the_command_line(tmp_path):
    path = str(tmp_path / "checkpoint")
    state = objects()
    dcp.save(state, checkpoint_id=path)
    for name in ("none", "true", "least", "most", "float", "str", "long_list"):
        if isinstance(state[name], list):
            continue
        assert json.loads(ok(SIDESTEP, "cat", "--value", path, name)) == state[name], name
    stored = ok(SIDESTEP, "cat", path, "tuple")
    assert torch.load(io.BytesIO(stored), weights_only=True) == state["tuple"]
    stored = ok(SIDESTEP, "cat", path, "tuple_of_tensors")
    assert raw(torch.load(io.BytesIO(stored), weights_only=True)[0]) == raw(torch.ones(3))


# ------------------------------------------------------------------ several ranks


def sharded_flat():
    """(name, shape, mesh, placements): uneven, empty, in two directions, with replicas."""
    from torch.distributed.tensor import Replicate, Shard

    yield "rows7", (7, 3), (4,), [Shard(0)]
    yield "rows2", (2, 3), (4,), [Shard(0)]
    yield "rows0", (0, 3), (4,), [Shard(0)]
    yield "columns", (5, 6), (4,), [Shard(1)]
    yield "replica", (5, 6), (4,), [Replicate()]
    yield "scalar", (), (4,), [Replicate()]
    yield "grid", (5, 7), (2, 2), [Shard(0), Shard(1)]
    yield "grid_t", (5, 7), (2, 2), [Shard(1), Shard(0)]
    yield "grid_one", (9, 2), (2, 2), [Shard(0), Shard(0)]
    yield "hybrid", (5, 7), (2, 2), [Replicate(), Shard(0)]
    yield "hybrid_t", (5, 7), (2, 2), [Shard(1), Replicate()]
    yield "third", (2, 3, 5, 2), (4,), [Shard(2)]


def distribute(tensor, mesh, placements):
    """distribute_tensor() for the dtypes that torch cannot split."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    places = torch.arange(tensor.numel()).reshape(tensor.shape)
    local = distribute_tensor(places, mesh, placements).to_local()
    item = tensor.element_size()
    elements = torch.frombuffer(bytearray(raw(tensor) or b"\0"), dtype=torch.uint8)
    elements = elements[: tensor.numel() * item].reshape(-1, item)[local.flatten()]
    part = from_raw(str(tensor.dtype).removeprefix("torch."), local.shape, raw(elements))
    return DTensor.from_local(
        part, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


def sharded_tensors():
    for dtype in ("float32", "bfloat16", "float8_e5m2"):
        for name, shape, mesh, way in sharded_flat():
            yield (dtype, name), of_pattern(f"{dtype}.{name}", dtype, shape), mesh, way


def save_sharded(folder):
    """Several checkpoints at one go; runs on each of 4 ranks."""
    from torch.distributed.device_mesh import init_device_mesh

    rank = torch.distributed.get_rank()
    meshes = {shape: init_device_mesh("cpu", shape) for shape in ((4,), (2, 2))}
    state = {"same": torch.arange(50.0), "config": (1, "two"), "steps": {0: torch.tensor(rank * 0)}}
    for (dtype, name), tensor, mesh, way in sharded_tensors():
        state.setdefault(dtype, {})[name] = distribute(tensor, meshes[mesh], way)
    state[f"only{rank}"] = {"tensor": torch.full((3,), rank), "object": (rank,)}
    for name, options in WRITERS.items():
        dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{folder}/{name}", **options))
    dcp.save(state, checkpoint_id=f"{folder}/alone", use_collectives=False)
    for seed in (1, 2):
        flat = {"config": world_config(seed)}
        for number, (name, tensor) in enumerate(world(2, seed).items()):
            ways = [way for _, shape, mesh, way in sharded_flat() if len(shape) == 2]
            shapes = [mesh for _, shape, mesh, way in sharded_flat() if len(shape) == 2]
            pick = (number + seed) % len(ways)
            if tensor.ndim >= 2:
                tensor = distribute(tensor, meshes[shapes[pick]], ways[pick])
            flat[name] = tensor
        planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
        dcp.save(flat, checkpoint_id=f"{folder}/world-{seed}", planner=planner)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    on_ranks(4, save_sharded, str(folder))
    return folder


def sharded_whole():
    """What was saved there, put together, by name."""
    flat = {"same": torch.arange(50.0), "config": (1, "two"), "steps.0": torch.tensor(0)}
    for (dtype, name), tensor, _, _ in sharded_tensors():
        flat[f"{dtype}.{name}"] = tensor
    for rank in range(4):
        flat[f"only{rank}.tensor"] = torch.full((3,), rank)
        flat[f"only{rank}.object"] = (rank,)
    return flat


@pytest.mark.parametrize("writer", WRITERS)
def test_four_ranks(sharded, writer):
    dump = check(str(sharded / writer), None, flat=sharded_whole())
    assert len(dump.chunks["float32.grid"]) == len(dump.chunks["float32.rows7"]) == 4
    assert len(dump.chunks["float32.hybrid"]) == 2
    assert len(dump.chunks["float32.replica"]) == 1


def test_four_ranks_without_collectives(sharded):
    """A metadata file of each rank, and every replica saved."""
    path = sharded / "alone"
    assert len(list(path.glob("__*.metadata"))) == 4 and not (path / ".metadata").exists()
    check(str(path), None, flat=sharded_whole())


@pytest.mark.parametrize("ranks, layout", [(1, "rows"), (3, "rows"), (3, "columns"), (4, "rows")])
@pytest.mark.parametrize("seed", [1, 2])
def test_into_our_shards(sharded, seed, ranks, layout):
    path = str(sharded / f"world-{seed}")
    verify(path)
    ok(WORLD_TOOL, "load", path, ranks, layout, 2, seed)
    assert Dump(path).tensors.keys() == WORLD.keys()


def test_into_our_shards_sees_a_difference(sharded):
    status, message = fails(WORLD_TOOL, "load", str(sharded / "world-1"), 3, "rows", 2, 2)
    assert status == 1 and "is not what was saved" in message
