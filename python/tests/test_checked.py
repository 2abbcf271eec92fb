# SPDX-License-Identifier: BSD-3-Clause
"""Whatever callers hand in, what they get is a sentence: an `Error`, or the TypeError or ValueError
of an argument that is named.  Nothing is wrapped around, cut short, or made where nobody meant it.
"""

from __future__ import annotations

import datetime
import os
import pickle
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock
from states import in_groups

import sidestep
from sidestep import Checkpointer, Error, Final, Reader, SaveOptions, Status, TrainState, Writer
from sidestep._c.checked import MAX_STEP

URLS = ("S3://bucket/x", "gs://bucket", "file:///tmp/x", "S3A+x.1://y", Path("s3://b/x"))


def a_state() -> dict[str, Any]:
    return {"w": torch.zeros(3), "o": 1}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("good") / "c")
    sidestep.save(a_state(), checkpoint_id=path, no_dist=True)
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, in which nothing may appear."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    yield place
    assert not list(place.iterdir())


Use = Callable[[Any], object]


def uses(good: str, out: Path) -> dict[str, Use]:
    """Every public function that takes a path."""
    alone = {"no_dist": True}
    return {
        "save": lambda p: sidestep.save(a_state(), checkpoint_id=p, **alone),
        "async_save": lambda p: sidestep.async_save(a_state(), checkpoint_id=p, **alone),
        "load": lambda p: sidestep.load(a_state(), checkpoint_id=p, **alone),
        "Writer": lambda p: sidestep.save(a_state(), storage_writer=Writer(p), **alone),
        "Writer.reset": lambda p: Writer(good).reset(p),
        "Reader": lambda p: sidestep.load(a_state(), storage_reader=Reader(p), **alone),
        "Reader.reset": lambda p: Reader(good).reset(p),
        "torch's Writer": lambda p: stock.save(a_state(), storage_writer=Writer(p), **alone),
        "torch's Reader": lambda p: stock.load(a_state(), storage_reader=Reader(p), **alone),
        "latest": sidestep.latest,
        "load_metadata": sidestep.load_metadata,
        "read": sidestep.read,
        "stats": sidestep.stats,
        "pin": sidestep.pin,
        "tag": lambda p: sidestep.tag(p, "best"),
        "convert from": lambda p: sidestep.convert(p, out / "a.npz", objects="skip"),
        "convert to": lambda p: sidestep.convert(good, p, to="npz", objects="skip"),
        "mapping": lambda p: sidestep.convert(good, out / "b.npz", objects="skip", mapping=p),
        "export from": lambda p: sidestep.export(p, out / "c"),
        "export to": lambda p: sidestep.export(good, p),
        "Final": lambda p: Final(path=p),
        "Checkpointer": lambda p: Checkpointer(p, signals=(), **alone).close(),
    }


OPTIONAL = ("mapping", "Final", "Writer.reset", "Reader.reset")  # None means something to these
SAVES_AND_LOADS = ("save", "async_save", "load")


class BadPath:
    def __fspath__(self) -> Any:
        return 3


@pytest.mark.parametrize("wrong", [None, 5, 1.5, ["a"], object(), BadPath()], ids=repr)
def test_what_is_no_path(good: str, here: Path, tmp_path: Path, wrong: Any) -> None:
    for name, use in uses(good, tmp_path).items():
        if wrong is None and name in OPTIONAL:
            continue
        # torch's word where neither path nor storage is given
        expected = RuntimeError if wrong is None and name in SAVES_AND_LOADS else TypeError
        with pytest.raises(expected, match=r"a path is wanted|must be specified"):
            use(wrong)


@pytest.mark.parametrize("wrong", ["", b"", "a\0b", b"a\0b", "\ud800"], ids=repr)
def test_what_no_path_can_be(good: str, here: Path, tmp_path: Path, wrong: Any) -> None:
    """A NUL would end it: a checkpoint with a shorter name would be read, replaced or deleted."""
    for name, use in uses(good, tmp_path).items():
        if not wrong and name.endswith(".reset"):
            continue  # the same path as before
        expected = RuntimeError if not wrong and name in SAVES_AND_LOADS else ValueError
        with pytest.raises(expected, match=r"is empty|has a NUL|no path can have|be specified"):
            use(wrong)


