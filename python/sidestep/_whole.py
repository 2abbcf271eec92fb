# SPDX-License-Identifier: BSD-3-Clause
"""Directories as frameworks expect them, with tensors and small files, that appear whole.

A framework's checkpoint is a directory ``checkpoint-500`` with tensors and with small files: the
state of the trainer, random numbers of each rank, a tokenizer.  Its readers take any directory of
that name.  So the tensors and the contents of the files are saved as one checkpoint under another
name (`hidden_of`), which is its commit.  Then rank 0 writes the files beside the tensors, and
renames the directory.  A process that is killed between the two leaves all that `tidy` needs to
finish it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Optional

from ._c import abi
from ._c.abi import Status
from ._c.calls import call
from ._c.errors import Error, error_of_os, make_error
from ._c.library import lib
from ._checkpoint import Checkpoint
from ._engine import Engine, engine_for
from ._handle import SaveHandle
from ._parents import make_parents, sync_directory
from ._read import load_metadata, read
from ._waiting import waits

log = logging.getLogger("sidestep")

_FILES = "sidestep_files"  # the name under which a checkpoint has the small files of each rank
_HIDDEN = ".sidestep-unpublished"  # the end of the name under which a directory is saved
_TRASH = ".sidestep-trash"  # ... and of one that is being deleted
_NUMBER = re.compile("0|[1-9][0-9]{0,17}")
_MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Part:
    """One checkpoint inside of the directory.

    place  its path in there; "": the directory itself
    state  its contents; functions are called for their values when the save begins
    """

    place: str
    state: Mapping[str, Any] = field(default_factory=dict)


class Asked:
    """A ``Stateful`` whose state is what a function returns.  If the function raises on one rank,
    all ranks learn it, as with any ``state_dict()``."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def state_dict(self) -> Any:
        """Call it."""
        return self._function()

    def load_state_dict(self, state: Any) -> None:
        """Does nothing: it is only for saving."""


def hidden_of(target: str, parent: Optional[str] = None) -> str:
    """The name under which ``target`` is saved, in the directory ``parent``; None: beside it."""
    directory, name = os.path.split(os.path.abspath(target))
    return os.path.join(parent or directory, f".{name}{_HIDDEN}")


class WholeSave:
    """A directory that is being saved.  ``target``: its final path.  All ranks have one."""

    def __init__(
        self,
        target: str,
        hidden: str,
        handles: Sequence[SaveHandle],
        rank: int,
        then: Optional[Callable[[], object]],
    ) -> None:
        self.target = target
        self.handles = tuple(handles)
        self._done: Future[None] = Future()
        self._told = False
        if rank == 0:
            arguments = hidden, target, then
            # No daemon: the end of the interpreter waits for it.
            threading.Thread(target=self._finish, args=arguments, name="sidestep-publish").start()

    def _finish(self, hidden: str, target: str, then: Optional[Callable[[], object]]) -> None:
        """Runs on rank 0, in the background."""
        what = f"it is whole in '{hidden}', but not published"
        try:
            for handle in self.handles:
                handle.reach()
            if all(handle.peek() is None for handle in self.handles):
                publish(hidden, target)
                what = "it is published, but what had to follow failed"
                if then is not None:
                    then()
            self._done.set_result(None)
        except BaseException as failure:
            log.error("save '%s': %s: %s", target, what, failure)
            self._done.set_exception(failure)

    def wait(self, rank: int) -> None:
        """Wait until it is in its place.  `wait_all` is for all ranks together."""
        for handle in self.handles:
            handle.wait()
        if rank == 0:
            self._told = True
            self._done.result()

    def raise_failure(self, rank: int) -> None:
        """Raise a failure after the commit, if nobody was told yet.  Waits for rank 0's thread."""
        if rank == 0 and not self._told:
            self._told = True
            self._done.result()


