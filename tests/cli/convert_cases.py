"""`sidestep convert`: every pair of formats, compression, and that nothing is there after a failure."""
import array
import json
import os
import shutil
import struct
import subprocess
import zipfile

from harness import GOLDEN, one_line
from saved_cases import W
from saver import FLOAT32, Saver

STOCK = f"{GOLDEN}/torch-2.14.1/nested"
DESTINATIONS = {"dcp": "out", "safetensors": "out.safetensors", "torch": "out.pt", "npz": "out.npz"}
SMOOTH = 1 << 18
MOST_MEMORY = 256 << 20


def saved(sidestep, name="ckpt", objects=((b"epoch", 3),), tensors=None):
    saver = Saver(os.path.dirname(sidestep.program))
    saver.save(sidestep.path(name), 7, tensors or [
        (b"model.weight", FLOAT32, [2, 3], array.array("f", range(6))),
        (b"model.bias", FLOAT32, [], array.array("f", [0.5]))], list(objects))
    saver.close()
    return sidestep.path(name)


def smooth(sidestep, name="smooth"):
    """1 MiB that every codec shrinks."""
    values = array.array("f", (1 + (i % 997) / 997 for i in range(SMOOTH)))
    return saved(sidestep, name, (), [(b"w", FLOAT32, [SMOOTH], values)]), values.tobytes()


def sources(sidestep):
    """One of each format that is read."""
    ours = saved(sidestep)
    found = {"sidestep": ours, "dcp": STOCK}
    for form, name in (("safetensors", "in.safetensors"), ("torch", "in.pt"), ("hf", "in-hf")):
        to = "safetensors" if form == "hf" else form
        sidestep.json("convert", "--model-only", "--to=" + to, ours, sidestep.path(name))
        found[form] = sidestep.path(name)
    return found