@pytest.mark.parametrize("url", URLS)
def test_urls_are_refused(good: str, here: Path, tmp_path: Path, url: Any) -> None:
    for name, use in uses(good, tmp_path).items():
        if name in SAVES_AND_LOADS and "://" in str(url):
            continue  # these ask torch: test_dropin.py
        with pytest.raises(Error, match="is a URL|has lost a slash") as told:
            use(url)
        assert told.value.status == Status.EUNSUPPORTED, name


def test_a_path_may_look_like_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("a:b", "s3:x", "./s3://bucket/x", b"c:\\x", Path("./run:/y")):
        sidestep.save(a_state(), checkpoint_id=path, no_dist=True)
        assert sidestep.read(path)["o"] == 1
    assert (tmp_path / "s3:" / "bucket" / "x" / ".metadata").exists()


def places(root: Path) -> dict[str, Path]:
    """Where there is no checkpoint, nor can be one."""
    (root / "file").write_text("x")
    (root / "dangling").symlink_to(root / "nowhere")
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "fifo")
    wrong = {name: root / name for name in ("file", "dangling", "loop", "fifo")}
    wrong.update({f"beneath {name}": path / "x" for name, path in list(wrong.items())})
    wrong["a long name"] = root / ("n" * 300)
    wrong["a long path"] = root.joinpath(*["p" * 200] * 40)
    wrong["a device"] = Path("/dev/null")
    wrong["beneath a device"] = Path("/dev/null/x")
    wrong["a place of the kernel's"] = Path("/proc/self/x/y")
    return wrong


