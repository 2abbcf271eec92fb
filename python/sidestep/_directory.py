# SPDX-License-Identifier: BSD-3-Clause
"""Directories as frameworks expect them: one checkpoint, with tensors and with small files.

A framework's checkpoint is a directory ``checkpoint-500`` with tensors and with small files: the
state of the trainer, random numbers of each rank, a tokenizer.  All of it is one save of the
library, which makes the directory appear whole.  Nothing here renames or deletes a checkpoint: a
deletion is `sidestep_delete`, which spares what is pinned and what holds files of others.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Optional, TypeVar

from ._c.abi import GcReport, Status
from ._c.calls import call
from ._c.checked import absolute, is_url
from ._c.errors import Error, reworded
from ._c.library import lib
from ._checkpoint import Checkpoint, CheckpointMetadata
from ._engine import engine_for
from ._files import Alias, Files, Taken
from ._handle import SaveHandle, in_background
from ._parents import make_parents
from ._read import load_metadata
from ._waiting import waits

log = logging.getLogger("sidestep")
T = TypeVar("T")

_NUMBER = re.compile("0|[1-9][0-9]{0,17}")
_HOOKS = ".sidestep-hooks"  # the beginning of the names of directories for hooks
_OWNER = re.compile(r"([0-9]{1,9})\.[0-9]{1,20}-")  # what follows, and the name of the host
_kept: set[str] = set()  # paths whose deletion was refused, to say so once


class StateOf:
    """A ``Stateful`` whose state is what a function returns.  If the function raises on one rank,
    all ranks learn it, as with any ``state_dict()``."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def state_dict(self) -> Any:
        """Call it."""
        return self._function()

    def load_state_dict(self, state: Any) -> None:
        """Does nothing: it is only for saving."""


class DirectorySave:
    """A directory that is being saved.  ``target``: its path.  All ranks have one."""

    def __init__(self, handle: SaveHandle, target: str) -> None:
        self.handle = handle
        self.target = target
        self._followed = threading.Event()  # set when what follows its end is done
        self._followed.set()

    def then(self, committed: Optional[Callable[[], object]], ended: Callable[[], object]) -> None:
        """Call ``committed`` once it is, and ``ended`` whatever became of it, on a thread of the
        package.  The end of the interpreter waits for that.  What they raise is logged."""
        self._followed.clear()
        self.handle._hold()

        def run() -> None:
            try:
                with contextlib.ExitStack() as jobs:
                    jobs.callback(ended)
                    if committed is not None and self.handle.peek() is None:
                        committed()
            except Exception as problem:
                what = (
                    "is saved, but what had"
                    if self.handle.peek() is None
                    else "failed, and what had"
                )
                log.error("'%s' %s to follow failed: %s", self.target, what, problem)
            finally:
                self._followed.set()
                self.handle._let_go()

        self.handle.add_done_callback(lambda _: in_background(run))

    def wait(self) -> None:
        """Wait until it is committed, and what follows is done.  `wait_all` is for all ranks."""
        try:
            self.handle.wait()
        finally:
            self._followed.wait()


def save(
    target: str,
    state: Mapping[str, Any],
    files: Callable[[], Files],
    *,
    then: Optional[Callable[[], object]] = None,
    holds: Optional[contextlib.ExitStack] = None,
    step: Optional[int] = None,
    began: Optional[float] = None,
) -> DirectorySave:
    """Save ``state`` and small files as the directory ``target``, in the background.  Collective.

    Functions in ``state`` are called for their values; ``files`` is called, and returns the files
    of this rank.  If one raises on one rank, the save fails on all.

    then   called on rank 0 when it is committed, on a thread of the package
    holds  what the save needs: it is taken over, and closed when the save has ended
    step   the training step to record
    began  when the trainer began to wait for this save, by time.monotonic()

    A directory that is there is saved into: what others have put there stays.
    Errors: those of `sidestep.async_save`.
    """
    from ._torch.flatten import flatten
    from ._torch.plugins import start_save
    from ._torch.save import call_stateful

    engine = engine_for()
    began = time.monotonic() if began is None else began
    asked = {
        name: StateOf(value) if callable(value) and not hasattr(value, "state_dict") else value
        for name, value in state.items()
    }

    def made() -> Any:
        make_parents(target)
        return engine.states.get(flatten(call_stateful(asked)))

    handle = start_save(engine, target, made, files=files, step=step, began=began)
    handle.stall_s = time.monotonic() - began
    saving = DirectorySave(handle, target)
    held = (holds or contextlib.ExitStack()).pop_all()
    saving.then(then if engine.rank == 0 else None, held.close)
    if waits():
        wait_all(saving)
    return saving


def wait_all(saving: Optional[DirectorySave]) -> None:
    """Wait until ``saving`` is committed.  Collective; a failure is raised on all ranks."""
    from ._torch.load import agreed

    if saving is not None:
        with agreed(engine_for(), saving.target):
            saving.wait()


