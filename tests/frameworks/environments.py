# SPDX-License-Identifier: BSD-3-Clause
"""Programs that run in the environment of a framework: ``.venv/frameworks/NAME``, by ``tools/setup
frameworks``.

The programs are files of ``tests/frameworks/programs`` and of ``examples``.  They use the package
of this tree and the library of its build, and no network.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pytest

TOP = Path(__file__).resolve().parent.parent.parent
PROGRAMS = TOP / "tests" / "frameworks" / "programs"
TIMEOUT_S = 300
_LAUNCH = ("-m", "accelerate.commands.launch", "--num_processes=2", "--num_machines=1")
_PLAIN = ("--mixed_precision=no", "--dynamo_backend=no")
LAUNCH = (*_LAUNCH, *_PLAIN, "--multi_gpu")
LAUNCH_FSDP = (
    *(*_LAUNCH, *_PLAIN, "--use_fsdp", "--fsdp_version=2", "--fsdp_auto_wrap_policy=NO_WRAP"),
    "--fsdp_state_dict_type=SHARDED_STATE_DICT",
)


@dataclass(frozen=True)
class Ended:
    """A program that has ended.  ``status`` is negative if a signal has killed it."""

    status: int
    output: str

    def ok(self) -> str:
        """Its output, if it has succeeded."""
        assert self.status == 0, f"exit status {self.status}\n{self.output}"
        return self.output

    def values(self, word: str) -> list[str]:
        """What follows ``word`` on the lines of its output that begin with it, in their order."""
        lines = (line.partition(" ") for line in self.output.splitlines())
        return [rest for first, _, rest in lines if first == word]


@dataclass(frozen=True)
class Environment:
    """The environment of one framework."""

    name: str
    python: Path

    def run(
        self,
        program: str | Path,
        *arguments: object,
        ranks: int = 0,
        launcher: tuple[str, ...] = (),
        variables: Optional[dict[str, str]] = None,
        timeout: float = TIMEOUT_S,
    ) -> Ended:
        """Run ``program`` to its end; a relative name is one of ``programs``.

        ranks     under torchrun with so many; 0: by itself
        launcher  what comes before the program, instead ("-m", "accelerate.commands.launch", ...)
        """
        before = launcher or _torchrun(ranks)
        words = [*before, str(PROGRAMS / program), *map(str, arguments)]
        return self._run(words, variables or {}, timeout)

    def run_module(self, module: str, *arguments: object) -> Ended:
        """Run ``python -m MODULE`` to its end."""
        return self._run(["-m", module, *map(str, arguments)], {}, TIMEOUT_S)

    def _run(
        self, words: list[str], variables: dict[str, str], timeout: float
    ) -> Ended:
        process = subprocess.Popen(
            [str(self.python), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**_variables(self), **variables},
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            output = f"no end in time\n{_end(process)}"
        finally:
            _kill_group(process)
        return Ended(process.wait(), output)


class Forks:
    """An environment that runs programs in forks of one process, which has imported ``modules``
    (``programs/forks.py``).  For suites with many starts of one framework."""

    def __init__(self, environment: Environment, *modules: str) -> None:
        self._environment, self._modules = environment, modules
        self._process: Optional[subprocess.Popen[str]] = None

    def run(
        self,
        program: str | Path,
        *arguments: object,
        ranks: int = 0,
        launcher: tuple[str, ...] = (),
        variables: Optional[dict[str, str]] = None,
        timeout: float = TIMEOUT_S,
    ) -> Ended:
        """As `Environment.run`, which starts those with a launcher."""
        if launcher:
            how = {"launcher": launcher, "variables": variables, "timeout": timeout}
            return self._environment.run(program, *arguments, **how)
        with tempfile.TemporaryDirectory() as place:
            output = Path(place, "output")
            output.touch()
            order = {
                "words": [str(PROGRAMS / program), *map(str, arguments)],
                "ranks": ranks,
                "variables": variables or {},
                "output": str(output),
            }
            status = self._ask(json.dumps(order), timeout)
            return Ended(status, output.read_text(errors="replace"))

    def run_module(self, module: str, *arguments: object) -> Ended:
        return self._environment.run_module(module, *arguments)

    def _ask(self, order: str, timeout: float) -> int:
        process = self._process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{order}\n")
        process.stdin.flush()
        if select.select([process.stdout], [], [], timeout)[0]:
            return int(process.stdout.readline() or "-1")
        self.end()
        return -signal.SIGKILL

    def _start(self) -> subprocess.Popen[str]:
        words = [str(self._environment.python), str(PROGRAMS / "forks.py"), *self._modules]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen(
            words, env=_variables(self._environment), start_new_session=True, **pipes
        )

    def end(self) -> None:
        """End that process, and all that runs."""
        process, self._process = self._process, None
        if process is not None:
            _kill_group(process)
            process.wait()


def flip(checkpoint: Path, name: str, share: float = 0.5) -> None:
    """Flip a bit of file ``name`` of a checkpoint (`flipped`).  A save in place adds an id to
    names."""
    stem, dot, end = name.partition(".")
    (file,) = [*checkpoint.glob(name), *checkpoint.glob(f"{stem}.*{dot}{end}")]
    file.write_bytes(flipped(file.read_bytes(), share))


def flipped(content: bytes, share: float = 0.5) -> bytes:
    """With another bit at that share of its length or after it, where data is: not between
    tensors."""
    found = bytearray(content)
    begin = int(share * len(found))
    places = range(begin, len(found) - 256)
    parts = ((at, found[at : at + 256]) for at in places)
    data = (at for at, part in parts if part.count(0) < 32 and b"PK" not in part)
    found[next(data, begin - 128) + 128] ^= 4
    return bytes(found)


def find(name: str) -> Environment:
    """The environment of the framework ``name``, in SIDESTEP_FRAMEWORKS if that is set.  Skips the
    test if there is none."""
    place = Path(os.environ.get("SIDESTEP_FRAMEWORKS", TOP / ".venv" / "frameworks")) / name
    if not (place / "requirements").exists():
        pytest.skip(f"no {name}: FRAMEWORKS={name} tools/setup frameworks")
    return Environment(name, place / "bin" / "python")


def _torchrun(ranks: int) -> tuple[str, ...]:
    if not ranks:
        return ()
    return ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")


def _variables(environment: Environment) -> dict[str, str]:
    library = os.environ.get("SIDESTEP_LIBRARY", str(TOP / "build" / "libsidestep.so.0"))
    return {
        **os.environ,
        "PATH": f"{environment.python.parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{TOP / 'python'}:{PROGRAMS}",
        "SIDESTEP_LIBRARY": library,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }


def _end(process: subprocess.Popen[str]) -> str:
    """Let a launcher end its ranks, which are in sessions of their own.  What it has written."""
    process.terminate()
    try:
        return process.communicate(timeout=60)[0]
    except subprocess.TimeoutExpired:
        return ""


def _kill_group(process: subprocess.Popen[str]) -> None:
    """What a killed launcher has left behind, too."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