# These say that nothing is there, or make what they are asked to.
SAYS_NOTHING = ("latest", "Final", "Writer.reset", "Reader.reset")


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_bad_places(good: str, here: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for place, path in places(root).items():
        for name, use in uses(good, tmp_path).items():
            if name in SAYS_NOTHING:
                continue
            # torch's own functions put what is raised in them into an exception of theirs.
            expected = stock.CheckpointException if name.startswith("torch's") else Error
            with pytest.raises(expected):
                use(path)
                print(f"{name} takes {place}")
    left = {path.name for path in root.iterdir()} - {"p" * 200}
    assert left == {"file", "dangling", "loop", "fifo"}


def in_child_of_another_user(work: Callable[[], Any]) -> Any:
    """What it returns in a process that no right is granted to."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            torch.set_num_threads(1)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            os.write(there, pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as answer:
        data = answer.read()
    os.waitpid(pid, 0)
    assert data, "the child has raised, or died"
    return pickle.loads(data)


def problems(good: str, out: Path, path: Path, wanted: Status) -> dict[str, str]:
    """Functions that are not refused at ``path`` with this status, and what they say."""
    found = {}
    for name, use in uses(good, out).items():
        if name in SAYS_NOTHING[1:]:
            continue
        try:
            use(path)
            found[name] = "nothing"
        except Error as told:
            if told.status != wanted:
                found[name] = str(told)
        except stock.CheckpointException as told:  # torch's, which has our words in it
            if wanted.name not in str(told):
                found[name] = str(told)
        except BaseException as told:
            found[name] = repr(told)
    return found


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_without_permission(shared: Path) -> None:
    good, out, locked = str(shared / "good"), shared / "out", shared / "locked"
    sidestep.save(a_state(), checkpoint_id=good, no_dist=True)
    out.mkdir()
    out.chmod(0o777)
    locked.mkdir()
    locked.chmod(0)

    def look() -> list[dict[str, str]]:
        return [problems(good, out, p, Status.EPERM) for p in (locked / "x", locked / "x" / "y")]

    try:
        assert in_child_of_another_user(look) == [{}, {}]
    finally:
        locked.chmod(0o700)


# ---------------------------------------------------------------- states


class Odd:
    """A ``Stateful`` whose state is none."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    "wrong",
    [None, torch.zeros(3), [torch.zeros(3)], "abc", 5, dict, torch.nn.Linear(2, 2), iter("ab")],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_state(good: str, here: Path, tmp_path: Path, wrong: Any) -> None:
    checkpoints = Checkpointer(tmp_path / "r", no_dist=True, signals=())
    own: list[Use] = [
        lambda s: sidestep.save(s, checkpoint_id=tmp_path / "c", no_dist=True),
        lambda s: sidestep.async_save(s, checkpoint_id=tmp_path / "c", no_dist=True),
        lambda s: sidestep.load(s, checkpoint_id=good, no_dist=True),
        sidestep.huge_pages,
    ]
    stateful: list[Use] = [
        lambda s: checkpoints.save(1, s),
        checkpoints.resume,  # also where there is nothing yet
        checkpoints.load,
    ]
    for use in own + ([] if isinstance(wrong, torch.nn.Module) else stateful):
        with pytest.raises(TypeError, match=r"^state(_dict)?: a dict of names and values is"):
            use(wrong)
    for use in stateful[:1]:
        with pytest.raises(TypeError, match=r"what Odd\.state_dict\(\) returns: a dict of names"):
            use(Odd(wrong))
    checkpoints.save(1, {"w": torch.zeros(2)}).wait()
    for use in stateful[1:]:
        with pytest.raises(TypeError, match=r"what Odd\.state_dict\(\) returns: a dict of names"):
            use(Odd(wrong))
    checkpoints.close()


def test_a_model_is_to_have_a_name(here: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r'not a Linear; give it a name, as in {"model": model}'):
        sidestep.save(torch.nn.Linear(1, 1), checkpoint_id=tmp_path / "c", no_dist=True)


def test_what_cannot_be_filled(good: str, here: Path) -> None:
    with pytest.raises(TypeError, match="a mappingproxy cannot be filled in place"):
        sidestep.load(types.MappingProxyType(a_state()), checkpoint_id=good, no_dist=True)


@pytest.mark.parametrize("part", ["model", "optimizer", "scheduler", "data", "ema"])
@pytest.mark.parametrize("wrong", [5, [5], object()], ids=repr)
def test_what_is_no_part_of_a_run(part: str, wrong: Any) -> None:
    if part == "ema":
        arguments = {"ema": wrong}
    else:
        arguments = {"model": torch.nn.Linear(1, 1), part: wrong}
    with pytest.raises(TypeError, match=f"^{part}: a "):
        TrainState(**arguments)


# ---------------------------------------------------------------- numbers, names, words


@pytest.mark.parametrize("wrong", [-2, 1 << 63, 1 << 64, (1 << 64) + 1, 1 << 70])
def test_steps_are_not_wrapped_around(tmp_path: Path, wrong: int) -> None:
    """2**64 is not step 0, from which a run would go on."""
    with Checkpointer(tmp_path, no_dist=True, signals=()) as checkpoints:
        checkpoints.save(0, a_state()).wait()
        checkpoints.save(1, a_state()).wait()
        for use in (
            lambda: checkpoints.save(wrong, a_state()),
            lambda: checkpoints.should_save(wrong),
            lambda: checkpoints.note(wrong, {"loss": 1.0}),
            lambda: checkpoints.pin(wrong),
            lambda: checkpoints.tag(wrong, "best"),
            lambda: checkpoints.load(a_state(), step=wrong),
            lambda: checkpoints.resume(a_state(), step=wrong),
            lambda: Writer(tmp_path / "c", step=wrong),
        ):
            with pytest.raises(ValueError, match="step=-?[0-9]* is (negative|less|more)"):
                use()
        for no_number in ("1", 1.0, None, [1]):
            with pytest.raises(TypeError, match="step: an integer is wanted"):
                checkpoints.save(no_number, a_state())  # type: ignore[arg-type]
        checkpoints.save(MAX_STEP, a_state()).wait()
        assert checkpoints.load(a_state(), step=torch.tensor(1)).step == 1  # type: ignore[arg-type]
    assert sidestep.latest(tmp_path) == str(tmp_path / f"step-{MAX_STEP}")


BAD_OPTIONS: list[dict[str, Any]] = [
    *({"interval": wrong} for wrong in ("x", 0, True, -1, 1 << 64, datetime.timedelta(-1))),
    *({"keep_last_n": wrong} for wrong in ("x", -1, 1.5, 1 << 32)),
    *({"keep_every": wrong} for wrong in ("x", -1, 1 << 64)),
    *({"keep_best": wrong, "keep_last_n": 1} for wrong in (5, (5, 1, "min"), ("a", "b", "min"))),
    *({"keep_best": wrong, "keep_last_n": 1} for wrong in (("a", -1, "max"), ("a", 1, []))),
    *({"mtbf": wrong} for wrong in (5, datetime.timedelta(-1))),
    *({"max_lost": wrong} for wrong in ("x", -1.0, float("nan"))),
    *({"queue": wrong} for wrong in ("x", 0, 9, 1.5)),
    *({"signals": wrong} for wrong in (None, [None], 1.5)),
    *({"grace_s": wrong} for wrong in ("x", -1, float("nan"))),
    *({"exit_code": wrong} for wrong in ("x", -1, 256)),
    *({"max_restarts": wrong} for wrong in ("x", -1, 1 << 32)),
    *({"max_failures": wrong} for wrong in ("x", -1)),
    *({"name": wrong} for wrong in (5, "a\0", "\ud800")),
    *({name: wrong} for name in ("busy", "on_full", "at_signal") for wrong in (5, "x", [])),
    *({name: 5} for name in ("compress", "snapshot", "io", "final")),
    *({name: wrong} for name in ("strict_objects", "fence") for wrong in ("no", 0, None)),
    *({"spread_s": wrong} for wrong in ("x", -1, float("nan"))),
    *({name: 5} for name in ("on_staged", "on_committed", "on_failed", "on_deleted")),
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=str)
def test_options_of_a_checkpointer(here: Path, options: dict[str, Any]) -> None:
    name = next(iter(options))
    with pytest.raises((TypeError, ValueError), match=f"^{name}[:=]"):
        Checkpointer("run", no_dist=True, **{"signals": (), **in_groups(**options)})


@pytest.mark.parametrize(
    "metrics", [5, "x", [("a", 1)], {"a": "x"}, {"a": None}, {5: 1.0}, {"a\0b": 1.0}, {"\ud800": 1}]
)
@pytest.mark.parametrize("tags", [(), 5, [5], b"x", ["a\0"], ["\ud800"]])
def test_metrics_and_tags(tmp_path: Path, metrics: Any, tags: Any) -> None:
    with Checkpointer(tmp_path, no_dist=True, signals=()) as checkpoints:
        with pytest.raises((TypeError, ValueError), match="^metrics"):
            checkpoints.save(1, a_state(), metrics=metrics)
        if tags != ():
            with pytest.raises((TypeError, ValueError), match="^tags"):
                checkpoints.save(1, a_state(), tags=tags)
        checkpoints.save(1, a_state(), metrics={"loss": torch.tensor(1.5)}, tags="best").wait()


BAD_CONVERSIONS: list[dict[str, Any]] = [
    *({name: wrong} for name in ("threads", "ranks") for wrong in (-1, "x", 1 << 32)),
    *({"max_shard_size": wrong} for wrong in ("x", -1, None, 1.5)),
    *({name: wrong} for name in ("dtype", "to", "objects") for wrong in ("x", 5)),
    *({name: "x"} for name in ("include", "exclude", "rename")),
    *({name: [5]} for name in ("include", "exclude", "rename")),
    *({name: ["a\0b"]} for name in ("include", "exclude", "rename")),
    *({name: 5} for name in ("include", "exclude", "rename", "compress", "progress")),
    *({name: "no"} for name in ("replace", "model_only", "dry_run", "partial")),
]


@pytest.mark.parametrize("options", BAD_CONVERSIONS, ids=str)
def test_options_of_a_conversion(good: str, here: Path, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(options)) + "[:=]|is not a size"):
        sidestep.convert(good, "out.safetensors", **{"objects": "skip", **options})


