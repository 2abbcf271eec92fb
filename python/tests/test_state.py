# SPDX-License-Identifier: BSD-3-Clause
"""The library is given what the state holds: the first time, and after every change."""

from __future__ import annotations

import collections
import gc
import itertools
import math
import os
import pathlib
import types
import warnings
import weakref
from typing import Any

import pytest
import ranks
import torch
import torch.distributed.checkpoint as dcp

from sidestep._c.abi import ErrorInfo, Status
from sidestep._c.errors import Error
from sidestep._engine import engine_alone
from sidestep._torch import device as _device
from sidestep._torch import state as _state
from sidestep._torch.device import HostBuffers
from sidestep._torch.flatten import Leaf, flatten
from sidestep._torch.objects import decode
from sidestep._torch.shards import Piece, Shards
from sidestep._torch.state import StateCache, StateDict

warnings.filterwarnings("ignore", message=".*(torch.distributed is unavailable|TypedStorage).*")


def save(state: StateDict, path: pathlib.Path) -> None:
    engine_alone().save_async(path, state).result(60)


def stock_load(path: pathlib.Path, state: dict[str, Any]) -> dict[str, Any]:
    """What stock torch finds for a state of empty tensors and objects."""
    empty: dict[str, Any] = {}
    for leaf in flatten(state):
        value = leaf.value
        if isinstance(value, torch.Tensor):
            value = (
                torch.empty(value.shape, dtype=value.dtype)
                .view(torch.uint8)
                .fill_(0xA5)
                .view(value.dtype)
                if value.numel() and value.dim()
                else torch.zeros(value.shape, dtype=value.dtype)
            )
        empty[leaf.name] = value if isinstance(value, torch.Tensor) else None
    dcp.load(empty, checkpoint_id=path, no_dist=True)
    return empty


def bits(tensor: torch.Tensor) -> list[int]:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().flatten()
    return plain.view(torch.uint8).tolist() if plain.numel() else []


def assert_saved(path: pathlib.Path, state: dict[str, Any]) -> int:
    found = stock_load(path, state)
    count = 0
    for leaf in flatten(state):
        if isinstance(leaf.value, torch.Tensor):
            assert found[leaf.name].shape == leaf.value.shape
            assert bits(found[leaf.name]) == bits(leaf.value), leaf.name
        else:
            assert type(found[leaf.name]) is type(leaf.value), leaf.name
            assert repr(found[leaf.name]) == repr(leaf.value), leaf.name
        count += 1
    return count


class Tagged(torch.Tensor):
    pass


def everything(seed: int) -> dict[str, Any]:
    """One of each kind; the same layout for every seed."""
    random = torch.Generator().manual_seed(seed)
    base = torch.randn(6, 5, generator=random)
    complexes = torch.randn(4, dtype=torch.complex64, generator=random)
    linear = torch.nn.Linear(3, 2)
    return {
        "plain": base,
        "tied": base,
        "view": base[1:3, 2:],
        "transposed": base.t(),
        "channels_last": torch.randn(2, 3, 4, 5, generator=random).contiguous(
            memory_format=torch.channels_last
        ),
        "expanded": torch.randn(1, 3, generator=random).expand(4, 3),
        "conj": complexes.conj(),
        "neg": complexes.conj().imag,
        "scalar": torch.tensor(float(seed)),
        "empty": torch.zeros(0, 3),
        "parameter": linear.weight,
        "tagged": torch.randn(3, generator=random).as_subclass(Tagged),
        "half": torch.randn(3, generator=random).to(torch.bfloat16),
        "f8": torch.randn(3, generator=random).to(torch.float8_e4m3fn),
        "bool": torch.randn(9, generator=random) > 0,
        "optim": {
            "state": {0: {"step": torch.tensor(1.0), "m": base.clone()}, 7: {"flag": True}},
            "groups": [{"lr": 0.1 * seed, "params": [0, 7]}, {"names": ("a", seed), "n": None}],
        },
        "rng": (torch.get_rng_state(), seed),
        "text": "é" * seed,
        "big": 1 << 70,
        "ordered": [collections.OrderedDict(a=seed)],
        "": 5,
    }