def save(
    target: str,
    parts: Sequence[Part],
    files: Callable[[], Mapping[str, bytes]],
    *,
    hidden: Optional[str] = None,
    links: Optional[Mapping[str, str]] = None,
    before: Optional[WholeSave] = None,
    then: Optional[Callable[[], object]] = None,
    step: Optional[int] = None,
) -> WholeSave:
    """Save ``parts`` and small files as the directory ``target``, in the background.  Collective.

    files   returns the files of this rank, by relative path; of files with one name, that of the
            lowest rank is taken
    links   symbolic links in the directory and their targets, from rank 0
    before  the save before this one: its failure is raised here, on all ranks
    then    called on rank 0 when the directory is there, on a thread of the package
    step    the training step to record

    Parts are saved one after the other; all but the last are waited for.
    Errors: those of `sidestep.async_save`.
    """
    engine, began = engine_for(), time.monotonic()
    hidden = hidden or hidden_of(target)

    def small() -> Any:
        if before is not None:
            before.raise_failure(engine.rank)
        return {f"rank{engine.rank}": ((dict(files()), dict(links or {})),)}

    handles = []
    for part in parts:
        state: dict[str, Any] = {
            name: Asked(value) if callable(value) and not hasattr(value, "state_dict") else value
            for name, value in part.state.items()
        }
        if part is parts[-1]:
            state[_FILES] = Asked(small)
        handles.append(_start(engine, hidden, part.place, state, step=step, told_as=target))
    handles[-1].stall_s = time.monotonic() - began
    saving = WholeSave(target, hidden, handles, engine.rank, then)
    if waits():
        wait_all(saving)
    return saving


def _start(
    engine: Engine, hidden: str, place: str, state: dict[str, Any], **how: Any
) -> SaveHandle:
    from ._torch.flatten import flatten
    from ._torch.plugins import start_save
    from ._torch.save import call_stateful

    path = os.path.join(hidden, place).rstrip("/")

    def made() -> Any:
        make_parents(hidden)
        if place:
            make_parents(path, durable=False)  # `publish` syncs it, while the trainer goes on
        return engine.states.get(flatten(call_stateful(state)))

    return start_save(engine, path, made, **how)


def wait_all(save: Optional[WholeSave]) -> None:
    """Wait until ``save`` is in its place.  Collective; a failure is raised on all ranks."""
    from ._torch.load import agreed

    if save is None:
        return
    engine = engine_for()
    with agreed(engine, save.target):
        save.wait(engine.rank)


def tell_loaded(step: Optional[int], path: str, began: float) -> None:
    """Log one line, on rank 0.  ``began``: by time.monotonic()."""
    level = logging.INFO if engine_for().rank == 0 else logging.DEBUG
    what = "" if step is None else f"step {step} from "
    log.log(level, "loaded %s'%s' in %.3f s", what, path, time.monotonic() - began)


# ---------------------------------------------------------------- small files


def collect(write_files: Callable[[str], object]) -> dict[str, bytes]:
    """The files that ``write_files`` writes into a directory: contents by relative path."""
    with tempfile.TemporaryDirectory(prefix="sidestep-") as directory:
        write_files(directory)
        return contents_of(directory)


def contents_of(directory: str) -> dict[str, bytes]:
    """The contents of all files in ``directory``, by relative path."""
    return {os.path.relpath(path, directory): _contents(path) for path in _files_in(directory)}


def _files_in(directory: str) -> Iterator[str]:
    for parent, _, names in os.walk(directory):
        yield from (os.path.join(parent, name) for name in names)


def _contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def write_out(place: str, directory: str, rank: Optional[int] = None) -> None:
    """Write the small files in the checkpoint ``place`` into ``directory``, durably: those of all
    ranks; or those for ``rank``, whose own files go before files of lower ranks."""
    written: dict[str, bytes] = {}
    links: dict[str, str] = {}
    for one in sorted(_ranks_of(place), key=lambda other: (other != rank, other)):
        value = read(place, f"{_FILES}.rank{one}")
        files, more = _checked(place, value)
        written = {**files, **written}
        links = {**more, **links}
    for name, contents in written.items():
        _write(os.path.join(directory, name), contents)
    for name, leads_to in links.items():
        path = os.path.join(directory, name)
        if not os.path.lexists(path):
            os.symlink(leads_to, path)


def _ranks_of(place: str) -> list[int]:
    prefix = f"{_FILES}.rank"
    with Checkpoint(place) as checkpoint:
        words = [name[len(prefix) :] for name in checkpoint.names() if name.startswith(prefix)]
    return [number for number in map(_number_in, words) if 0 <= number < _MOST_RANKS]


