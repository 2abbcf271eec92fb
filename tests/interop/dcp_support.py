# SPDX-License-Identifier: BSD-3-Clause
"""What the tests against stock torch share: our programs, the bytes of tensors, groups of ranks.

build/tests/world_tool (or $WORLD_TOOL) is our side, see tests/tools/world_tool.c; build/sidestep
(or $SIDESTEP) the command line.  Nothing here is a test.
"""

import ctypes
import json
import multiprocessing
import os
import pathlib
import queue
import struct
import subprocess
import tempfile
import traceback

import numpy
import pytest

torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORLD_TOOL = os.environ.get("WORLD_TOOL", str(ROOT / "build" / "tests" / "world_tool"))
SIDESTEP = os.environ.get("SIDESTEP", str(ROOT / "build" / "sidestep"))

for _program in (WORLD_TOOL, SIDESTEP):
    if not os.access(_program, os.X_OK):
        pytest.skip(f"{_program} is not built", allow_module_level=True)

# Of SIDESTEP_DTYPE_MAP, with bytes per element.
DTYPES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "bool": 1, "uint16": 2, "uint32": 4,
    "uint64": 8, "complex32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1, "bits8": 1, "bits1x8": 1,
    "bits2x4": 1, "bits4x2": 1, "bits16": 2, "bcomplex32": 4,
}  # fmt: skip
# This torch's.  At most one is missing: world_tool can leave out one.
HERE = {name: size for name, size in DTYPES.items() if hasattr(torch, name)}
NEWER = "".join(name for name in DTYPES if name not in HERE)


# ------------------------------------------------------------------ our side


def run(program, *args):
    return subprocess.run([program, *map(str, args)], capture_output=True, check=False, timeout=300)


def ok(program, *args):
    done = run(program, *args)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def fails(program, *args):
    """(exit status, what it said)"""
    done = run(program, *args)
    assert done.returncode != 0
    return done.returncode, (done.stdout + done.stderr).decode()


def save_world(path, ranks, layout, scale, seed):
    ok(WORLD_TOOL, "save", path, ranks, layout, scale, seed)


def verify(path):
    """Our verdict: it must be good."""
    answer = json.loads(ok(SIDESTEP, "verify", "--json", path))
    assert answer["ok"] and answer["problems"] == []
    return answer


class Opaque(str):
    """A value that was not decoded, by its description."""


def value_of(document):
    """The reverse of support/value_json.c."""
    if isinstance(document, list):
        return [value_of(item) for item in document]
    if not isinstance(document, dict):
        return document
    ((tag, content),) = document.items()
    if tag == "f":
        return struct.unpack(">d", bytes.fromhex(content))[0]
    if tag == "t":
        return tuple(value_of(item) for item in content)
    if tag == "d":
        items = [value_of(item) for item in content]
        return dict(zip(items[::2], items[1::2]))
    content = bytes.fromhex(content)
    if tag == "b":
        return content
    return content.decode() if tag == "s" else Opaque(content.decode())


class Dump:
    """What we read in a checkpoint: tensors are (dtype, shape, bytes)."""

    def __init__(self, path):
        with tempfile.TemporaryDirectory() as folder:
            ok(WORLD_TOOL, "dump", path, folder)
            index = json.loads(pathlib.Path(folder, "index.json").read_text())
            self.format = index["format"]
            self.save_id = index["save_id"]
            self.tensors = {}
            self.objects = {}
            self.chunks = {}
            for entry in index["entries"]:
                name = value_of(entry["name"])
                if "value" in entry:
                    self.objects[name] = value_of(entry["value"])
                    continue
                data = pathlib.Path(folder, entry["file"]).read_bytes()
                self.tensors[name] = (entry["dtype"], tuple(entry["shape"]), data)
                self.chunks[name] = [tuple(map(tuple, chunk)) for chunk in entry["chunks"]]


# ------------------------------------------------------------------ bytes of tensors


