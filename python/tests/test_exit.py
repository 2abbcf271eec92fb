# SPDX-License-Identifier: BSD-3-Clause
"""The end of an interpreter says nothing: whatever was imported first, whatever is still under way,
and whatever outlives the modules of this package.  Each script is a fresh interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = str(Path(__file__).resolve().parents[1])


def ends_silently(code: str, *arguments: object) -> str:
    """What it prints; the end is in order, and nothing is said on stderr."""
    path = os.pathsep.join([PYTHON, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-4000:]
    return done.stdout


ORDERS = {
    "sidestep first": "import sidestep; import torch",
    "engine first": "import sidestep._engine; import sidestep; import torch",
    "torch first": "import torch; import sidestep",
    "used first": """
import sys
import sidestep
from sidestep._engine import engine_alone
engine_alone()
assert "torch" not in sys.modules
import torch
""",
}

# Modules are taken down in the reverse order of their import, and what one of them still refers to
# outlives the others: torch's keep here what programs keep.
GROUPS = """
import os, sys, threading, time
import torch.distributed as dist

root = sys.argv[1]
dist.init_process_group("gloo", init_method=f"file://{root}/store", rank=0, world_size=1)
own = dist.new_group([0])
state = {f"w{i}": torch.full((250_000,), float(i)) for i in range(16)}
torch.outlives = [sidestep]
torch.last = [
    sidestep.async_save(state, checkpoint_id=f"{root}/world"),
    sidestep.async_save(state, checkpoint_id=f"{root}/own", process_group=own),
    sidestep.async_save(state, checkpoint_id=f"{root}/alone", no_dist=True),
]
"""

EVERYTHING = """
from sidestep import Callbacks, Checkpointer
from sidestep._checkpoint import Checkpoint
from sidestep._comm import Comm
from sidestep._torch.device import buffers
from sidestep._engine import Engine
from sidestep._torch.flatten import flatten
from sidestep._torch.state import StateDict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

mesh = init_device_mesh("cpu", (1,))
state["sharded"] = distribute_tensor(torch.ones(8), mesh, [Shard(0)])
sidestep.save(state, checkpoint_id=f"{root}/first", process_group=own)
torch.outlives += [
    Checkpoint(f"{root}/first"),
    StateDict(flatten(state)),
    buffers.copy([torch.zeros(3)]),
    sidestep.paused(),
    sidestep.Reader(f"{root}/first"),
    own,
    mesh,
]

def use_another_thread():
    sidestep.save(state, checkpoint_id=f"{root}/thread", process_group=own)

thread = threading.Thread(target=use_another_thread)
thread.start()
thread.join()

begun = [threading.Event(), threading.Event()]

def convert():
    def progress(done, total):  # called by a thread of the library, which finds no interpreter then
        begun[0].set()
        time.sleep(0.2)

    while True:
        sidestep.convert(f"{root}/first", f"{root}/out", replace=True, progress=progress)

class Waiting(Comm):  # in Python alone: a daemon thread that ends in C++ aborts the process
    def _all_reduce_max(self, values, count):
        begun[1].set()
        while True:
            time.sleep(0.01)
            self._pulse()

def wait_for_a_rank():
    Engine(Waiting(0, 2))  # the other one never comes

for work in (convert, wait_for_a_rank):
    threading.Thread(target=work, daemon=True).start()
for event in begun:
    event.wait()

checkpoints = Checkpointer(f"{root}/run", process_group=own, keep_last_n=2,
                           callbacks=Callbacks(on_staged=lambda *_: None,
                                               on_committed=lambda *_: None,
                                               on_deleted=lambda *_: None))
for step in range(3):
    torch.last.append(checkpoints.save(step, state))
"""

ENDS = {
    "as it is": "",
    "groups destroyed": "dist.destroy_process_group()",
    "handles dropped": "del torch.last",
    "sys.exit": "sys.exit()",
}


def is_saved(root: Path, *names: str) -> None:
    for name in ("world", "own", "alone", *names):
        assert (root / name / ".metadata").exists(), name


@pytest.mark.parametrize(("order", "end"), list(zip(ORDERS, ENDS)))
def test_groups_that_outlive_us(tmp_path: Path, order: str, end: str) -> None:
    ends_silently(f"{ORDERS[order]}\n{GROUPS}\n{ENDS[end]}", tmp_path)
    is_saved(tmp_path)


@pytest.mark.parametrize("order", ["sidestep first", "torch first"])
def test_all_that_may_be_under_way(tmp_path: Path, order: str) -> None:
    ends_silently(f"{ORDERS[order]}\n{GROUPS}\n{EVERYTHING}", tmp_path)
    is_saved(tmp_path, "first", "thread", "run/step-2")


def test_without_torch(tmp_path: Path) -> None:
    """What is left open, here by a module that refers to itself, is no reason to say anything; nor
    in a child of fork, which ends as any other process does."""
    code = """
import os, sys, warnings
import sidestep
from sidestep._checkpoint import Checkpoint
from sidestep._engine import engine_alone
from sidestep._torch.flatten import Leaf
from sidestep._torch.state import StateDict

state = StateDict([Leaf("step", ("step",), 7)])
handle = engine_alone().save_async(f"{sys.argv[1]}/c", state)
handle.wait()
sidestep.outlives = [sidestep, state, Checkpoint(f"{sys.argv[1]}/c"), handle]
print("torch" in sys.modules, sidestep.read(f"{sys.argv[1]}/c", "step"))
engine_alone().save_async(f"{sys.argv[1]}/c", StateDict([Leaf("step", ("step",), 8)]))
sys.stdout.flush()
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons advise against it
pid = os.fork()
if pid == 0:
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
"""
    assert ends_silently(code, tmp_path) == "False 7\n"
    assert (tmp_path / "c" / ".metadata").exists()


def test_what_is_said_is_noticed() -> None:
    """The control: a callback that needs a global of a module that is gone says so."""
    code = """
import sys, types, weakref
import torch
module = types.ModuleType("gone")
exec("registry = []\\ndef callback(_): registry.append(1)", vars(module))
class Group: pass
sys.modules["gone"] = torch.gone = module
torch.group = Group()
torch.reference = weakref.ref(torch.group, module.callback)
"""
    with pytest.raises(AssertionError, match="Exception ignored in: .*callback"):
        ends_silently(code)
