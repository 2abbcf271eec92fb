# SPDX-License-Identifier: BSD-3-Clause
"""damage.py -- runs the command line on damaged and hostile checkpoints. Each command must end soon,
with the status of that kind of damage and one clear line, use little memory, and touch no file
outside.

tests/unit/damage_test.c covers what can be tried exhaustively (every bit, every length, all swaps).
"""
import array
import inspect
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from damage_rig import (DAMAGED, PERMISSION, SANE, UNREADABLE, UNSUPPORTED, W, W_ENTRY,  # noqa: E402
                        W_INDEX, W_ITEM, W_STORED, Rig, Saver, h, harness, shard_of)


# ---- data at rest

def test_control(rig):
    """control: a whole checkpoint passes; the rig notices a crash, wasted time and wasted memory"""
    rig.good(rig.stock(), W)
    rig.good(rig.ours(), tensor="model.weight")
    program = rig.program
    for code in ("import os; os.abort()", "while True: pass", "x = b'x' * (1 << 29)"):
        rig.program = sys.executable
        try:
            rig.run("-c", "import resource; resource.setrlimit(resource.RLIMIT_CPU, (3, 3))\n" + code)
        except AssertionError:
            continue
        finally:
            rig.program = program
        raise AssertionError(f"the rig did not see {code!r}")


def test_random_damage(rig):
    """D1, D4, C13: random bits, bytes and sectors, of ours and of torch's: verify and cat agree"""
    chance = random.Random(7)
    for folder, name in ((rig.ours(), "model.weight"), (rig.stock(), "w")):
        expected = rig.run("cat", folder, name).stdout
        ours = name != "w"
        for _ in range(60):
            file = chance.choice([name for name in os.listdir(folder)])
            if not ours and file == ".metadata":
                continue  # torch stores no hash of it
            whole = bytearray(h.get(folder, file))
            at = chance.randrange(len(whole))
            damaged = bytearray(whole)
            length = chance.choice([1, 1, 8, 512])
            for i in range(at, min(at + length, len(whole))):
                damaged[i] ^= 1 << chance.randrange(8)
            h.put(folder, file, damaged)
            verified, cat = rig.run("verify", folder), rig.run("cat", folder, name)
            h.put(folder, file, whole)
            assert cat.status != 0 or cat.stdout == expected, (file, at, cat.describe())
            assert cat.status == 0 or cat.stdout == b"", (file, at, cat.describe())
            if ours:
                assert verified.status in (DAMAGED, UNSUPPORTED), (file, at, verified.describe())
                said = verified.stdout.decode() + verified.stderr
                assert file in said or "manifest" in said, (file, at, verified.describe())
            elif verified.status == 0:
                assert cat.stdout == expected, (file, at, verified.describe())


def test_latest(rig):
    """D1-D5: latest passes over damage of any kind to the newest whole checkpoint, and says so"""
    for step in (1, 2, 3, 4, 5):
        rig.ours(f"step-{step}", step)
    os.truncate(rig.path("step-5/") + shard_of(rig.path("step-5")), 100)
    os.remove(rig.path("step-4/") + h.manifest_name(rig.path("step-4")))
    h.put(rig.path("step-3"), ".metadata", h.get(rig.path("step-2"), ".metadata"))
    result = rig.run("latest", rig.folder)
    assert result.stdout.decode() == rig.path("step-2") + "\n", result.describe()
    result = rig.run("verify", rig.folder)
    assert result.status == DAMAGED and \
        b"2 ok, 3 damaged, 0 uncommitted, 0 not readable" in result.stdout, result.describe()


def test_unreadable(rig):
    """D9: a file that may not be read is not damage: status, file and reason, in one line"""
    user = {}
    if os.getuid() == 0:  # root may read everything
        user = {"user": 65534, "group": 65534, "extra_groups": []}
        os.chmod(rig.folder, 0o755)
        try:
            subprocess.run([rig.program, "--version"], stdout=subprocess.DEVNULL, check=True, **user)
        except (PermissionError, subprocess.CalledProcessError) as error:
            raise harness.Skip(f"another user cannot run the program here: {error}") from error
    folder = rig.ours()
    shard = shard_of(folder)
    os.chmod(f"{folder}/{shard}", 0)
    result = rig.run("verify", folder, **user)
    assert result.status == PERMISSION, result.describe()
    first, problem = result.stdout.decode().splitlines()
    assert first.startswith("UNREADABLE ") and first.endswith(", 1 problem"), result.describe()
    assert shard in problem and "Permission denied" in problem, result.describe()
    result = rig.run("cat", folder, "model.weight", **user)
    assert result.status not in (0, DAMAGED) and shard in result.stderr, result.describe()
    assert "Permission denied" in result.stderr and result.stdout == b"", result.describe()


