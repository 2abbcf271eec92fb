# SPDX-License-Identifier: BSD-3-Clause
"""``python -m sidestep.run COMMAND``: runs COMMAND with sidestep instead of torch's checkpoints.

The command replaces this process.  A folder at the front of PYTHONPATH makes every Python in it
call `sidestep.install` when it imports torch.distributed.checkpoint, and `sidestep._adapt.adapt`
when it imports a framework of ``--adapt``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from ._adapt import NAMES
from ._waiting import WAIT

VERBOSE = "SIDESTEP_RUN_VERBOSE"
ADAPT = "SIDESTEP_RUN_ADAPT"
_START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_run")
_EXAMPLES = """\
examples:
  python -m sidestep.run train.py --steps 1000
  python -m sidestep.run -m package.train
  python -m sidestep.run torchrun --nproc-per-node=8 train.py
  python -m sidestep.run --adapt transformers accelerate launch train.py
  python -m sidestep.run tune run --nproc_per_node 2 full_finetune_distributed --config CONFIG

Exit status: that of the command; 2: wrong usage; 126, 127: it cannot be run, it was not found.
"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Become the command."""
    given = _parse(sys.argv[1:] if arguments is None else arguments)
    variables = dict(os.environ)
    before = variables.get("PYTHONPATH")
    variables["PYTHONPATH"] = os.pathsep.join([_START, before] if before else [_START])
    if given.verbose:
        variables[VERBOSE] = "1"
    if given.wait:
        variables[WAIT] = "1"
    variables[ADAPT] = ",".join(given.adapt)
    command = command_of(given.command)
    program = shutil.which(command[0], path=_path())
    if program is None:
        _fail(127, f"'{command[0]}' was not found: it is neither a file here nor in PATH")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, command, variables)
    except OSError as error:
        _fail(126, f"'{program}' cannot be run: {error.strerror}")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sidestep.run",
        usage="%(prog)s [-v] [--adapt NAME,...] [--wait] [--] COMMAND [ARGUMENT ...]",
        description="Run COMMAND with sidestep in the place of torch.distributed.checkpoint's "
        "save, async_save and load, in all Python processes that it starts.  COMMAND is a script "
        "(train.py), a module (-m NAME), or a program (torchrun).",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log to stderr (level info)")
    parser.add_argument(
        "--adapt",
        metavar="NAME,...",
        type=_frameworks,
        default=(),
        help="also put sidestep's adapters in the place of the classes of these frameworks: "
        f"{', '.join(NAMES)}; their checkpoints change as docs/FRAMEWORKS.md says",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="adapters return from a save when it is committed: for programs that read a "
        "checkpoint right away",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    own = _count_own(arguments)
    given = parser.parse_args(arguments[:own])
    given.command = list(arguments[own:])
    if given.command[:1] == ["--"]:
        del given.command[0]
    if not given.command:
        parser.error("no COMMAND is given")
    return given


def _frameworks(words: str) -> tuple[str, ...]:
    names = tuple(words.split(","))
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no adapter for '{unknown[0]}': choose from {', '.join(NAMES)}"
        )
    return names


def _count_own(arguments: Sequence[str]) -> int:
    """How many of the arguments are ours; ``-m`` begins a command."""
    own, i = ("-v", "--verbose", "--wait", "-h", "--help"), 0
    while i < len(arguments):
        if arguments[i] == "--adapt":
            i += 2
        elif arguments[i] in own or arguments[i].startswith("--adapt="):
            i += 1
        else:
            break
    return min(i, len(arguments))


def command_of(words: list[str]) -> list[str]:
    """What is executed: scripts and modules by this Python."""
    if words[0] == "-m" or words[0].endswith(".py"):
        return [sys.executable, *words]
    return words


def _path() -> str:
    """PATH, and the folder of this Python, where torchrun lies, behind it."""
    return os.pathsep.join(
        [os.environ.get("PATH", os.defpath), os.path.dirname(os.path.abspath(sys.executable))]
    )


def _fail(status: int, message: str) -> NoReturn:
    print(f"sidestep.run: {message}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