def tell_loaded(step: Optional[int], path: str, began: float) -> None:
    """Log one line, on rank 0.  ``began``: by time.monotonic()."""
    level = logging.INFO if engine_for().rank == 0 else logging.DEBUG
    what = "" if step is None else f"step {step} from "
    log.log(level, "loaded %s'%s' in %.3f s", what, path, time.monotonic() - began)


def tell_once(what: str, told: set[str]) -> None:
    """Warn once for each text."""
    if what not in told:
        told.add(what)
        log.warning("%s", what)


# ---------------------------------------------------------------- small files


@contextlib.contextmanager
def for_hooks(target: str, name: str = "", *, home: Optional[str] = None) -> Iterator[str]:
    """A directory for the hooks of a framework to write into, and deleted afterwards: in the
    directory ``target`` if that is there, else beside it; for a URL, in a temporary one.

    name  of the directory itself, in one that is hidden
    home  where to make it instead, on the same storage

    What a killed process has left of this kind is deleted first.
    """
    if not is_url(target):
        home = home or (target if os.path.isdir(target) else os.path.dirname(target))
        make_parents(target)
        _delete_left(home)
    else:
        home = None
    prefix = f"{_HOOKS}-{socket.gethostname()}-{_process_name(os.getpid())}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=home) as hidden, _locked(hidden):
        inside = os.path.join(hidden, name) if name else hidden
        os.makedirs(inside, exist_ok=True)
        yield inside


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[bool]:
    """Hold the lock on ``directory``.  False: somebody else has it, or the storage has no locks."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_mine = True
    except OSError:
        is_mine = False
    try:
        yield is_mine
    finally:
        os.close(held)


def _process_name(pid: int) -> Optional[str]:
    """NUMBER.START of a process on this host, with the time when it was started: numbers are used
    again.  None: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return f"{pid}.{int(fields[19])}"  # field 22 of proc(5); the second is in brackets


def _delete_left(home: str) -> None:
    """Delete directories for hooks whose process on this host is dead.  A container may have the
    name of this host and other numbers of processes: the lock on the directory tells."""
    mine = f"{_HOOKS}-{socket.gethostname()}-"
    for name in names_in(home):
        owner = _OWNER.match(name[len(mine) :]) if name.startswith(mine) else None
        if owner is None or _process_name(int(owner[1])) == owner[0][:-1]:
            continue
        path = os.path.join(home, name)
        with contextlib.suppress(OSError), _locked(path) as is_dead:
            if is_dead:
                shutil.rmtree(path, ignore_errors=True)


def taken_from(directory: str) -> dict[str, Taken]:
    """All files in ``directory``, by relative path.  The save takes them, so the directory stays
    until that has ended (``holds``)."""
    found = {}
    for parent, _, names in os.walk(directory):
        for path in [os.path.join(parent, name) for name in names]:
            found[os.path.relpath(path, directory)] = Taken(path)
    return found


def with_aliases(files: Mapping[str, Any], aliases: Sequence[str]) -> dict[str, Any]:
    """``files``, and names that lead to the checkpoint itself."""
    return {**files, **{name: Alias() for name in aliases}}


