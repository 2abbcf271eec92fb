# SPDX-License-Identifier: BSD-3-Clause
"""Errors of the library as exceptions, with torch and without, and exceptions as its errors."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import errno
import os
import pickle
import subprocess
import sys
import textwrap

import pytest

from sidestep._c import errors as _errors
from sidestep._c.abi import ErrorInfo, Status
from sidestep._c.errors import Error, check, error_info, error_of, make_error, status_of

WORDS = b"save 'ckpt/step-12': tensor 'model.weight': write '__3_0.distcp': No space left on device"


def an_info(**changes: object) -> ErrorInfo:
    fields = {"status": 4, "sys_errno": 28, "rank": 3, "where": b"data.c:11", "message": WORDS}
    return ErrorInfo(**{**fields, **changes})


def without_torch(text: str) -> str:
    """What a program prints that never imports torch."""
    program = textwrap.dedent(text) + "\nimport sys\nassert 'torch' not in sys.modules\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ok_raises_nothing() -> None:
    check(0, ErrorInfo(status=5, message=b"left over"))


def test_what_an_error_tells() -> None:
    with pytest.raises(Error) as caught:
        check(4, an_info())
    error = caught.value
    assert error.status is Status.ENOSPC
    assert error.errno == errno.ENOSPC
    assert error.rank == 3
    assert error.tensor == "model.weight"
    assert error.file == "__3_0.distcp"
    assert error.where == "data.c:11"
    assert error.message == WORDS.decode()
    assert str(error) == WORDS.decode() + " [ENOSPC, rank 3, data.c:11]"


def test_no_rank_is_this_one() -> None:
    error = error_of(1, an_info(rank=-1, sys_errno=0, where=b"", message=b"no name"), rank=7)
    assert error.rank is None
    assert error.tensor is None
    assert error.file is None
    assert str(error) == "no name [EINVAL]"
    assert list(error.failures) == [7]


def test_an_errno_that_is_not_the_status() -> None:
    error = error_of(3, an_info(status=3, sys_errno=errno.EREMOTEIO, message=b"read"))
    assert str(error) == "read [EIO, EREMOTEIO, rank 3, data.c:11]"


def test_no_message_and_a_status_of_the_future() -> None:
    error = error_of(99, ErrorInfo(status=99, rank=-1))
    assert error.status is Status.EINVAL
    assert "status 99" in error.message


def test_bytes_that_are_no_text() -> None:
    assert "\ufffd" in error_of(3, an_info(message=b"open '\xff\xfe'")).message


@pytest.mark.parametrize(
    "message, tensor, file",
    [
        ("'a.b': strides put the shard outside of memory", "a.b", None),
        ("save 'runs/7': 'a.b': boxes of several ranks overlap", "a.b", None),
        ("'__0_0.distcp': a size of 7 bytes", None, "__0_0.distcp"),
        ("save 'x': rank 0 aborted it", None, None),
        ("load 'c': tensor 'a.b': chunks overlap", "a.b", None),
        ("object 'step': two ranks list it", "step", None),
        ("open '.metadata': not a regular file", None, ".metadata"),
        ("read 4096 bytes at 0 of 'x/__0_0.distcp': file ends", None, "x/__0_0.distcp"),
        ("ranks disagree", None, None),
    ],
)
def test_what_a_message_is_about(message: str, tensor: str | None, file: str | None) -> None:
    error = error_of(3, an_info(message=message.encode()))
    assert (error.tensor, error.file) == (tensor, file)


# ---------------------------------------------------------------- with torch


def test_one_error_for_three_handlers() -> None:
    from torch.distributed.checkpoint.api import CheckpointException

    caught = []
    for kind in (Error, CheckpointException, Exception):
        try:
            check(4, an_info())
        except kind as error:
            caught.append(error)
    assert len(caught) == 3
    assert type(caught[0]).__name__ == "Error"
    assert type(caught[0]) is type(caught[1])
    assert [c.__name__ for c in type(caught[0]).__mro__] == [
        "Error",
        "Error",
        "Exception",
        "CheckpointException",
        "BaseException",
        "object",
    ]


def test_failures_as_stock_has_them() -> None:
    import torch  # noqa: F401
    from torch.distributed.checkpoint.api import _is_wrapped_exception

    error = error_of(4, an_info())
    assert list(error.failures) == [3]
    assert all(_is_wrapped_exception(pair) for pair in error.failures.values())
    reason, stack = error.failures[3]
    assert str(reason) == str(error)
    assert stack[-1].name == "error_of" or stack
    theirs = {0: _wrapped(ValueError("a")), 5: _wrapped(KeyError("b"))}
    with pytest.raises(Error) as caught:
        raise make_error("x", failures=theirs)
    assert caught.value.failures == theirs
    # stock's own text for it can be made of it, and ours is what is printed
    assert "CheckpointException ranks:" not in str(caught.value)


def _wrapped(exception: BaseException) -> object:
    from torch.distributed.checkpoint.api import _wrap_exception

    return _wrap_exception(exception)


def same(a: Error, b: Error) -> bool:
    names = ("message", "status", "errno", "rank", "tensor", "file", "where")
    return str(a) == str(b) and all(getattr(a, name) == getattr(b, name) for name in names)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol: int) -> None:
    import torch  # noqa: F401
    from torch.distributed.checkpoint.api import CheckpointException

    class Local(Exception):
        """Cannot be pickled."""

    failures = {1: _wrapped(Local("local words")), 2: _wrapped(ValueError("plain"))}
    error = make_error("x", status=Status.ENOSPC, failures=failures)
    again = pickle.loads(pickle.dumps(error, protocol))
    assert same(error, again)
    assert isinstance(again, CheckpointException)
    assert again.status is Status.ENOSPC
    assert list(again.failures) == [1, 2]
    assert "Local: local words" in str(again.failures[1][0])
    assert type(again.failures[2][0]) is ValueError
    assert same(copy.deepcopy(error), error)


def test_pickled_with_torch_and_read_without() -> None:
    import torch  # noqa: F401

    data = pickle.dumps(error_of(4, an_info()))
    printed = without_torch(f"""
        import pickle
        error = pickle.loads({data!r})
        print([c.__name__ for c in type(error).__mro__], error.status.name, list(error.failures))
    """)
    assert printed == "['Error', 'Exception', 'BaseException', 'object'] ENOSPC [3]\n"


def test_without_torch() -> None:
    printed = without_torch("""
        from sidestep._c.abi import ErrorInfo
        from sidestep._c.errors import Error, check
        try:
            check(3, ErrorInfo(status=3, rank=1, message=b"words"))
        except Error as error:
            print(type(error) is Error, error, list(error.failures))
    """)
    assert printed == "True words [EIO, rank 1] [1]\n"


def test_a_torch_without_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch  # noqa: F401

    _errors.torch_error_class.cache_clear()
    monkeypatch.setitem(sys.modules, "torch.distributed.checkpoint.api", None)
    assert type(make_error("words", status=Status.EIO)) is Error


# ---------------------------------------------------------------- the other way


class OutOfMemoryError(RuntimeError):
    """As torch has it."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "exception, status",
    [
        (MemoryError(), Status.ENOMEM),
        (OutOfMemoryError("CUDA out of memory"), Status.ENOMEM),
        (KeyboardInterrupt(), Status.ECANCELLED),
        (SystemExit(1), Status.ECANCELLED),
        (asyncio.CancelledError(), Status.ECANCELLED),
        (concurrent.futures.CancelledError(), Status.ECANCELLED),
        (TimeoutError("late"), Status.ETIMEDOUT),
        (concurrent.futures.TimeoutError(), Status.ETIMEDOUT),
        (FileNotFoundError(2, "gone"), Status.ENOTFOUND),
        (FileExistsError(17, "there"), Status.EEXISTS),
        (PermissionError(13, "no"), Status.EPERM),
        (OSError(errno.EROFS, "no"), Status.EPERM),
        (NotADirectoryError(errno.ENOTDIR, "no"), Status.ENOTFOUND),
        (OSError(errno.ENAMETOOLONG, "no"), Status.EINVAL),
        (OSError(errno.ELOOP, "no"), Status.EUNSAFE),
        (OSError(errno.ENOSPC, "full"), Status.ENOSPC),
        (OSError(errno.EDQUOT, "full"), Status.ENOSPC),
        (OSError(errno.EREMOTEIO, "broken"), Status.EIO),
        (OSError("just words"), Status.EIO),
        (NotImplementedError("x"), Status.EUNSUPPORTED),
        (ValueError("sparse"), Status.EINVAL),
        (KeyError("k"), Status.EINVAL),
        (AttributeError("k"), Status.EINVAL),
        (RuntimeError("of the user's state_dict()"), Status.EPEER),
        (Unprintable(), Status.EPEER),
        (Error("words", status=Status.ECORRUPT), Status.ECORRUPT),
    ],
)
def test_status_of_exceptions(exception: BaseException, status: Status) -> None:
    assert status_of(exception) is status
    info = error_info(exception)
    assert info.status == status
    assert info.message
    if not isinstance(exception, Error):
        assert info.message.decode().startswith(type(exception).__name__)