def _checked(place: str, value: Any) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files and links, after a check that none leads out of the directory."""
    try:
        ((files, links),) = value
        names = [*files, *links, *links.values()]
        good = all(isinstance(contents, bytes) for contents in files.values()) and all(
            _stays_inside(name) for name in names
        )
    except (TypeError, ValueError, AttributeError):
        good = False
    if not good:
        message = f"'{place}': the list of small files is none that sidestep has written"
        raise make_error(message, status=Status.ECORRUPT)
    return files, links


def _stays_inside(name: Any) -> bool:
    """Whether a path is inside the directory and is no file of the checkpoint."""
    if not isinstance(name, str) or not name or os.path.normpath(name) != name:
        return False
    return not name.startswith(("/", "..", ".metadata", ".sidestep"))


def _write(path: str, contents: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())


# ---------------------------------------------------------------- publishing


def place_in(directory: str) -> Optional[str]:
    """The checkpoint in ``directory``, or in a subdirectory, that has small files.  None: there is
    none, because a save was not committed or another program made the directory."""
    try:
        inside = [entry.path for entry in os.scandir(directory) if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    for place in [directory, *sorted(inside)]:
        if os.path.exists(os.path.join(place, ".metadata")) and _ranks_of(place):
            return place
    return None


def publish(hidden: str, target: str) -> None:
    """Turn ``hidden``, which is committed, into ``target``.  Can be repeated.  A directory that
    is at ``target`` is replaced, and then deleted.

    Errors: `Error`: ENOTFOUND: ``hidden`` is not committed; ELOCKED: another process publishes it;
    EABORTED: another process has moved it meanwhile.
    """
    place = place_in(hidden)
    if place is None:
        message = f"publish '{target}': '{hidden}' has no checkpoint that is committed"
        raise make_error(message, status=Status.ENOTFOUND)
    with _locked(hidden, target) as directory:
        write_out(place, hidden)
        try:
            _sync(_directories_in(hidden), target)
        finally:  # if it was moved meanwhile, that is the reason to tell
            _check_is_at(hidden, directory, target)
        trash = _put_aside(target)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(hidden, target)
        _sync({os.path.dirname(hidden), os.path.dirname(target)}, target)
    _delete(trash)


@contextlib.contextmanager
def _locked(hidden: str, target: str) -> Iterator[int]:
    """``hidden``, open and locked: a process that was stopped while it published, and one that
    tidies up behind it, would otherwise take each other's directories for old ones."""
    directory = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"publish '{target}': another process publishes '{hidden}' just now"
            raise make_error(message, status=Status.ELOCKED) from None
        except OSError:  # this storage has no such locks
            pass
        _check_is_at(hidden, directory, target)
        yield directory
    finally:
        os.close(directory)


def _check_is_at(path: str, directory: int, target: str) -> None:
    """EABORTED: ``path`` does not lead to ``directory`` any more."""
    try:
        is_there = os.path.samestat(os.stat(path), os.fstat(directory))
    except FileNotFoundError:
        is_there = False
    if not is_there:
        message = f"publish '{target}': another process has moved '{path}': look what is there"
        raise make_error(message, status=Status.EABORTED)


def remove(directory: str) -> None:
    """Delete a checkpoint.  A rename first takes its name away, so it is never half there."""
    _delete(_put_aside(directory))


def _put_aside(directory: str) -> str:
    """Rename it, if it is there, to what `tidy` deletes; returns that name."""
    parent, name = os.path.split(directory)
    trash = os.path.join(parent, f".{name}{_TRASH}")
    _delete(trash)
    with contextlib.suppress(FileNotFoundError):
        os.rename(directory, trash)
    return trash


