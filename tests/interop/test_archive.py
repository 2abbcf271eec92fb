# SPDX-License-Identifier: BSD-3-Clause
"""Archives of tensors and objects, ours against torch's, both ways.

build/tests/archive_tool (or $ARCHIVE_TOOL) is our side; see tests/tools/archive_tool.c.
"""

import io
import os
import pathlib
import struct
import subprocess
import zipfile

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("ARCHIVE_TOOL", str(ROOT / "build" / "tests" / "archive_tool"))

if not os.access(TOOL, os.X_OK):
    pytest.skip(f"{TOOL} is not built", allow_module_level=True)
if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 7):
    pytest.skip("torch < 2.7 writes archives without an alignment record", allow_module_level=True)

DTYPES = [
    name
    for name in (
        "float64 float32 float16 bfloat16 complex64 complex128 int8 int16 int32 int64 uint8 bool "
        "uint16 uint32 uint64 complex32 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
        "float8_e8m0fnu float4_e2m1fn_x2 bits8 bits1x8 bits2x4 bits4x2 bits16 bcomplex32"
    ).split()
    if hasattr(torch, name)
]

SHAPES = [
    (),
    (0,),
    (1,),
    (7,),
    (0, 3),
    (3, 0, 2),
    (2, 3),
    (1, 1, 1),
    (2, 3, 4),
    (2, 1, 3, 2),
    (1, 2, 1, 2, 1, 2),
    (300, 2),
    (70000,),
]


def run(*args, data=b""):
    return subprocess.run([TOOL, *args], input=data, capture_output=True, check=False)


def ok(*args, data=b""):
    done = run(*args, data=data)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def save(value):
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def item_bytes(dtype):
    return torch.empty((), dtype=dtype).untyped_storage().nbytes()


def pattern(n):
    return bytes((i * 37 + 11) & 0xFF for i in range(n))


def make(dtype, shape, data):
    """A contiguous tensor over these bytes."""
    tensor = torch.empty(shape, dtype=dtype)
    assert tensor.untyped_storage().nbytes() == len(data)
    if data:
        plain = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        tensor.untyped_storage().copy_(plain.untyped_storage())
    return tensor


def volume(shape):
    n = 1
    for length in shape:
        n *= length
    return n


def dims(shape):
    return ",".join(str(n) for n in shape)


@pytest.mark.parametrize("name", DTYPES)
def test_written_as_torch_writes(name):
    dtype = getattr(torch, name)
    for shape in SHAPES:
        size = volume(shape) * item_bytes(dtype)
        data = bytes(i & 1 for i in range(size)) if name == "bool" else pattern(size)
        ours = ok("tensor", name, dims(shape), data=data)
        assert ours == save(make(dtype, shape, data)), shape
        ok("check", data=ours)
        loaded = torch.load(io.BytesIO(ours), weights_only=True)
        assert loaded.dtype == dtype and tuple(loaded.shape) == shape
        assert bytes(loaded.untyped_storage()) == data


def test_data_that_looks_like_a_descriptor():
    """torch takes such data for a descriptor and hashes it into the serialization id."""
    for data in (
        b"PK\x07\x08\x01\x02\x03\x04rest",
        b"PK\x07\x08\x01\x02\x03\x04",
        b"PK\x07\x08\x01\x02\x03",
    ):
        ours = ok("tensor", "uint8", str(len(data)), data=data)
        assert ours == save(make(torch.uint8, (len(data),), data))


def test_many_dimensions_and_long_numbers():
    for shape in ((1,) * 64, (2,) + (1,) * 20, (1 << 31, 0), (0, 1 << 31), (1 << 40, 0, 3)):
        data = pattern(volume(shape))
        assert ok("tensor", "uint8", dims(shape), data=data) == save(
            make(torch.uint8, shape, data)
        ), shape


@pytest.mark.parametrize("name", ["float32", "uint16"])
def test_zip64(tmp_path, name):
    """More than 4 GiB, all of it a hole: read by zipfile and by torch."""
    path = tmp_path / "large"
    count = (1 << 32) // item_bytes(getattr(torch, name)) + 25
    done = run("sparse", name, str(count), str(path))
    assert done.returncode == 0, done.stderr.decode()
    if path.stat().st_blocks * 512 > 1 << 24:
        pytest.skip("the file system has no sparse files")
    with zipfile.ZipFile(path) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        assert infos["archive/data/0"].file_size == count * item_bytes(getattr(torch, name))
        assert archive.read("archive/version") == b"3\n"
        assert infos["archive/version"].header_offset > 1 << 32
    loaded = torch.load(path, mmap=True, weights_only=True)
    assert tuple(loaded.shape) == (count,)


