"""`sidestep convert`: every pair of formats, compression, and no destination after a failure."""
import array
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import time
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
    """1 MiB that every codec compresses."""
    values = array.array("f", (1 + (i % 997) / 997 for i in range(SMOOTH)))
    return saved(sidestep, name, (), [(b"w", FLOAT32, [SMOOTH], values)]), values.tobytes()


def sources(sidestep):
    """One source of each format."""
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
    """every pair of formats; the output equals the input"""
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
    """without --to, the name of DST decides"""
    source = saved(sidestep, objects=())
    for to, name in (*DESTINATIONS.items(), ("torch", "x.pth"), ("torch", "x.bin")):
        if to != "dcp":
            assert sidestep.json("convert", source, sidestep.path("n-" + name))["to"] == to
    directory = sidestep.path("directory")
    assert sidestep.json("convert", source, directory)["to"] == "safetensors"
    assert sidestep.json("convert", directory, sidestep.path("back"))["to"] == "dcp"


def test_advice(sidestep):
    """a refusal names the options that help, as they are typed"""
    source, target = saved(sidestep), sidestep.path("x.safetensors")
    sidestep.expect("convert", source, target, status=5, stderr=one_line(
        "of 1 object at least one does not fit", "objects=skip leaves", "model_only takes",
        "to=dcp keeps", "'epoch'"))
    sidestep.json("convert", "--model-only", source, target)
    sidestep.expect("convert", "--model-only", source, target, status=1, stderr=one_line(
        "x.safetensors' exists; --force replaces what a conversion has made"))
    sidestep.json("convert", "--model-only", "--force", source, target)


def test_names_and_types(sidestep):
    """--rename, --mapping and --dtype, also beyond their limits; overflows are counted"""
    values = array.array("f", [1.0, -2.5, 1e6, float("inf")])
    source = saved(sidestep, objects=(), tensors=[
        (b"model.a", FLOAT32, [4], values), (b"model.b", FLOAT32, [1], array.array("f", [0.1]))])
    mapping = sidestep.path("names.json")
    with open(mapping, "w") as file:
        json.dump({"net.b": "last"}, file)
    arguments = ["--rename=s/^model/net/", "--mapping=" + mapping, "--dtype=float16", source]
    out = sidestep.path("out.safetensors")
    told = sidestep.run("convert", *arguments, out)
    assert told.status == 0 and "overflowed: net.a: 1" in told.stderr, told.describe()
    narrower = "narrower dtype: 2 tensors, the first is net.a: float32 to float16"
    assert narrower in told.stdout + told.stderr, told.describe()
    assert {e["name"]: e["dtype"] for e in sidestep.json("show", out)["tensors"]} == {
        "last": "float16", "net.a": "float16"}
    assert sidestep.run("cat", out, "net.a", binary=True).stdout == struct.pack(
        "<4e", 1.0, -2.5, float("inf"), float("inf"))
    error = sidestep.json_error("convert", *arguments, out, status=1)
    assert "exists" in error["message"]
    quiet = sidestep.run("convert", "-q", "--force", *arguments, out)
    assert quiet.status == 0 and quiet.stderr == "sidestep: overflowed: net.a: 1\n", quiet.describe()
    report = sidestep.json("convert", "--force", *arguments, out)
    assert report["overflows"] == ["net.a: 1"]
    assert report["narrowed"] == ["net.a: float32 to float16", "last: float32 to float16"]
    wide = sidestep.json("convert", "--force", "--dtype=float64", source, out)
    assert wide["narrowed"] == [], wide
    with open(mapping, "r+b") as file:
        file.truncate((256 << 20) + 1)
    before = set(os.listdir(sidestep.folder))
    for words, more in (("bytes", ["--mapping=" + mapping]),
                        ("more than 256", ["--rename=s/a/b/"] * 257)):
        result = sidestep.run("convert", "--to=torch", *more, source, sidestep.path("more.pt"))
        assert result.status != 0 and words in result.stderr, result.describe()
        nothing_left(sidestep, before)


def test_parts(sidestep):
    """--max-shard-size, --objects=skip, show --stats; an index that is too long"""
    source = saved(sidestep, tensors=[
        (b"w%d" % n, FLOAT32, [256], array.array("f", [n, *range(255)])) for n in range(5)])
    out = sidestep.path("parts")
    told = sidestep.json("convert", "--to=safetensors", "--max-shard-size=2KiB", "--objects=skip",
                         source, out + "/")
    files = sorted(name for name in os.listdir(out) if name.endswith(".safetensors"))
    assert len(files) > 2 and told["left_out"] != [], (files, told)
    assert sorted(os.listdir(out)) == sorted([*files, "model.safetensors.index.json"])
    with open(os.path.join(out, "model.safetensors.index.json")) as file:
        assert sorted(set(json.load(file)["weight_map"].values())) == files
    shown = sidestep.run("show", "--stats", out, binary=False)
    assert shown.status == 0 and "254" in shown.stdout, shown.describe()
    with open(os.path.join(out, "model.safetensors.index.json"), "r+b") as file:
        file.truncate((256 << 20) + 1)
    assert sidestep.json_error("show", out, status=3)["message"]


