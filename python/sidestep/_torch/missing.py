# SPDX-License-Identifier: BSD-3-Clause
"""The error about names that a state has and a checkpoint lacks.

It lists them and the nearest names in the checkpoint.  If the checkpoint was saved from a state of
another shape, it says how to load it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Any, Optional

from .._c.abi import Status
from .._c.errors import Error, make_error

_LISTED = 8
_NEAREST = 3
_COMPARED = 5000  # names; to compare more would take too long

# What torch.compile(), DDP, FSDP1 and checkpointing put into names.
_WRAPPERS = ("_orig_mod.", "module.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")

_OF_TRAIN_STATE = "progress.step"  # which every checkpoint of one has


def missing_error(
    path: str, missing: Sequence[str], saved: Collection[str], keys: Collection[Any] = ()
) -> Error:
    """EMISMATCH: the checkpoint ``path``, which has the names ``saved``, lacks ``missing``.
    ``keys``: of the state, at its top level."""
    first = missing[0]
    # These words are torch's.
    parts = [f"load '{path}': Missing key in checkpoint state_dict: {_shown(first)}."]
    if len(missing) > 1:
        others = ", ".join(_shown(name) for name in missing[1:_LISTED])
        dots = ", ..." if len(missing) > _LISTED else ""
        parts.append(f"{len(missing) - 1} more are missing: {others}{dots}.")
    nearest = nearest_names(first, saved)
    if nearest:
        parts.append(f"It has {' and '.join(repr(name) for name in nearest)}.")
    elif not saved:
        parts.append("It is empty.")
    hint = _hint(path, missing, saved, keys)
    if hint is not None:
        parts.append(hint)
    return make_error(" ".join(parts), status=Status.EMISMATCH, tensor=first)


def nearest_names(name: str, saved: Collection[str]) -> list[str]:
    """The names in ``saved`` that are ``name`` with another prefix, or are spelled like it."""
    found = [other for other in saved if _is_end(name, other) or _is_end(other, name)]
    if not found and len(saved) <= _COMPARED:
        found = difflib.get_close_matches(name, saved, _NEAREST)
    return found[:_NEAREST]


def _is_end(end: str, name: str) -> bool:
    return name.endswith("." + end)


def _hint(
    path: str, missing: Sequence[str], saved: Collection[str], keys: Collection[Any]
) -> Optional[str]:
    if _has_progress(missing) and not _has_progress(saved):
        parts = sorted({name.partition(".")[0] for name in saved})
        listed = ", ".join(f"{part!r}: ..." for part in parts[:_LISTED])
        more = ", ..." if len(parts) > _LISTED else ""
        return (
            "It was saved from a plain state dict, not from a TrainState. Load it into the parts "
            f"of one, sidestep.load({{{listed}{more}}}, checkpoint_id={path!r}), and set step and "
            "epoch of the TrainState by hand; what is saved from it then can be resumed from."
        )
    front = _front(missing, saved)
    if front is not None:
        return (
            f"It has all of them with '{front}.' in front: load {{'{front}': state}} instead of "
            "state."
        )
    front = _front(saved, missing)
    if front is not None:
        # A flat state has no part of that name.
        flat = f"{{name.removeprefix('{front}.'): value for name, value in state.items()}}"
        inner = f"state['{front}']" if front in keys else flat
        return (
            f"It has all that the state calls '{front}.' without that: load {inner} instead of "
            "state."
        )
    return _hint_of_wrappers(missing, saved)


def _hint_of_wrappers(missing: Sequence[str], saved: Collection[str]) -> Optional[str]:
    """Advice if the names differ only by what wrappers put in them, at any place."""
    for wrapper in _WRAPPERS:
        if all(name.replace(wrapper, "") in saved for name in missing):
            other = f"{{name.replace({wrapper!r}, ''): value for name, value in state.items()}}"
            return f"It has all of them without {wrapper!r}: load {other} instead of state."
        bare = {name.replace(wrapper, "") for name in saved}
        if len(bare) == len(saved) and bare.issuperset(missing):
            pattern = wrapper.replace(".", r"\.")
            return (
                f"It has all of them with {wrapper!r} inside, as a wrapped model is saved: save "
                f"the model without the wrapper, or rename them: sidestep convert --to=dcp "
                f"--rename='s/{pattern}//g' OLD NEW."
            )
    return None


def _has_progress(names: Collection[str]) -> bool:
    return any(name == _OF_TRAIN_STATE or _is_end(_OF_TRAIN_STATE, name) for name in names)


def _front(names: Collection[str], longer: Collection[str]) -> Optional[str]:
    """The common prefix of all ``names`` in ``longer``; None: there is none."""
    known = set(longer)
    first = next(iter(names), None)
    for candidate in longer if first is not None else ():
        if first is not None and _is_end(first, candidate):
            front = candidate[: -len(first) - 1]
            if all(f"{front}.{name}" in known for name in names):
                return front
    return None


def _shown(name: str) -> str:
    """A name in a form that can be printed."""
    return name if name.isprintable() and name else repr(name)
