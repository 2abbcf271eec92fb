# SPDX-License-Identifier: BSD-3-Clause
"""Where Accelerate's save_state() saves to, and what was there before.

    accelerate_places.py DIRECTORY [URL]

Each function below is one case.  It asserts, and the program prints "passed NAME" for each.
"""

import os
import socket
import sys
from pathlib import Path

import accelerate
import torch
from accelerate.utils import ProjectConfiguration

import sidestep
from sidestep.accelerate import Accelerator, export


def made(project=None, limit=None, value=0.0):
    """An accelerator with two models, all of whose weights are ``value``."""
    naming = project is not None
    configuration = ProjectConfiguration(
        project_dir=project, automatic_checkpoint_naming=naming, total_limit=limit
    )
    accelerator = Accelerator(cpu=True, project_config=configuration)
    models = [accelerator.prepare(torch.nn.Linear(8, 8)) for _ in range(2)]
    put(models, value)
    return accelerator, models


def put(models, value):
    with torch.no_grad():
        for parameter in (p for model in models for p in model.parameters()):
            parameter.fill_(value)


def values(models):
    return {v for model in models for p in model.parameters() for v in p.flatten().tolist()}


def tree(directory):
    return {str(p): p.read_bytes() for p in sorted(Path(directory).rglob("*")) if p.is_file()}


def a_directory_that_is_there(root):
    """A file of a user stays: also under a name that Accelerate uses, and one made meanwhile."""
    place = root / "out"
    (place / "data").mkdir(parents=True)
    for name in ("data/rows.bin", "train.log", "scheduler.bin", "random_states_0.pkl"):
        (place / name).write_bytes(name.encode())
    before = tree(place)
    (root / "link").symlink_to(place)
    os.chdir(place)
    for number, output in enumerate((str(place), ".", str(root / "link"))):
        accelerator, models = made(value=float(number))
        accelerator.save_state(output)
        (place / f"meanwhile-{number}").write_bytes(b"meanwhile")
        before[str(place / f"meanwhile-{number}")] = b"meanwhile"
        accelerator.wait_for_checkpoint()
        found = tree(place)
        assert {name: found.get(name) for name in before} == before
        put(models, -1.0)
        accelerator.load_state(output)
        assert values(models) == {float(number)}
    assert (root / "link").is_symlink()
    assert {p.name for p in root.iterdir()} == {"out", "link"}


def rotation_keeps_the_new_one(root):
    accelerator, _ = made(str(root), limit=3)
    accelerator.project_configuration.iteration = 5
    for _ in range(3):
        accelerator.save_state()
    accelerator.wait_for_checkpoint()
    again, _ = made(str(root), limit=3)
    again.load_state()
    assert Path(again.save_state()).name == "checkpoint_8"
    again.wait_for_checkpoint()
    there = sorted(p.name for p in (root / "checkpoints").iterdir())
    assert there == ["checkpoint_6", "checkpoint_7", "checkpoint_8"], there


class Registered:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def objects(scale):
    """A moving average, something with a parameter and bytes, and something small."""
    average = {"steps": [torch.arange(20000.0) * scale, 3], ("a", 1): torch.full((2,), scale)}
    parameter = torch.nn.Parameter(torch.full((20000,), scale))
    return [average, {"w": parameter, "log": b"x" * 100_000, 7: None}, {"step": scale}]