def parse(line):
    """The first line of `archive_tool read`: its fields and its flags."""
    words = line.split()
    fields = dict(word.split("=") for word in words if "=" in word)
    return fields, {word for word in words if "=" not in word}


def read(archive):
    line, data = ok("read", data=archive).decode().split("\n")[:2]
    return *parse(line), bytes.fromhex(data)


def plain(tensor):
    """The bytes that a reader should end up with."""
    tensor = tensor.resolve_conj().resolve_neg().contiguous().clone()
    return bytes(tensor.untyped_storage())


def compact(tensor):
    """As the DCP writer does: a storage of its own where the tensor's is larger."""
    size = tensor.numel() * tensor.element_size()
    return tensor.clone() if tensor.untyped_storage().nbytes() != size else tensor


def odd_tensors():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    z = torch.complex(base + 1, base + 0.5)  # no zero: torch's complex negation loses its sign
    yield "transposed", base.t(), set()
    yield "channels last", torch.arange(120.0).reshape(1, 5, 4, 6).to(
        memory_format=torch.channels_last
    ), set()
    yield "permuted", torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1), set()
    yield "slice", base[1:3, 2:5], set()
    yield "column", base[:, 3], set()
    yield "expanded", torch.tensor([1.5, 2.5]).expand(3, 2), set()
    yield "expanded scalar", torch.tensor(7).expand(2, 5), set()
    yield "end of a storage", base.reshape(-1)[24:], set()
    yield "conj", z.conj(), {"conj"}
    yield "conj of a transposed", z.t().conj(), {"conj"}
    yield "neg", torch._neg_view(base), {"neg"}
    yield "imaginary part of a conj", z.conj().imag, {"neg"}
    yield "conj and neg", torch._neg_view(z.conj()), {"conj", "neg"}
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16):
        yield f"neg {dtype}", torch._neg_view(base.to(dtype)), {"neg"}
    for dtype in (torch.int32, torch.int64, torch.uint8):
        yield f"neg {dtype}", torch._neg_view(base.to(dtype)), {"neg"}
    yield "conj complex128", z.to(torch.complex128).conj(), {"conj"}
    yield "conj complex32", z.to(torch.complex32).conj(), {"conj"}


@pytest.mark.parametrize("case", list(odd_tensors()), ids=lambda case: case[0])
def test_odd_tensors_are_read(case):
    _, tensor, flags = case
    for stored in (tensor, compact(tensor)):
        fields, found, data = read(save(stored))
        assert fields["dtype"] == str(stored.dtype).removeprefix("torch.")
        assert fields["shape"] == f"[{dims(stored.shape)}]"
        assert fields["strides"] == f"[{dims(stored.stride())}]"
        lazy = {"conj"} if stored.is_conj() else set()
        lazy |= {"neg"} if stored.is_neg() else set()
        assert found & {"conj", "neg"} == lazy
        assert stored is not tensor or lazy == flags
        assert ("row_major" in found) == (stored.is_contiguous())
        assert data == plain(stored)


