# SPDX-License-Identifier: BSD-3-Clause
"""What a checkpoint has under the names of a state's parts is restored, or somebody is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn
from torch.optim.lr_scheduler import LinearLR, MultiStepLR, SequentialLR

import sidestep
from sidestep import Checkpointer, Error, Status, TrainState

ROWS = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


def train(model: nn.Module, optimizer: Any, steps: int = 3) -> list[float]:
    losses = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(ROWS).pow(2).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return losses


def freeze(model: nn.Sequential, frozen: bool = True) -> None:
    model[0].requires_grad_(not frozen)


def at(path: Path) -> Checkpointer:
    return Checkpointer(path, no_dist=True, signals=())


Made = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: list[Made] = [
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    lambda parameters: torch.optim.Adafactor(parameters, lr=0.01),
    lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=3, history_size=3),
    lambda parameters: torch.optim.NAdam(parameters, lr=0.01),
]


def as_train_state(model: nn.Module, optimizer: Any) -> Any:
    return {"run": TrainState(model, optimizer)}


def bare(model: nn.Module, optimizer: Any) -> Any:
    return {"model": model, "optimizer": optimizer}


@pytest.mark.parametrize("made", OPTIMIZERS)
@pytest.mark.parametrize("state_of", [bare, as_train_state])
def test_a_fresh_optimizer_goes_on_as_the_saved_one(
    tmp_path: Path, made: Made, state_of: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    model = network()
    optimizer = made(model.parameters())
    train(model, optimizer, 2)
    with at(tmp_path) as checkpoints:
        checkpoints.save(2, state_of(model, optimizer)).wait()
        went_on = train(model, optimizer)
        again = network(5)
        fresh = made(again.parameters())
        found = checkpoints.resume(state_of(again, fresh))
        assert found is not None and found.unexpected == []
        assert train(again, fresh) == went_on
        drop_in = network(6)
        fresh = made(drop_in.parameters())
        sidestep.load(state_of(drop_in, fresh), checkpoint_id=found.path, no_dist=True)
        assert train(drop_in, fresh) == went_on
        # Gradients that are there already: torch makes no states then.
        other = network(7)
        fresh = made(other.parameters())
        other(ROWS).sum().backward()
        checkpoints.resume(state_of(other, fresh))
        assert train(other, fresh) == went_on
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_optimizer_that_has_gone_on_loses_what_was_not_saved(tmp_path: Path) -> None:
    """As a TrainState: a parameter without a step has no state after a resume."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with at(tmp_path) as checkpoints:
        checkpoints.save(0, bare(model, optimizer)).wait()
        went_on = train(model, optimizer)
        checkpoints.resume(bare(model, optimizer))
        assert not any(optimizer.state.values()) and train(model, optimizer) == went_on


def frozen_run(rank: int, root: str, kind: str) -> list[list[float]]:
    models = [network(seed) for seed in (0, 4)]
    if kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        for model in models:
            fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    pairs = [(model, torch.optim.AdamW(model.parameters(), lr=0.05)) for model in models]
    train(*pairs[0], steps=2)
    freeze(models[0])
    train(*pairs[0], steps=2)
    losses = []
    with Checkpointer(root, signals=()) as checkpoints:
        checkpoints.save(4, TrainState(*pairs[0])).wait()
        freeze(models[1])
        checkpoints.resume(TrainState(*pairs[1]))
        assert not models[1][0].weight.requires_grad
        checkpoints.save(5, TrainState(*pairs[1])).wait()  # which has them, too
        assert checkpoints.resume(TrainState(*pairs[1])).step == 5  # type: ignore[union-attr]
        for model, optimizer in pairs:
            freeze(model, False)
            losses.append(train(model, optimizer))
    return losses


@pytest.mark.parametrize("kind", ["plain", "fsdp"])
def test_frozen_parameters_keep_their_state(tmp_path: Path, kind: str) -> None:
    for went_on, resumed in run_ranks(2, frozen_run, str(tmp_path), kind):
        assert went_on == resumed


@pytest.mark.parametrize("state_of", [bare, as_train_state])
def test_a_parameter_group_that_was_added(
    tmp_path: Path, state_of: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    model = network()
    optimizer = torch.optim.AdamW(model[0].parameters(), lr=0.05)
    train(model, optimizer)
    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.01})
    train(model, optimizer)
    with at(tmp_path) as checkpoints:
        checkpoints.save(6, state_of(model, optimizer)).wait()
        again = network(5)
        fresh = torch.optim.AdamW(again[0].parameters(), lr=0.05)
        before = [parameter.clone() for parameter in again.parameters()]
        with pytest.raises(Error, match="had more parameter groups: add them first") as told:
            checkpoints.resume(state_of(again, fresh))
        assert told.value.status == Status.EMISMATCH and "Nothing was changed" in str(told.value)
        assert all(torch.equal(a, b) for a, b in zip(again.parameters(), before))
        assert not caplog.records
        checkpoints.resume(state_of(again, fresh), strict=False)
        (warning,) = (record.getMessage() for record in caplog.records)
        assert "param_groups.1." in warning and "were left out" in warning
        fresh.add_param_group({"params": list(again[2].parameters()), "lr": 0.01})
        assert checkpoints.resume(state_of(again, fresh)) is not None
        assert train(again, fresh) == train(model, optimizer)