# ---- a malicious .metadata

def gadgets(witness):
    command = h.text(f"touch {witness}")
    system = h.symbol("posix", "system")
    return {
        "REDUCE": h.call(system, command),
        "eval": h.call(h.symbol("builtins", "eval"), command),
        "Popen": h.call(h.symbol("subprocess", "Popen"), h.sequence(command)),
        "STACK_GLOBAL": h.text("os") + h.text("system") + b"\x93" + h.tup(command) + b"R",
        "getattr": h.call(h.symbol("builtins", "getattr"), system, command),
        "torch": h.call(h.symbol("torch", "load"), command),
        "INST": b"(" + command + b"iposix\nsystem\n",
        "OBJ": b"(" + system + command + b"o",
        "NEWOBJ": system + h.tup(command) + b"\x81",
        "NEWOBJ_EX": system + h.tup(command) + b"}\x92",
        "BUILD": h.instance(h.METADATA, "Metadata") + command + b"b",
        "EXT1": b"\x82\x01",
        "EXT4": b"\x84\x01\0\0\0",
        "PERSID": command + b"Q",
        "symbol": system,
    }


def test_gadgets(rig):
    """H1: a gadget in any field of .metadata runs nothing, and is refused where it matters"""
    witness = rig.path("witness")
    for name, gadget in gadgets(witness).items():
        places = {
            "everything": lambda: None,
            "entry": lambda: rig.stock(entries=[("w", gadget)]),
            "properties": lambda: rig.stock(entries=[("w", h.tensor(
                "float32", [2, 3], [([0, 0], [2, 3])], properties=gadget))]),
            "size": lambda: rig.stock(entries=[("w", h.tensor("float32", [2, 3], [], size=gadget))]),
            "chunks": lambda: rig.stock(entries=[("w", h.tensor("float32", [2, 3], [],
                                                                chunks=gadget))]),
            "storage": lambda: rig.stock(storage=[(W_INDEX, gadget)]),
            "key": lambda: rig.stock(storage=[(gadget, W_STORED)]),
            "file": lambda: rig.stock(storage=[(W_INDEX, h.stored("x", 0, 1, relative_path=gadget))]),
            "offset": lambda: rig.stock(storage=[(W_INDEX, h.stored("x", 0, 1, offset=gadget))]),
            "transform": lambda: rig.stock(storage=[(W_INDEX, h.stored(
                "x", 0, 1, transform_descriptors=h.sequence(gadget)))]),
            "data.pkl": lambda: None,
        }
        for place, make in places.items():
            folder = make() or rig.stock()
            if place == "everything":
                h.put(folder, ".metadata", h.pickled(gadget))
            if place == "data.pkl":
                item = h.archive([("data.pkl", h.pickled(gadget)), ("data/0", W),
                                  ("version", b"3\n")])
                folder = rig.stock(item=item, storage=[(W_INDEX, h.stored("__0_0.distcp", 0,
                                                                          len(item)))])
            result = rig.run("cat", folder, "w")
            assert result.status in (DAMAGED, UNSUPPORTED), (name, place, result.describe())
            assert result.stderr.count("\n") == 1 and result.stdout == b"", result.describe()
            assert not os.path.exists(witness), (name, place)
        for place in ("planner_data", "storage_meta", "version"):
            for command in (["show"], ["verify"], ["show", "--json"]):
                rig.run(*command, rig.stock(**{place: gadget}))
            assert not os.path.exists(witness), (name, place)
    rig.refused(rig.stock(entries=[("w", gadgets(witness)["REDUCE"])]), ["posix system", "'w'"])


