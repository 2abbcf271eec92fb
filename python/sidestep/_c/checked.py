# SPDX-License-Identifier: BSD-3-Clause
"""Arguments of callers, checked in one way: a wrong type is a TypeError, a wrong value is a
ValueError, and the message begins with the name of the argument.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping
from enum import IntEnum
from numbers import Real
from typing import Any, Optional, TypeVar

from .calls import call
from .library import lib

_Word = TypeVar("_Word", bound=Optional[str])

MAX_STEP = (1 << 63) - 1
MAX_COUNT = (1 << 32) - 1


def is_url(path: str) -> bool:
    """Does ``path``, which `a_path` has checked, name a place in an object store?"""
    return path.startswith("s3://")


def absolute(path: str) -> str:
    """``os.path.abspath``, which leaves URLs as they are."""
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


def a_path(value: Any, argument: str) -> str:
    """``value`` as a path of a file system, or the URL of an object store.

    TypeError, ValueError: it is none.  `Error` (EUNSUPPORTED): a URL of another scheme.
    """
    try:
        path = os.fsdecode(value)
    except TypeError:
        raise TypeError(
            f"{argument}: a path is wanted (str, bytes or os.PathLike), not {_a(value)}"
        ) from None
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(f"{argument}={path!r} has a character that no path can have") from None
    if not data or b"\0" in data:
        raise ValueError(f"{argument}={path!r} {'has a NUL' if data else 'is empty'}")
    call(lib().sidestep_check_path, data)
    return path


def a_text(value: Any, argument: str) -> bytes:
    """A str as UTF-8.  TypeError; ValueError: it has a NUL or a surrogate."""
    if not isinstance(value, str):
        raise TypeError(f"{argument}: a str is wanted, not {_a(value)}")
    try:
        data = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = b"\0"
    if b"\0" in data:
        raise ValueError(f"{argument}={value!r} has a NUL or a surrogate")
    return data


def some_texts(values: Any, argument: str) -> list[bytes]:
    """Several str as UTF-8.  TypeError: also for a single str."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{argument}: a list of str is wanted, not {_a(values)}")
    return [a_text(value, argument) for value in values]


def a_count(value: Any, argument: str, *, least: int = 0, most: int = MAX_COUNT) -> int:
    """An integer, also of NumPy or torch.  TypeError; ValueError: it is not in ``least..most``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}: an integer is wanted, not {_a(value)}") from None
    if number < least:
        wrong = "negative" if least == 0 else f"less than {least}"
        raise ValueError(f"{argument}={number} is {wrong}")
    if number > most:
        raise ValueError(f"{argument}={number} is more than {most}")
    return number


def a_step(value: Any, *, least: int = 0) -> int:
    """The number of a training step."""
    return a_count(value, "step", least=least, most=MAX_STEP)


def a_number(value: Any, argument: str) -> float:
    """A non-negative number or infinity.  TypeError, ValueError."""
    if not isinstance(value, Real):
        raise TypeError(f"{argument}: a number is wanted, not {_a(value)}")
    number = float(value)
    if math.isnan(number) or number < 0:
        raise ValueError(f"{argument}={value!r} is {'negative' if number < 0 else 'no number'}")
    return number


def a_flag(value: Any, argument: str) -> bool:
    """True or False.  TypeError: it is neither."""
    if not isinstance(value, bool):
        raise TypeError(f"{argument}: True or False is wanted, not {_a(value)}")
    return value


def one_of(argument: str, word: _Word, words: Iterable[Optional[str]]) -> _Word:
    """``word``, if it is one of ``words``; else ValueError."""
    known = list(words)
    if word not in known:
        raise ValueError(f"{argument}={word!r} is none of: {', '.join(map(str, known))}")
    return word


def words_of(kind: type[IntEnum], prefix: str) -> dict[str, int]:
    """The members of an enum by the words of users: (Io, "IO_") makes {"auto": Io.IO_AUTO, ...}."""
    return {item.name.removeprefix(prefix).lower(): int(item) for item in kind}


def a_function(value: Any, argument: str) -> None:
    """None or a callable; else TypeError."""
    if value is not None and not callable(value):
        raise TypeError(f"{argument}: a function is wanted, not {_a(value)}")


def metrics_of(values: Any) -> list[tuple[bytes, float]]:
    """Names and numbers of a checkpoint's metrics.  TypeError, ValueError."""
    if not isinstance(values, Mapping):
        raise TypeError(f"metrics: names and numbers are wanted, not {_a(values)}")
    found = []
    for name, value in values.items():
        text = a_text(name, "metrics: a name")
        try:
            found.append((text, float(value)))
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"metrics[{name!r}]: a number is wanted, not {_a(value)}") from None
    return found


def a_state(value: Any, argument: str = "state_dict") -> None:
    """A state dict for a save or load; TypeError if it is none."""
    if hasattr(value, "keys") and hasattr(value, "items") and not isinstance(value, type):
        return
    hint = ""
    if hasattr(value, "state_dict"):
        hint = '; give it a name, as in {"model": model}'
    raise TypeError(f"{argument}: a dict of names and values is wanted, not {_a(value)}{hint}")


def _a(value: object) -> str:
    """A value's type in words: "a Tensor", "an int", "None"."""
    if value is None:
        return "None"
    name = type(value).__qualname__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