def test_other_parts_with_no_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Parameters that the optimizer does not have, a module's weights, a second scheduler, and a
    dict that a fresh optimizer has returned."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedulers = [MultiStepLR(optimizer, [2]), MultiStepLR(optimizer, [3])]
    train(model, optimizer)
    saved = {"run": TrainState(model, optimizer, schedulers), "optimizer": optimizer}
    few = torch.optim.AdamW(model[2].parameters(), lr=0.05)
    wrong: dict[str, tuple[Any, str]] = {
        "fewer": ({"run": TrainState(model, few, schedulers)}, r"run\.optimizer\.state\.0\.bias"),
        "smaller": ({"run": TrainState(nn.Sequential(model[0]))}, r"run\.model\.2\.bias"),
        "one": ({"run": TrainState(model, optimizer, schedulers[0])}, r"run\.scheduler\.1"),
        "dict": ({"optimizer": torch.optim.AdamW(model.parameters()).state_dict()}, "itself"),
    }
    with at(tmp_path) as checkpoints:
        checkpoints.save(1, saved).wait()
        for state, told in wrong.values():
            with pytest.raises(Error, match=told):
                checkpoints.load(state, step=1)
        assert not caplog.records
        path = str(tmp_path / "step-1")
        for state, _ in (wrong["smaller"], wrong["dict"]):  # as torch's load: no error
            caplog.clear()
            sidestep.load(state, checkpoint_id=path, no_dist=True)
            (warning,) = (record.getMessage() for record in caplog.records)
            assert path in warning
        # What nobody asks for is no loss: the whole optimizer, and what ranks have of their own.
        caplog.clear()
        assert checkpoints.load({"run": TrainState(model, rng=False)}, step=1).unexpected
        progress = {"run": {"progress": {"step": 0}}}
        sidestep.load(progress, checkpoint_id=path, no_dist=True)
        assert progress["run"]["progress"]["step"] == 0 and not caplog.records


def test_moments_of_another_shape(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    train(model, optimizer)
    with at(tmp_path) as checkpoints:
        checkpoints.save(1, {"optimizer": optimizer}).wait()
        other = torch.optim.AdamW(reversed(list(model.parameters())), lr=0.05)
        with pytest.raises(Error, match=r"Size mismatch .* for optimizer\.state\.0\.exp_avg"):
            checkpoints.load({"optimizer": other})
        assert not other.state
        found = checkpoints.load({"optimizer": other}, strict=False)
        assert len(found.mismatched) == 8 and not any(other.state.values())


class Loader:
    """Its state has another layout once it was used, as that of torchdata's loaders."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"snapshot": None, "workers": {}, "place": {"a": 1, "b": 2}}

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def use(self) -> None:
        snapshot = {"main": {"rows": 7}, "seeds": [torch.tensor(3), {"n": 1}]}
        self.state.update(snapshot=snapshot, workers={"w0": {"at": 4}}, place=5)

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def test_schedulers_scalers_and_loaders_get_what_they_have_returned(tmp_path: Path) -> None:
    def parts() -> dict[str, Any]:
        optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
        warmup = LinearLR(optimizer, 0.1, 1.0, 4)
        return {
            "optimizer": optimizer,
            "chain": SequentialLR(optimizer, [warmup, MultiStepLR(optimizer, [8])], [4]),
            "scaler": torch.amp.GradScaler("cpu", init_scale=8.0),
            "loader": Loader(),
        }

    saved, fresh = parts(), parts()
    saved["optimizer"].param_groups[0]["note"] = "added"
    saved["chain"].extra = {"seen": 3}
    for _ in range(6):
        saved["optimizer"].step()
        saved["chain"].step()
    saved["scaler"].scale(torch.ones(1))
    saved["scaler"].update(4.0)
    saved["loader"].use()
    with at(tmp_path) as checkpoints:
        checkpoints.save(1, saved).wait()
        kept = fresh["loader"].state
        with pytest.raises(Error, match="Missing key"):  # and nothing of theirs was touched
            checkpoints.resume({**fresh, "more": torch.zeros(1)})
        assert kept == Loader().state and not hasattr(fresh["chain"], "extra")
        assert checkpoints.resume(fresh) is not None
    assert fresh["loader"].state == saved["loader"].state
    assert fresh["optimizer"].param_groups[0]["note"] == "added"
    assert fresh["chain"].extra == {"seen": 3}
    assert fresh["chain"].get_last_lr() == saved["chain"].get_last_lr()
    assert fresh["scaler"].state_dict() == saved["scaler"].state_dict()


class Stage:
    """A pipeline stage: each rank has names of its own under one name."""

    def __init__(self, names: list[str]) -> None:
        self.values = {name: torch.zeros(2) for name in names}

    def state_dict(self) -> dict[str, Any]:
        return self.values

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state


def stages(rank: int, root: str) -> list[str]:
    told = []
    with Checkpointer(root, signals=()) as checkpoints:
        checkpoints.save(1, {"stage": Stage([f"layer{rank}", f"more{rank}"])}).wait()
        for names in (
            [f"layer{rank}", f"more{rank}"],
            [f"layer{1 - rank}", "more0"],  # more1 is asked for by no rank
            [["layer0", "layer1", "more0", "more1"], []][rank],
            [f"layer{rank}", f"more{rank}"] + ["unknown"] * rank,  # one rank fails in another way
        ):
            try:
                checkpoints.resume({"stage": Stage(names)} if names else {})
                told.append("fine")
            except Error as error:
                told.append(str(error))
    return told


def test_a_name_is_lost_if_no_rank_asks_for_it(tmp_path: Path) -> None:
    for whole, lost, one, other in run_ranks(2, stages, str(tmp_path)):
        assert whole == one == "fine"
        assert "1 name that found no place in the state: stage.more1." in lost
        assert "Missing key in checkpoint state_dict: stage.unknown" in other