def test_bombs(rig):
    """H2, H8: pickles that grow, nest or promise too much"""
    deep = 1 << 20
    cases = {
        "nested tuples": b")" + b"\x85" * deep,
        "nested lists": b"]" * deep + b"a" * (deep - 1),
        "doubling": b"]q\0" + b"(h\0h\0tq\0" * 100000,
        "a text of 2^63 bytes": b"\x8d" + b"\xff" * 7 + b"\x7f",
        "bytes of 2^62": b"\x8e" + b"\0" * 7 + b"\x40",
        "a number of 2 GiB": b"\x8b\xff\xff\xff\x7f",
        "a negative number": b"\x8b\xff\xff\xff\xff",
        "a frame of 2^60": b"\x95" + b"\0" * 7 + b"\x10",
        "a memo slot of 2^32": b"Nr\xff\xff\xff\xff",
        "a million digits": b"L" + b"9" * 1000000 + b"L\n",
        "marks": b"(" * deep,
        "self": b"]q\0h\0a",
        "a list as a key": b"}]Ns",
    }
    for name, opcodes in cases.items():
        folder = rig.stock()
        h.put(folder, ".metadata", h.pickled(opcodes))
        for command in (["verify", folder], ["cat", folder, "w"]):
            result = rig.run(*command)
            assert result.status in (DAMAGED, UNSUPPORTED), (name, result.describe())
        folder = rig.stock(planner_data=opcodes)
        assert rig.run("verify", folder).status in (0, DAMAGED, UNSUPPORTED), name


def shared_parts():
    """Small pickles of torch.save() that are huge as trees: {name: (pickle, word of the refusal)}."""
    one = h.tensor_pickle("FloatStorage", [2, 3])[2:-1]

    def doubled(value, levels):  # a list of it twice, a list of that twice ...
        return value + b"".join(b"q%c0](h%ch%ce" % (n, n, n) for n in range(levels))

    dicts = b"N" + b"".join(
        b"q%c0}(" % n + b"".join(h.text(f"{key}{'x' * long}") + b"h%c" % n for key in range(times))
        + b"u" for n, (times, long) in enumerate([(200, 0), (50, 50), (50, 50)]))
    return {
        "lists of numbers": (h.mapping((h.text("a"), doubled(b"]", 60)), (h.text("w"), one)),
                             "nodes"),
        "lists of a tensor": (doubled(h.sequence(one), 60), "nodes"),
        "dicts": (dicts, "nodes"),
        "a tuple in many places": (h.tup(b"N" * 200000) + b"q\xff0" + h.mapping(*(
            (h.text(f"n{n}"), b"h\xff") for n in range(5000))), "nodes"),
        "long names": (b"}(" + h.text("y" * 3900) + h.mapping(*(
            (h.text(f"{n}"), b"N") for n in range(30000))) + b"u", "names and shapes"),
    }


def test_shared_parts(rig):
    """H2, H8: a small torch.save() file that is enormous as a tree is refused at once"""
    for name, (opcodes, word) in shared_parts().items():
        h.put(rig.folder, "shared.pt", h.archive([
            ("data.pkl", h.pickled(opcodes)), ("byteorder", b"little"), ("data/0", bytes(24)),
            ("version", b"3\n")]))
        for command in (["show"], ["convert", "--to=dcp"]):
            result = rig.run(*command[:1], rig.path("shared.pt"),
                             *([rig.path("out"), command[1]] if len(command) > 1 else []))
            assert result.status == UNSUPPORTED and word in result.stderr, (name, result.describe())
        assert not os.path.exists(rig.path("out")), name


