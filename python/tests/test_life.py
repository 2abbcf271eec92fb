# SPDX-License-Identifier: BSD-3-Clause
"""What becomes of a save when its process ends, forks, spawns, or is busy: with real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from saving import load
from scripts import Scripts

from sidestep._engine import engine_alone

HEAD = """
import logging, multiprocessing, os, signal, sys, threading, time
import torch
import sidestep
from saving import held_saves, load, save
from sidestep._engine import engine_alone, engine_for
from sidestep._handle import in_flight

torch.set_num_threads(1)  # a forked process would wait for its parent's OpenMP threads for ever
path = sys.argv[1]
big = {f"w{i}": torch.full((1_000_000,), float(i)) for i in range(16)}

def end():
    sys.stdout.flush()
    os._exit(0)

def check(name, count=16):
    targets = {f"w{i}": torch.zeros(1_000_000) for i in range(count)}
    load(engine_alone(), f"{path}/{name}", targets)
    assert all(bool((targets[f"w{i}"] == i).all()) for i in range(count))
    return count
"""


@pytest.fixture
def run(scripts: Scripts, tmp_path: Path) -> Any:
    """(stdout, stderr) of a script, which must end by itself with ``status``."""

    def run_one(code: str, *, status: int = 0, timeout: float = 60, **environment: str) -> Any:
        script = scripts.start(HEAD + code, tmp_path, environment=environment)
        assert script.wait(timeout) == status, script.output()
        return script.output()

    return run_one


def checked(path: Path) -> int:
    """How many tensors of HEAD's ``big`` the checkpoint has."""
    targets = {f"w{i}": torch.zeros(1_000_000) for i in range(16)}
    load(engine_alone(), path, targets)
    assert all(bool((target == i).all()) for i, target in enumerate(targets.values()))
    return len(targets)


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize(
    ("last_words", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise RuntimeError('the end')", 1),
        ("handle.add_done_callback(lambda future: sys.exit(5))", 0),
        ("del handle", 0),
    ],
)
def test_exit_with_a_save_pending(run: Any, tmp_path: Path, last_words: str, status: int) -> None:
    code = """
handle = save(engine_alone(), f"{path}/c", big)
print(handle.done())
"""
    out, err = run(code + last_words, status=status)
    assert out == "False\n", "the save was over before the process ended: nothing was tested"
    assert ("the end" in err) == (status == 1)
    assert checked(tmp_path / "c") == 16


def test_exit_waits_for_python_too(run: Any, tmp_path: Path) -> None:
    """Callbacks of a save that ends late have run before the interpreter goes."""
    code = """
holding = held_saves()
go = holding.__enter__()
handle = save(engine_alone(), f"{path}/c", {"w0": torch.zeros(10)})
handle.add_done_callback(lambda future: (time.sleep(0.3), print("linked", flush=True)))
threading.Timer(0.5, go.set).start()
"""
    assert run(code)[0] == "linked\n"


def test_exit_does_not_wait_for_ever(run: Any, tmp_path: Path) -> None:
    code = """
held_saves().__enter__()
import saving
handle = saving.save(engine_alone(), f"{path}/c", {"w0": torch.zeros(10)})
"""
    code = code.replace("held_saves().__enter__()", "holding = held_saves(); holding.__enter__()")
    began = time.monotonic()
    _, err = run(code, SIDESTEP_TIMEOUT="1")
    assert time.monotonic() - began < 40
    assert "the interpreter ends before the outcome of save" in err


def test_a_save_at_exit_blocks(run: Any, tmp_path: Path) -> None:
    """One that is made by an exit handler which runs after ours has."""
    code = """
import atexit
from sidestep import _exit
atexit.unregister(_exit.drain)
def late():
    handle = save(engine_alone(), f"{path}/c", big)
    print(handle.done())
atexit.register(late)
engine_alone()
"""
    assert run(code)[0] == "True\n"
    assert checked(tmp_path / "c") == 16