def test_old_files(sidestep):
    """a tar and a bare pickle, as torch once saved, are refused with advice"""
    with tarfile.open(sidestep.path("old.pt"), "w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("sys_info"))
    with open(sidestep.path("older.pt"), "wb") as file:
        file.write(b"\x80\x02}q\0." + bytes(300))
    for name, words in (("old.pt", "it is a tar"), ("older.pt", "it is a pickle")):
        for arguments in (["show"], ["convert", "--to=dcp"]):
            more = [sidestep.path("out")] if len(arguments) > 1 else []
            error = sidestep.json_error(*arguments, sidestep.path(name), *more, status=5)
            assert words in error["message"] and "torch.load()" in error["message"], error
    assert not os.path.exists(sidestep.path("out"))


def test_compress(sidestep):
    """--compress: what is stored, what is read back, and the allowed words"""
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


def large(path, tensors):
    """Bfloat16 in tensors of 40 MiB."""
    noise = bytearray(os.urandom(8 << 20))
    noise[1::2] = bytes(0x3e | byte & 0x81 for byte in noise[1::2])
    shape, header = [20 << 20], {}
    for i in range(tensors):
        header[f"w{i}"] = {"dtype": "BF16", "shape": shape,
                           "data_offsets": [i * (40 << 20), (i + 1) * (40 << 20)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(tensors * 5):
            file.write(noise)
    return path


def peak_of(sidestep, *command):
    """Peak of resident bytes of a run that succeeds."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=sidestep.environment())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (command, process.returncode)
    return usage.ru_maxrss * 1024


def test_memory(sidestep):
    """to a checkpoint, compressed, by several ranks and many threads: memory is bounded"""
    greedy = peak_of(sidestep, sys.executable, "-c", f"b'x' * {MOST_MEMORY}")
    assert greedy > MOST_MEMORY, greedy >> 20
    source = large(sidestep.path("large.safetensors"), MOST_MEMORY // (40 << 20) + 2)
    assert os.path.getsize(source) > MOST_MEMORY
    some = large(sidestep.path("some.safetensors"), 2)
    target = sidestep.path("small")
    for path, *how in ((source, "--compress=planes"),
                       (source, "--compress=planes", "--ranks=16", "--threads=64"),
                       (source, "--compress=zstd:3", "--threads=64"),
                       (source, "--ranks=16", "--threads=64"),
                       (some, "--compress=zstd:12", "--ranks=8", "--threads=64")):
        peak = peak_of(sidestep, sidestep.program, "convert", "-q", "--to=dcp", *how, path, target)
        assert peak <= MOST_MEMORY, (how, peak >> 20)
        shutil.rmtree(target)
    os.unlink(source)
    os.unlink(some)


def nothing_left(sidestep, before):
    left = sorted(set(os.listdir(sidestep.folder)) - before)
    assert left == [], left


def test_interrupts_leave_nothing(sidestep):
    """SIGINT and SIGTERM during the write: status 130, DST does not exist"""
    source = large(sidestep.path("some.safetensors"), 2)
    before = set(os.listdir(sidestep.folder))
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([sidestep.program, "convert", "-q", "--compress=zstd:12", source, sidestep.path("out")],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env=sidestep.environment())
        while set(os.listdir(sidestep.folder)) == before:
            assert process.poll() is None, process.communicate()
            time.sleep(0.001)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130 and said.endswith("the caller cancelled it\n"), (process.returncode, said)
        nothing_left(sidestep, before)


def test_failures_leave_nothing(sidestep):
    """after each kind of failure DST does not exist, the status says why, SRC is unchanged"""
    source = saved(sidestep)
    damaged = saved(sidestep, "damaged")
    shard = os.path.join(damaged, "__0_0.distcp")
    with open(shard, "r+b") as file:
        file.seek(file.read().index(W) + 5)
        file.write(b"\x55")
    with open(sidestep.path("lying.safetensors"), "wb") as file:
        header = json.dumps({"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}).encode()
        file.write(struct.pack("<Q", len(header)) + header + bytes(20))
    with open(sidestep.path("cut.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header[:-1])
    with open(sidestep.path("empty.pt"), "wb"):
        pass
    before = set(os.listdir(sidestep.folder))
    for status, words, arguments in (
            (5, "epoch", ["--to=safetensors", source]),
            (5, "epoch", ["--to=npz", source]),
            (3, "do not match their hash", ["--to=safetensors", "--objects=skip", damaged]),
            (3, "do not match their hash", ["--to=dcp", damaged]),
            (3, "do not match their hash", ["--to=dcp", "--ranks=3", damaged]),
            (3, "of the data", ["--to=dcp", sidestep.path("lying.safetensors")]),
            (3, "it is empty", ["--to=dcp", sidestep.path("empty.pt")]),
            (3, "truncated", ["--to=dcp", sidestep.path("cut.safetensors")]),
            (10, "nowhere", ["--to=dcp", sidestep.path("nowhere")]),
            (1, "no tensor is selected by 'nobody'; it has '", ["--to=torch", "--include=nobody", source])):
        error = sidestep.json_error("convert", *arguments, sidestep.path("out"), status=status)
        assert words in error["message"], (arguments, error)
        nothing_left(sidestep, before)
    assert sidestep.json("verify", source)["ok"]