def test_every_kind_reaches_stock_torch(tmp_path: pathlib.Path) -> None:
    state = everything(1)
    del state[""]  # a name without letters is refused
    cache = StateCache()
    built = cache.get(flatten(state))
    save(built, tmp_path / "a")
    assert assert_saved(tmp_path / "a", state) == len(flatten(state)) > 25
    again = everything(2)
    del again[""]
    assert cache.get(flatten(again)) is built
    save(built, tmp_path / "b")
    assert assert_saved(tmp_path / "b", again) == len(flatten(again))


def test_a_name_must_be_one() -> None:
    with pytest.raises(Error, match="a value needs a name"):
        StateDict(flatten({"": 5}))
    with pytest.raises(Error, match=r"'a\\x00b': the key 'a\\x00b' holds what a name cannot"):
        StateDict(flatten({"a\0b": 5}))
    with pytest.raises(Error, match=r"the key 'a\.\\ud800' holds"):
        StateDict(flatten({"a": {"\ud800": torch.zeros(1)}}))
    with pytest.raises(Error, match="'a': the name has more than 4096|more than 4096 bytes"):
        StateDict(flatten({"a" * 5000: torch.zeros(1)}))


def test_integer_keys_are_found_by_stock_torch_as_text(tmp_path: pathlib.Path) -> None:
    state = {"o": {0: torch.ones(2), -3: {"x": [torch.ones(1)]}, 1 << 80: torch.zeros(1)}}
    save(StateDict(flatten(state)), tmp_path / "c")
    metadata = dcp.FileSystemReader(tmp_path / "c").read_metadata()
    assert metadata.planner_data == {
        "o.0": ("o", "0"),
        "o.-3.x.0": ("o", "-3", "x", 0),
        f"o.{1 << 80}": ("o", str(1 << 80)),
    }


# ---------------------------------------------------------------- the same layout


BASE = {
    "w": torch.zeros(4, 4),
    "p": {"0": torch.zeros(2), "l": [torch.zeros(2), 3]},
    "n": 1,
}


def changed(path: str, value: Any) -> dict[str, Any]:
    state: dict[str, Any] = {"w": BASE["w"], "p": dict(BASE["p"]), "n": BASE["n"]}  # type: ignore
    target = state
    *first, last = path.split("/")
    for key in first:
        target = target[key]
    target[last] = value
    return state


OTHER_LAYOUTS = {
    "dtype": changed("w", torch.zeros(4, 4, dtype=torch.int32)),
    "shape": changed("w", torch.zeros(4, 5)),
    "dimensions": changed("w", torch.zeros(16)),
    "strides": changed("w", torch.zeros(4, 4).t()),
    "gradients": changed("w", torch.zeros(4, 4, requires_grad=True)),
    "subclass": changed("w", torch.zeros(4, 4).as_subclass(Tagged)),
    "class": changed("w", torch.nn.Parameter(torch.zeros(4, 4), requires_grad=False)),
    "object": changed("w", 5),
    "tensor": changed("n", torch.zeros(1)),
    "shards": changed("n", Shards((2,), torch.float32, [])),
    "name": {("v" if key == "w" else key): value for key, value in BASE.items()},
    "more": {**BASE, "x": 1},
    "less": {"w": BASE["w"]},
    "order": dict(reversed(BASE.items())),
    "integer key": changed("p", {0: torch.zeros(2), "l": [torch.zeros(2), 3]}),
    "dict for list": changed("p/l", {"0": torch.zeros(2), "1": 3}),
    "integers for list": changed("p/l", {0: torch.zeros(2), 1: 3}),
}


