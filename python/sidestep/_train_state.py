# SPDX-License-Identifier: BSD-3-Clause
"""`TrainState`: the whole state of a training run, as one ``Stateful``.

After a resume, the losses equal those of a run that never stopped, to the last bit.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._modes import without_modes
from ._torch.flatten import is_stateful
from ._torch.parts import needs_closure

log = logging.getLogger("sidestep")
_told: set[str] = set()  # data that a warning has named already

# A checkpoint may lack names that begin with these, of ranks that did not exist when it was saved.
_MAY_LACK = ("rng.rank", "data.rank")


class TrainState:
    """Model, optimizer, learning rate, data, random numbers of every rank, and counters.

    model      a module, plain or wrapped (DDP, FSDP2, tensor parallel)
    optimizer  one, or a list of them.  The state is saved by the names of the parameters, so any
               number of ranks can load it
    scheduler  one or several schedulers of the learning rate
    data       a sampler, data set or data loader with ``state_dict()`` and ``load_state_dict()``
               (torchdata's StatefulDataLoader, an IterableDataset of Hugging Face's datasets); each
               rank has its own.  If it has no such methods, a warning says so, and a resume begins
               the data anew
    rng        random states of Python, NumPy (if it is imported), torch and the current device;
               each rank has its own
    more       any other ``Stateful`` (a GradScaler, an EMA), by name; their ``state_dict()`` must
               be the same on all ranks, or consist of DTensors

    ``step`` and ``epoch`` are plain attributes: count with them.  If fewer ranks saved the
    checkpoint, it has no random states and no place in the data for the additional ranks: they keep
    theirs.  A parameter that had no gradient yet has no optimizer state, also after a resume.  One
    that is frozen keeps its state.  An optimizer whose ``step()`` needs a closure (LBFGS) is saved
    as one object.
    """

    def __init__(
        self,
        model: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        data: Any = None,
        *,
        rng: bool = True,
        process_group: Any = None,
        **more: Any,
    ) -> None:
        self.model = model
        self.optimizers = _listed(optimizer)
        # torch can make the state of the others, which it needs to name their parameters.
        self._by_name = [one for one in self.optimizers if not needs_closure(one)]
        self._as_object = [one for one in self.optimizers if needs_closure(one)]
        self.schedulers = _listed(scheduler)
        self.data = _restorable(data)
        self.rng = rng
        self.more = more
        self.step = 0
        self.epoch = 0
        self._rank = _rank_in(process_group)
        if self._by_name and model is None:
            raise ValueError("an optimizer is saved by the names of its model's parameters")
        if model is not None and not hasattr(model, "named_parameters"):
            raise TypeError(
                f"model: a {type(model).__qualname__} is not a torch.nn.Module (put several into a "
                "torch.nn.ModuleList)"
            )
        for one in self.optimizers:
            if not hasattr(one, "param_groups"):
                raise TypeError(f"optimizer: a {type(one).__qualname__} has no param_groups")
        parts = [("scheduler", one) for one in self.schedulers] + [*more.items()]
        for name, value in parts:
            if not is_stateful(value):
                raise TypeError(f"{name}: a {type(value).__qualname__} has no state_dict()")

    @without_modes
    def state_dict(self) -> dict[str, Any]:
        """The state of this rank.  Collective if that of the model is.

        The state of a scheduler or of the data is one object (in a tuple, which is not flattened),
        because its layout may change from step to step.
        """
        from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict

        state: dict[str, Any] = {"progress": {"step": self.step, "epoch": self.epoch}}
        if self._by_name:
            state["model"], state["optimizer"] = get_state_dict(self.model, self._by_name)
        elif self.model is not None:
            state["model"] = get_model_state_dict(self.model)
        if self._as_object:
            states = [_without_meshes(one.state_dict()) for one in self._as_object]
            state["closure"] = {str(i): (one,) for i, one in enumerate(states)}
        if self.schedulers:
            state["scheduler"] = {str(i): (s.state_dict(),) for i, s in enumerate(self.schedulers)}
        mine = f"rank{self._rank}"
        if self.data is not None:
            state["data"] = {mine: {"state": (self.data.state_dict(),)}}
        if self.rng:
            state["rng"] = {mine: random_numbers()}
        for name, value in self.more.items():
            state.setdefault("more", {})[name] = value.state_dict()
        return state

    @without_modes
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint.  Collective if that of the model is."""
        from torch.distributed.checkpoint.state_dict import set_model_state_dict

        if self.model is not None:
            set_model_state_dict(self.model, state["model"])
        if self._by_name:
            set_optimizers(self.model, self._by_name, state["optimizer"])
        for i, optimizer in enumerate(self._as_object):
            optimizer.load_state_dict(_on_mesh_of(optimizer, state["closure"][str(i)][0]))
        for i, scheduler in enumerate(self.schedulers):
            scheduler.load_state_dict(state["scheduler"][str(i)][0])
        mine = f"rank{self._rank}"
        if self.data is not None and "state" in state["data"][mine]:
            self.data.load_state_dict(state["data"][mine]["state"][0])
        for name, value in self.more.items():
            value.load_state_dict(state["more"][name])
        self.step, self.epoch = state["progress"]["step"], state["progress"]["epoch"]
        if self.rng:  # last, because the lines above may have drawn random numbers
            set_random_numbers(state["rng"][mine])

    def parts_of_state(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        """(path, value) of what must find a place in a resume, whatever else the checkpoint has."""
        if self.model is not None:
            yield ("model",), self.model
        if self._by_name:
            yield ("optimizer",), self._by_name
        for name, value in (("closure", self._as_object), ("scheduler", self.schedulers)):
            if value:
                yield (name,), None  # its values are objects
        for name, value in self.more.items():
            yield ("more", name), value

    def may_lack(self, name: str) -> bool:
        """Whether a run can go on from a checkpoint that lacks ``name``."""
        return name.startswith(_MAY_LACK)


def _without_meshes(state: Any) -> Any:
    """``state`` with plain tensors instead of DTensors, so that any number of ranks can take it.
    Collective if some are sharded."""
    from torch.utils._pytree import tree_map

    return tree_map(lambda v: v.full_tensor() if hasattr(v, "full_tensor") else v, state)


def _on_mesh_of(optimizer: Any, state: Any) -> Any:
    """``state`` for ``optimizer``: if its parameters are DTensors, the state is replicated on their
    mesh, as LBFGS has it."""
    import torch
    from torch.utils._pytree import tree_map

    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    meshes = [p.device_mesh for p in parameters if hasattr(p, "device_mesh")]
    if not meshes:
        return state
    from torch.distributed.tensor import DTensor, Replicate

    def spread(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, DTensor):
            return value
        whole, placements = value.to(meshes[0].device_type), [Replicate()] * meshes[0].ndim
        return DTensor.from_local(whole, meshes[0], placements, run_check=False)

    return tree_map(spread, state)


def set_optimizers(model: Any, optimizers: list[Any], state: dict[str, Any]) -> None:
    """Give ``state`` to ``optimizers``, also that of parameters that are frozen, which torch leaves
    out.  A parameter without one has none then."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    for group in state["param_groups"]:
        for name in group["params"]:
            state["state"].setdefault(name, {})
    with trainable([p for one in optimizers for g in one.param_groups for p in g["params"]]):
        options = StateDictOptions(strict=False)
        set_optimizer_state_dict(model, optimizers, state, options=options)


@contextmanager
def trainable(parameters: list[Any]) -> Iterator[None]:
    """Frozen ``parameters`` are trainable inside."""
    frozen = [p for p in parameters if not p.requires_grad and not p.is_inference()]
    frozen = [p for p in frozen if p.is_floating_point() or p.is_complex()]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _restorable(data: Any) -> Any:
    """``data``; or None and a warning if its place cannot be saved.  TypeError: it is no data."""
    if data is None or is_stateful(data):
        return data
    kind = type(data).__qualname__
    if isinstance(data, (list, tuple)):
        raise TypeError(f"data: a {kind} is not a loader; give one, and further ones by name")
    if not hasattr(data, "__iter__"):
        raise TypeError(f"data: a {kind} has neither a state_dict() nor elements")
    inner = getattr(data, "dataset", None)
    name = kind if inner is None else f"{kind} of a {type(inner).__qualname__}"
    if name not in _told:
        _told.add(name)
        log.warning(
            "data: the %s has no state_dict() and load_state_dict(): its place is not saved, and a "
            "resume begins with its first batch.  torchdata's StatefulDataLoader has both",
            name,
        )
    return None


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _rank_in(process_group: Any) -> int:
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return 0
    return dist.get_rank(process_group)


# ---------------------------------------------------------------- random numbers


def random_numbers() -> dict[str, Any]:
    """The states of this process's generators.  Their layout does not change."""
    import torch

    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": torch.tensor(numbers, dtype=torch.int64),
        "python_rest": (version, gauss),
        "torch": torch.get_rng_state(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = torch.from_numpy(keys.astype("int64"))
        state["numpy_rest"] = (str(name), int(position), int(has_gauss), float(cached))
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_numbers(state: dict[str, Any]) -> None:
    """Restore the generators that ``state`` has; leave the others as they are."""
    import torch

    if "python" in state:
        version, gauss = state["python_rest"]
        random.setstate((version, tuple(state["python"].tolist()), gauss))
    if "torch" in state:
        torch.set_rng_state(state["torch"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in state:
        name, position, has_gauss, cached = state["numpy_rest"]
        keys = state["numpy"].numpy().astype("uint32")
        numpy.random.set_state((name, keys, position, has_gauss, cached))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
