"""Checkpoints of stock torch: the exact output of each command."""
import ast
import os
import re
import struct

from harness import GOLDEN

NESTED = f"{GOLDEN}/torch-2.14.1/nested"
OLD_NESTED = f"{GOLDEN}/torch-2.6.0/nested"
FOUR_RANKS = f"{GOLDEN}/torch-2.14.1/four_ranks"

W = struct.pack("<6f", 0, 1, 2, 3, 4, 5)

NESTED_TABLES = r"""
TENSOR  DTYPE     SHAPE   SIZE  CHUNKS
o.a.0   bfloat16  [2]      4 B       1
s       int64     []       8 B       1
w       float32   [2, 3]  24 B       1

OBJECT      SIZE  VALUE
o.a.1.x  1.2 KiB  1
o.lst    1.2 KiB  [1, 2, 3]
o.tup    1.2 KiB  (1, 2)
step     1.2 KiB  3
"""

NESTED_TREE = r"""
o  (4, 3.7 KiB)
  a  (2, 1.2 KiB)
    0  bfloat16 [2]  4 B
    1  (1, 1.2 KiB)
      x  = 1
  lst  = [1, 2, 3]
  tup  = (1, 2)
s  int64 []  8 B
step  = 3
w  float32 [2, 3]  24 B
"""


def body(text):
    """The output of show after its heading, from the empty line on."""
    return "\n" + text.split("\n\n", 1)[1]


def npy_parts(data):
    """(version, header, bytes after it) of a .npy file, checked as NumPy checks it."""
    assert data[:6] == b"\x93NUMPY", data[:16]
    length, = struct.unpack_from("<H", data, 8)
    assert (10 + length) % 64 == 0 and data[10 + length - 1:10 + length] == b"\n", length
    return tuple(data[6:8]), ast.literal_eval(data[10:10 + length].decode()), data[10 + length:]


def test_show(sidestep):
    """show prints heading, tensors and objects"""
    result = sidestep.run("show", NESTED)
    assert result.status == 0 and result.stderr == "", result.describe()
    heading = result.stdout.split("\n\n")[0]
    assert re.match(f"path        {NESTED}\nformat      dcp\n", heading), heading
    assert re.search("\nsize        10.9 KiB\ntensors     3\nobjects     4$", heading), heading
    assert body(result.stdout) == NESTED_TABLES, result.stdout


def test_show_old(sidestep):
    """show reads checkpoints of an older torch"""
    result = sidestep.run("show", OLD_NESTED)
    assert result.status == 0 and result.stderr == "", result.describe()
    tables = NESTED_TABLES.replace("1.2 KiB", "864 B").replace("OBJECT      SIZE", "OBJECT    SIZE")
    assert body(result.stdout) == tables, result.stdout


def test_show_glob(sidestep):
    """show GLOB selects by name; status 10 if it selects nothing"""
    result = sidestep.run("show", NESTED, "o.[a-l]*")
    assert body(result.stdout) == "\n" + "\n".join([
        "TENSOR  DTYPE     SHAPE  SIZE  CHUNKS",
        "o.a.0   bfloat16  [2]     4 B       1",
        "",
        "OBJECT      SIZE  VALUE",
        "o.a.1.x  1.2 KiB  1",
        "o.lst    1.2 KiB  [1, 2, 3]", ""]), result.stdout
    sidestep.expect("show", NESTED, "x*", status=10,
                    stderr=f"sidestep: show: no name in '{NESTED}' matches 'x*'\n")
    assert sidestep.json_error("show", NESTED, "x*", status=10)["status"] == "ENOTFOUND"


def test_show_tree(sidestep):
    """show --tree nests names at their dots, with sums"""
    assert body(sidestep.run("show", "--tree", NESTED).stdout) == NESTED_TREE


def test_show_chunks(sidestep):
    """show --chunks lists file and offset of each chunk"""
    result = sidestep.run("show", "--chunks", FOUR_RANKS, "[uo]n*1")
    assert body(result.stdout) == "\n".join(
        ["", "only1", "  __1_0.distcp at 0, 1261 bytes", ""]), result.stdout
    result = sidestep.run("show", "--chunks", FOUR_RANKS, "w")
    assert body(result.stdout) == "\n".join([
        "", "w",
        "  [0, 0] + [2, 6]  __0_0.distcp at 1261, 1577 bytes",
        "  [2, 0] + [2, 6]  __1_0.distcp at 1261, 1577 bytes",
        "  [4, 0] + [2, 6]  __2_0.distcp at 2522, 1577 bytes",
        "  [6, 0] + [1, 6]  __3_0.distcp at 1261, 1577 bytes", ""]), result.stdout