def is_same(a, b):
    """Also in types, and in the order of dicts."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.requires_grad == b.requires_grad
    if isinstance(a, dict):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(is_same, a, b))
    return a == b


def registered_objects(root):
    """They come back as they were, also to stock after an export, and a save takes them once."""
    accelerator, _ = made()
    saved = [Registered(state) for state in objects(2.0)]
    accelerator.register_for_checkpointing(*saved)
    for name in ("one", "two"):
        accelerator.save_state(str(root / name))
        accelerator.wait_for_checkpoint()
    small = {p.name: p.stat().st_size for p in (root / "two").glob("*.pkl")}
    assert small["registered_0.pkl"] < 10_000 and "custom_checkpoint_0.pkl" not in small, small
    export(str(root / "two"))
    assert sidestep.load_metadata(root / "two").damage is None
    for kind, name in ((Accelerator, "one"), (Accelerator, "two"), (accelerate.Accelerator, "two")):
        other = kind(cpu=True)
        [other.prepare(torch.nn.Linear(8, 8)) for _ in range(2)]
        loaded = [Registered(state) for state in objects(0.0)]
        other.register_for_checkpointing(*loaded)
        other.load_state(str(root / name))
        for one, expected in zip(loaded, objects(2.0)):
            assert is_same(one.state, expected), (kind, one.state)


def what_hooks_write_is_not_copied(root):
    """It lies beside the checkpoint, and what a killed process has left there goes."""
    accelerator, _ = made(str(root))
    seen = []

    def hook(models, weights, directory):
        seen.append(Path(directory))
        (seen[-1] / "unet").mkdir()
        (seen[-1] / "unet" / "weights.bin").write_bytes(b"weights")
        seen.append((seen[-1] / "unet" / "weights.bin").stat().st_ino)
        weights.clear()

    left = root / f".sidestep-hooks-{socket.gethostname()}-{2**22}.7-x"
    (left / "unet").mkdir(parents=True)
    accelerator.register_save_state_pre_hook(hook)
    with sidestep.paused():
        accelerator.save_state()
        assert seen[0].parent == root and seen[0].exists() and not left.exists()
    accelerator.wait_for_checkpoint()
    saved = root / "checkpoints" / "checkpoint_0" / "unet" / "weights.bin"
    assert saved.stat().st_ino == seen[1] and not seen[0].exists()
    assert [p.name for p in root.iterdir()] == ["checkpoints"]


def two_models_are_of_one_save(root):
    accelerator, models = made(value=1.0)
    accelerator.save_state(str(root / "out"))
    accelerator.wait_for_checkpoint()
    put(models, 2.0)
    with sidestep.paused():
        accelerator.save_state(str(root / "out"))
        other, others = made()
        other.load_state(str(root / "out"))
        assert values(others) == {1.0}
    accelerator.wait_for_checkpoint()
    other.load_state(str(root / "out"))
    assert values(others) == {2.0}


def seen_in(root):
    """All names, but those that the save under way makes at some time in its hidden directory."""
    return sorted(str(p) for p in root.rglob("*") if p.parent.suffix != ".saving")


def an_evaluator_changes_nothing(root):
    """It resumes while a save is under way; the trainer's save is committed afterwards."""
    accelerator, models = made(str(root), value=1.0)
    accelerator.save_state()
    accelerator.wait_for_checkpoint()
    put(models, 2.0)
    with sidestep.paused():
        accelerator.save_state()
        before = seen_in(root)
        evaluator, theirs = made(str(root))
        evaluator.load_state()
        assert values(theirs) == {1.0}
        assert seen_in(root) == before
    accelerator.wait_for_checkpoint()
    evaluator.load_state()
    assert values(theirs) == {2.0}


def a_bucket(url):
    os.chdir(sys.argv[1])
    accelerator, models = made(value=3.0)
    accelerator.save_state(f"{url}/out")
    accelerator.wait_for_checkpoint()
    put(models, 0.0)
    accelerator.load_state(f"{url}/out")
    assert values(models) == {3.0}
    assert not Path("s3:").exists()


def main():
    root = Path(sys.argv[1])
    cases = (
        a_directory_that_is_there,
        rotation_keeps_the_new_one,
        registered_objects,
        what_hooks_write_is_not_copied,
        two_models_are_of_one_save,
        an_evaluator_changes_nothing,
    )
    for case in cases:
        (root / case.__name__).mkdir(parents=True)
        case(root / case.__name__)
        print("passed", case.__name__, flush=True)
    if len(sys.argv) > 2:
        a_bucket(sys.argv[2])
        print("passed", a_bucket.__name__)


main()
