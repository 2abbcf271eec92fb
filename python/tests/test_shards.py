# SPDX-License-Identifier: BSD-3-Clause
"""Boxes are where torch says they are, pieces hold what lies there, and the rest is refused."""

from __future__ import annotations

import collections
import itertools
import math
from typing import Any

import pytest
import ranks
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import Replicate, Shard, _StridedShard

from sidestep._c.abi import TENSOR_REPLICATED, TENSOR_REQUIRES_GRAD, Dtype, Status
from sidestep._c.errors import Error
from sidestep._torch import shards as _shards
from sidestep._torch.shards import Shards, is_host, is_writable, local_tensor, shards_of

seen: collections.Counter[str] = collections.Counter()

for placement in (Shard(0), Replicate(), _StridedShard(0, split_factor=2)):
    _shards._placement_kind("x", placement)

# ---------------------------------------------------------------- boxes


@st.composite
def layouts(draw: Any, strided: bool) -> Any:
    shape = tuple(draw(st.lists(st.integers(0, 13), min_size=1, max_size=3)))
    mesh = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    kinds = [st.just(Replicate()), st.integers(0, len(shape) - 1).map(Shard)]
    if strided:
        kinds.append(
            st.builds(
                lambda dim, factor: _StridedShard(dim, split_factor=factor),
                st.integers(0, len(shape) - 1),
                st.integers(1, 4),
            )
        )
    placements = tuple(draw(st.one_of(*kinds)) for _ in mesh)
    return shape, mesh, placements


@settings(max_examples=200, deadline=None, derandomize=True)
@given(layouts(strided=False))
def test_boxes_are_those_of_torch(layout: Any) -> None:
    shape, mesh, placements = layout
    for coordinate in itertools.product(*map(range, mesh)):
        box = _shards.box_of(shape, placements, mesh, coordinate)
        assert box is not None
        offsets, lengths = box
        expected = _compute_local_shape_and_global_offset(shape, mesh, list(coordinate), placements)
        assert (lengths, offsets) == expected
        seen["boxes"] += 1


@settings(max_examples=150, deadline=None, derandomize=True)
@given(layouts(strided=True))
def test_strided_runs_are_what_torch_cuts(layout: Any) -> None:
    shape, mesh, placements = layout
    for coordinate in itertools.product(*map(range, mesh)):
        runs = _shards.runs_of(shape, placements, mesh, coordinate)
        for dim, length in enumerate(shape):
            index = torch.arange(length)
            for placement, count, place in zip(placements, mesh, coordinate):
                if getattr(placement, "dim", -1) == dim:
                    cut = type(placement)(
                        0,
                        **(
                            {"split_factor": placement.split_factor}
                            if isinstance(placement, _StridedShard)
                            else {}
                        ),
                    )
                    index = cut._split_tensor(index, count, with_padding=False)[0][place]
            mine = [i for first, count in runs[dim] for i in range(first, first + count)]
            assert mine == index.tolist()
            assert all(a[0] + a[1] != b[0] for a, b in itertools.pairwise(runs[dim]))
            seen["runs"] += 1


def test_enough_boxes_were_compared() -> None:
    assert seen["boxes"] > 500 and seen["runs"] > 500, seen


# ---------------------------------------------------------------- plain tensors


def one(value: Any, **options: Any) -> tuple[Shards, Any]:
    shards = shards_of("w", value, **options)
    assert shards is not None
    (piece,) = shards.pieces
    assert piece.lengths == tuple(piece.tensor.shape)
    return shards, piece.tensor


class Tagged(torch.Tensor):
    """A subclass with memory of its own."""