def test_paths(rig):
    """H3: file names that lead out of the checkpoint"""
    h.put(rig.folder, "outside.distcp", W_ITEM)
    names = ["../outside.distcp", "..", ".", "", "/etc/passwd", rig.path("outside.distcp"),
             "a/../../outside.distcp", "./__0_0.distcp", "a//b", "a/", "/", "__0_0.distcp/",
             "__0_0.distcp\n", "\x1b[2J", "a\x7f", "../" * 1300 + "etc/passwd", "x" * 4096,
             "....//outside.distcp/..", "/proc/self/root/etc/passwd", "a/./b"]
    for name in names:
        folder = rig.stock(storage=[(W_INDEX, h.stored(name, 0, len(W_ITEM)))])
        result = rig.run("verify", folder)
        assert result.status in (DAMAGED, UNSUPPORTED), (name, result.describe())
        assert "leads out of" in result.stdout.decode() + result.stderr or len(name) == 4096, \
            (name, result.describe())
        assert rig.run("cat", folder, "w").stdout == b"", name
    for name in (b"__0_0.distcp\0.txt", b"\xff\xfe", b"\xc0\xae\xc0\xae/x"):
        result = rig.run("verify", rig.stock(storage=[(W_INDEX, h.stored(name, 0, len(W_ITEM)))]))
        assert result.status == DAMAGED, (name, result.describe())
    rig.refused(rig.stock(storage=[(W_INDEX, h.stored("x" * 300, 0, 1))]), "File name too long",
                status=DAMAGED, commands=["verify"])


def test_special_files(rig):
    """H3, H13: pipes, devices, sockets, directories instead of a shard: refused, not read, and not
    called damage; links to files: read, and checked as any file"""
    outside = rig.path("outside")
    h.put(outside, "__0_0.distcp", W_ITEM)

    def link(path):
        os.symlink(os.path.join(outside, "__0_0.distcp"), path)

    def magic(path):
        os.symlink("/proc/self/fd/0", path)

    def bound(path):
        here = os.getcwd()
        os.chdir(os.path.dirname(path))
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.basename(path))
        os.chdir(here)

    for make in (magic, os.mkfifo, os.mkdir, bound, lambda path: os.symlink("/dev/zero", path),
                 lambda path: os.symlink(os.path.basename(path), path)):
        folder = rig.stock()
        os.remove(f"{folder}/__0_0.distcp")
        make(f"{folder}/__0_0.distcp")
        for arguments in (["verify", folder], ["cat", folder, "w"]):
            result = rig.run(*arguments)
            assert result.status == UNREADABLE, result.describe()
            assert "__0_0.distcp" in result.stdout.decode() + result.stderr, result.describe()
    folder = rig.stock(storage=[(W_INDEX, h.stored("sub/__0_0.distcp", 0, len(W_ITEM)))])
    os.symlink(outside, f"{folder}/sub")
    rig.good(folder, W)
    os.remove(f"{folder}/sub")
    shutil.copytree(outside, f"{folder}/sub")
    rig.good(folder, W)  # the control: a name may contain a folder
    for make in (link, lambda path: os.link(f"{outside}/__0_0.distcp", path)):
        folder = rig.stock()
        os.remove(f"{folder}/__0_0.distcp")
        make(f"{folder}/__0_0.distcp")
        rig.good(folder, W)
    folder = rig.stock()
    os.remove(f"{folder}/__0_0.distcp")
    h.put(outside, "__0_0.distcp", W_ITEM[:-1])
    link(f"{folder}/__0_0.distcp")
    rig.refused(folder, "__0_0.distcp", status=DAMAGED)


def test_tiling(rig):
    """H4, H5: chunks that overlap, repeat, leave gaps, or exceed the shape; shapes that overflow"""
    huge = 1 << 62
    cases = [
        ("its chunks do not cover it", [2, 3], [([0, 0], [1, 3])]),
        ("two chunks begin at", [2, 3], [([0, 0], [1, 3])] * 2),
        ("its chunks overlap", [2, 3], [([0, 0], [2, 2]), ([0, 1], [2, 2])]),
        ("its chunks overlap", [2, 3], [([0, 0], [2, 3]), ([1, 0], [1, 3])]),
        ("", [2, 3], [([1, 0], [2, 3])]),
        ("", [2, 3], [([0, 0], [-1, 3])]),
        ("", [2, 3], [([0, -1], [2, 3])]),
        ("", [2, 3], [([0], [2])]),
        ("", [-2, 3], []),
        ("", [huge, 4], [([0, 0], [huge, 4])]),
        ("", [1 << 32, 1 << 32], [([0, 0], [1 << 32, 1 << 32])]),
        ("", [1 << 63, 1], []),
        ("", [0, 1 << 63], []),
        ("", [2, 3], [([(1 << 63) - 1, 0], [2, 3])]),
        ("", [1] * 65, []),
    ]
    for words, shape, chunks in cases:
        folder = rig.stock(entries=[("w", h.tensor("float32", shape, chunks))],
                           storage=[(h.index("w", offsets), W_STORED) for offsets, _ in chunks]
                           or [(W_INDEX, W_STORED)])
        result = rig.run("verify", folder)
        assert result.status in (DAMAGED, UNSUPPORTED), (shape, chunks, result.describe())
        said = result.stdout.decode() + result.stderr
        assert words in said and re.search(r"\bw\b", said), (shape, chunks, result.describe())
        assert rig.run("cat", folder, "w").stdout == b"", (shape, chunks)