def test_the_length_of_a_name(here: Path, tmp_path: Path) -> None:
    """4,096 bytes, both ways with torch; one more is refused by name, both ways."""
    for most, inner in (("x" * 4096, None), ("x" * 2047, "y" * 2048), ("\u00e9" * 2048, None)):
        value: Any = torch.ones(3) if inner is None else {inner: torch.ones(3)}
        empty: Any = torch.zeros(3) if inner is None else {inner: torch.zeros(3)}
        for save, load in ((sidestep.save, stock.load), (stock.save, sidestep.load)):
            save({most: value}, checkpoint_id=tmp_path / "a")
            got = {most: empty}
            load(got, checkpoint_id=tmp_path / "a")
            assert (got[most] if inner is None else got[most][inner]).sum() == 3
        for save_one in (sidestep.save, sidestep.async_save):
            with pytest.raises(Error, match="x.*|\u00e9.*: the name has more than 4096 bytes"):
                save_one({most + "z": value}, checkpoint_id=tmp_path / "b")
        assert not (tmp_path / "b").exists()
        stock.save({most + "z": value, "w": torch.ones(1)}, checkpoint_id=tmp_path / "c")
        for use in (
            lambda: sidestep.load({"w": torch.ones(1)}, checkpoint_id=tmp_path / "c"),
            lambda: sidestep.read(tmp_path / "c", "w"),
            lambda: sidestep.copy(tmp_path / "c", tmp_path / "d"),
        ):
            with pytest.raises(Error, match=r"has 4097 bytes, the limit is 4096") as caught:
                use()
            assert caught.value.status == Status.EUNSUPPORTED


