# SPDX-License-Identifier: BSD-3-Clause
"""Runs inside a system that has only Python: the installed wheel, without torch.

try_wheel.py FOLDER GOLDEN: saves a tensor into FOLDER, at once and in the background, loads both, and
runs the command line on them and on the checkpoints in GOLDEN.  FOLDER may be s3://BUCKET/PREFIX.
"""

import ctypes
import os
import subprocess
import sys

from sidestep._c import abi
from sidestep._c.library import lib

COUNT = 1 << 18


def call(name, *arguments):
    """Call a function that may fail."""
    err = abi.ErrorInfo()
    if getattr(lib(), name)(*arguments, ctypes.byref(err)) != 0:
        sys.exit(f"{name}: {err.message.decode()}")


def state_of(memory, step):
    tensor = abi.Tensor()
    shape = (ctypes.c_int64 * 1)(COUNT)
    tensor.name, tensor.dtype, tensor.ndim = b"model.weight", abi.Dtype.FLOAT32, 1
    tensor.shape, tensor.data = shape, ctypes.addressof(memory)
    state = ctypes.c_void_p()
    call("sidestep_state_dict_new", ctypes.byref(state))
    call("sidestep_state_dict_add_tensor", state, ctypes.byref(tensor))
    value = lib().sidestep_value_int(step) if step is not None else None
    call("sidestep_state_dict_add_value", state, b"step", None, 0, value)
    return state


def save_and_load(engine, place, in_background):
    weight = (ctypes.c_float * COUNT)(*range(COUNT))
    state = state_of(weight, 7)
    if in_background:
        handle = ctypes.c_void_p()
        call("sidestep_save_async", engine, place.encode(), state, None, ctypes.byref(handle))
        call("sidestep_save_wait", handle, abi.SaveState.SAVE_COMMITTED, -1)
    else:
        call("sidestep_save", engine, place.encode(), state, None, None)
    loaded = (ctypes.c_float * COUNT)()
    state = state_of(loaded, None)
    call("sidestep_load", engine, place.encode(), state, None, None)
    assert bytes(loaded) == bytes(weight), "the loaded tensor differs"


def run(*words):
    done = subprocess.run(
        ["sidestep", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        sys.exit(f"sidestep {' '.join(words)}: {done.returncode}\n{done.stdout}")
    return done.stdout


def main():
    folder, golden = sys.argv[1:]
    if "://" not in folder:
        os.mkdir(folder)
    engine = ctypes.c_void_p()
    call("sidestep_engine_open", ctypes.byref(engine), None)
    for name, in_background in (("at-once", False), ("in-background", True)):
        place = f"{folder}/{name}"
        save_and_load(engine, place, in_background)
        run("verify", place)
    call("sidestep_engine_close", ctypes.byref(engine))
    for name in sorted(os.listdir(golden)):
        run("verify", os.path.join(golden, name))
    run("version")
    run("doctor", folder)
    print(f"Python {sys.version.split()[0]}: saved, loaded and verified in {folder}")


main()