@pytest.mark.parametrize("what", OTHER_LAYOUTS)
def test_another_layout_is_seen(what: str) -> None:
    state = StateDict(flatten(BASE))
    before = state.storages
    assert state.update(flatten(OTHER_LAYOUTS[what])) is False
    assert state.storages is before and state.pointer
    assert state.update(flatten(BASE)) is True
    other = StateDict(flatten(OTHER_LAYOUTS[what]))
    assert other.update(flatten(OTHER_LAYOUTS[what])) is True
    # To the library a subclass is what it is made of.
    assert other.update(flatten(BASE)) is (what == "subclass")


def test_a_tensor_that_begins_to_name_its_shards_is_another_layout() -> None:
    state = StateDict(flatten(BASE))
    tensor = torch.zeros(4, 4)
    tensor.global_shape, tensor.global_offsets = (8, 4), ((4, 0),)  # type: ignore[attr-defined]
    tensor.local_offsets, tensor.local_sizes = ((0, 0),), ((4, 4),)  # type: ignore[attr-defined]
    other = flatten(changed("w", tensor))
    assert state.update(other) is False
    state = StateDict(other)
    assert state.update(other) is True
    tensor.global_offsets = ((0, 0),)  # type: ignore[attr-defined]
    assert state.update(other) is False


def test_placements_that_only_seem_equal_are_another_layout() -> None:
    from torch.distributed.tensor.placement_types import Replicate, Shard

    class Seeming(Shard):
        """As torch's _StridedShard was: equal to a Shard, and elsewhere."""

        __hash__ = Shard.__hash__

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Shard) and self.dim == other.dim

    def spec(*placements: Any) -> Any:
        meta = types.SimpleNamespace(shape=torch.Size([8, 8]))
        return types.SimpleNamespace(mesh="mesh", placements=placements, tensor_meta=meta)

    entry = _state._Entry()
    entry.spec = spec(Shard(0), Replicate())
    assert Shard(0) == Seeming(0)
    assert entry.same_spec(spec(Shard(0), Replicate())) is True
    assert entry.same_spec(spec(Seeming(0), Replicate())) is False


@pytest.mark.parametrize("part", ["whole", "imaginary"])
def test_what_becomes_lazy_or_plain_is_another_layout(tmp_path: pathlib.Path, part: str) -> None:
    """A transposed tensor, and its lazy conjugate: same shape, dtype and strides, but what is lazy
    is copied, row-major."""
    plain = torch.randn(3, 4, dtype=torch.complex64).t()
    lazy = plain.conj()
    if part == "imaginary":
        plain, lazy = plain.imag, lazy.imag
    assert plain.stride() == lazy.stride() and not plain.is_contiguous()
    cache = StateCache()
    for place, value in enumerate([plain, lazy, plain]):
        save(cache.get(flatten({"w": value})), tmp_path / str(place))
        assert_saved(tmp_path / str(place), {"w": value})


def two_shards(other: torch.dtype) -> list[Leaf]:
    halves = [torch.ones(2), torch.ones(2, dtype=other)]
    pieces = [Piece((2 * i,), (2,), tensor) for i, tensor in enumerate(halves)]
    return [Leaf("w", ("w",), Shards((4,), torch.float32, pieces))]


def test_a_tensor_has_one_dtype() -> None:
    """Of the second shard, too: it would be read as if it had that of the first."""
    cache = StateCache()
    for _ in range(2):
        with pytest.raises(Error, match=r"'w': its shards have dtypes .*float32 and .*bfloat16"):
            cache.get(two_shards(torch.bfloat16))
        cache.get(two_shards(torch.float32))  # now this layout is known


