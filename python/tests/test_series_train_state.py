# SPDX-License-Identifier: BSD-3-Clause
"""A run that resumes goes on as if it had never stopped: the same losses to the last bit."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn

import sidestep


class Sampler:
    """Picks rows by the state of its own generator; each rank has its own."""

    def __init__(self, rank: int) -> None:
        self.generator = torch.Generator().manual_seed(rank)
        self.position = 0

    def next(self) -> torch.Tensor:
        self.position += 1
        return torch.randint(64, (4,), generator=self.generator)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state(), "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        self.position = state["position"]


class Run:
    """A small training with all that can differ after a resume."""

    def __init__(self, rank: int, kind: str, seed: int) -> None:
        for seeding in (torch.manual_seed, random.seed, numpy.random.seed):
            seeding(seed + rank)
        self.rows = torch.linspace(-1, 1, 64 * 8).reshape(64, 8)
        torch.manual_seed(seed)
        self.model: nn.Module = nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 1)
        )
        torch.manual_seed(seed + rank)
        if kind == "ddp":
            self.model = nn.parallel.DistributedDataParallel(self.model)
        elif kind == "fsdp":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            fully_shard(self.model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=50)
        self.sampler = Sampler(rank)
        self.state = sidestep.TrainState(self.model, self.optimizer, self.scheduler, self.sampler)

    def step(self) -> str:
        rows = self.rows[self.sampler.next()] + random.random() + numpy.random.rand()
        loss = (self.model(rows) - rows.sum(1, keepdim=True)).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.state.step += 1
        return float(loss.detach()).hex()


def train(rank: int, root: str, kind: str) -> dict[str, Any]:
    run = Run(rank, kind, seed=7)
    with sidestep.Checkpointer(root, interval=4, keep_last_n=2) as checkpoints:
        assert checkpoints.resume(run.state) is None
        whole = []
        for _ in range(10):
            whole.append(run.step())
            if checkpoints.should_save(run.state.step):
                checkpoints.save(run.state.step, run.state)
    again = Run(rank, kind, seed=99)
    with sidestep.Checkpointer(root, interval=4, keep_last_n=2) as checkpoints:
        found = checkpoints.resume(again.state)
        assert found is not None and found.missing == []
        resumed = [again.step() for _ in range(2)]
        back = Run(rank, kind, seed=5)
        checkpoints.resume(back.state, step=4)
        from_4 = [back.step() for _ in range(6)]
        other = Run(rank, kind, seed=6)
        other.state.rng = False  # the control: without it, the losses are others
        checkpoints.resume(other.state, step=4)
        assert [other.step() for _ in range(2)] != from_4[:2]
    return {"whole": whole, "from": found.step, "resumed": resumed, "from_4": from_4}


def test_losses_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    compared = 0
    for kind in ("ddp", "fsdp"):
        for result in run_ranks(2, train, str(tmp_path / kind), kind):
            assert result["from"] == 8
            assert result["resumed"] == result["whole"][8:]
            assert result["from_4"] == result["whole"][4:]
            assert len(set(result["whole"])) == 10
            compared += 8
    assert compared == 32
    (alone,) = run_ranks(1, train, str(tmp_path / "alone"), "plain", init=None)
    assert alone["resumed"] == alone["whole"][8:]


def on_fewer(rank: int, root: str, n: int) -> Any:
    run = Run(rank, "fsdp", seed=3)
    with sidestep.Checkpointer(root, keep_last_n=1) as checkpoints:
        if n == 1:
            run.step()
            checkpoints.save(1, run.state).wait()
            return None
        found = checkpoints.resume(run.state)
        assert found is not None and run.state.step == 1
        return found.missing, run.step()


def test_more_ranks_than_before(tmp_path: Path) -> None:
    run_ranks(1, on_fewer, str(tmp_path), 1)
    zero, one = run_ranks(2, on_fewer, str(tmp_path), 2)
    assert zero[0] == [] and zero[1] != one[1]
    assert one[0] and all(".rank1." in name for name in one[0])


def with_closure(rank: int, root: str, n: int) -> Any:
    """LBFGS, whose state are DTensors if the parameters are."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))  # evenly sharded: torch needs it
        if n > 0:
            fully_shard(model, mesh=init_device_mesh("cpu", (n,)))
        return model, torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, history_size=3)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
        rows = torch.linspace(-1, 1, 32).reshape(8, 4)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = (model(rows) ** 2).mean()
            loss.backward()
            return loss

        return [float(optimizer.step(closure)) for _ in range(steps)]

    log: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: log.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("sidestep").addHandler(handler)
    with sidestep.Checkpointer(root, signals=()) as checkpoints:
        model, optimizer = make()
        if n == 2:
            train(model, optimizer, 3)
            checkpoints.save(1, sidestep.TrainState(model, optimizer)).wait()
            saved = train(model, optimizer, 3)
            model, optimizer = make()
        checkpoints.resume(sidestep.TrainState(model, optimizer))
        return log, train(model, optimizer, 3), saved if n == 2 else None