@pytest.mark.parametrize("wrong", ["no", "False", 0, 1, None])
def test_flags(good: str, here: Path, tmp_path: Path, wrong: Any) -> None:
    """A text is true, whatever it says: so it is no flag."""
    out = tmp_path / "out"
    uses: dict[str, list[Callable[[], object]]] = {
        "strict_objects": [
            lambda: sidestep.save(a_state(), checkpoint_id=out, strict_objects=wrong),
            lambda: sidestep.async_save(a_state(), checkpoint_id=out, strict_objects=wrong),
            lambda: Writer(out, options=SaveOptions(strict_objects=wrong)),
        ],
        "overwrite": [lambda: Writer(out, overwrite=wrong)],
        "allow_pickle": [
            lambda: Reader(good, allow_pickle=wrong),
            lambda: sidestep.read(good, allow_pickle=wrong),
            lambda: sidestep.read(good, "w", allow_pickle=wrong),
        ],
        "replace": [lambda: sidestep.copy(good, out, replace=wrong)],
        "on": [lambda: sidestep.pin(good, wrong), lambda: sidestep.tag(good, "a", wrong)],
    }
    for name, calls in uses.items():
        for use in calls:
            with pytest.raises(TypeError, match=f"^{name}: True or False is wanted"):
                use()
    with Checkpointer(tmp_path / "run", no_dist=True, signals=()) as run:
        run.save(1, a_state()).wait()
        for name in ("strict", "exact"):
            for fill in (run.resume, run.load):
                with pytest.raises(TypeError, match=f"^{name}: True or False is wanted"):
                    fill(a_state(), **{name: wrong})
    assert not out.exists()


def test_names_of_tensors(good: str) -> None:
    for wrong in (5, b"w", ["w"], True):
        with pytest.raises(TypeError, match="^name: a str is wanted"):
            sidestep.read(good, wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="^names: a str is wanted"):
            sidestep.stats(good, [wrong])  # type: ignore[list-item]
    for nothing in ("w\0", "\ud800"):
        with pytest.raises(ValueError, match="has a NUL or a surrogate"):
            sidestep.read(good, nothing)
    for word in ("w", 5):
        with pytest.raises(TypeError, match="^names: a list of str is wanted"):
            sidestep.stats(good, word)  # type: ignore[arg-type]
    for box in ((5, 5), ("a", "b"), ([0.5], [1]), ([None], [1])):
        with pytest.raises(TypeError, match="offsets and lengths are lists of integers"):
            sidestep.read(good, "w", offsets=box[0], lengths=box[1])  # type: ignore[arg-type]


def test_what_is_no_storage(here: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^storage_writer: a builtins\.int is not a storage"):
        sidestep.save(a_state(), storage_writer=5, no_dist=True)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^storage_reader: a builtins\.str is not a storage"):
        sidestep.load(a_state(), storage_reader="c", no_dist=True)
    stager: Any = 5
    with pytest.raises(TypeError, match="^async_stager: a int has no stage"):
        sidestep.async_save(a_state(), checkpoint_id=tmp_path, async_stager=stager)
    with pytest.raises(TypeError, match="^variables: "):
        sidestep.environment(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"not a sidestep\.Final"):
        sidestep.export("a", "b", 5)  # type: ignore[arg-type]