def test_a_failure_at_exit_is_logged(run: Any, tmp_path: Path) -> None:
    code = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
handle = save(engine_alone(), f"{path}/c", big)
"""
    _, err = run(code)
    assert "File too large" in err and "Traceback" not in err
    assert not (tmp_path / "c").exists()


def test_a_kill_leaves_the_old_one(run: Any, tmp_path: Path) -> None:
    code = """
save(engine_alone(), f"{path}/c", big).result()
handle = save(engine_alone(), f"{path}/c", {"w0": torch.ones(16_000_000)})
os.kill(os.getpid(), signal.SIGKILL)
"""
    run(code, status=-signal.SIGKILL)
    assert checked(tmp_path / "c") == 16


# ---------------------------------------------------------------- other processes


def test_fork_with_a_save_pending(run: Any, tmp_path: Path) -> None:
    """The child's handle says what it is; the child may save for itself, and its end is its own."""
    code = """
holding = held_saves()
go = holding.__enter__()
handle = save(engine_alone(), f"{path}/c", big)
engine = engine_alone()
ran = []
handle.add_done_callback(lambda future: ran.append(os.getpid()))
pid = os.fork()
if pid == 0:
    status = 1
    try:
        assert handle.done() and handle.written.done() and not in_flight()
        for ask in (handle.result, handle.wait, handle.written.result, lambda: check_engine()):
            try:
                ask()
            except sidestep.Error as error:
                assert error.status.name == "EFORKED", error
                assert f"process {os.getppid()}, which forked this one" in str(error)
            else:
                raise AssertionError(ask)
            def check_engine():
                save(engine, f"{path}/x", big)
        assert handle.progress().state in ("staged", "released", "written", "committed")
        assert ran == []
        assert engine_alone() is not engine
        go.set()
        save(engine_alone(), f"{path}/child", big).result(30)
        status = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    if sys.argv[1:]:
        os._exit(status) if status else sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert not handle.done()
go.set()
assert handle.wait(30)
print(check("c"), check("child"))
end()
"""
    assert run(code)[0] == "16 16\n"


def test_data_loader_workers(run: Any, tmp_path: Path) -> None:
    """Forked in the middle of saves, by the dozen; they end without touching them."""
    code = """
class Data(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i): return torch.tensor(i)

seen = 0
for step in range(4):
    handle = save(engine_alone(), f"{path}/c", big)
    for batch in torch.utils.data.DataLoader(Data(), num_workers=3, batch_size=2):
        seen += len(batch)
    assert handle.wait(30)
print(seen, check("c"))
end()
"""
    assert run(code)[0] == "48 16\n"


MULTIPROCESSING = """
def child(path):
    import torch
    from saving import save
    from sidestep._engine import engine_alone
    state = {f"w{i}": torch.full((1_000_000,), float(i)) for i in range(16)}
    save(engine_alone(), f"{path}/c", state)

if __name__ == "__main__":
    process = multiprocessing.get_context(METHOD).Process(target=child, args=(path,))
    if METHOD == "fork":
        save(engine_alone(), f"{path}/parent", big)
    process.start()
    process.join()
    print(process.exitcode, check("c"))
    end()
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_multiprocessing(run: Any, tmp_path: Path, method: str) -> None:
    """A child that ends right after async_save: its exit waits for the save too."""
    out, _ = run(f"METHOD = {method!r}\n{MULTIPROCESSING}")
    assert out == "0 16\n"


def test_a_forked_rank_has_no_group(run: Any, tmp_path: Path) -> None:
    code = """
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{path}/store", rank=0, world_size=1)
save(engine_for(), f"{path}/c", big)
pid = os.fork()
if pid == 0:
    try:
        engine_for()
    except sidestep.Error as error:
        os._exit(0 if error.status.name == "EFORKED" else 1)
    os._exit(2)