def npz_names(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return sorted(name[:-4] for name in archive.namelist())


def test_every_pair(sidestep):
    """every pair of formats, and what comes out is what went in"""
    for form, source in sources(sidestep).items():
        expected = {entry["name"]: entry for entry in sidestep.json("show", source)["tensors"]}
        for to, name in DESTINATIONS.items():
            target = sidestep.path(f"{form}-{name}")
            more = ["--exclude=o.a.0"] if to == "npz" else []  # NumPy has no bfloat16
            told = sidestep.json("convert", "--objects=skip", "--to=" + to, *more, source, target)
            kept = sorted(set(expected) - ({"o.a.0"} if more else set()))
            assert told["to"] == to and told["tensors"] == len(kept), told
            assert told["from"] == {"hf": "safetensors"}.get(form, form), told
            if to == "npz":
                assert npz_names(target) == kept, target
                continue
            assert sorted(e["name"] for e in sidestep.json("show", target)["tensors"]) == kept
            for tensor in kept:
                got = sidestep.run("cat", target, tensor, binary=True)
                assert got.status == 0, got.describe()
                assert got.stdout == sidestep.run("cat", source, tensor, binary=True).stdout, tensor


def test_formats_by_name(sidestep):
    """without --to, the name of DST says it"""
    source = saved(sidestep, objects=())
    for to, name in (*DESTINATIONS.items(), ("torch", "x.pth"), ("torch", "x.bin")):
        if to != "dcp":
            assert sidestep.json("convert", source, sidestep.path("n-" + name))["to"] == to
    directory = sidestep.path("directory")
    assert sidestep.json("convert", source, directory)["to"] == "safetensors"
    assert sidestep.json("convert", directory, sidestep.path("back"))["to"] == "dcp"


def test_compress(sidestep):
    """--compress: what is stored, what comes out, and what the words are"""
    source, data = smooth(sidestep)
    plain = os.path.getsize(os.path.join(source, "__0_0.distcp"))
    zip_begins, zstd_begins, planes_begin = b"PK", b"\x28\xb5\x2f\xfd", b"SSPLANES"
    for how, begins in (("none", zip_begins), ("zstd", zstd_begins), ("zstd:3", zstd_begins),
                        ("planes", planes_begin), ("auto", planes_begin)):
        target = sidestep.path("out-" + how)
        sidestep.json("convert", "--to=dcp", "--compress=" + how, source, target)
        chunk, = sidestep.json("show", target)["tensors"][0]["chunks"]
        with open(os.path.join(target, chunk["file"]), "rb") as file:
            file.seek(chunk["file_offset"])
            assert file.read(len(begins)) == begins, how
        stored = os.path.getsize(file.name)
        assert (stored < plain * 0.9) == (how != "none"), (how, stored, plain)
        assert sidestep.run("cat", target, "w", binary=True).stdout == data
        assert sidestep.json("verify", target)["ok"]
    for how in ("gzip", "zstd:0", "zstd:20", "zstd:", "planes:1"):
        sidestep.expect("convert", "--to=dcp", "--compress=" + how, source, sidestep.path("no"),
                        status=5, stderr=one_line(f"compression '{how}'", "zstd:1 to zstd:19"))
        assert not os.path.lexists(sidestep.path("no"))
    sidestep.expect("convert", "--to=torch", "--compress=zstd", source, sidestep.path("no.pt"),
                    status=2, stderr=one_line("compression", "for checkpoints"))


def large(path):
    """More than a conversion may hold: bfloat16 in tensors of 40 MiB."""
    noise = bytearray(os.urandom(8 << 20))
    noise[1::2] = bytes(0x3e | byte & 0x81 for byte in noise[1::2])
    shape, header, tensors = [20 << 20], {}, MOST_MEMORY // (40 << 20) + 2
    for i in range(tensors):
        header[f"w{i}"] = {"dtype": "BF16", "shape": shape,
                           "data_offsets": [i * (40 << 20), (i + 1) * (40 << 20)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(tensors * 5):
            file.write(noise)
    return path


def peak_of(sidestep, *arguments):
    """Resident bytes of a run that succeeds."""
    process = subprocess.Popen([sidestep.program, *arguments], stdout=subprocess.DEVNULL,
                               env=sidestep.environment())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (arguments, process.returncode)
    return usage.ru_maxrss * 1024


def test_memory(sidestep):
    """to a checkpoint, compressed, and by several ranks: in bounded memory"""
    source = large(sidestep.path("large.safetensors"))
    assert os.path.getsize(source) > MOST_MEMORY
    target = sidestep.path("small")
    for how in (["--compress=planes"], ["--compress=zstd:3"], ["--compress=planes", "--ranks=4"]):
        peak = peak_of(sidestep, "convert", "-q", "--to=dcp", "--threads=4", *how, source, target)
        assert peak <= MOST_MEMORY, (how, peak >> 20)
        shutil.rmtree(target)
    os.unlink(source)


def nothing_left(sidestep, before):
    left = sorted(set(os.listdir(sidestep.folder)) - before)
    assert left == [], left


def test_failures_leave_nothing(sidestep):
    """after each kind of failure DST is absent, the status says why, SRC is as it was"""
    source = saved(sidestep)
    damaged = saved(sidestep, "damaged")
    shard = os.path.join(damaged, "__0_0.distcp")
    with open(shard, "r+b") as file:
        file.seek(file.read().index(W) + 5)
        file.write(b"\x55")
    with open(sidestep.path("lying.safetensors"), "wb") as file:
        header = json.dumps({"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}).encode()
        file.write(struct.pack("<Q", len(header)) + header + bytes(20))
    with open(sidestep.path("empty.pt"), "wb"):
        pass
    before = set(os.listdir(sidestep.folder))
    for status, words, arguments in (
            (5, "epoch", ["--to=safetensors", source]),
            (5, "epoch", ["--to=npz", source]),
            (3, "do not match their hash", ["--to=safetensors", "--objects=skip", damaged]),
            (3, "do not match their hash", ["--to=dcp", damaged]),
            (3, "of the data", ["--to=dcp", sidestep.path("lying.safetensors")]),
            (5, "neither safetensors", ["--to=dcp", sidestep.path("empty.pt")]),
            (10, "nowhere", ["--to=dcp", sidestep.path("nowhere")]),
            (1, "no tensor is selected", ["--to=torch", "--include=nobody", source])):
        error = sidestep.json_error("convert", *arguments, sidestep.path("out"), status=status)
        assert words in error["message"], (arguments, error)
        nothing_left(sidestep, before)
    assert sidestep.json("verify", source)["ok"]
