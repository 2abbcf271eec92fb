# SPDX-License-Identifier: BSD-3-Clause
"""Objects come back as what they were, and no checkpoint runs code."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import io
import math
import os
import pathlib
import pickle
import random
import zipfile
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sidestep._c.abi import OBJECT_PICKLE, OBJECT_STORED, Status
from sidestep._c.errors import Error
from sidestep._torch import objects as _objects
from sidestep._torch.objects import decode, encode


class Color(enum.IntEnum):
    RED = 1


class Mood(enum.Enum):
    GOOD = "good"


class Point(collections.namedtuple("Point", "x y")):
    pass


@dataclasses.dataclass
class Config:
    layers: int = 2


def stored(value: Any) -> bytes:
    """As stock torch stores an object."""
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def same(a: Any, b: Any) -> bool:
    """Equal, of the same types all the way down; NaN and -0.0 included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, float):
        return a.hex() == b.hex()
    if isinstance(a, numpy.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype
    return bool(a == b)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(-9, 9)), inner, max_size=3),
    ),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(PLAIN)
def test_plain_data_goes_through_the_library_both_ways(value: Any) -> None:
    kind, data = encode("x", value)
    assert kind == OBJECT_PICKLE
    assert same(pickle.loads(data), value)
    pickled = _objects._pickle_of_archive(stored(value))
    assert pickled is not None and _objects.value_of(pickled)
    assert same(decode("x", stored(value)), value)


def test_plain_data_needs_no_unpickler_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stored({"a": [1, (2.5, None), b"\0\xff"], 7: "x"})
    monkeypatch.setattr(torch, "load", None)
    assert same(decode("x", data), {"a": [1, (2.5, None), b"\0\xff"], 7: "x"})


NOT_PLAIN = [
    1 << 63,
    -(1 << 63) - 1,
    [1 << 70],
    numpy.float64(1.5),
    [numpy.int32(3)],
    numpy.arange(6).reshape(2, 3),
    numpy.array([True, False]),
    numpy.dtype("float32"),
    Color.RED,
    Point(1, 2),
    collections.OrderedDict(a=1),
    (collections.Counter("aab"),),
    {1, 2},
    frozenset("a"),
    bytearray(b"x"),
    1 + 2j,
    torch.float32,
    torch.device("cpu"),
    torch.Size([1, 2]),
    (torch.arange(3), torch.tensor(1.5)),
    [set()],
    datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc),
    datetime.timedelta(3),
    pathlib.PosixPath("/a/b"),
]
TO_BE_ALLOWED = (Color, Point)


@pytest.mark.parametrize("value", NOT_PLAIN, ids=lambda value: f"{type(value).__name__}")
def test_everything_else_is_stored_as_torch_stores_it(value: Any) -> None:
    kind, data = encode("x", value)
    assert kind == OBJECT_STORED
    assert same(torch.load(io.BytesIO(data), weights_only=False), value)
    if isinstance(value, TO_BE_ALLOWED):
        with pytest.raises(Error, match=f"object 'x' needs .*{type(value).__name__}"):
            decode("x", data)
        with torch.serialization.safe_globals([type(value)]):
            found = decode("x", data)
    else:
        found = decode("x", data)
    assert same(found, value)


class AsSomePythons:
    """Pickled as Python 3.11.2 pickles a member of an enum: getattr(class, name)."""

    def __init__(self, owner: Any, name: str) -> None:
        self.asked = (owner, name)

    def __reduce__(self) -> Any:
        return getattr, self.asked


def test_getattr_is_for_members_of_enums_only() -> None:
    member = stored(AsSomePythons(Color, "RED"))
    with pytest.raises(Error, match="object 'x' needs .*Color"):
        decode("x", member)
    with torch.serialization.safe_globals([Color]):
        assert decode("x", member) is Color.RED
        for owner, name in ((Color, "__subclasses__"), (Color, "mro"), (dict, "fromkeys")):
            with pytest.raises(Error, match="not a member of an enum"):
                decode("x", stored(AsSomePythons(owner, name)))


@pytest.mark.parametrize("value", [collections.deque([1]), (collections.defaultdict(list, a=1),)])
def test_containers_that_torch_cannot_read_safely(value: Any) -> None:
    data = stored(value)  # as torch writes them; what `encode` writes can be read
    assert same(decode("x", encode("x", value)[1]), value)
    with pytest.raises(Error, match=r"object 'x'.*collections\.(deque|defaultdict)"):
        decode("x", data)
    assert same(decode("x", data, allow_pickle=True), value)