def test_extents(rig):
    """H4: offset and length that overflow, or exceed the file"""
    for offset, length, words in [
            (len(W_ITEM), 1, "ends at byte"), (1, len(W_ITEM), "ends at byte"),
            (0, (1 << 63) - 1, "ends at byte"), ((1 << 63) - 1, 1, "63 bits"),
            ((1 << 63) - 1, (1 << 63) - 1, "63 bits"), (1 << 63, 1, "offset"),
            (-1, 5, "offset"), (0, -1, "length"), (1 << 200, 0, "offset"), (0, 0, "'w'|w: ")]:
        folder = rig.stock(storage=[(W_INDEX, h.stored("__0_0.distcp", offset, length))])
        for arguments in (["verify", folder], ["cat", folder, "w"]):
            result = rig.run(*arguments)
            assert result.status == DAMAGED, (offset, length, result.describe())
            said = result.stdout.decode() + result.stderr
            assert re.search(words, said), (offset, length, result.describe())


def test_many_chunks(rig):
    """H5, H8: many chunks of one byte, and many names: time and memory are linear in .metadata"""
    item = h.tensor_archive("ByteStorage", [1], b"\0")
    count = 20000
    offsets = [h.size(i) for i in range(count)]
    one = h.size(1)
    chunks = [h.instance(h.METADATA, "ChunkStorageMetadata", offsets=o, sizes=one) for o in offsets]
    entry = h.tensor("uint8", [count], [], chunks=h.sequence(*chunks))
    where = h.stored("__0_0.distcp", 0, len(item))
    folder = rig.stock(item=item, entries=[("w", entry)],
                       storage=[(h.index("w", [i]), where) for i in range(count)])
    bytes_of_metadata = os.path.getsize(f"{folder}/.metadata")
    for arguments in (["show", folder], ["cat", folder, "w"]):
        result = rig.run(*arguments, extra_bytes=24 * bytes_of_metadata)
        assert result.status == 0, result.describe()
    folder = rig.stock(entries=[(f"n{i}", h.blob()) for i in range(100000)],
                       storage=[(h.index(f"n{i}"), W_STORED) for i in range(50000)])
    rig.refused(folder, ["n50000", "no storage entry"], tensor="n0",
                extra_bytes=24 * os.path.getsize(f"{folder}/.metadata"))
    folder = rig.stock(entries=[("w", W_ENTRY)] * 2)
    assert rig.run("verify", folder).status in (0, DAMAGED)


# ---- items

def zip_tricks():
    pkl, members = h.tensor_pickle("FloatStorage", [2, 3]), {}
    plain = [("data.pkl", pkl), ("data/0", W), ("version", b"3\n")]
    members["two members of a name"] = h.archive(plain + [("data/0", bytes(24))])
    members["compressed"] = h.archive(plain, compression=8)
    members["behind a suffix"] = h.archive(plain) + b"suffix"
    members["with a comment"] = h.archive(plain, comment=b"PK\5\6" + bytes(18))
    members["without data"] = h.archive(plain[:1] + plain[2:])
    members["without data.pkl"] = h.archive(plain[1:])
    members["without version"] = h.archive(plain[:2])
    members["a short storage"] = h.archive([plain[0], ("data/0", W[:20]), plain[2]])
    members["a long storage"] = h.archive([plain[0], ("data/0", W + b"\0"), plain[2]])
    members["another dtype"] = h.tensor_archive("IntStorage", [2, 3], W)
    members["another shape"] = h.tensor_archive("FloatStorage", [3, 2], W)
    members["a storage that is a path"] = h.archive(
        [("data.pkl", h.tensor_pickle("FloatStorage", [2, 3], key="../data/0"))] + plain[1:])
    members["empty"] = h.archive([])
    whole = h.archive(plain)
    members["another name in the directory"] = \
        whole[::-1].replace(b"archive/data/0"[::-1], b"archive/data/1"[::-1], 1)[::-1]
    members["another name in front"] = whole.replace(b"archive/data/0", b"archive/data/1", 1)
    at = whole.index(W)
    members["a flipped bit"] = whole[:at] + b"\1" + whole[at + 1:]
    central = whole.rindex(b"PK\1\2")
    members["encrypted"] = whole[:central + 8] + b"\1" + whole[central + 9:]
    members["cut"] = whole[:-1]
    members["only an end"] = whole[-22:]
    return members


