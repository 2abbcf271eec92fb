# SPDX-License-Identifier: BSD-3-Clause
"""What each version of torch must do with sidestep: save, load, resume under FSDP2, and read and
write the files of its own torch.distributed.checkpoint."""

import collections
import copy
import datetime
import pathlib
import sys

import pytest
import torch
import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

import sidestep
from sidestep._c.errors import Status

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "tests"))
from ranks import run_ranks

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # torch 2.5
    from torch.distributed._composable.fsdp import fully_shard


class Own:
    """A class that is allowed nowhere."""


def a_state(seed=1):
    torch.manual_seed(seed)
    return {
        "weight": torch.randn(300, 700),
        "half": torch.randn(1000).to(torch.bfloat16),
        "mask": torch.arange(9) % 2 == 0,
        "part": torch.randn(8, 8)[::2, 1:3],
        "empty": torch.zeros(0, 3),
        "step": seed,
        "nested": {"list": [torch.ones(2) * seed, {"x": 1.5}], "text": "ü"},
        "counter": collections.Counter(a=seed),
        "when": datetime.timedelta(seconds=seed),
        "order": collections.OrderedDict(b=seed, a=2),
    }


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def test_every_save_and_load(tmp_path):
    sidestep.save(a_state(3), checkpoint_id=tmp_path / "saved")
    sidestep.async_save(a_state(3), checkpoint_id=tmp_path / "in-background").result()
    stock.save(a_state(3), checkpoint_id=tmp_path / "stock")
    stock.save(a_state(3), storage_writer=sidestep.Writer(tmp_path / "writer"))
    for name in ("saved", "in-background", "stock", "writer"):
        got = a_state(4)
        sidestep.load(got, checkpoint_id=tmp_path / name)
        assert same(got, a_state(3)), name
    for name in ("saved", "in-background", "writer"):
        got = a_state(4)
        stock.load(got, checkpoint_id=tmp_path / name)
        assert same(got, a_state(3)), name
    got = a_state(4)
    stock.load(got, storage_reader=sidestep.Reader(tmp_path / "saved"))
    assert same(got, a_state(3))


def test_a_class_that_is_not_allowed_is_named(tmp_path):
    sidestep.save({"own": Own()}, checkpoint_id=tmp_path / "own")
    with pytest.raises(sidestep.Error, match=r"'own' needs test_version\.Own: reading") as caught:
        sidestep.load({"own": None}, checkpoint_id=tmp_path / "own")
    assert caught.value.status == Status.EUNSAFE
    torch.serialization.add_safe_globals([Own])
    got = {"own": None}
    sidestep.load(got, checkpoint_id=tmp_path / "own")
    assert isinstance(got["own"], Own)


def test_installed(tmp_path):
    sidestep.install()
    try:
        stock.async_save(a_state(5), checkpoint_id=tmp_path / "a").result()
    finally:
        sidestep.uninstall()
    assert sidestep.load_metadata(str(tmp_path / "a")).format == "sidestep"
    got = a_state(6)
    stock.load(got, checkpoint_id=tmp_path / "a")
    assert same(got, a_state(5))


def trained(seed):
    """A model and its optimizer, sharded over all ranks."""
    torch.manual_seed(seed)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    model = torch.nn.Sequential(torch.nn.Linear(33, 65), torch.nn.Linear(65, 7))
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.1 * seed)
    optimizer.step()
    return model, optimizer


def state_of(model, optimizer):
    return {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
    }


def local(value):
    """The same with plain tensors: what this rank holds."""
    if isinstance(value, dict):
        return {key: local(one) for key, one in value.items()}
    return value.to_local().clone() if hasattr(value, "to_local") else copy.deepcopy(value)


def shards(rank, root):
    model, optimizer = trained(1)
    state = state_of(model, optimizer)
    expected = local(state)
    sidestep.save(state, checkpoint_id=f"{root}/saved")
    sidestep.async_save(state, checkpoint_id=f"{root}/in-background").result()
    stock.save(state, checkpoint_id=f"{root}/stock")
    for name in ("saved", "in-background", "stock"):
        for load in (sidestep.load, stock.load):
            model, optimizer = trained(2)
            got = state_of(model, optimizer)
            assert not same(local(got["model"]), expected["model"])
            load(got, checkpoint_id=f"{root}/{name}")
            set_model_state_dict(model, got["model"])
            set_optimizer_state_dict(model, optimizer, got["optimizer"])
            assert same(local(state_of(model, optimizer)), expected), (name, load)


def test_fsdp2(tmp_path):
    run_ranks(2, shards, str(tmp_path), timeout=240)