class Loud(torch.Tensor):
    """A subclass that must not be asked."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in ("data_ptr", "untyped_storage", "detach"):
            raise AssertionError(func)
        return super().__torch_function__(func, types, args, kwargs)


PLAIN = {
    "contiguous": torch.arange(6.0).view(2, 3),
    "scalar": torch.tensor(3.5),
    "empty": torch.zeros(0, 4),
    "transposed": torch.arange(6.0).view(2, 3).t(),
    "channels_last": torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "expanded": torch.ones(1, 3).expand(4, 3),
    "view": torch.arange(10.0)[3:7],
    "conj": torch.ones(2, dtype=torch.complex64).conj(),
    "neg": torch.ones(2, dtype=torch.complex64).conj().imag,
    "tagged": torch.arange(4.0).as_subclass(Tagged),
    "loud": torch.arange(4.0).as_subclass(Loud),
}


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_tensors_are_one_piece(kind: str) -> None:
    value = PLAIN[kind]
    shards, tensor = one(value)
    assert shards.shape == tuple(value.shape) and shards.flags == 0
    assert shards.pieces[0].offsets == (0,) * value.dim()
    assert type(tensor) is torch.Tensor
    assert torch.equal(tensor, torch.Tensor.as_subclass(value, torch.Tensor))
    with torch._C.DisableTorchFunctionSubclass():
        assert tensor.data_ptr() == value.data_ptr()
    assert is_host(tensor) is (kind not in ("conj", "neg"))
    assert is_writable(tensor) is (kind not in ("conj", "neg", "expanded"))


def test_parameters_say_that_they_want_gradients() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    assert one(parameter)[0].flags == TENSOR_REQUIRES_GRAD
    assert one(parameter.detach())[0].flags == 0


def test_every_dtype_has_its_number() -> None:
    numbers = {}
    for known in Dtype:
        dtype = getattr(torch, known.name.lower(), None)
        if isinstance(dtype, torch.dtype):
            numbers[dtype] = _shards.dtype_number("w", dtype)
            assert numbers[dtype] == known
            assert one(torch.empty(2, dtype=dtype))[0].dtype is dtype
    assert len(numbers) >= 26 and len(set(numbers.values())) == len(numbers)


@pytest.mark.parametrize("value", [1, None, "x", [torch.zeros(1)], torch.float32, object()])
def test_objects_are_no_tensors(value: Any) -> None:
    assert shards_of("x", value) is None


def quantized() -> Any:
    return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(2)


def wrapper() -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(torch.zeros(2), torch.zeros(2))


def nested() -> Any:
    return torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.jagged)


REFUSED = {
    "fake": (fake, r"FakeTensor has no data; save outside"),
    "meta": (lambda: torch.zeros(2, device="meta"), r"meta device has no data; materialize"),
    "lazy": (lambda: torch.nn.LazyLinear(2).weight, r"not initialized yet; run the lazy module"),
    "dtype": (lambda: torch.empty(2, dtype=torch.uint3), r"no dtype torch\.uint3; save \.view"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_saved_is_refused_by_name(kind: str) -> None:
    make, words = REFUSED[kind]
    with pytest.raises(Error, match=r"'model\.w': .*" + words) as caught:
        shards_of("model.w", make())
    assert caught.value.status == Status.EUNSUPPORTED and caught.value.tensor == "model.w"


# Tensors without one strided memory, and what a shard of a DTensor may not be.
PICKLED = {
    "sparse": (lambda: torch.eye(2).to_sparse(), r"layout torch\.sparse_coo; save \.to_dense"),
    "csr": (lambda: torch.eye(2).to_sparse_csr(), r"layout torch\.sparse_csr"),
    "quantized": (quantized, r"quantized tensor; save \.dequantize"),
    "wrapper": (wrapper, r"TwoTensor keeps its data in other tensors.*; .*save the tensors"),
    "nested": (nested, r"(nested|layout torch\.jagged|keeps its data in other tensors)"),
}


@pytest.mark.parametrize("kind", PICKLED)
def test_tensors_without_a_memory_are_objects_but_no_shards(kind: str) -> None:
    make, words = PICKLED[kind]
    assert shards_of("model.w", make()) is None
    with pytest.raises(Error, match=r"'model\.w': .*" + words) as caught:
        local_tensor("model.w", make())
    assert caught.value.status == Status.EUNSUPPORTED and caught.value.tensor == "model.w"


# ---------------------------------------------------------------- protocols


def test_a_local_tensor_that_names_its_shards() -> None:
    local = torch.arange(20.0).view(4, 5)
    local.global_shape = (8, 5)
    local.global_offsets = ((0, 0), (6, 1))
    local.local_offsets = ((0, 0), (2, 2))
    local.local_sizes = ((2, 5), (2, 3))
    shards = shards_of("w", local)
    assert shards is not None and shards.shape == (8, 5)
    assert [(p.offsets, p.lengths) for p in shards.pieces] == [((0, 0), (2, 5)), ((6, 1), (2, 3))]
    assert torch.equal(shards.pieces[1].tensor, local[2:4, 2:5])
    local.local_sizes = ((2, 5), (2, 4))
    with pytest.raises(Error, match=r"'w': a shard of \[2, 4\] at \[2, 2\] is not in \[4, 5\]"):
        shards_of("w", local)
    local.global_offsets = ((0, 0),)
    with pytest.raises(Error, match=r"'w': global_offsets.* differ in length"):
        shards_of("w", local)


def test_merged_rows() -> None:
    rows = torch.arange(24.0).view(12, 2)
    rows.global_shape = (5, 3, 2)
    rows.global_offsets, rows.local_offsets, rows.local_sizes = (
        ((1, 0, 0),),
        ((3, 0),),
        ((3, 3, 2),),
    )
    shards, piece = one(rows)
    assert shards.shape == (5, 3, 2) and torch.equal(piece, rows[3:12].view(3, 3, 2))


class Halves(torch.Tensor):
    """Speaks the checkpoint protocols: two shards of a tensor twice as long."""

    def __create_write_items__(self, fqn: str, value: Any) -> Any:
        from torch.distributed.checkpoint.metadata import (
            ChunkStorageMetadata,
            MetadataIndex,
            TensorProperties,
        )
        from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

        return [
            WriteItem(
                MetadataIndex(fqn, chunk.offsets),
                WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    ChunkStorageMetadata(chunk.offsets, chunk.sizes),
                    TensorProperties(self.dtype),
                    torch.Size([2 * len(self)]),
                ),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> Any:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        half = len(self) // 2
        return [ChunkStorageMetadata(torch.Size([at]), torch.Size([half])) for at in (0, 2 * half)]

    def __get_tensor_shard__(self, index: Any) -> Any:
        half = len(self) // 2
        return self[:half] if index.offset[0] == 0 else self[half:]


def test_the_protocols_of_torch_are_honoured() -> None:
    value = torch.arange(6.0).as_subclass(Halves)
    for for_load in (False, True):
        shards = shards_of("w", value, for_load=for_load)
        assert shards is not None
        assert [(p.offsets, p.lengths) for p in shards.pieces] == [((0,), (3,)), ((6,), (3,))]
        assert [p.tensor.tolist() for p in shards.pieces] == [[0, 1, 2], [3, 4, 5]]
        assert shards.shape == ((6,) if for_load else (12,))


class Bytes:
    def __create_write_items__(self, fqn: str, value: Any) -> Any:
        from torch.distributed.checkpoint.planner_helpers import _create_write_item_for_bytesio

        return [_create_write_item_for_bytesio(fqn, value)]


def test_an_object_may_say_that_it_is_one() -> None:
    assert shards_of("w", Bytes()) is None


# ---------------------------------------------------------------- meshes without processes


def on_fake_meshes(rank: int) -> int:
    """Every rank of 8, on meshes of three shapes: DTensors against torch's own function."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    from torch.testing._internal.distributed.fake_pg import FakeStore

    count = 0
    for me in range(8):
        dist.init_process_group("fake", store=FakeStore(), rank=me, world_size=8)
        for sizes in ((8,), (4, 2), (2, 2, 2)):
            mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("a", "b", "c")[: len(sizes)])
            choices = [Replicate(), Shard(0), Shard(1)]
            for placements in itertools.product(choices, repeat=len(sizes)):
                for shape in ((8, 6), (7, 3), (1, 0)):
                    lengths, offsets = compute_local_shape_and_global_offset(
                        shape, mesh, placements
                    )
                    local = torch.zeros(lengths)
                    value = DTensor.from_local(
                        local, mesh, placements, run_check=False, shape=shape, stride=(shape[1], 1)
                    )
                    shards, tensor = one(value)
                    piece = shards.pieces[0]
                    assert shards.shape == shape
                    assert (piece.lengths, piece.offsets) == (lengths, offsets)
                    assert tensor.data_ptr() == local.data_ptr()
                    replicated = any(isinstance(p, Replicate) for p in placements)
                    assert shards.flags == (TENSOR_REPLICATED if replicated else 0)
                    count += 1
            if len(sizes) == 2:  # a mesh of a part of the world: no promise about the others
                value = DTensor.from_local(
                    torch.zeros(4), mesh["b"], [Replicate()], run_check=False
                )
                assert one(value)[0].flags == 0
        dist.destroy_process_group()
    return count