def test_zip(rig):
    """H6: archives that two readers could read differently are refused, with file and tensor"""
    for name, item in zip_tricks().items():
        folder = rig.stock(item=item, storage=[(W_INDEX, h.stored("__0_0.distcp", 0, len(item)))])
        result = rig.run("cat", folder, "w")
        assert result.status in (DAMAGED, UNSUPPORTED), (name, result.describe())
        assert result.stdout == b"" or result.stdout == W, (name, result.describe())
        assert "'w' in file '__0_0.distcp'" in result.stderr, (name, result.describe())
    folder = rig.stock(item=b"MZ" * 99 + W_ITEM, storage=[(W_INDEX, h.stored(
        "__0_0.distcp", 198, len(W_ITEM)))])
    rig.good(folder, W)  # the control: what is around the item does not matter


def test_zstd(rig):
    """H7: bombs: no more is decoded than the tensor has, in little memory"""
    packed = {"transform_descriptors": h.sequence(h.text("stream.zstd/1"))}
    frame = h.zstd_of_zeroes(1024)
    assert len(frame) < 40000
    cases = {
        "1 GiB from 32 KiB": frame,
        "a window of 2 TiB": h.zstd_of_zeroes(1, window=0xff),
        "a window of 1 GiB": h.zstd_of_zeroes(1, window=0xa0),
        "two frames": h.zstd_of_zeroes(1) * 2,
        "a skippable frame": b"\x50\x2a\x4d\x18\0\0\0\x7f" + h.zstd_of_zeroes(1),
        "a dictionary": b"\x28\xb5\x2f\xfd\x01\x58\x07" + h.zstd_of_zeroes(1)[6:],
        "cut": h.zstd_of_zeroes(1)[:-1],
        "not zstd": W_ITEM,
        "nothing": b"",
    }
    for name, item in cases.items():
        storage = h.stored("__0_0.distcp", 0, len(item), **packed)
        folder = rig.stock(item=item, storage=[(W_INDEX, storage)])
        rig.refused(folder, "zstd")
        folder = rig.stock(item=item, entries=[("w", h.blob())], storage=[(h.index("w"), storage)])
        if name != "1 GiB from 32 KiB":  # an object may have any size up to 1 GiB
            rig.refused(folder, "zstd")
    folder = rig.stock(item=frame, storage=[(W_INDEX, h.stored(
        "__0_0.distcp", 0, len(frame), transform_descriptors=h.sequence(h.text("rot13"))))])
    rig.refused(folder, "rot13", commands=["cat"], status=UNSUPPORTED)
    os.truncate(f"{folder}/__0_0.distcp", 1 << 33)
    h.put(folder, ".metadata", h.metadata([("w", W_ENTRY)], [(W_INDEX, h.stored(
        "__0_0.distcp", 0, 1 << 33, **packed))]))
    rig.refused(folder, ["8589934592 bytes", "w"])  # 8 GiB of holes for 24 bytes