def test_only_what_changed_is_passed_on(tmp_path: pathlib.Path) -> None:
    values: dict[str, Any] = {
        "a": 1,
        "b": 1.0,
        "c": [1],
        "d": None,
        "e": {1},
        "nan": math.nan,
        "w": torch.zeros(1),
    }
    state = StateDict(flatten(values))

    def names(**new: Any) -> list[str]:
        values.update(new)
        found = state._match(flatten(values), _state._Memory())
        assert found is not None
        assert state.update(flatten(values))
        return [state.names[state._entries.index(entry)] for entry, *_ in found]

    assert names() == []
    assert names(a=2) == ["a"]
    assert names(a=2.0, b=-0.0) == ["a", "b"]
    assert names(b=0.0) == ["b"]
    assert names(a=True, c=[1], e={1}) == ["a"]
    assert names(c=[True], d=[]) == ["c", "d"]
    values["c"].append(5)
    assert names(e={2}) == ["c", "e"]
    assert names(d=object) == ["d"]
    assert names(d="x") == ["d"]
    assert names(d="x", nan=float("nan")) == []
    save(state, tmp_path / "d")
    found = stock_load(tmp_path / "d", values)
    del found["w"], found["nan"]
    assert found == {"a": True, "b": 0.0, "c": [True, 5], "d": "x", "e": {2}}
    assert type(found["a"]) is bool


# ---------------------------------------------------------------- what must live, and failures


def test_storages_live_as_long_as_they_are_kept() -> None:
    tensor = torch.zeros(1000)
    state = StateDict(flatten({"w": tensor, "c": torch.ones(3, dtype=torch.complex64).conj()}))
    first = state.storages
    alive = weakref.ref(first[0])
    assert not any(isinstance(item, torch.Tensor) for item in first) and len(first) == 2
    again = {"w": torch.ones(1000), "c": torch.zeros(3, dtype=torch.complex64).conj()}
    assert state.update(flatten(again))
    assert len(first) == 2 and state.storages is not first
    del first, tensor
    gc.collect()
    assert alive() is None

    kept = state.take_storages()
    assert len(kept.storages) == 2 and state.storages == []
    with pytest.raises(RuntimeError, match="not valid any more"):
        _ = state.pointer
    assert state.update(flatten(again))
    assert state.pointer


class Failing:
    """The library with one function that fails."""

    def __init__(self, library: Any, name: str) -> None:
        self.library = library
        self.name = name
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        if name != self.name:
            return getattr(self.library, name)

        def fail(*arguments: Any) -> int:
            self.calls += 1
            err = arguments[-1]
            assert isinstance(err, ErrorInfo)
            err.message, err.rank = b"out of memory: 7 bytes", -1
            return int(Status.ENOMEM)

        return fail


@pytest.mark.parametrize("name", ["set_data", "set_objects"])
def test_an_update_that_fails_half_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = StateCache()
    state = cache.get(flatten({"w": torch.zeros(2), "n": 1}))
    failing = Failing(_state.lib(), f"sidestep_state_dict_{name}")
    monkeypatch.setattr(_state, "lib", lambda: failing)
    with pytest.raises(Error, match="out of memory") as caught:
        cache.get(flatten({"w": torch.zeros(2), "n": 2}))
    assert caught.value.status == Status.ENOMEM and failing.calls == 1
    with pytest.raises(RuntimeError, match="not valid any more"):
        _ = state.pointer
    monkeypatch.undo()
    other = cache.get(flatten({"w": torch.zeros(2), "n": 2}))
    assert other is not state and other.pointer