def test_an_optimizer_with_a_closure_on_any_number_of_ranks(tmp_path: Path) -> None:
    results = run_ranks(2, with_closure, str(tmp_path), 2)
    for log, resumed, saved in results:
        assert not any("different values" in line for line in log), log
        assert resumed == saved
    for n, ranks in ((1, 1), (0, 1), (4, 4)):
        for _, resumed, _ in run_ranks(ranks, with_closure, str(tmp_path), n):
            assert resumed == pytest.approx(results[0][2], rel=1e-4)


def save_on_one_rank_only(rank: int, root: str) -> str:
    """A rank whose state cannot be had: all fail, and the next save works."""

    class Broken:
        def state_dict(self) -> dict[str, Any]:
            if rank == 1 and self.broken:
                raise RuntimeError("no state today")
            return {"x": torch.ones(3)}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

        broken = True

    state = Broken()
    with sidestep.Checkpointer(root) as checkpoints:
        try:
            checkpoints.save(1, state)
        except RuntimeError as mine:
            told = f"mine: {mine}"
        except sidestep.Error as theirs:
            told = f"rank {theirs.rank}: {theirs}"
        state.broken = False
        checkpoints.save(2, state).wait()
    return told


def test_a_rank_that_cannot_save_tells_the_others(tmp_path: Path) -> None:
    zero, one = run_ranks(2, save_on_one_rank_only, str(tmp_path))
    assert "no state today" in zero and zero.startswith("rank 1")
    assert one == "mine: no state today"
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-2"]


class Growing(nn.Module):
    """Has a part that no loss depends on at first."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.later = nn.Linear(4, 4), nn.Linear(4, 4)
        self.uses_all = False

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        rows = self.first(rows)
        return self.later(rows) if self.uses_all else rows


def test_parameters_that_had_no_gradient_yet(tmp_path: Path) -> None:
    """Their optimizers have no state of them, and get none by a resume."""

    def train(model: Growing, optimizer: torch.optim.Optimizer) -> list[float]:
        losses = []
        for row in range(4):
            optimizer.zero_grad()
            loss = model(torch.full((1, 4), row / 4.0)).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def adam(model: Growing) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-2)

    def sgd(model: Growing) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, dampening=0.5)

    for kind in (adam, sgd):
        model = Growing(1)
        optimizer = kind(model)
        state = sidestep.TrainState(model, optimizer)
        train(model, optimizer)
        with sidestep.Checkpointer(tmp_path / kind.__name__, signals=()) as checkpoints:
            checkpoints.save(4, {"run": state}).wait()
            model.uses_all = True
            went_on = train(model, optimizer)
            # Back, with states that the checkpoint does not have; and in a new process, so to say.
            checkpoints.resume({"run": state}, step=4)
            assert train(model, optimizer) == went_on
            fresh = Growing(2)
            fresh.uses_all = True
            optimizer = kind(fresh)
            loaded = checkpoints.load({"run": sidestep.TrainState(fresh, optimizer)}, step=4)
            assert all(name.startswith("run.optimizer.state.later.") for name in loaded.missing)
            assert loaded.missing
            assert not any(optimizer.state.get(p) for p in fresh.later.parameters())
            assert train(fresh, optimizer) == went_on


def test_what_is_missing_elsewhere_is_an_error(tmp_path: Path) -> None:
    """What one part of a state may lack, another may not; nor may an optimizer be another one."""
    model = Growing(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with sidestep.Checkpointer(tmp_path / "r", signals=()) as checkpoints:
        checkpoints.save(1, {"run": sidestep.TrainState(model, optimizer)}).wait()
        other = {
            "run": sidestep.TrainState(model, optimizer),
            "optimizer": {"state": {"x": torch.zeros(2)}},
        }
        with pytest.raises(sidestep.Error, match=r"optimizer\.state\.x"):
            checkpoints.load(other)
        adam = torch.optim.AdamW(model.parameters())
        with pytest.raises(sidestep.Error, match=r"Missing key .*optimizer\.param_groups"):
            checkpoints.load({"run": sidestep.TrainState(model, adam)})


class Rows(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> int:
        return at


def test_data_that_cannot_be_restored_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr("sidestep._train_state._told", set())
    for _ in range(2):
        state = sidestep.TrainState(data=torch.utils.data.DataLoader(Rows()))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "data: the DataLoader of a Rows has no state_dict()" in warnings[0]
    sidestep.save({"run": state}, checkpoint_id=tmp_path / "a")
    assert not [name for name in sidestep.load_metadata(tmp_path / "a").objects if "data" in name]
    with pytest.raises(TypeError, match="data: a int has neither a state_dict"):
        sidestep.TrainState(data=3)