def test_sharing(rig):
    """H5: two tensors in one item, offsets swapped: stock torch cannot tell, our footers can"""
    entries = [("w", W_ENTRY), ("v", W_ENTRY)]
    v_index = h.index("v", [0, 0])
    rig.good(rig.stock(entries=entries, storage=[(W_INDEX, W_STORED), (v_index, W_STORED)]), W)
    saver = Saver(os.path.dirname(rig.program))
    saver.save(rig.path("ours"), 1, [(b"v", 2, [2, 3], array.array("f", range(6))),
                                     (b"w", 2, [2, 3], array.array("f", range(6, 12)))], [])
    saver.close()
    folder = rig.path("ours")
    shown = json.loads(rig.run("--json", "show", "--chunks", folder).stdout)
    v, w = [entry["chunks"][0] for entry in shown["tensors"]]
    honest = [(v_index, v), (W_INDEX, w)]
    for forged in ([(v_index, w), (W_INDEX, v)], [(v_index, w), (W_INDEX, w)], honest):
        storage = [(key, h.stored(one["file"], one["file_offset"], one["file_bytes"]))
                   for key, one in forged]
        h.put(folder, ".metadata", h.metadata(entries, storage,
                                              storage_meta=h.storage_meta(shown["save_id"])))
        if forged is not honest:
            rig.refused(folder, "it lists another .metadata")
        h.forge_manifest(folder)
        if forged is not honest:
            rig.refused(folder, [".metadata and the footer of", shard_of(folder), "do not agree"],
                        commands=["verify"])
        # What is read is what the footer says, or nothing.
        if (W_INDEX, w) in forged:
            saved = rig.run("cat", folder, "w")
            assert saved.stdout == array.array("f", range(6, 12)).tobytes(), saved.describe()
        else:
            rig.refused(folder, ["'w'", "do not agree"], commands=["cat"])
    rig.good(folder)  # the control: forged, but correct


# ---- manifests and shards of ours

def test_downgrade(rig):
    """H12: without its manifest, or its save id, our checkpoint is not taken for torch's"""
    folder = rig.ours()
    whole, name = h.get(folder, ".metadata"), h.manifest_name(folder)
    manifest = h.get(folder, name)
    os.remove(f"{folder}/{name}")
    rig.refused(folder, ["its manifest", "is missing"], tensor="model.weight")
    shown = whole.replace(name.rsplit(".", 1)[1].encode(), b"x" * 32)
    assert shown != whole
    h.put(folder, ".metadata", shown)
    rig.refused(folder, ["belongs to save", "which .metadata does not name"], tensor="model.weight")
    h.put(folder, name, manifest)
    rig.refused(folder, ["belongs to save", "which .metadata does not name"], tensor="model.weight")


def test_foreign_id(rig):
    """H3: an invalid save id, beside two manifests: ls and latest go on"""
    folder = rig.ours()
    name = h.manifest_name(folder)
    h.put(folder, ".sidestep.manifest." + "0" * 32, h.get(folder, name))
    for forged in (b"../../../../../../../../../etc/x", b"x" * 32, b"%s%n%s%n%s%n%s%n%s%n%s%n%s%n%s%n"):
        whole = h.get(folder, ".metadata")
        h.put(folder, ".metadata", whole.replace(name.rsplit(".", 1)[1].encode(), forged))
        for arguments in (["ls", rig.folder], ["latest", rig.folder], ["verify", folder]):
            result = rig.run(*arguments)
            assert result.status == (0 if arguments[0] == "ls" else DAMAGED), result.describe()
        h.put(folder, ".metadata", whole)


