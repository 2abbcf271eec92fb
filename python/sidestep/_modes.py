# SPDX-License-Identifier: BSD-3-Clause
"""The guard of every public entry: inside, torch works as it does without the modes of the caller.

A caller may be inside of ``with torch.device("meta")``, of `torch.inference_mode`, of a mode of its
own, of `torch.func.vmap`, or of a function that `torch.compile` has compiled.  Each changes what
torch does on this thread, and so would change what a save reads and where a load puts values.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


class _Callers(threading.local):
    """What the guard of this thread has switched off, and the caller's functions may need."""

    inference = False


_callers = _Callers()


def without_modes(function: Function) -> Function:
    """``function``, run without the caller's modes.  `torch.compile` calls it and does not trace
    it.  Imports nothing; without torch there is nothing to do."""

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        torch = sys.modules.get("torch")
        if not hasattr(torch, "inference_mode"):  # or torch is just being imported
            return function(*args, **kwargs)
        with contextlib.ExitStack() as stack:
            _leave_modes(torch, stack)
            return function(*args, **kwargs)

    inside._torchdynamo_disable = True  # type: ignore[attr-defined]
    inside._torchdynamo_disable_msg = "it reads or writes files"  # type: ignore[attr-defined]
    _codes.add(cast(Any, inside).__code__)
    _tell_compiler()
    return cast(Function, inside)


@contextlib.contextmanager
def as_the_caller() -> Iterator[None]:
    """Around functions of the caller that write to its tensors: tensors that were made in inference
    mode can be written to only there."""
    if not _callers.inference:
        yield
        return
    import torch

    with torch.inference_mode():
        yield


_codes: set[Any] = set()  # of guards that torch.compile has not been told of


def _tell_compiler() -> None:
    """Tell `torch.compile` not to compile the guards, as soon as torch is imported."""
    dynamo = getattr(getattr(sys.modules.get("torch"), "_C", None), "_dynamo", None)
    skip = getattr(getattr(dynamo, "eval_frame", None), "skip_code", None)
    while skip is not None and _codes:
        skip(_codes.pop())


def _leave_modes(torch: Any, stack: contextlib.ExitStack) -> None:
    """Switch off what is on; ``stack`` switches it on again."""
    if _codes:
        _tell_compiler()
    if "torch._dynamo" in sys.modules:
        set_callback = torch._C._dynamo.eval_frame.set_eval_frame
        stack.callback(set_callback, set_callback(None))
    transforms = getattr(torch._C, "_functorch", None)
    if getattr(transforms, "peek_interpreter_stack", lambda: None)() is not None:
        from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

        stack.enter_context(temporarily_clear_interpreter_stack())
    early = getattr(torch._ops, "_len_torch_dispatch_stack_pre_dispatch", lambda: 0)
    if torch._C._len_torch_dispatch_stack() > 0 or early() > 0:
        from torch.utils._python_dispatch import _disable_current_modes

        stack.enter_context(_disable_current_modes())
    while torch._C._len_torch_function_stack() > 0:  # torch.device is one of them
        mode = torch._C._pop_torch_function_stack()
        stack.callback(torch._C._push_on_torch_function_stack, mode)
    if torch.is_inference_mode_enabled():
        stack.callback(setattr, _callers, "inference", _callers.inference)
        _callers.inference = True
        stack.enter_context(torch.inference_mode(False))