def test_show_json(sidestep):
    """show --json has the stable fields, in order, and plain values"""
    shown = sidestep.json("show", NESTED)
    assert list(shown) == ["path", "format", "save_id", "step", "world_size", "bytes",
                           "shared_bytes", "damage", "unread", "tensors", "objects", "files"], shown
    assert shown["path"] == NESTED and shown["format"] == "dcp" and shown["bytes"] == 11205, shown
    assert shown["step"] is None, shown
    assert shown["tensors"][2] == {
        "name": "w", "dtype": "float32", "class": None, "shape": [2, 3], "bytes": 24,
        "chunks": [{"offsets": [0, 0], "lengths": [2, 3], "file": "__0_0.distcp",
                    "file_offset": 5044, "file_bytes": 1577, "transform": None}]}, shown
    assert shown["tensors"][1]["shape"] == [] and shown["tensors"][0]["dtype"] == "bfloat16", shown
    assert shown["objects"][1] == {"name": "o.lst", "bytes": 1261, "file": "__0_0.distcp",
                                   "file_offset": 2522, "file_bytes": 1261, "transform": None,
                                   "value": [1, 2, 3]}
    planes = sidestep.json("show", os.path.join(GOLDEN, "sidestep-1", "planes"), "model.w")
    assert planes["tensors"][0]["chunks"][0]["transform"] == "sidestep.planes/1", planes
    assert [entry["value"] for entry in shown["objects"]] == [1, [1, 2, 3], [1, 2], 3], shown


def test_show_json_ranks(sidestep):
    """show --json lists the chunks of every rank"""
    shown = sidestep.json("show", FOUR_RANKS)
    chunks = {entry["name"]: entry["chunks"] for entry in shown["tensors"]}
    assert [chunk["offsets"] for chunk in chunks["w"]] == [[0, 0], [2, 0], [4, 0], [6, 0]], chunks
    assert [chunk["lengths"] for chunk in chunks["c"]][:3] == [[7, 2], [7, 2], [7, 2]], chunks
    assert [entry["value"] for entry in shown["objects"]] == [0, 1, 2, 3, 1], shown["objects"]


def test_ls(sidestep):
    """ls lists torch's checkpoints"""
    root = os.path.dirname(NESTED)
    entries = sidestep.json("ls", root)["checkpoints"]
    assert [entry["name"] for entry in entries] == ["four_ranks", "nested"], entries
    for entry in entries:
        assert list(entry) == ["name", "path", "step", "state", "bytes", "files", "shared_files",
                               "small_files", "small_bytes", "ranks", "saved_at", "pinned", "abandoned", "renamed", "kept",
                               "kept_because", "tags",
                               "metrics", "layout", "reason", "target", "part_ranks"], entry
        assert entry["state"] == "committed" and entry["step"] is None, entry
        assert entry["path"] == os.path.join(root, entry["name"]), entry
        assert entry["bytes"] > 9000, entry
        assert entry["saved_at"] is None or re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
                                                         entry["saved_at"]), entry
    result = sidestep.run("ls", root)
    lines = result.stdout.splitlines()
    assert re.fullmatch(r"STEP  STATE      +SIZE  FILES  RANKS +AGE  NAME", lines[0]), lines
    assert re.fullmatch(r"   -  committed +\d+\.\d KiB +\d+ +(\d+|-) +(\d+ (s|min|h|d|y)|-)  "
                        r"four_ranks", lines[1]), lines
    assert len(lines) == 3 and result.stderr == "", result.describe()


def test_ls_steps(sidestep):
    """ls sorts by the number in a name, not by its digits"""
    for step in (100, 9, 20):
        sidestep.copy("torch-2.14.1/nested", f"step-{step}")
    entries = sidestep.json("ls", sidestep.folder)["checkpoints"]
    assert [entry["step"] for entry in entries] == [9, 20, 100], entries


def test_latest(sidestep):
    """latest prints only the path of the highest step that is whole"""
    for step in (100, 9, 20):
        sidestep.copy("torch-2.14.1/nested", f"step-{step}")
    sidestep.expect("latest", sidestep.folder, stdout=sidestep.path("step-100") + "\n")
    sidestep.expect("latest", "--verify", sidestep.folder, stdout=sidestep.path("step-100") + "\n")
    assert sidestep.json("latest", sidestep.folder)["path"] == sidestep.path("step-100")
    os.remove(sidestep.path("step-100/.metadata"))
    torn = "sidestep: passed over: .*step-100' is incomplete: .metadata is missing\n"
    damaged = "sidestep: passed over: .*step-20' is damaged: file '__0_0.distcp': it is missing\n"
    sidestep.expect("latest", sidestep.folder, stdout=sidestep.path("step-20") + "\n",
                    stderr=re.compile(torn))
    os.remove(sidestep.path("step-20/__0_0.distcp"))
    sidestep.expect("latest", sidestep.folder, stdout=sidestep.path("step-9") + "\n",
                    stderr=re.compile(torn + damaged))


