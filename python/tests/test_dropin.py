# SPDX-License-Identifier: BSD-3-Clause
"""`save`, `async_save` and `load` take what callers of torch's hand in, and mean the same by it."""

from __future__ import annotations

import concurrent.futures
import errno
import importlib.util
import logging
import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint import filesystem, staging
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse

import sidestep as dcp
from sidestep._handle import SaveHandle


def a_state(value: float = 1.0) -> dict[str, Any]:
    return {
        "model": {"weight": torch.full((3, 4), float(value)), "bias": torch.arange(4) + int(value)},
        "step": int(value),
    }


def loaded(load: Callable[..., None], path: Any, **options: Any) -> dict[str, Any]:
    """The state in ``path``, and that nothing of it is what it was filled with."""
    state = a_state(-7.0)
    load(state, checkpoint_id=path, **options)
    assert state["step"] != -7
    return state


def check(path: Any, value: float = 1.0) -> None:
    """Stock and we read the same state from ``path``, every element."""
    want = a_state(value)
    for load in (stock.load, dcp.load):
        got = loaded(load, str(path))
        assert torch.equal(got["model"]["weight"], want["model"]["weight"])
        assert torch.equal(got["model"]["bias"], want["model"]["bias"])
        assert got["step"] == want["step"]


def is_ours(path: Any) -> bool:
    """Whether a directory is a checkpoint that this library committed."""
    return dcp.load_metadata(str(path)).format == "sidestep"


# ---------------------------------------------------------------- interrupted


class Watchdog(Exception):
    """What a handler of signals may raise that is no KeyboardInterrupt."""