@pytest.mark.parametrize("value", ["\ud800", ["a\udfff"], {"\udc80": 1}])
def test_half_a_surrogate_pair_survives(value: Any) -> None:
    kind, data = encode("x", value)
    assert same(decode("x", data if kind == OBJECT_STORED else stored(value)), value)


def test_a_stream_comes_back_as_one() -> None:
    kind, data = encode("x", io.BytesIO(b"abc"))
    assert kind == OBJECT_STORED
    assert torch.load(io.BytesIO(data), weights_only=False).getvalue() == b"abc"
    assert decode("x", data).getvalue() == b"abc"


def test_what_contains_itself_goes_to_torch() -> None:
    loop: list[Any] = []
    loop.append(loop)
    kind, data = encode("x", loop)
    assert kind == OBJECT_STORED
    back = decode("x", data)
    assert back[0] is back


def test_random_states() -> None:
    random.seed(5)
    numpy.random.seed(5)
    torch.manual_seed(5)
    generator = numpy.random.default_rng(5)
    states = {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(),
        "dict": numpy.random.get_state(legacy=False),
        "generator": generator.bit_generator.state,
        "torch": (torch.get_rng_state(),),
    }
    kinds = {}
    back = {}
    for name, state in states.items():
        kinds[name], data = encode(name, state)
        back[name] = decode(name, stored(state) if kinds[name] == OBJECT_PICKLE else data)
        assert same(back[name], state), name
    assert kinds["python"] == OBJECT_PICKLE
    expected = random.random(), numpy.random.rand(), generator.random(), torch.rand(1)
    random.setstate(back["python"])
    numpy.random.set_state(back["numpy"])
    generator.bit_generator.state = back["generator"]
    torch.set_rng_state(back["torch"][0])
    again = random.random(), numpy.random.rand(), generator.random(), torch.rand(1)
    assert expected == again