@pytest.mark.parametrize("name", ["new", "add_tensor", "add_value", "add_bytes"])
def test_a_new_state_that_cannot_be_built(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(_state.lib(), f"sidestep_state_dict_{name}")
    monkeypatch.setattr(_state, "lib", lambda: failing)
    cache = StateCache()
    with pytest.raises(Error, match="out of memory"):
        cache.get(flatten({"w": torch.zeros(2), "n": 1, "s": {1}}))
    assert failing.calls == 1 and cache._states == []


def test_the_cache_keeps_the_last_layouts() -> None:
    cache = StateCache()
    layouts = [flatten({f"w{i}": torch.zeros(1)}) for i in range(StateCache.LIMIT + 1)]
    states = [cache.get(leaves) for leaves in layouts]
    assert [cache.get(leaves) is state for leaves, state in zip(layouts[1:], states[1:])] == [
        True
    ] * StateCache.LIMIT
    assert cache.get(layouts[0]) is not states[0]
    gone = weakref.ref(states.pop(1))
    gc.collect()
    assert gone() is None


def test_a_refusal_names_the_tensor_and_leaves_the_cache_alone() -> None:
    cache = StateCache()
    good = cache.get(flatten({"a": torch.eye(2)}))
    for bad in (torch.empty(2, dtype=torch.uint3), torch.zeros(2, 2, device="meta")):
        with pytest.raises(
            Error, match=r"'m\.bad': (checkpoints have no dtype|a tensor on the meta)"
        ):
            cache.get(flatten({"m": {"bad": bad}}))
    assert cache.get(flatten({"a": torch.eye(2)})) is good


@pytest.mark.parametrize("left", [0, 60])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_memory_that_was_taken_away_is_refused(left: int, known: bool, lazy: bool) -> None:
    """FSDP resizes the storages of what it does not need."""
    whole = torch.randn(100, dtype=torch.complex64 if lazy else torch.float32)
    view = whole[10:20].conj() if lazy else whole[10:20]
    cache = StateCache()
    if known:
        cache.get(flatten({"w": view}))
    whole.untyped_storage().resize_(left)
    with pytest.raises(Error, match=f"'w': its storage was resized to {left} bytes, and its"):
        cache.get(flatten({"w": view}))


def test_less_memory_at_the_same_address_is_refused() -> None:
    """Where the allocator gives what was freed once more."""
    whole = torch.randn(100)
    cache = StateCache()
    for _ in range(2):
        state = cache.get(flatten({"w": whole}))
    whole.untyped_storage().resize_(60)
    state._entries[0].at = whole.data_ptr()
    with pytest.raises(Error, match="'w': its storage was resized to 60 bytes, and its"):
        cache.get(flatten({"w": whole}))


# ---------------------------------------------------------------- loading


def test_loading_into_memory(tmp_path: pathlib.Path) -> None:
    saved = {"w": torch.arange(12.0).view(3, 4), "n": {"x": [1, 2]}, "s": ({1, 2},)}
    save(StateDict(flatten(saved)), tmp_path / "e")
    target = torch.zeros(4, 3).t()
    state = StateDict(flatten({"w": target, "n": {"x": None}, "s": None}), for_load=True)
    engine_alone().load(tmp_path / "e", state)
    assert torch.equal(target, saved["w"])  # type: ignore[arg-type]
    assert decode("n.x", state.stored("n.x") or b"") == [1, 2]
    assert decode("s", state.stored("s") or b"") == ({1, 2},)
    assert state.stored("w") is None
    assert state.update(flatten({"w": target, "n": {"x": None}, "s": None})) is False

    half = torch.zeros(3, 2)
    piece = Piece((0, 1), (3, 2), half)
    leaf = Leaf("w", ("w",), Shards((3, 4), torch.float32, [piece]))
    engine_alone().load(tmp_path / "e", StateDict([leaf], for_load=True))
    assert torch.equal(half, saved["w"][:, 1:3])  # type: ignore[index]

    for bad in (torch.zeros(1, 4).expand(3, 4), torch.zeros(3, 4, dtype=torch.cfloat).conj()):
        with pytest.raises(Error, match="'w': a load cannot write into this memory"):
            StateDict(flatten({"w": bad}), for_load=True)


# ---------------------------------------------------------------- DTensors on real ranks


def on_four_ranks(rank: int, root: str) -> dict[str, int]:
    """Saves through an engine of four ranks; what rank 0 finds with stock torch."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard

    from sidestep._engine import engine_for

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    placements = list(itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2))

    def make(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        full, state = {}, {}
        for i, where in enumerate(placements):
            full[f"t{i}"] = torch.arange(35.0).view(7, 5) + seed
            state[f"t{i}"] = distribute_tensor(full[f"t{i}"], mesh, where)
        full["strided"] = torch.arange(22.0).view(11, 2) * seed
        strided = _StridedShard(0, split_factor=3)
        parts, _ = strided._split_tensor(full["strided"], 2, with_padding=False)
        state["strided"] = DTensor.from_local(
            parts[mesh.get_local_rank("a")].clone(),
            mesh,
            [strided, Replicate()],
            run_check=False,
            shape=(11, 2),
            stride=(2, 1),
        )
        state["sub"] = distribute_tensor(torch.arange(6.0) + seed, mesh["b"], [Shard(0)])
        full["sub"] = torch.arange(6.0) + seed
        state["step"] = full["step"] = seed
        return full, state

    counts: collections.Counter[str] = collections.Counter()
    engine = engine_for()
    cache = StateCache()
    built = None
    for seed in (1, 2):
        full, state = make(seed)
        current = cache.get(flatten(state))
        counts["known"] += current is built
        built = current
        engine.save_async(os.path.join(root, f"s{seed}"), current).result(60)
        dist.barrier()
        if rank == 0:
            counts["compared"] += assert_saved(pathlib.Path(root, f"s{seed}"), full)
    other = dict(state)
    for name, where in (("t1", [Shard(0), Replicate()]), ("t4", [Replicate(), Shard(0)])):
        other[name] = distribute_tensor(full[name], mesh, where)
        counts["placements"] += built.update(flatten(other)) is False
        other[name] = state[name]
    assert built.update(flatten(other)) is True
    dist.barrier()
    return dict(counts)


def test_dtensors_reach_stock_torch(tmp_path: pathlib.Path) -> None:
    results = ranks.run_ranks(4, on_four_ranks, str(tmp_path), timeout=120)
    assert all(result["known"] == 1 and result["placements"] == 2 for result in results)
    assert results[0]["compared"] == 2 * 12


# ---------------------------------------------------------------- devices


def test_host_buffers_are_used_again_when_nobody_reads_them() -> None:
    buffers = HostBuffers(cap=1 << 20)
    sources = [torch.arange(5.0), torch.tensor(7), torch.ones(2, 3).t(), torch.zeros(0, 2)]
    copies, lease = buffers.copy(sources)
    assert all(map(torch.equal, copies, sources))
    assert all(copy.is_contiguous() for copy in copies)
    address = copies[0].data_ptr()
    others, second = buffers.copy(sources)
    assert others[0].data_ptr() != address
    del lease
    again, third = buffers.copy([torch.zeros(5)])
    assert again[0].data_ptr() == address and torch.equal(others[0], sources[0])
    del second, third
    assert len(buffers._free) == 2
    _, lease = buffers.copy([torch.zeros(10_000)])  # larger than what is there
    assert len(buffers._free) == 0
    del lease
    assert len(buffers._free) == 1
    _, lease = buffers.copy([torch.zeros(1 << 20)])
    del lease
    assert len(buffers._free) == 0  # beyond the cap


def test_tensors_elsewhere_are_fetched(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of device tensors, with tensors that are only said to be on one."""
    away: set[int] = set()
    monkeypatch.setattr(_state, "_is_away", lambda tensor: tensor.data_ptr() in away)
    monkeypatch.setattr(_device, "buffers", HostBuffers())
    values = {"a": torch.randn(3, 4).t(), "b": torch.randn(5), "c": torch.randn(2)}
    away |= {values["a"].data_ptr(), values["c"].data_ptr()}
    state = StateDict(flatten(values))
    assert sum(isinstance(item, _device._Lease) for item in state.storages) == 1
    save(state, tmp_path / "f")
    assert assert_saved(tmp_path / "f", values) == 3
    for value in values.values():
        value.add_(1)
    assert state.update(flatten(values))
    save(state, tmp_path / "g")
    assert assert_saved(tmp_path / "g", values) == 3
    state.take_storages()
    assert len(_device.buffers._free) >= 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cuda_tensors(tmp_path: pathlib.Path) -> None:
    values = {"a": torch.randn(300, 400, device="cuda").t(), "b": torch.randn(5, device="cuda")}
    state = StateDict(flatten(values))
    for step in range(3):
        for value in values.values():
            value.add_(step)
        assert state.update(flatten(values))
        save(state, tmp_path / str(step))
        expected = {name: value.cpu() for name, value in values.items()}
        assert assert_saved(tmp_path / str(step), expected) == 2