def write_out(checkpoint: str, directory: str) -> None:
    """Write the small files of ``checkpoint`` into ``directory``, after a check of their hashes;
    aliases become links to the checkpoint."""
    with Checkpoint(checkpoint) as opened:
        for name in opened.file_names():
            path = os.path.join(directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(opened.file(name))


# ---------------------------------------------------------------- which checkpoints are there


def described(path: str) -> Optional[CheckpointMetadata]:
    """What is in the checkpoint ``path`` of sidestep; None: it is none, or of another program."""
    try:
        found = load_metadata(path)
    except Error as error:
        if error.status not in (Status.ENOTFOUND, Status.EUNCOMMITTED, Status.EUNSUPPORTED):
            raise
        return None
    return found if found.format == "sidestep" else None


def has_files(path: str) -> bool:
    """Whether ``path`` is a checkpoint of sidestep with small files."""
    found = described(path)
    return found is not None and bool(found.files)


def newest(
    root: str,
    prefix: str,
    problem: Callable[[str], Optional[str]],
    below: Optional[int] = None,
) -> int:
    """The number of the newest directory ``PREFIX-NUMBER`` in ``root`` that is whole, as far as
    names, sizes and the bytes of small files tell; -1: there is none.

    problem  finds further defects of a directory
    below    only numbers below this
    The log names what is passed over.
    """
    for number in reversed(numbers_in(root, prefix)):
        if below is not None and number >= below:
            continue
        path = os.path.join(root, f"{prefix}{number}")
        reason = problem(path) or damage_of(path) or _damaged_file(path)
        if reason is None:
            return number
        tell_passed_over(path, reason)
    return -1


def newest_on_all(
    root: str,
    prefix: str,
    problem: Callable[[str], Optional[str]],
    below: Optional[int] = None,
) -> int:
    """Rank 0's `newest`; the same on all ranks.  Collective."""
    from ._torch.load import agreed

    engine, number = engine_for(), -1
    with agreed(engine, root):
        if engine.rank == 0:
            number = newest(root, prefix, problem, below)
    return engine.max_of(number + 1) - 1


def from_newest(
    root: str,
    prefix: str,
    problem: Callable[[str], Optional[str]],
    load: Callable[[str], T],
    is_of_load: Callable[[Error], bool] = lambda error: True,
) -> Optional[T]:
    """What ``load`` returns of the newest directory that is whole; None: there is none.

    If ``load``, which reads all of its bytes, finds them damaged, it is called again with the one
    before, and so on.  Collective.  Errors: that of the newest, if all are damaged.
    ``is_of_load``: whether an error is of the load, if ``load`` goes on to do other things.
    """
    first: Optional[Error] = None
    number = newest_on_all(root, prefix, problem)
    while number >= 0:
        path = os.path.join(root, f"{prefix}{number}")
        try:
            return load(path)
        except Error as error:
            if error.status != Status.ECORRUPT or not is_of_load(error):
                raise
            first = first or error
            tell_passed_over(path, error.message)
        number = newest_on_all(root, prefix, problem, number)
    if first is not None:
        raise first
    return None


def tell_passed_over(path: str, reason: str) -> None:
    """Warn of a checkpoint that is damaged.  It stays where it is."""
    log.warning("resume: passed over '%s': %s", path, reason)


def raise_advised(error: Error, path: str, advice: str) -> NoReturn:
    """Raise ``error``, with advice if it says that the checkpoint ``path``, which was asked for by
    name, is damaged."""
    if error.status != Status.ECORRUPT:
        raise error
    raise reworded(error, f"{error.message}; '{path}' was asked for: {advice}") from error


def check_files(path: str) -> None:
    """Check small files by their hashes: frameworks read them without that.

    Errors: `Error` (ECORRUPT, EIO ...).
    """
    with Checkpoint(path) as opened:
        for name in opened.file_names():
            opened.file(name)


def _damaged_file(path: str) -> Optional[str]:
    """Which small file is damaged."""
    found = described(path)
    try:
        if found is not None and found.files:
            check_files(path)
    except Error as error:
        if error.status != Status.ECORRUPT:
            raise
        return error.message
    return None


def highest_on_all(root: str, prefix: str) -> int:
    """The highest number that rank 0 sees, whole or not; -1: none.  Collective."""
    engine = engine_for()
    numbers = numbers_in(root, prefix) if engine.rank == 0 else []
    return engine.max_of(max(numbers, default=-1) + 1) - 1


def numbers_in(root: str, prefix: str) -> list[int]:
    """The N of all names ``PREFIX-N`` in ``root``, in order; a name like "checkpoint-007" has
    none."""
    words = [name[len(prefix) :] for name in names_in(root) if name.startswith(prefix)]
    return sorted(int(word) for word in words if _NUMBER.fullmatch(word))


def names_in(root: str) -> list[str]:
    """The names in a directory, or below a URL; none if it is not there."""
    if is_url(root):
        from ._roots import checkpoints_of

        return [os.path.basename(path) for path in checkpoints_of(root)]
    try:
        return os.listdir(root)
    except (FileNotFoundError, NotADirectoryError):
        return []


def damage_of(path: str) -> Optional[str]:
    """What is wrong with a directory, by names and sizes; None: nothing, or nothing that can be
    told, because another program made it."""
    try:
        found = load_metadata(path)
    except Error as error:
        if error.status in (Status.ENOTFOUND, Status.EUNCOMMITTED, Status.EUNSUPPORTED):
            return None if names_in(path) else "it is empty"
        if error.status != Status.ECORRUPT:
            raise
        return error.message
    return found.damage


# ---------------------------------------------------------------- deletion


def delete(path: str, why: str) -> bool:
    """Delete the checkpoint ``path`` of sidestep, and log ``why``.  False: it stays, because it is
    pinned, being read, or holds files of others; a warning says so once."""
    try:
        call(lib().sidestep_delete, os.fsencode(path))
    except Error as error:
        if error.status == Status.ENOTFOUND:
            return True
        if path not in _kept:
            _kept.add(path)
            log.warning("'%s' stays, although %s: %s", path, why, error.message)
        return False
    log.info("deleted '%s': %s", path, why)
    return True


def delete_oldest(paths: Sequence[str], limit: int, kept: Sequence[str], why: str) -> None:
    """Delete the first of ``paths`` until ``limit`` checkpoints of sidestep are left, but none of
    ``kept``.  Directories of other programs do not count, and stay."""
    spared = {absolute(path) for path in kept}
    others = [
        path for path in paths if absolute(path) not in spared and described(path) is not None
    ]
    too_many = len(others) + len(spared) - max(1, limit)
    for path in others[: max(0, too_many)]:
        delete(path, why)


def collect_garbage(parent: str) -> None:
    """Remove what killed saves have left in ``parent``.  Call it on one rank."""
    _delete_left(parent)
    report = GcReport()
    try:
        call(lib().sidestep_gc, os.fsencode(parent), 0, report)
    except Error as error:
        log.warning("%s", error)
    finally:
        lib().sidestep_gc_report_release(report)