def test_manifests(rig):
    """H8, H11: false statements in a manifest that is consistent"""
    folder = rig.ours()
    name = h.manifest_name(folder)
    whole = h.get(folder, name)
    shard = shard_of(folder)
    huge = (1 << 63) - 1
    cases = [
        (lambda d: d["files"][0].update(bytes=huge), f"instead of {huge}"),
        (lambda d: d["files"][0].update(name="../" + shard), "name"),
        (lambda d: d["files"][0].update(name="/etc/passwd"), "name"),
        (lambda d: d["files"][0].update(name="other"), "does not list"),
        (lambda d: d["files"].append(d["files"][0]), "twice"),
        (lambda d: d["files"].clear(), "does not list"),
        (lambda d: d["files"][0].update(origin="0" * 32), "belongs to save"),
        (lambda d: d["files"][0].update(footer_sha256="0" * 64), "not the file that the manifest"),
        (lambda d: d.update(save_id="0" * 32), "it belongs to save"),
        (lambda d: d.update(world_size=0), "world_size"),
        (lambda d: d.update(world_size=1 << 40), "world_size"),
        (lambda d: d["metadata"].update(bytes=1), "it lists another .metadata"),
        (lambda d: d.update(saved_at="\x1b[2J"), None),
        (lambda d: d.update(more=[[[[[[[[[[1]]]]]]]]]]), "nested too deep"),
        (lambda d: d.update(more=[0] * 1000000), None),
    ]
    for change, words in cases:
        h.forge_manifest(folder, change)
        if words is None:
            assert rig.run("verify", folder).status in (0, DAMAGED)
        else:
            rig.refused(folder, words, tensor="model.weight")
        h.put(folder, name, whole)
    h.forge_manifest(folder, lambda d: d.update(version=2))
    rig.refused(folder, "version 2", status=UNSUPPORTED, tensor="model.weight", commands=["cat"])
    h.forge_manifest(folder, lambda d: d.update(version=1, required_features="8" + "0" * 15))
    rig.refused(folder, "63", status=UNSUPPORTED, tensor="model.weight", commands=["cat"])
    h.put(folder, name, whole)
    rig.good(folder, tensor="model.weight")


def test_gap(rig):
    """H13: a shard with a hole of any size, and a manifest that agrees, is refused at once"""
    folder = rig.ours()
    shard = shard_of(folder)
    whole = h.get(folder, shard)
    footer = len(whole) - 64 - int.from_bytes(whole[-32:-24], "little")
    for hole in (3 << 20, 100 << 20, 1 << 42):
        with open(f"{folder}/{shard}", "wb") as file:
            file.write(whole[:footer])
            file.seek(hole, os.SEEK_CUR)
            file.write(whole[footer:])
        h.forge_manifest(folder, lambda d: d["files"][0].update(bytes=len(whole) + hole))
        if hole < 4 << 20:
            rig.good(folder, tensor="model.weight")
        else:
            rig.refused(folder, [shard, "a gap of", "after the last item"], tensor="model.weight")


def test_giants(rig):
    """H13: huge sparse files instead of .metadata, manifest and shard: refused by their size"""
    for name in (".metadata", "manifest", "shard"):
        folder = rig.ours(f"giant-{name}")
        file = {"manifest": h.manifest_name(folder), "shard": shard_of(folder)}.get(name, name)
        for size in (1 << 33, 1 << 42):
            os.truncate(f"{folder}/{file}", size)
            rig.refused(folder, [file, "bytes"], tensor="model.weight")


def test_names(rig):
    """H10: names with terminal escapes and format strings are printed harmlessly, also in errors"""
    for name in ("\x1b[2J\x1b]0;owned\x07", "%n%s%n%s", "\u202egnp.exe", "a\r\nok  b", "\x9b31m"):
        entry = h.tensor("float32", [2, 3], [([0, 0], [1, 3])])
        folder = rig.stock(entries=[(name, entry)], storage=[(h.index(name, [0, 0]), W_STORED)])
        for arguments in (["verify"], ["show"], ["show", "--tree"], ["--json", "verify"]):
            result = rig.run(*arguments, folder)
            for line in result.stdout.decode().splitlines():
                assert SANE.fullmatch(line), (name, result.describe())
                assert "\u202e" not in line, (name, result.describe())


def main(arguments):
    build = os.path.abspath(arguments[0] if arguments else "build")
    parts = arguments[1:]
    tests = [(name, function) for name, function in sorted(
        inspect.getmembers(sys.modules[__name__], inspect.isfunction),
        key=lambda pair: pair[1].__code__.co_firstlineno) if name.startswith("test_")
        and (not parts or any(part in name for part in parts))]
    failed = 0
    print(f"1..{len(tests)}")
    for number, (name, function) in enumerate(tests, 1):
        label = f"{number} - {function.__doc__.splitlines()[0]}"
        try:
            with Rig(os.path.join(build, "sidestep")) as rig:
                function(rig)
            print(f"ok {label}", flush=True)
        except harness.Skip as reason:
            print(f"ok {label} # SKIP {reason}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {label}")
            for line in traceback.format_exc().splitlines():
                print(f"# {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main(sys.argv[1:]))
