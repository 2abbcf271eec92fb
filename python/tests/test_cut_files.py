# SPDX-License-Identifier: BSD-3-Clause
"""Tensors in memory of a mapped file that somebody cuts: before the call, or while it runs.

A load from such memory would be a SIGBUS, which ends the trainer.  Instead the save fails and names
the tensor, or it has every byte; the older checkpoint stays whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from scripts import Scripts

COMMON = """
import os, random, sys, threading, time
import torch
import sidestep

PATH = sys.argv[1]
OLDER = 1 << 18

def mapped(name, shape):
    count, size = shape["count"], shape["bytes"]
    with open(f"{PATH}/{name}", "wb") as file:
        file.write(bytes(count * size))
    options = {"size": count * size, "dtype": torch.uint8, "shared": shape["shared"]}
    whole = torch.from_file(f"{PATH}/{name}", **options)
    parts = [whole[i * size : (i + 1) * size] for i in range(count)]
    if shape["strided"]:
        parts = [part.view(-1, 64).T for part in parts]
    return {f"w{i}": part for i, part in enumerate(parts)}

def save(state, asynchronous):
    if asynchronous:
        sidestep.async_save(state, checkpoint_id=f"{PATH}/it").result()
    else:
        sidestep.save(state, checkpoint_id=f"{PATH}/it")

def check(value):
    found = {"x": torch.zeros(OLDER)}
    sidestep.load(found, checkpoint_id=f"{PATH}/it")
    assert (found["x"] == value).all()

save({"x": torch.full((OLDER,), 0.0)}, False)
"""

BEFORE = """
state = mapped("file", SHAPE)
os.truncate(f"{PATH}/file", 2 * SHAPE["bytes"] + 4096)
try:
    save({"x": torch.full((OLDER,), 1.0)} | state, ASYNCHRONOUS)
except sidestep.Error as error:
    assert " cut " in str(error) and int(error.tensor.removeprefix("w")) >= 2, error
    print("failed")
check(0)
"""

DURING = """
random.seed(0)
value = 0
for number in range(1, ROUNDS + 1):
    state = mapped(f"file-{number}", SHAPE)
    begins = threading.Barrier(2)
    def cut():
        begins.wait()
        time.sleep(random.random() * 0.02)
        os.truncate(f"{PATH}/file-{number}", 0)
    thread = threading.Thread(target=cut)
    thread.start()
    begins.wait()
    try:
        save({"x": torch.full((OLDER,), float(number))} | state, number % 2 == 0)
        value = number
    except sidestep.Error as error:
        assert " cut " in str(error) and error.tensor.startswith("w"), error
        print("failed")
    thread.join()
    check(value)
    os.unlink(f"{PATH}/file-{number}")
"""

SHAPES: dict[str, dict[str, Any]] = {
    "small": {"count": 400, "bytes": 8192, "shared": True, "strided": False},
    "large": {"count": 8, "bytes": 4 << 20, "shared": True, "strided": False},
    "private": {"count": 8, "bytes": 4 << 20, "shared": False, "strided": False},
    "strided": {"count": 16, "bytes": 1 << 20, "shared": True, "strided": True},
}
ROUNDS = 200 if os.environ.get("SIDESTEP_LONG") else 8


def run(scripts: Scripts, path: Path, code: str, snapshot: str, **constants: Any) -> str:
    """What it printed."""
    head = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
    script = scripts.start(head + COMMON + code, path, environment={"SIDESTEP_SNAPSHOT": snapshot})
    assert script.wait(300) == 0, script.output()
    return script.output()[0]


@pytest.mark.parametrize("snapshot", ["auto", "copy"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asynchronous"])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_cut_before_the_call(
    scripts: Scripts, tmp_path: Path, shape: str, asynchronous: bool, snapshot: str
) -> None:
    constants = {"SHAPE": SHAPES[shape], "ASYNCHRONOUS": asynchronous}
    assert run(scripts, tmp_path, BEFORE, snapshot, **constants) == "failed\n"


@pytest.mark.parametrize("snapshot", ["auto", "copy"])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_cut_while_it_is_saved(
    scripts: Scripts, tmp_path: Path, shape: str, snapshot: str
) -> None:
    """Whenever that is, the program ends by itself."""
    run(scripts, tmp_path, DURING, snapshot, SHAPE=SHAPES[shape], ROUNDS=ROUNDS)