def test_verify(sidestep):
    """verify finds no problem in torch's checkpoints"""
    for checkpoint in (NESTED, OLD_NESTED, FOUR_RANKS):
        report = sidestep.json("verify", checkpoint)
        assert list(report) == ["ok", "checked_bytes", "problems", "unlisted", "unchecked"], report
        assert report["ok"] is True and report["problems"] == [], report
        assert report["checked_bytes"] > 0, report
        sidestep.expect("verify", "-j", "2", checkpoint,
                        stdout=re.compile(rf"ok       {checkpoint}  [\d.]+ Ki?B checked\n"))


def test_verify_root(sidestep):
    """verify of a directory checks each checkpoint in it"""
    root = os.path.dirname(NESTED)
    report = sidestep.json("verify", root)
    assert list(report) == ["ok", "checked_bytes", "checkpoints", "unfinished", "counts"], report
    tensor = f"{root}/tensor.pt"
    assert [entry["path"] for entry in report["checkpoints"]] == [FOUR_RANKS, NESTED, tensor], report
    assert report["checked_bytes"] == sum(entry["checked_bytes"] for entry in report["checkpoints"])
    assert all(list(entry) == ["path", "ok", "checked_bytes", "problems", "unlisted", "unchecked",
                               "state", "reason"] for entry in report["checkpoints"]), report
    assert report["counts"] == {"ok": 3, "damaged": 0, "uncommitted": 0, "unreadable": 0, "dead": 0,
                                "saving": 0, "trash": 0, "other": 0, "gone": 0}, report
    sidestep.expect("verify", root, stdout=re.compile(
        f"ok       {FOUR_RANKS}  .* checked\nok       {NESTED}  .* checked\n"
        f"ok       {tensor}  .* checked\n"
        r"3 ok, 0 damaged, 0 uncommitted, 0 not readable; [\d.]+ \w+" "\n"))


def test_cat(sidestep):
    """cat writes the bytes of tensors, whichever ranks wrote them"""
    for name, expected in [("w", W), ("s", struct.pack("<q", 5)), ("o.a.0", b"\x80\x3f" * 2)]:
        sidestep.expect("cat", NESTED, name, binary=True, stdout=expected)
        sidestep.expect("cat", OLD_NESTED, name, binary=True, stdout=expected)
    for name in ("w", "c"):
        sidestep.expect("cat", FOUR_RANKS, name, binary=True, stdout=struct.pack("<42f", *range(42)))
    sidestep.expect("cat", FOUR_RANKS, "uneven", binary=True, stdout=struct.pack("<2f", 0, 1))


def test_cat_npy(sidestep):
    """cat --npy writes a file that NumPy reads"""
    for name, header, data in [
            ("w", {"descr": "<f4", "fortran_order": False, "shape": (2, 3)}, W),
            ("s", {"descr": "<i8", "fortran_order": False, "shape": ()}, struct.pack("<q", 5))]:
        result = sidestep.run("cat", "--npy", NESTED, name, binary=True)
        assert result.status == 0 and npy_parts(result.stdout) == ((1, 0), header, data), \
            result.describe()
    result = sidestep.run("cat", "--npy", FOUR_RANKS, "plain", binary=True)
    assert npy_parts(result.stdout)[1]["shape"] == (3,), result.describe()
    sidestep.expect("cat", "--npy", NESTED, "o.a.0", status=5,
                    stderr="sidestep: cat: 'o.a.0' is bfloat16, which NumPy lacks; without --npy its "
                    "bytes are written as they are\n")


def test_cat_object(sidestep):
    """cat of an object: its stored bytes, or with --value JSON"""
    with open(f"{NESTED}/__0_0.distcp", "rb") as file:
        stored = file.read()[2522:2522 + 1261]
    sidestep.expect("cat", NESTED, "o.lst", binary=True, stdout=stored)
    for name, value in [("o.lst", "[1,2,3]"), ("o.tup", "[1,2]"), ("step", "3")]:
        sidestep.expect("cat", "--value", NESTED, name, stdout=value + "\n")
        status, shown = sidestep.on_terminal("cat", "--value", NESTED, name)
        assert status == 0 and shown == value + "\r\n", shown