def test_dtensors_on_fake_meshes() -> None:
    (count,) = ranks.run_ranks(1, on_fake_meshes, init=None)
    assert count == 8 * 3 * (3 + 9 + 27)


# ---------------------------------------------------------------- real ranks


def whole(value: Any, group_size: int) -> Any:
    """The global tensor put together from the pieces of all ranks; each element by somebody."""
    import torch.distributed as dist

    shards = shards_of("w", value)
    assert shards is not None
    mine = [(p.offsets, p.lengths, p.tensor.detach().clone()) for p in shards.pieces]
    everybody: list[Any] = [None] * group_size
    dist.all_gather_object(everybody, mine)
    full = torch.full(shards.shape, math.nan)
    volume = 0
    for offsets, lengths, tensor in itertools.chain(*everybody):
        box = tuple(slice(a, a + n) for a, n in zip(offsets, lengths))
        known = full[box]
        assert torch.equal(known[~known.isnan()], tensor.reshape(lengths)[~known.isnan()])
        full[box] = tensor.reshape(lengths)
        volume += tensor.numel()
    assert not full.isnan().any()
    return full, volume, shards


def on_four_ranks(rank: int) -> dict[str, int]:
    import torch.distributed as dist
    from torch.distributed._shard.sharded_tensor import Shard as OldShard
    from torch.distributed._shard.sharded_tensor import ShardedTensor, ShardMetadata
    from torch.distributed.checkpoint._sharded_tensor_utils import _flatten_sharded_tensors
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Partial, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    counts: collections.Counter[str] = collections.Counter()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for shape in ((8, 6), (5, 3), (1, 7), (3, 0)):
        full = torch.arange(float(math.prod(shape))).view(shape) + 1
        for placements in itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2):
            value = distribute_tensor(full, mesh, placements)
            found, volume, shards = whole(value, 4)
            assert torch.equal(found, full)
            copies = math.prod(2 for p in placements if isinstance(p, Replicate))
            assert volume == full.numel() * copies
            assert bool(shards.flags & TENSOR_REPLICATED) is (copies > 1)
            counts["dtensor"] += 1

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.ReLU(), torch.nn.Linear(10, 5))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    fully_shard(model, mesh=mesh["dp"])
    for value in model.state_dict().values():
        full = value.full_tensor()
        found, _, shards = whole(value, 4)
        assert torch.equal(found, full)
        counts["fsdp2+tp"] += 1
        counts["strided"] += any(isinstance(p, _StridedShard) for p in value.placements)

    # A strided placement alone: this rank's rows are not one box.
    full = torch.arange(84.0).view(21, 4) + 1
    for placements in (
        (_StridedShard(0, split_factor=3), Replicate()),
        (_StridedShard(0, split_factor=4), Shard(1)),
        (_StridedShard(1, split_factor=2), _StridedShard(0, split_factor=3)),
    ):
        local = full
        for placement, place in zip(placements, mesh.get_coordinate() or ()):
            if not isinstance(placement, Replicate):
                local = placement._split_tensor(local, 2, with_padding=False)[0][place]
        value = DTensor.from_local(
            local.clone(), mesh, placements, run_check=False, shape=(21, 4), stride=(4, 1)
        )
        found, _, shards = whole(value, 4)
        assert torch.equal(found, full)
        counts["boxes"] += len(shards.pieces)

    some = DeviceMesh("cpu", [1, 3])
    value = distribute_tensor(torch.arange(5.0) + 1, some, [Shard(0)])
    found, volume, shards = whole(value, 4)
    assert torch.equal(found, torch.arange(5.0) + 1) and volume == 5
    assert len(shards.pieces) == (1 if rank in (1, 3) else 0)
    counts["outside"] += len(shards.pieces) == 0

    partial = DTensor.from_local(torch.ones(2), mesh, [Replicate(), Partial()], run_check=False)
    with pytest.raises(Error, match=r"'w': Partial.* placement.*redistribute it first"):
        shards_of("w", partial)
    wrong = DTensor.from_local(torch.ones(3, 2), mesh, [Shard(0), Replicate()], run_check=False)
    wrong._local_tensor = torch.ones(4, 2)
    with pytest.raises(Error, match=r"'w': the local tensor has shape \[4, 2\].*shape \[6, 2\]"):
        shards_of("w", wrong)
    meta = DTensor.from_local(
        torch.ones(2, device="meta"), mesh, [Shard(0), Replicate()], run_check=False
    )
    with pytest.raises(Error, match="meta device has no data"):
        shards_of("w", meta)
    counts["refused"] += 3

    metadata = [ShardMetadata([2 * i, 0], [2, 3], f"rank:{i}/cpu") for i in range(4)]
    local = torch.full((2, 3), float(rank))
    old = ShardedTensor._init_from_local_shards([OldShard(local, metadata[rank])], 8, 3)
    found, volume, _ = whole(old, 4)
    assert torch.equal(found, torch.arange(4.0).repeat_interleave(2)[:, None].expand(8, 3))
    counts["sharded_tensor"] += volume == 24

    # FSDP1 over another: the only local shard is a ShardedTensor itself.
    inner = ShardedTensor._init_from_local_shards(
        [OldShard(torch.full((1, 3), 7.0), ShardMetadata([rank, 0], [1, 3], f"rank:{rank}/cpu"))],
        4,
        3,
    )
    metadata = [ShardMetadata([4 * i, 0], [4, 3], f"rank:{i}/cpu") for i in range(4)]
    outer = ShardedTensor._init_from_local_shards(
        [OldShard(torch.zeros(4, 3), metadata[rank])], 16, 3
    )
    outer.local_shards()[0].tensor = inner
    (mine,) = shards_of("w", outer).pieces
    (stock,) = _flatten_sharded_tensors({"w": outer})["w"].local_shards()
    assert mine.offsets == tuple(stock.metadata.shard_offsets) == (5 * rank, 0)
    assert mine.lengths == tuple(stock.metadata.shard_sizes) == (1, 3)
    assert mine.tensor is stock.tensor
    counts["nested"] += 1

    pending = torch.distributed._functional_collectives.all_reduce(
        torch.ones(3), "sum", dist.group.WORLD
    )
    assert type(pending) is not torch.Tensor
    assert one(pending)[1].tolist() == [4, 4, 4]
    counts["async"] += 1
    return dict(counts)


def test_pieces_of_four_ranks_make_up_the_tensor() -> None:
    results = ranks.run_ranks(4, on_four_ranks, timeout=120)
    for result in results:
        assert result["dtensor"] == 36 and result["fsdp2+tp"] == 4 and result["strided"] >= 1
        assert result["boxes"] >= 6 and result["refused"] == 3
        assert result["sharded_tensor"] == 1 and result["async"] == 1
        assert result["nested"] == 1
    assert sum(result["outside"] for result in results) == 2
