# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints that versions 0.1.0 and 0.2.0 ("files") wrote: every later one loads and verifies
them, and stock torch loads those that it can.

tests/golden/sidestep-1 has them.  A new version of the format adds a folder.  A new form adds a
checkpoint; those that are there are not made anew.  They were made by: PYTHONPATH=python SIDESTEP_LIBRARY=... python tests/interop/test_golden.py
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from dcp_support import ROOT, SIDESTEP, torch

import torch.distributed.checkpoint as dcp

pytestmark = pytest.mark.filterwarnings("ignore")

GOLDEN = ROOT / "tests" / "golden" / "sidestep-1"
# What is there, and which options of a conversion made it of "plain".
FORMS = {
    "plain": None,
    "zstd": ["--compress=zstd"],
    "planes": ["--compress=planes"],
    "two-ranks": ["--ranks=2"],
    "files": None,  # the same, with FILES
}
FILES = {"trainer_state.json": b'{"step": 12}\n', "tokenizer/vocab.txt": b"a b c", "empty": b""}


def state():
    """The same in all of them."""
    weights = torch.arange(4096, dtype=torch.float32).reshape(64, 64) / 64
    return {
        "model": {
            "w": weights,
            "b": weights[0].to(torch.bfloat16),
            "scalar": torch.tensor(-7),
            "empty": torch.empty(0, 3),
            "mask": torch.arange(12).reshape(3, 4) % 2 == 0,
        },
        "optim": {"state": {0: {"m": torch.full((64, 64), 0.5), "step": 12}}, "lr": 1e-3},
        "list": [torch.arange(5, dtype=torch.int8), {"name": "golden"}],
        "epoch": 3,
    }


def leaves(value, path=()):
    """{path: tensor or object}."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return {path: value}
    return {p: leaf for k, v in items for p, leaf in leaves(v, (*path, str(k))).items()}


def same(got, want):
    got, want = leaves(got), leaves(want)
    assert got.keys() == want.keys()
    for path, leaf in want.items():
        if isinstance(leaf, torch.Tensor):
            assert got[path].dtype == leaf.dtype and torch.equal(got[path], leaf), path
        else:
            assert got[path] == leaf and type(got[path]) is type(leaf), path


def blank(value):
    """The same nesting, with nothing in it."""
    if isinstance(value, dict):
        return {key: blank(item) for key, item in value.items()}
    if isinstance(value, list):
        return [blank(item) for item in value]
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else None


@pytest.mark.parametrize("form", FORMS)
def test_ours_verifies_and_converts(form, tmp_path):
    done = subprocess.run([SIDESTEP, "--json", "verify", GOLDEN / form], capture_output=True)
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    files = sum(file.stat().st_size for file in (GOLDEN / form).rglob("*") if file.is_file())
    assert report["ok"] and report["checked_bytes"] == files
    shown = json.loads(subprocess.check_output([SIDESTEP, "--json", "show", GOLDEN / form]))
    assert shown["format"] == "sidestep" and shown["step"] == 12
    assert shown["world_size"] == (2 if form == "two-ranks" else 1)
    target = tmp_path / "all.pt"
    subprocess.run([SIDESTEP, "convert", GOLDEN / form, target], check=True, capture_output=True)
    same(torch.load(target, weights_only=True), state())
    assert {file["name"] for file in shown["files"]} == (set(FILES) if form == "files" else set())


@pytest.mark.parametrize("name", FILES)
def test_small_files(name, tmp_path):
    whole = subprocess.run([SIDESTEP, "cat", "--file", GOLDEN / "files", name], capture_output=True)
    assert (whole.returncode, whole.stdout) == (0, FILES[name])
    copy = tmp_path / "copy"
    shutil.copytree(GOLDEN / "files", copy)
    os.chmod(copy / name, 0o644)
    (copy / name).write_bytes(FILES[name] + b"x")
    assert subprocess.run([SIDESTEP, "verify", copy], capture_output=True).returncode == 3


def test_ours_loads_in_python():
    """One fresh interpreter for all forms: it takes seconds to import torch."""
    code = (
        "import sys; sys.path.insert(0, 'tests/interop'); import test_golden as t, sidestep\n"
        "for form in t.FORMS:\n"
        "    print(form, flush=True)\n"
        "    path = str(t.GOLDEN / form)\n"
        "    t.same(sidestep.read(path), t.state())\n"
        "    into = t.blank(t.state()); sidestep.load(into, checkpoint_id=path)\n"
        "    t.same(into, t.state())\n"
    )
    library = pathlib.Path(SIDESTEP).parent / "libsidestep.so.0"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        "SIDESTEP_LIBRARY": str(library),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == list(FORMS)


@pytest.mark.parametrize("form", ["plain", "zstd", "two-ranks", "files"])
def test_stock_torch_loads(form):
    into = blank(state())
    dcp.load(into, storage_reader=dcp.FileSystemReader(GOLDEN / form))
    same(into, state())


def test_one_flipped_bit_is_found(tmp_path):
    """The tests above do look at bytes."""
    copy = tmp_path / "copy"
    shutil.copytree(GOLDEN / "plain", copy)
    shard = copy / "__0_0.distcp"
    data = bytearray(shard.read_bytes())
    data[data.index(torch.full((64,), 0.5).numpy().tobytes())] ^= 1
    os.chmod(shard, 0o644)
    shard.write_bytes(data)
    assert subprocess.run([SIDESTEP, "verify", copy], capture_output=True).returncode == 3


def make():
    import sidestep

    plain = GOLDEN / "plain"
    for form, options in FORMS.items():
        if (GOLDEN / form).exists():
            continue
        if form == "files":
            sidestep.save(
                state(), storage_writer=sidestep.Writer(GOLDEN / form, step=12), files=FILES
            )
        elif options is None:
            sidestep.save(state(), storage_writer=sidestep.Writer(plain, step=12))
        else:
            subprocess.run(
                [SIDESTEP, "convert", "--to=dcp", *options, plain, GOLDEN / form], check=True
            )


if __name__ == "__main__":
    pathlib.Path(GOLDEN).mkdir(parents=True, exist_ok=True)
    make()