print(os.waitpid(pid, 0)[1])
dist.destroy_process_group()
"""
    assert run(code)[0] == "0\n"
    assert checked(tmp_path / "c") == 16


# ---------------------------------------------------------------- threads


def test_a_busy_interpreter_does_not_stop_the_writers(run: Any, tmp_path: Path) -> None:
    """One call of C keeps the GIL until the save is committed."""
    code = """
import ctypes
engine = engine_alone()
save(engine, f"{path}/warm", big).result()
handle = save(engine, f"{path}/c", big)
wait = f"for i in $(seq 600); do test -e '{path}/c/.metadata' && exit 0; sleep 0.1; done; exit 1"
print(ctypes.PyDLL(None).system(wait.encode()))  # as a long computation in an extension would
assert handle.wait(10)
end()
"""
    assert run(code)[0] == "0\n"


def test_ctrl_c_at_exit(scripts: Scripts, tmp_path: Path) -> None:
    """Twice, from the terminal: once in result(), once while the exit waits.  No hang, no crash."""
    code = """
holding = held_saves()
go = holding.__enter__()
handle = save(engine_alone(), f"{path}/c", {"w0": torch.zeros(10)})
print("waiting", flush=True)
handle.result()
"""
    script = scripts.start(HEAD + code, tmp_path)
    script.wait_for("waiting\n")
    time.sleep(0.1)
    script.signal(signal.SIGINT)
    time.sleep(0.5)
    assert script.runs(), script.output()
    script.signal(signal.SIGINT)
    assert script.wait(20) in (-signal.SIGINT, 130, 1)
    _, err = script.output()
    assert "KeyboardInterrupt" in err
    assert "the interpreter ends before the outcome of save" in err


def test_importing_needs_no_torch() -> None:
    script = (
        "import sys\n"
        "from sidestep._engine import engine_alone, engine_for\n"
        "engine = engine_for()\n"
        "assert engine is engine_alone()\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "False False\n"), done.stderr


@pytest.mark.parametrize(
    ("before", "saver", "call"),
    [
        ("import sidestep, torch", "sidestep.Checkpointer(path)", "save(1, state)"),
        ("import torch, sidestep", "sidestep", "async_save(state, checkpoint_id=path)"),
    ],
)
def test_the_first_save_imports_nothing(tmp_path: Path, before: str, saver: str, call: str) -> None:
    """Or it would take longer than the second one, while the trainer waits."""
    script = (
        f"import sys\n{before}\n"
        "state, path = {'w': torch.ones(4)}, sys.argv[1]\n"
        f"saver = {saver}\n"
        "before = set(sys.modules)\n"
        f"handle = saver.{call}\n"
        "heavy = ('sidestep', 'torch.distributed', 'sympy')\n"
        "print(sorted(m for m in set(sys.modules) - before if m.startswith(heavy)))\n"
        "handle.result()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


MOVED = """
tensor = torch.full((48_000_000,), 1.0)  # more than a save reads ahead of the disk
engine = engine_alone()  # paused() stops only engines that exist already
with sidestep.paused():
    handle = save(engine, f"{path}/c", {"w": tensor})
    held = handle.progress().snapshot == "cow"
    tensor.share_memory_()  # its old memory is freed
error = handle.exception(30)
print("held" if held else "copied: " + handle.progress().copy_reason, error)
handle = save(engine, f"{path}/d", {"w": torch.full((16_000_000,), 2.0)})
handle.released.result(30)
handle.result(30)
"""


def test_memory_that_moves_too_early(run: Any, tmp_path: Path) -> None:
    """`share_memory_()` while a save holds the tensor: it fails, and says which and what to do."""
    out, _ = run(MOVED, SIDESTEP_SNAPSHOT="cow", SIDESTEP_COPY_AHEAD="never")
    if out.startswith("copied"):
        pytest.skip(out)
    assert "tensor 'w'" in out and "share_memory_()" in out and "RELEASED" in out
    assert not (tmp_path / "c").exists() and (tmp_path / "d" / ".metadata").exists()