def test_words_and_errno_go_along() -> None:
    info = error_info(OSError(errno.ENOSPC, "No space", "/data/x"))
    assert info.sys_errno == errno.ENOSPC
    assert info.message == b"OSError: [Errno 28] No space: '/data/x'"
    assert info.rank == -1
    assert error_info(ValueError("tensor 'a' is sparse")).message == (
        b"ValueError: tensor 'a' is sparse"
    )


def test_what_the_library_says_itself_is_not_carried() -> None:
    """It puts "save 'x'" in front of the words on every rank."""
    assert error_info(Error("save 'x': words"), "save 'x'").message == b"words"
    assert error_info(Error("save 'y': words"), "save 'x'").message == b"save 'y': words"


def test_there_and_back() -> None:
    error = error_of(4, an_info())
    info = error_info(error)
    assert bytes(info) == bytes(an_info())
    assert same(error_of(info.status, info), error)


def test_too_long_a_message_is_cut_between_characters() -> None:
    size = ErrorInfo.message.size
    for pad in range(4):
        info = error_info(ValueError("x" * pad + "\U0001f409" * 1000))
        assert size - 5 < len(info.message) < size
        info.message.decode("utf-8")


def test_text_that_c_cannot_hold() -> None:
    assert error_info(ValueError("a\0b")).message == b"ValueError: a\\0b"
    assert error_info(ValueError("a\udc80")).message == b"ValueError: a\\udc80"


def test_an_error_without_status_is_a_failure_still() -> None:
    assert error_info(Error("words", status=Status.OK)).status != 0