def test_cat_wrong(sidestep):
    """cat reports missing names and options that do not fit"""
    sidestep.expect("cat", NESTED, "stop", status=10,
                    stderr=f"sidestep: cat: no 'stop' in '{NESTED}'; did you mean 'step'?\n")
    sidestep.expect("cat", NESTED, "optimizer", status=10,
                    stderr=f"sidestep: cat: no 'optimizer' in '{NESTED}'\n")
    sidestep.expect("cat", "--value", NESTED, "w", status=2,
                    stderr="sidestep: cat: 'w' is a tensor; --value is for objects\n")
    sidestep.expect("cat", "--npy", NESTED, "step", status=2,
                    stderr="sidestep: cat: 'step' is an object; --npy is for tensors\n")
    assert sidestep.json_error("cat", NESTED, "stop", status=10)["status"] == "ENOTFOUND"


def test_rebuild_refuses(sidestep):
    """rebuild refuses a readable .metadata, and torch's checkpoints"""
    checkpoint = sidestep.copy("torch-2.14.1/nested")
    assert sidestep.run("rebuild", checkpoint).status not in (0, 2)
    os.remove(f"{checkpoint}/.metadata")
    result = sidestep.run("rebuild", checkpoint)
    assert result.status not in (0, 2) and result.stderr.count("\n") == 1, result.describe()
    assert os.listdir(checkpoint) == ["__0_0.distcp"]


def test_gc_leaves_checkpoints(sidestep):
    """gc touches neither checkpoints nor foreign files"""
    sidestep.copy("torch-2.14.1/nested", "step-1")
    os.mkdir(sidestep.path("notes"))
    os.mkdir(sidestep.path(".saving"))
    sidestep.expect("gc", "--yes", sidestep.folder, stderr="sidestep: nothing to remove\n",
                    stdout=re.compile("(kept .*\n)*"))
    assert sorted(os.listdir(sidestep.folder)) == [".saving", "notes", "step-1"]
    assert sidestep.json("verify", sidestep.path("step-1"))["ok"]


def test_reading_changes_nothing(sidestep):
    """no reading command creates or changes a file"""
    checkpoint = sidestep.copy("torch-2.14.1/four_ranks")
    before = {name: os.stat(f"{checkpoint}/{name}").st_mtime_ns for name in os.listdir(checkpoint)}
    for arguments in [["ls", sidestep.folder], ["show", checkpoint], ["latest", sidestep.folder],
                      ["verify", checkpoint], ["cat", checkpoint, "w"], ["gc", "-n", sidestep.folder]]:
        assert sidestep.run(*arguments, binary=True).status == 0, arguments
    after = {name: os.stat(f"{checkpoint}/{name}").st_mtime_ns for name in os.listdir(checkpoint)}
    assert before == after and os.listdir(sidestep.folder) == ["ckpt"]


def test_not_a_directory(sidestep):
    """a file instead of a directory is wrong usage, and its checkpoint is suggested"""
    path = f"{NESTED}/__0_0.distcp"
    for command, operand in (("ls", "ROOT"), ("show", "CKPT"), ("verify", "PATH"),
                             ("latest", "ROOT"), ("rebuild", "CKPT"), ("gc", "PARENT")):
        sidestep.expect(command, path, status=2, stderr=f"sidestep: {command}: '{path}' is a file, "
                        f"{operand} is a directory; did you mean '{NESTED}'?\n"
                        f"Try 'sidestep help {command}'.\n")
    sidestep.expect("verify", "README.md", status=5,
                    stderr="sidestep: 'README.md' is neither a checkpoint nor a file of tensors\n")
    assert sidestep.json_error("verify", path, status=2)["status"] == "EINVAL"


def test_sizes_agree(sidestep):
    """ls, show and verify print the same number of bytes: that of the files"""
    for name in ("torch-2.14.1/nested", "torch-2.14.1/four_ranks", "torch-2.6.0/nested"):
        checkpoint = sidestep.copy(name, name.replace("/", "-"))
        size = sum(os.path.getsize(os.path.join(checkpoint, file))
                   for file in os.listdir(checkpoint))
        listed, = [entry for entry in sidestep.json("ls", sidestep.folder)["checkpoints"]
                   if entry["path"] == checkpoint]
        got = (listed["bytes"], sidestep.json("show", checkpoint)["bytes"],
               sidestep.json("verify", checkpoint)["checked_bytes"])
        assert got == (size, size, size), (name, got, size)