def rewritten(archive, change=lambda name, data: data, **how):
    """The same members through Python's zipfile."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(out, "w", **how) as to:
        for name in source.namelist():
            data = change(name.removeprefix("archive/"), source.read(name))
            if data is not None:
                to.writestr(name, data)
    return out.getvalue()


def swapped(data, width):
    return b"".join(data[i : i + width][::-1] for i in range(0, len(data), width))


@pytest.mark.parametrize(
    "name, width",
    [
        ("float64", 8),
        ("float32", 4),
        ("bfloat16", 2),
        ("complex64", 4),
        ("complex128", 8),
        ("complex32", 2),
        ("int8", 1),
        ("int64", 8),
        ("uint16", 2),
        ("float8_e5m2", 1),
        ("bits16", 2),
    ],
)
def test_big_endian(name, width):
    dtype = getattr(torch, name)
    tensor = make(dtype, (3, 2), pattern(6 * item_bytes(dtype)))

    def change(member, data):
        if member == "byteorder":
            return b"big"
        return swapped(data, width) if member == "data/0" else data

    archive = rewritten(save(tensor), change)
    _, flags, data = read(archive)
    assert ("swapped" in flags) == (width > 1)
    assert data == plain(tensor)
    if name not in ("uint16", "complex32", "bits16"):  # torch leaves untyped storages unswapped
        loaded = torch.load(io.BytesIO(archive), weights_only=True)
        assert bytes(loaded.untyped_storage()) == data


def test_rewritten_by_zipfile():
    tensor = torch.arange(5.0)
    archive = save(tensor)
    _, flags, data = read(rewritten(archive))
    assert data == plain(tensor) and "crc" in flags

    needed = ("data.pkl", "data/0", "version")
    few = rewritten(archive, lambda name, data: data if name in needed else None)
    assert read(few)[2] == plain(tensor)

    deflated = run("read", data=rewritten(archive, compression=zipfile.ZIP_DEFLATED))
    assert deflated.returncode == 5 and b"compressed" in deflated.stderr

    for length, word in ((19, b"has 19 bytes"), (21, b"has 21 bytes")):
        other = rewritten(
            archive, lambda name, data, n=length: (data * 2)[:n] if name == "data/0" else data
        )
        refused = run("read", data=other)
        assert refused.returncode == 3 and word in refused.stderr


def test_streamed_by_zipfile():
    """Into a pipe: sizes in data descriptors."""

    class Unseekable(io.RawIOBase):
        def __init__(self):
            self.bytes = bytearray()

        def writable(self):
            return True

        def write(self, data):
            self.bytes += data
            return len(data)

    out = Unseekable()
    tensor = torch.arange(5.0)
    with zipfile.ZipFile(io.BytesIO(save(tensor))) as source, zipfile.ZipFile(out, "w") as to:
        for name in source.namelist():
            with to.open(name, "w", force_zip64=name.endswith("data/0")) as member:
                member.write(source.read(name))
    assert read(bytes(out.bytes))[2] == plain(tensor)


@pytest.mark.parametrize("alignment", [1, 64, 4096])
def test_other_alignments(alignment):
    from torch.utils.serialization import config

    before = config.save.storage_alignment
    config.save.storage_alignment = alignment
    try:
        archive = save(torch.arange(5.0))
    finally:
        config.save.storage_alignment = before
    assert read(archive)[2] == plain(torch.arange(5.0))


def test_without_crcs():
    torch.serialization.set_crc32_options(False)
    try:
        archive = save(torch.arange(5.0))
    finally:
        torch.serialization.set_crc32_options(True)
    _, flags, data = read(archive)
    assert data == plain(torch.arange(5.0))
    ok("check", data=archive)


class Subclass(torch.Tensor):
    pass


NOT_PLAIN = {
    "quantised": (lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8), 5),
    "sparse": (lambda: torch.eye(3).to_sparse(), 5),
    "(_rebuild_sparse": (lambda: torch.eye(3).to_sparse_csr(), 5),
    "subclass": (lambda: torch.ones(3).as_subclass(Subclass), 5),
    "parameter": (lambda: torch.nn.Parameter(torch.ones(3)), 5),
    "without data": (lambda: torch.empty(3, device="meta"), 5),
    "not a tensor": (lambda: {"a": torch.ones(3)}, 3),
    "slice": (lambda: slice(1, 2), 3),
}


@pytest.mark.parametrize("word", NOT_PLAIN)
def test_what_is_no_plain_tensor(word):
    value, status = NOT_PLAIN[word]
    archive = save(value())
    done = run("read", data=archive)
    assert done.returncode == status and word in done.stderr.decode()
    ok("check", data=archive)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        255,
        65536,
        -1,
        1 << 40,
        -(1 << 63),
        0.25,
        "",
        "text \u00e9",
        b"",
        b"\x00\xff bytes",
        [],
        (),
        {},
        [1, 2.5, "three", None],
        (1, (2, (3, (4, 5)))),
        {"lr": 1e-4, "betas": (0.9, 0.999), "step": 7, 3: [b"x"]},
        list(range(2500)),
        {f"key {i}": i for i in range(1500)},
    ],
    ids=lambda value: repr(value)[:24],
)
def test_objects_are_written_as_torch_writes(value):
    archive = save(value)
    ours = ok("object", data=archive)
    if value != b"":  # torch.save(b"") itself is not loadable with weights_only
        assert ours == archive
    ok("check", data=ours)
    loaded = torch.load(io.BytesIO(ours), weights_only=True)
    assert loaded == value and type(loaded) is type(value)


def test_tensor_header_is_64_aligned():
    archive = ok("tensor", "uint8", "100", data=pattern(100))
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        info = source.getinfo("archive/data/0")
    name, extra = struct.unpack_from("<HH", archive, info.header_offset + 26)
    assert (info.header_offset + 30 + name + extra) % 64 == 0