def schedulers() -> dict[str, Any]:
    from torch.optim import lr_scheduler as lr

    def optimizer() -> Any:
        model = torch.nn.Linear(2, 2)
        adam = torch.optim.AdamW(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        adam.step()
        return adam

    made = {
        "step": lr.StepLR(optimizer(), 2),
        "multi": lr.MultiStepLR(optimizer(), [2, 2, 5]),
        "cosine": lr.CosineAnnealingWarmRestarts(optimizer(), 4),
        "one": lr.OneCycleLR(optimizer(), 0.1, total_steps=9),
        "lambda": lr.LambdaLR(optimizer(), lambda step: 1 / (step + 1)),
        "plateau": lr.ReduceLROnPlateau(optimizer()),
    }
    first = optimizer()
    made["sequence"] = lr.SequentialLR(
        first, [lr.ConstantLR(first), lr.ExponentialLR(first, 0.9)], [3]
    )
    for scheduler in made.values():
        for _ in range(3):
            scheduler.step(*([1.0] if isinstance(scheduler, lr.ReduceLROnPlateau) else []))
    return made


@pytest.mark.filterwarnings("ignore")
def test_schedulers_and_optimizers() -> None:
    compared = 0
    for name, scheduler in schedulers().items():
        for state in (scheduler.state_dict(), scheduler.optimizer.state_dict()):
            for key, value in state.items():
                kind, data = encode(key, value)
                found = decode(key, data if kind == OBJECT_STORED else stored(value))
                assert same(found, value), (name, key)
                compared += 1
    assert compared > 60


# ---------------------------------------------------------------- refusals


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(Error, match=r"object 'a\.f': a builtins\.function cannot be pickled"):
        encode("a.f", lambda: 1)


@pytest.mark.parametrize("value", [Config(3), Mood.GOOD, [Config(1)]])
def test_other_classes_are_refused_with_what_to_do(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, data = encode("x", value)
    assert kind == OBJECT_STORED
    with pytest.raises(Error) as caught:
        decode("train.config", data)
    message = caught.value.message
    assert "object 'train.config' needs " in message
    assert f"{Config.__module__}." in message
    assert "add_safe_globals" in message and "SIDESTEP_UNSAFE_OBJECTS=1" in message
    assert "allow_pickle=True" in message
    assert caught.value.status == Status.EUNSAFE and caught.value.tensor == "train.config"
    assert same(decode("x", data, allow_pickle=True), value)
    monkeypatch.setenv("SIDESTEP_UNSAFE_OBJECTS", "0")
    with pytest.raises(Error):
        decode("x", data)
    monkeypatch.setenv("SIDESTEP_UNSAFE_OBJECTS", "1")
    assert same(decode("x", data), value)


def archive_of(pickled: bytes) -> bytes:
    """An archive as torch makes it, around any pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/version", b"3\n")
    return out.getvalue()


class Hostile:
    def __init__(self, canary: str) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.mkdir, (self.canary,)


def hostile_pickles(canary: str) -> dict[str, bytes]:
    text = canary.encode()
    evil = Hostile(canary)
    global_call = b"(S'" + text + b"'\ntR."
    return {
        **{f"protocol {n}": pickle.dumps(evil, n) for n in range(6)},
        "in a list": pickle.dumps([1, evil], 2),
        "as a key": pickle.dumps({"a": (evil,)}, 2),
        "inst": b"(S'" + text + b"'\nios\nmkdir\n.",
        "obj": b"(cos\nmkdir\nS'" + text + b"'\no.",
        "builtins eval": b'c__builtin__\neval\n(S\'__import__("os").mkdir("' + text + b"\")'\ntR.",
        "getattr": b"c__builtin__\ngetattr\n(cos\npath\nS'os'\ntR" + b"cos\nmkdir\n" + global_call,
        "build": b"ccollections\nOrderedDict\n)R(S'__class__'\ncos\nmkdir\n" + b"db" + global_call,
        "partial": pickle.dumps(_partial(canary), 2),
        "default factory": pickle.dumps(collections.defaultdict(_partial(canary)), 2),
        "after the end": pickle.dumps(1, 2) + pickle.dumps(evil, 2),
        "path": b"cpathlib\nPosixPath.mkdir\ncpathlib\nPosixPath\n(S'" + text + b"'\ntR\x85R.",
        "path 4": b"\x80\x04\x8c\x07pathlib\x8c\x0fPosixPath.mkdir\x93cpathlib\nPosixPath\n(S'"
        + text
        + b"'\ntR\x85R.",
    }


def _partial(canary: str) -> Any:
    import functools

    return functools.partial(os.mkdir, canary)


def test_hostile_pickles_run_nothing(tmp_path: pathlib.Path) -> None:
    canary = tmp_path / "canary"
    refused = 0
    for name, data in hostile_pickles(str(canary)).items():
        for payload in (archive_of(data), data):
            try:
                found = decode("x", payload)
            except Error as error:
                assert error.status in (Status.EUNSAFE, Status.ECORRUPT), name
                assert "'x'" in error.message
                refused += 1
            else:
                assert found == 1, name  # what stands before the end
            assert not canary.exists(), name
    assert refused >= 2 * 16
    # The control: the same bytes do run where that is asked for.
    decode("x", archive_of(pickle.dumps(Hostile(str(canary)), 2)), allow_pickle=True)
    assert canary.exists()


def test_no_reduce_is_called_to_see_whether_data_is_plain(tmp_path: pathlib.Path) -> None:
    assert _objects._plain_pickle([Hostile(str(tmp_path / "x"))]) is None


def test_broken_bytes_are_an_error_of_ours() -> None:
    good = stored({"a": 1})
    refused = 0
    for length in range(0, len(good), 37):
        with pytest.raises(Error, match="object 'x'"):
            decode("x", good[:length])
        refused += 1
    for place in range(0, len(good), 11):
        broken = bytearray(good)
        broken[place] ^= 0x5A
        try:
            decode("x", bytes(broken))
        except Error:
            refused += 1
    assert refused > 30
    assert math.isnan(decode("x", stored(math.nan)))


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported class a.B",
        "Unsupported global: GLOBAL a.B was not an allowed global by default.",  # torch 2.5
        "Trying to load unsupported GLOBAL a.B whose module",
    ],
)
def test_the_class_in_a_message_of_torch(message: str) -> None:
    assert _objects._named_in(f"Weights only load failed. WeightsUnpickler error: {message}") == [
        "a.B"
    ]