@pytest.mark.parametrize("raised", [KeyboardInterrupt, Watchdog])
def test_a_save_that_is_interrupted_has_the_state_of_its_call(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    """`save` copies nothing ahead, so whatever a handler raises, and when, waits for the copy."""
    state = {"w": torch.ones(50_000_000, dtype=torch.int32)}
    handles = []

    class Interrupted(SaveHandle):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            handles.append(self)
            signal.raise_signal(signal.SIGUSR1)  # the library's call has not returned yet

        def _hurry(self) -> None:
            super()._hurry()
            if signal.getsignal(signal.SIGUSR1) != before:
                signal.raise_signal(signal.SIGUSR1)  # and again, as somebody waits

    def handler(*_: object) -> None:
        raise raised

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("sidestep._engine.SaveHandle", Interrupted)
            with pytest.raises(raised):
                dcp.save(state, checkpoint_id=tmp_path / "a")
        copied = handles[0].staged.done()
        state["w"].zero_()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert copied
    handles[0].wait(60)
    dcp.load(state, checkpoint_id=tmp_path / "a")
    ones = int(state["w"].sum())
    assert ones == 50_000_000


# ---------------------------------------------------------------- where to


class PathLike:
    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return self.path


@pytest.mark.parametrize("kind", [str, pathlib.Path, PathLike])
def test_checkpoint_id(tmp_path: pathlib.Path, kind: Any) -> None:
    path = tmp_path / "missing" / "parents" / "step-1"
    dcp.save(a_state(), checkpoint_id=kind(str(path)))
    assert is_ours(path)
    check(path)
    assert loaded(dcp.load, kind(str(path)))["step"] == 1


def save_by_stock(state: dict[str, Any], checkpoint_id: str) -> None:
    try:
        stock.save(state, storage_writer=dcp.Writer(checkpoint_id))
    except CheckpointException as told:  # torch's own, around ours
        raise told.failures[0][0] from None


def save_by_another_planner(state: dict[str, Any], checkpoint_id: str) -> None:
    class Other(stock.DefaultSavePlanner):
        pass

    dcp.save(state, checkpoint_id=checkpoint_id, planner=Other())


def save_in_a_series(state: dict[str, Any], checkpoint_id: str) -> None:
    dcp.Checkpointer(checkpoint_id, signals=()).save(1, state)


@pytest.mark.parametrize(
    "save", [dcp.save, dcp.async_save, save_by_stock, save_by_another_planner, save_in_a_series]
)
@pytest.mark.parametrize("below", ["x", "x/y"])
def test_a_path_below_a_file(tmp_path: pathlib.Path, save: Any, below: str) -> None:
    """A component of the path is no directory: the error says which, once."""
    file = tmp_path / "file"
    file.write_text("words")
    path = file / below
    with pytest.raises(dcp.Error) as caught:
        save(a_state(), checkpoint_id=str(path))
    assert caught.value.status == dcp.Status.ENOTFOUND, caught.value
    assert caught.value.errno == errno.ENOTDIR
    words = f"'{file}' is not a directory, so nothing can lie below it; choose another path"
    assert caught.value.message.endswith(words)
    assert caught.value.message.count(str(path)) == 1
    assert file.read_text() == "words"


@pytest.mark.parametrize("storage", [filesystem.FileSystemWriter, dcp.Writer])
def test_path_of_the_writer(tmp_path: pathlib.Path, storage: Any) -> None:
    dcp.save(a_state(2), storage_writer=storage(tmp_path / "a"))
    assert is_ours(tmp_path / "a")
    check(tmp_path / "a", 2)
    writer = storage(tmp_path / "not-here")
    dcp.save(a_state(3), checkpoint_id=tmp_path / "b", storage_writer=writer)
    assert not (tmp_path / "not-here").exists()
    assert str(writer.path) == str(tmp_path / "b")
    check(tmp_path / "b", 3)


@pytest.mark.parametrize("storage", [filesystem.FileSystemReader, dcp.Reader])
def test_path_of_the_reader(tmp_path: pathlib.Path, storage: Any) -> None:
    dcp.save(a_state(2), checkpoint_id=tmp_path / "a")
    state = a_state(0)
    dcp.load(state, storage_reader=storage(tmp_path / "a"))
    assert state["step"] == 2
    state = a_state(0)
    dcp.load(state, checkpoint_id=tmp_path / "a", storage_reader=storage(tmp_path / "not-here"))
    assert state["step"] == 2


def test_what_is_no_dict(tmp_path: pathlib.Path) -> None:
    for state in (torch.zeros(2), [torch.zeros(2)], None):
        with pytest.raises(TypeError, match="state_dict: a "):
            dcp.save(state, checkpoint_id=tmp_path / "a")
        with pytest.raises(TypeError, match="state_dict: a "):
            dcp.load(state, checkpoint_id=tmp_path / "a")
    assert not os.path.lexists(tmp_path / "a")


def test_storage_as_second_positional_argument(tmp_path: pathlib.Path) -> None:
    with pytest.warns(UserWarning, match="argument order of save has been changed"):
        dcp.save(a_state(4), dcp.FileSystemWriter(tmp_path / "a"))
    state = a_state(0)
    with pytest.warns(UserWarning, match="argument order of load has been changed"):
        dcp.load(state, dcp.FileSystemReader(tmp_path / "a"))
    assert state["step"] == 4 and is_ours(tmp_path / "a")
    with pytest.raises(TypeError, match="two values for 'storage_writer'"):
        dcp.save(a_state(), dcp.Writer(tmp_path), storage_writer=dcp.Writer(tmp_path))
    with pytest.raises(TypeError, match="positional"):
        dcp.async_save(a_state(), dcp.Writer(tmp_path))


def test_neither_id_nor_storage() -> None:
    for call in (dcp.save, dcp.async_save, dcp.load):
        with pytest.raises(RuntimeError, match="`checkpoint_id` must be specified"):
            call(a_state())


def test_overwrite(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a"
    dcp.save(a_state(1), checkpoint_id=path)
    dcp.save(a_state(2), checkpoint_id=path)
    for storage in (filesystem.FileSystemWriter, dcp.Writer):
        with pytest.raises(dcp.Error) as caught:
            dcp.save(a_state(3), storage_writer=storage(path, overwrite=False))
        assert caught.value.status == dcp.Status.EEXISTS
        assert isinstance(caught.value, CheckpointException)
        assert 0 in caught.value.failures
    check(path, 2)


# ---------------------------------------------------------------- what comes back


def test_metadata(tmp_path: pathlib.Path) -> None:
    metadata = dcp.save(a_state(), checkpoint_id=tmp_path / "a")
    assert isinstance(metadata, stock.Metadata)
    read = stock.FileSystemReader(tmp_path / "a").read_metadata()
    assert metadata.state_dict_metadata == read.state_dict_metadata
    assert metadata.storage_data == read.storage_data and len(read.storage_data) == 3
    assert metadata.planner_data == read.planner_data
    assert metadata.storage_meta is not None and metadata.storage_meta.save_id


def test_future(tmp_path: pathlib.Path) -> None:
    called: list[Any] = []
    handle = dcp.async_save(a_state(), checkpoint_id=tmp_path / "a")
    assert isinstance(handle, concurrent.futures.Future)
    assert not isinstance(handle, AsyncSaveResponse)
    handle.add_done_callback(called.append)
    assert isinstance(handle.result(timeout=60), stock.Metadata)
    assert handle.done() and handle.exception() is None
    assert handle.upload_completion is handle.committed
    assert handle.staging_completion.done()
    concurrent.futures.wait([handle])
    check(tmp_path / "a")


def test_state_may_change_after_the_call(tmp_path: pathlib.Path) -> None:
    state = a_state(5)
    handle = dcp.async_save(state, checkpoint_id=tmp_path / "a")
    state["model"]["weight"].fill_(-1)
    state["model"]["bias"].zero_()
    state["step"] = 0
    handle.result()
    check(tmp_path / "a", 5)


@pytest.mark.parametrize("kind", list(AsyncCheckpointerType))
def test_checkpointer_type(tmp_path: pathlib.Path, kind: AsyncCheckpointerType) -> None:
    handle = dcp.async_save(a_state(), checkpoint_id=tmp_path / "a", async_checkpointer_type=kind)
    handle.result()
    assert is_ours(tmp_path / "a")


# ---------------------------------------------------------------- stagers


@pytest.mark.parametrize("later", [False, True])
def test_torchs_stagers_stand_for_our_staging(tmp_path: pathlib.Path, later: bool) -> None:
    stager = staging.DefaultStager(staging.StagingOptions(False, False, later, False))
    try:
        stager.stage = lambda *_: pytest.fail("asked")  # type: ignore[method-assign, assignment]
        response = dcp.async_save(a_state(6), checkpoint_id=tmp_path / "a", async_stager=stager)
        assert isinstance(response, AsyncSaveResponse) is later
        response.staging_completion.result()
        assert isinstance(response.upload_completion.result(), stock.Metadata)
        response.committed.result()  # what is ours is found on both
        assert response.progress().state == "committed"
    finally:
        stager.close()
    check(tmp_path / "a", 6)


def test_blocking_stagers_stand_for_our_staging(tmp_path: pathlib.Path) -> None:
    for i, stager in enumerate(
        [staging.BlockingAsyncStager(), filesystem.FileSystemWriter(tmp_path / "not-here")]
    ):
        stager.stage = lambda *_: pytest.fail("asked")  # type: ignore[method-assign]
        path = tmp_path / str(i)
        dcp.async_save(a_state(i + 2), checkpoint_id=path, async_stager=stager).result()
        check(path, i + 2)


class Doubler(staging.BlockingAsyncStager):
    """A stager with a mind of its own."""

    synchronized = 0

    def __init__(self, later: bool, ask_to_synchronize: bool = False) -> None:
        super().__init__()
        self.later = later
        self._synchronize_after_execute = ask_to_synchronize

    def stage(self, state_dict: Any) -> Any:
        staged = {**state_dict, "step": state_dict["step"] * 2}
        if not self.later:
            return staged
        executor = concurrent.futures.ThreadPoolExecutor(1)
        return executor.submit(lambda: staged)

    def synchronize_staging(self) -> None:
        self.synchronized += 1


def test_another_stager_is_asked(tmp_path: pathlib.Path) -> None:
    handle = dcp.async_save(
        a_state(3), checkpoint_id=tmp_path / "a", async_stager=Doubler(later=False)
    )
    assert isinstance(handle, concurrent.futures.Future)
    handle.result()
    assert loaded(dcp.load, tmp_path / "a")["step"] == 6
    response = dcp.async_save(
        a_state(4), checkpoint_id=tmp_path / "b", async_stager=Doubler(later=True)
    )
    assert isinstance(response, AsyncSaveResponse)
    response.staging_completion.result()
    response.upload_completion.result()
    assert loaded(dcp.load, tmp_path / "b")["step"] == 8
    stager = Doubler(later=False, ask_to_synchronize=True)
    dcp.async_save(a_state(5), checkpoint_id=tmp_path / "c", async_stager=stager).result()
    assert stager.synchronized == 1
    assert loaded(dcp.load, tmp_path / "c")["step"] == 10


def test_a_stager_that_fails(tmp_path: pathlib.Path) -> None:
    class Failing(staging.BlockingAsyncStager):
        def stage(self, state_dict: Any) -> Any:
            raise OSError("no shared memory")

    with pytest.raises(OSError, match="no shared memory"):
        dcp.async_save(a_state(), checkpoint_id=tmp_path / "a", async_stager=Failing())
    assert not (tmp_path / "a").exists()
    dcp.save(a_state(), checkpoint_id=tmp_path / "a")
    check(tmp_path / "a")


# ---------------------------------------------------------------- Stateful


class Trainer:
    def __init__(self, value: float) -> None:
        self.weight = torch.full((5,), value)
        self.log: list[str] = []

    def state_dict(self) -> dict[str, Any]:
        self.log.append("state_dict")
        return {"weight": self.weight, "epoch": int(self.weight[0])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.log.append("load_state_dict")
        self.weight = state["weight"].clone()
        self.epoch = state["epoch"]


def test_stateful(tmp_path: pathlib.Path) -> None:
    saved = Trainer(3.0)
    dcp.async_save({"trainer": saved, "step": 1}, checkpoint_id=tmp_path / "a").result()
    assert saved.log == ["state_dict"]
    target = Trainer(0.0)
    state = {"trainer": target, "step": 0}
    dcp.load(state, checkpoint_id=tmp_path / "a")
    assert target.log == ["state_dict", "load_state_dict"]
    assert state["trainer"] is target and state["step"] == 1
    assert target.epoch == 3 and torch.equal(target.weight, torch.full((5,), 3.0))
    other = Trainer(0.0)
    stock.load({"trainer": other}, checkpoint_id=str(tmp_path / "a"))
    assert other.epoch == 3


def test_module_and_optimizer_as_values(tmp_path: pathlib.Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=tmp_path / "a")
    again = torch.nn.Linear(4, 4)
    second = torch.optim.Adam(again.parameters())
    again(torch.ones(1, 4)).sum().backward()
    second.step()
    dcp.load({"model": again, "optimizer": second}, checkpoint_id=tmp_path / "a")
    compared = 0
    for ours, theirs in zip(model.state_dict().values(), again.state_dict().values()):
        assert torch.equal(ours, theirs)
        compared += 1
    for key, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            assert torch.equal(value, second.state_dict()["state"][key][name])
            compared += 1
    assert compared == 2 + 2 * 3


# ---------------------------------------------------------------- planners


@pytest.mark.parametrize("flatten", [True, False])
def test_default_planners_with_options(tmp_path: pathlib.Path, flatten: bool) -> None:
    state = {"weight": torch.arange(3.0), "nested": {"a": 1, "b": [2, "three"]}}

    def fresh() -> dict[str, Any]:
        return {"weight": torch.zeros(3), "nested": {"a": 0, "b": [0, ""]}}

    for name, save in (("ours", dcp.save), ("stock", stock.save)):
        path = str(tmp_path / name)
        save(state, checkpoint_id=path, planner=stock.DefaultSavePlanner(flatten))
        assert is_ours(path) is (name == "ours")
        for load in (dcp.load, stock.load):
            target = fresh()
            load(target, checkpoint_id=path, planner=stock.DefaultLoadPlanner(flatten, False))
            assert torch.equal(target["weight"], state["weight"])
            assert target["nested"] == state["nested"]
    entries = dcp.load_metadata(str(tmp_path / "ours")).objects
    assert set(entries) == ({"nested.a", "nested.b"} if flatten else {"nested"})


def test_partial_load(tmp_path: pathlib.Path) -> None:
    dcp.save({"a": torch.ones(2)}, checkpoint_id=tmp_path / "a")
    for load in (dcp.load, stock.load):
        state = {"a": torch.zeros(2), "b": torch.full((2,), 9.0)}
        with pytest.raises(CheckpointException, match=r"Missing key in checkpoint state_dict: b\."):
            load(state, checkpoint_id=str(tmp_path / "a"))
        planner = stock.DefaultLoadPlanner(allow_partial_load=True)
        load(state, checkpoint_id=str(tmp_path / "a"), planner=planner)
        assert state["a"].tolist() == [1, 1] and state["b"].tolist() == [9, 9]


class Renaming(stock.DefaultSavePlanner):
    """The example in torch's own documentation of planners."""

    def set_up_planner(
        self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False
    ) -> None:
        assert storage_meta is not None and storage_meta.save_id
        renamed = {"foo_" + key: value for key, value in state_dict.items()}
        super().set_up_planner(renamed, storage_meta, is_coordinator)


class Halving(stock.DefaultSavePlanner):
    """Changes what is written, not what is planned."""

    def resolve_data(self, write_item: Any) -> Any:
        data = super().resolve_data(write_item)
        return data / 2 if isinstance(data, torch.Tensor) and data.is_floating_point() else data


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_another_planner_is_asked(tmp_path: pathlib.Path) -> None:
    metadata = dcp.save(a_state(3), checkpoint_id=tmp_path / "a", planner=Renaming())
    assert is_ours(tmp_path / "a") and "foo_step" in metadata.state_dict_metadata
    state = {"foo_step": 0, "foo_model": a_state(0)["model"]}
    stock.load(state, checkpoint_id=str(tmp_path / "a"))
    assert state["foo_step"] == 3
    assert torch.equal(state["foo_model"]["weight"], torch.full((3, 4), 3.0))
    changing = a_state(8)
    handle = dcp.async_save(changing, checkpoint_id=tmp_path / "b", planner=Halving())
    changing["model"]["weight"].zero_()
    handle.result()
    assert is_ours(tmp_path / "b")
    got = loaded(stock.load, str(tmp_path / "b"))
    assert torch.equal(got["model"]["weight"], torch.full((3, 4), 4.0))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_another_load_planner_is_asked(tmp_path: pathlib.Path) -> None:
    class Doubling(stock.DefaultLoadPlanner):
        def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
            tensor.mul_(2)

    dcp.save(a_state(3), checkpoint_id=tmp_path / "a")
    state = a_state(0)
    dcp.load(state, checkpoint_id=tmp_path / "a", planner=Doubling())
    assert torch.equal(state["model"]["weight"], torch.full((3, 4), 6.0))
    assert state["step"] == 3
    made: dict[str, Any] = {}
    dcp.state_dict_loader._load_state_dict(
        made,
        storage_reader=dcp.Reader(tmp_path / "a"),
        planner=dcp.default_planner._EmptyStateDictLoadPlanner(),
        no_dist=True,
    )
    assert torch.equal(made["model"]["bias"], torch.arange(4) + 3) and made["step"] == 3


# ---------------------------------------------------------------- torch's own way


class Subclass(filesystem.FileSystemWriter):
    pass


def stock_cases(path: str) -> list[tuple[str, dict[str, Any]]]:
    writer = filesystem.FileSystemWriter
    return [
        ("test_dropin.Subclass", {"storage_writer": Subclass(path)}),
        ("use_collectives=False", {"checkpoint_id": path, "use_collectives": False}),
        ("use_collectives=False", {"storage_writer": writer(path), "use_collectives": False}),
    ]


def test_a_file_for_each_tensor_is_one_for_each_rank(tmp_path: pathlib.Path) -> None:
    """As torchtune has it: a way to write faster, and not of what is read."""
    writer = filesystem.FileSystemWriter(tmp_path / "a", single_file_per_rank=False)
    dcp.async_save(a_state(2), storage_writer=writer).result()
    assert is_ours(tmp_path / "a")
    check(tmp_path / "a", 2)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("case", range(3))
def test_what_goes_to_stock(
    tmp_path: pathlib.Path, case: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "sidestep")
    for i, save in enumerate((dcp.save, dcp.async_save)):
        path = str(tmp_path / str(i))
        words, arguments = stock_cases(path)[case]
        caplog.clear()
        result = save(a_state(2), **arguments)
        if save is dcp.async_save:
            result.result()
        (said,) = [record.getMessage() for record in caplog.records if record.name == "sidestep"]
        assert words in said and f"torch's own {save.__name__}() is used" in said
        assert not os.path.exists(os.path.join(path, ".sidestep"))
        got = loaded(dcp.load, path)
        assert got["step"] == 2 and torch.equal(got["model"]["weight"], torch.full((3, 4), 2.0))


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_a_url_that_torch_reaches_goes_to_stock(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning for each scheme, not for each checkpoint."""
    pytest.importorskip("fsspec")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sidestep._torch.stock._told", set())
    for step in (1, 2):
        dcp.save(a_state(step), checkpoint_id=f"memory://bucket/step-{step}")
    for step in (1, 2):
        assert loaded(dcp.load, f"memory://bucket/step-{step}")["step"] == step
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == [
        "torch's own save() is used: checkpoint_id is a URL (memory://), and sidestep knows only "
        "file systems and s3://"
    ]
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["no-such-scheme://bucket/x", "gs://bucket/x"])
def test_a_url_that_nobody_reaches_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    if url.startswith("gs") and importlib.util.find_spec("gcsfs"):
        pytest.skip("gcsfs is installed: torch would reach it")
    monkeypatch.chdir(tmp_path)
    for use in (dcp.save, dcp.async_save, dcp.load):
        expected = "is a URL that cannot .*nor can torch.s own storage: "
        with pytest.raises(dcp.Error, match=expected) as told:
            use(a_state(), checkpoint_id=url)
        assert told.value.status == dcp.Status.EUNSUPPORTED
    assert not any(tmp_path.iterdir())


# ---------------------------------------------------------------- in the place of torch's


def test_put_in_the_place_of_torchs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for frameworks that import torch's functions themselves; what is stock's still works."""
    theirs = {name: getattr(stock, name) for name in ("save", "async_save", "load")}
    for name in theirs:
        monkeypatch.setattr(stock, name, getattr(dcp, name))
    state = {"model": {"w": torch.arange(5.0)}}
    (tmp_path / "a").mkdir()  # Accelerate makes the directory itself
    (tmp_path / "a" / "meta.pt").write_bytes(b"Lightning's")
    for writer in (stock.FileSystemWriter(tmp_path / "a"), stock.FileSystemWriter(tmp_path / "a")):
        stock.save(state, storage_writer=writer, planner=stock.DefaultSavePlanner())
        assert is_ours(tmp_path / "a")
        assert (tmp_path / "a" / "meta.pt").read_bytes() == b"Lightning's"
    target = {"model": {"w": torch.zeros(5)}}
    reader, planner = stock.FileSystemReader(tmp_path / "a"), stock.DefaultLoadPlanner()
    stock.load(target, storage_reader=reader, planner=planner)
    assert torch.equal(target["model"]["w"], torch.arange(5.0))
    stock.async_save(state, storage_writer=Subclass(tmp_path / "b")).result()
    target = {"model": {"w": torch.zeros(5)}}
    theirs["load"](target, checkpoint_id=str(tmp_path / "b"))
    assert torch.equal(target["model"]["w"], torch.arange(5.0))