def _delete(path: str) -> None:
    """A directory with all that is in it, or a link, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def _directories_in(directory: str) -> Iterator[str]:
    """With ``directory`` itself.  OSError: one of them cannot be listed."""

    def fail(reason: OSError) -> None:
        raise reason

    return (inside for inside, _, _ in os.walk(directory, onerror=fail))


def _sync(directories: Iterable[str], target: str) -> None:
    try:
        for directory in directories:
            sync_directory(directory)
    except OSError as reason:
        raise error_of_os(f"publish '{target}': sync '{reason.filename}'", reason) from reason


def newest(root: str, prefix: str, problem: Callable[[str], Optional[str]]) -> int:
    """The number of the newest directory ``PREFIX-NUMBER`` in ``root`` that is whole; -1: there is
    none.  ``problem`` finds further defects of a directory.  The log names what is passed over."""
    for number in reversed(numbers_in(root, prefix)):
        path = os.path.join(root, f"{prefix}{number}")
        reason = problem(path) or _damage(path)
        if reason is None:
            return number
        log.warning("resume: passed over '%s': %s", path, reason)
    return -1


def numbers_in(root: str, prefix: str) -> list[int]:
    """The N of all names ``PREFIX-N`` in ``root``, in order; a name like "checkpoint-007" has
    none."""
    words = [name[len(prefix) :] for name in _listed(root) if name.startswith(prefix)]
    return sorted(number for number in map(_number_in, words) if number >= 0)


def _number_in(word: str) -> int:
    """-1: ``word`` is not how a number is written."""
    return int(word) if _NUMBER.fullmatch(word) else -1


def _damage(path: str) -> Optional[str]:
    """What is wrong with a directory, by names and sizes; None: nothing, or nothing that can be
    told, because another program made it."""
    try:
        place = place_in(path)
    except Error as error:
        if error.status != Status.ECORRUPT:
            raise
        return error.message
    if place is None:
        return None if _listed(path) else "it is empty"
    return damage_of(place)


def damage_of(checkpoint: str) -> Optional[str]:
    """What is wrong with a checkpoint, by names and sizes; None: nothing."""
    try:
        return load_metadata(checkpoint).damage
    except Error as error:
        if error.status != Status.ECORRUPT:
            raise
        return error.message


def newest_on_all(
    root: str, prefix: str, problem: Callable[[str], Optional[str]], hidden: Optional[str] = None
) -> int:
    """Rank 0's `newest` after `tidy`; the same on all ranks.  Collective."""
    from ._torch.load import agreed

    engine, number = engine_for(), -1
    with agreed(engine, root):
        if engine.rank == 0:
            tidy(hidden or root, root)
            number = newest(root, prefix, problem)
    return engine.max_of(number + 1) - 1


def settle(target: str) -> None:
    """Publish ``target`` if a process was killed when it had put aside what was there before.
    Collective."""
    from ._torch.load import agreed

    engine, hidden = engine_for(), hidden_of(target)
    with agreed(engine, target):
        if engine.rank == 0 and not os.path.lexists(target) and place_in(hidden) is not None:
            _tidy_one(hidden, os.path.abspath(target))


def tidy(parent: str, home: Optional[str] = None) -> None:
    """Clean up after a killed process in ``parent``: publish what was committed, in ``home`` (None:
    ``parent``), and remove the rest.  Call it on one rank, while nobody saves there."""
    for name in sorted(_listed(parent)):
        path = os.path.join(parent, name)
        if name.startswith(".") and name.endswith(_TRASH):
            _delete(path)
        elif name.startswith(".") and name.endswith(_HIDDEN):
            _tidy_one(path, os.path.join(home or parent, name[1 : -len(_HIDDEN)]))
    if os.path.isdir(parent):
        collect_garbage(parent)


def _tidy_one(hidden: str, target: str) -> None:
    if place_in(hidden) is not None:
        try:
            publish(hidden, target)
        except Error as error:
            if error.status not in (Status.ELOCKED, Status.EABORTED):
                raise
            log.warning("%s", error)
        else:
            log.warning(
                "'%s' was committed when its process ended, and is in its place now", target
            )
        return
    collect_garbage(hidden)
    inside = [os.path.join(hidden, name) for name in _listed(hidden)]
    if not any(".metadata" in _listed(one) or _is_of_a_save(one) for one in inside):
        shutil.rmtree(hidden, ignore_errors=True)


def _is_of_a_save(path: str) -> bool:
    """Whether a save made it, perhaps one under way: the library cleans up after that."""
    return os.path.basename(path).startswith(".sidestep")


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def collect_garbage(parent: str) -> None:
    """Remove what killed saves left in ``parent``.  Call it on one rank."""
    report = abi.GcReport()
    try:
        call(lib().sidestep_gc, os.fsencode(parent), 0, report)
    except Error as error:
        log.warning("%s", error)
    finally:
        lib().sidestep_gc_report_release(report)