def dtype_name(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def raw(tensor):
    """The elements, row-major, as bytes."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def described(tensor):
    """As Dump has it."""
    return (dtype_name(tensor), tuple(tensor.shape), raw(tensor))


def from_raw(name, shape, data):
    """A row-major tensor of these bytes."""
    tensor = torch.empty(shape, dtype=getattr(torch, name))
    assert tensor.numel() * tensor.element_size() == len(data)
    ctypes.memmove(tensor.data_ptr(), data, len(data))
    return tensor


def pattern(name, size):
    """What world_tool sample puts into the tensor ${name}."""
    start = sum(name.encode())
    data = (numpy.arange(size, dtype=numpy.int64) * 37 + start).astype(numpy.uint8)
    return (data & 1 if name.split(".")[1:2] == ["bool"] else data).tobytes()


# ------------------------------------------------------------------ support/world.h

WORLD = {  # name: (dtype, shape, whether the first dimension is scaled)
    "model.embed.weight": ("float32", (257, 96), True),
    "model.layers.0.weight": ("bfloat16", (64, 33), False),
    "model.layers.0.bias": ("float16", (7,), False),
    "model.layers.1.weight": ("float8_e4m3fn", (5, 9, 11), False),
    "model.head.weight": ("float32", (300, 64), True),
    "optim.step": ("int64", (), False),
    "optim.exp_avg": ("float64", (6, 5, 3, 2), False),
    "optim.complex": ("complex128", (4, 3), False),
    "mask": ("bool", (90, 70), False),
    "empty": ("uint16", (0, 4), False),
    "two_rows": ("uint32", (2, 5), False),
    "packed": ("float4_e2m1fn_x2", (40,), False),
}


def world_path(name):
    """Where it lies in the nested state dict."""
    return ("model", name[6:]) if name.startswith("model.") else (name,)


def mix(x):
    with numpy.errstate(over="ignore"):
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def world_tensor(name, scale, seed):
    number = list(WORLD).index(name)
    dtype, shape, scaled = WORLD[name]
    if scaled:
        shape = (shape[0] * scale, *shape[1:])
    count = int(numpy.prod(shape))
    base = numpy.uint64(seed * 1000003 + number * 7919 + 1)
    words = base + numpy.arange(count, dtype=numpy.uint64)[:, None] * numpy.uint64(31)
    words = mix(words + numpy.arange(2, dtype=numpy.uint64))
    data = words.view(numpy.uint8).reshape(count, 16)[:, : DTYPES[dtype]].copy()
    if dtype == "bool":
        data &= 1
    return from_raw(dtype, shape, data.tobytes())


def world(scale, seed):
    """What world_tool save saves: by name, flat."""
    return {name: world_tensor(name, scale, seed) for name in WORLD}


def world_config(seed):
    return {"step": seed, "lr": 1.0 / (seed + 3)}


def nested(flat):
    """A world by its paths."""
    root = {}
    for name, value in flat.items():
        *folders, last = world_path(name)
        branch = root
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[last] = value
    return root


# ------------------------------------------------------------------ ranks


def _rank_main(rank, size, meeting, function, args, results):
    import torch.distributed as dist

    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
        answer = function(*args)
        dist.barrier()
        dist.destroy_process_group()
        results.put((rank, None, answer))
    except BaseException:  # whatever it is, the test has to tell it
        results.put((rank, traceback.format_exc(), None))


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["torch", "torch.distributed.checkpoint", "torch.distributed.tensor", "numpy", "pytest"]
)


def _answers(processes, results):
    answers = {}
    while len(answers) < len(processes):
        dead = [process.exitcode for process in processes if process.exitcode]
        try:
            rank, error, answer = results.get(timeout=0.5)
        except queue.Empty:
            assert not dead, f"a rank died: {dead}"
            continue
        assert error is None, f"rank {rank}: {error}"
        answers[rank] = answer
    return [answers[rank] for rank in range(len(processes))]


def on_ranks(size, function, *args):
    """Run function(*args) on ${size} gloo ranks; what each returned.  ${function} is a module's."""
    results = _context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        processes = [
            _context.Process(
                target=_rank_main, args=(rank, size, meeting, function, args, results), daemon=True
            )
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        try:
            return _answers(processes, results)
        finally:
            for process in processes:
                process.kill()  # after an error the others wait for ever
                process.join()
