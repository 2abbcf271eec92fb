"""Comparing checkpoints, and watching saves under way."""
import array
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

from harness import GOLDEN, one_line
from saved_cases import F_OFD_SETLK, saved
from saver import FLOAT32, INT64, Saver

ID = "0123456789abcdef0123456789abcdef"


def two(sidestep, a, b, **objects):
    """Save tensors {name: (dtype, shape, numbers)} as a and b."""
    saver = Saver(os.path.dirname(sidestep.program))
    for name, tensors in (("a", a), ("b", b)):
        codes = {FLOAT32: "f", INT64: "q"}
        saver.save(sidestep.path(name), 1,
                   [(key.encode(), dtype, shape, array.array(codes[dtype], numbers))
                    for key, (dtype, shape, numbers) in tensors.items()],
                   [(key.encode(), values[name == "b"]) for key, values in objects.items()])
    saver.close()
    return sidestep.path("a"), sidestep.path("b")


def not_read(count):
    """what diff adds when tensors were compared by their checksums"""
    return f"sidestep: {count} are alike by their checksums, and were not read ('sidestep verify' does)\n"


def test_diff_of_equal_ones(sidestep):
    """diff of two equal checkpoints says so, without reading them"""
    a = saved(sidestep, 1)
    saved(sidestep, 2)
    b = sidestep.path("step-2")
    sidestep.expect("diff", a, b, stdout="same: 3 alike, 0 not\n", stderr=not_read(2))
    report = sidestep.json("diff", a, b)
    assert report == {"same": True, "same_count": 3, "same_by_hash": 2, "read_bytes": 0,
                      "differences": []}, report


def test_diff_of_other_formats(sidestep):
    """diff compares what convert made with what it was made of"""
    a, b = two(sidestep, {"w": (FLOAT32, (2,), [1, 2])}, {"w": (FLOAT32, (2,), [1, 4])}, step=(1, 2))
    for name in ("c.safetensors", "c"):
        sidestep.json("convert", "--objects=skip", a, sidestep.path(name))
        told = sidestep.json("diff", sidestep.path(name), a, status=1)["differences"]
        assert [(d["name"], d["kind"]) for d in told] == [("step", "only_b")], (name, told)
        told = sidestep.json("diff", b, sidestep.path(name), status=1)["differences"]
        assert [(d["name"], d["kind"]) for d in told] == [("step", "only_a"), ("w", "data")], told
    sidestep.json("convert", a, sidestep.path("d.pt"))
    told = sidestep.json("diff", b, sidestep.path("d.pt"), status=1)["differences"]
    assert [(d["name"], d["kind"]) for d in told] == [("step", "value"), ("w", "data")], told


def test_diff(sidestep):
    """diff names what differs, by how much, and where first; status 1"""
    a, b = two(sidestep,
               {"same": (FLOAT32, (2,), [1, 2]), "gone": (FLOAT32, (1,), [1]),
                "w": (FLOAT32, (2, 2), [1, 2, 3, 4]), "shape": (INT64, (2,), [1, 2]),
                "dtype": (INT64, (2,), [1, 2])},
               {"same": (FLOAT32, (2,), [1, 2]), "new": (FLOAT32, (1,), [1]),
                "w": (FLOAT32, (2, 2), [1, 2, 3.5, 8]), "shape": (INT64, (1, 2), [1, 2]),
                "dtype": (FLOAT32, (2,), [1, 2])}, step=(1, 2), epoch=(3, 3))
    sidestep.expect("diff", a, b, status=1, stderr=not_read(1), stdout=(
        "dtype: int64 [2], and float32 [2]\ngone: float32 [1], in the first only\n"
        "new: float32 [1], in the second only\nshape: int64 [2], and int64 [1,2]\n"
        "step: the values differ\n"
        "DIFFERENT  MAX ABS  MAX REL  FIRST   TENSOR\n"
        "        2        4      0.5  [1, 0]  w\n"
        "different: 2 alike, 6 not\n"))
    report = sidestep.json("diff", "-j", "1", a, b, status=1)
    kinds = {entry["name"]: entry["kind"] for entry in report["differences"]}
    assert kinds == {"dtype": "dtype", "gone": "only_a", "new": "only_b", "shape": "shape",
                     "step": "value", "w": "data"}, report
    w = report["differences"][-1]
    assert (w["elements"], w["max_abs"], w["max_rel"], w["first"]) == (2, 4.0, 0.5, [1, 0]), w
    assert report["differences"][0]["first"] is None and not report["same"], report


def test_diff_of_not_a_number(sidestep):
    """diff reports an infinite difference between NaN and a number"""
    nan = float("nan")
    a, b = two(sidestep, {"w": (FLOAT32, (3,), [1, nan, 0])}, {"w": (FLOAT32, (3,), [1, 5, 0])})
    sidestep.expect("diff", a, b, status=1, stdout=re.compile(
        r"(?s).*\n +1 +inf +inf +\[1\] +w\n.*"))
    w, = sidestep.json("diff", a, b, status=1)["differences"]
    assert (w["max_abs"], w["max_rel"]) == ("Infinity", "Infinity"), w


def test_diff_of_what_torch_wrote(sidestep):
    """diff reads torch's checkpoints, which have no hashes to compare"""
    a = os.path.join(GOLDEN, "torch-2.14.1", "four_ranks")
    b = sidestep.copy("torch-2.14.1/four_ranks")
    report = sidestep.json("diff", a, b)
    assert report["same"] and report["same_by_hash"] == 0 and report["read_bytes"] > 0, report
    assert report["same_count"] == len(sidestep.json("show", a)["tensors"]) + len(
        sidestep.json("show", a)["objects"]), report


def test_diff_trouble(sidestep):
    """diff of what cannot be read has a status other than 1"""
    a = saved(sidestep, 1)
    assert sidestep.run("diff", a, sidestep.path("nowhere")).status == 10
    assert sidestep.run("diff", a, sidestep.folder).status == 4
    sidestep.expect("diff", a, status=2, stderr=re.compile(r"(?s)sidestep: diff: .*"))
    sidestep.expect("diff", "--threads=0", a, a, status=2, stderr=re.compile(r"(?s).*threads.*"))
    shard, = [name for name in os.listdir(a) if name.endswith(".distcp")]
    b = saved(sidestep, 2)
    with open(os.path.join(b, ".metadata"), "r+b") as file:
        file.write(b"x")
    sidestep.expect("diff", a, b, status=3, stderr=one_line("compare", a, b))
    assert shard


# ---- watch

class Saving:
    """A save under way, as storage shows it: rank 0 half done, rank 1 sealed, rank 2 done."""

    def __init__(self, sidestep, in_place=None):
        self.folder = in_place or sidestep.path(f".sidestep.{ID}.saving")
        os.makedirs(self.folder, exist_ok=True)
        self.mark = open(os.path.join(self.folder, f".sidestep.{ID}.pending"), "w+")
        self.mark.write(f"target step-12\nowner 4711\nhost node-3\nrun {ID}\n")
        self.mark.flush()
        self.lock()
        tag = f".{ID}" if in_place else ""
        for rank, name, bytes_there in ((0, f"__0_0{tag}.distcp.part", 1 << 20),
                                        (1, f"__1_0{tag}.distcp", 2 << 20),
                                        (2, f"__2_0{tag}.distcp", 2 << 20)):
            with open(os.path.join(self.folder, name), "wb") as file:
                file.truncate(2 << 20)
                file.write(b"x" * bytes_there)
            assert rank < 3
        with open(os.path.join(self.folder, f"__2.{ID}.yes"), "w"):
            pass

    def lock(self):
        fcntl.fcntl(self.mark, F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))


def test_watch_once(sidestep):
    """watch shows a save under way: its ranks, what is written, and its owner"""
    saved(sidestep, 1)
    save = Saving(sidestep)
    seen = sidestep.json("watch", "--once", sidestep.folder)
    one, = seen["saving"]
    assert (one["name"], one["step"], one["owner"]) == ("step-12", 12, "process 4711 on node-3"), one
    assert (one["ranks"], one["done"], one["failed"], one["dead"]) == (3, 1, 0, False), one
    assert one["total_bytes"] == 6 << 20 and one["written_bytes"] in (5 << 20, 6 << 20), one
    assert [writer["state"] for writer in one["writers"]] == ["writing", "sealed", "done"], one
    assert one["bytes_per_second"] is None and one["seconds_left"] is None, one
    assert seen["ended"] == [], seen
    sidestep.expect("watch", "--once", sidestep.folder, stdout=re.compile(
        r"step-12 +(83|100) %  [56]\.0 MiB of 6\.0 MiB  3 ranks, 1 done\n"))
    save.mark.close()
    assert sidestep.json("watch", "--once", sidestep.folder)["saving"][0]["dead"]
    assert " dead: " in sidestep.run("watch", "--once", sidestep.folder).stdout


def test_watch_in_place(sidestep):
    """watch sees a save that replaces a checkpoint, and not that checkpoint's own files"""
    Saving(sidestep, in_place=saved(sidestep, 1))
    one, = sidestep.json("watch", "--once", sidestep.folder)["saving"]
    assert one["path"] == sidestep.path("step-1") and one["ranks"] == 3, one
    assert one["total_bytes"] == 6 << 20, one


def test_watch_nothing(sidestep):
    """watch of a root without saves, and of a missing root"""
    saved(sidestep, 1)
    sidestep.expect("watch", "--once", sidestep.folder, stdout="nothing is being saved\n")
    assert sidestep.json("watch", "--once", sidestep.folder) == {
        "root": sidestep.folder, "saving": [], "ended": [], "unread": [], "error": None}
    assert sidestep.run("watch", "--once", sidestep.path("nowhere")).status == 10
    for interval in ("x", "0", "0.001", "2d"):
        assert sidestep.run("watch", "--interval", interval, sidestep.folder).status == 2


def test_watch_several(sidestep):
    """watch of several roots names each; one that is missing ends it only if it is alone"""
    save, other, missing = Saving(sidestep), sidestep.path("other"), sidestep.path("no")
    os.mkdir(other)
    sidestep.expect("watch", "--once", sidestep.folder, other, stdout=re.compile(
        rf"{sidestep.folder}: step-12  .* 3 ranks, 1 done\n{other}: nothing is being saved\n"))
    sidestep.expect("watch", "--once", other, missing, status=10, stdout=re.compile(
        rf"{other}: nothing is being saved\n{missing}: .*No such file or directory\n"))
    result = sidestep.run("--json", "watch", "--once", sidestep.folder, missing)
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["root"], len(first["saving"]), first["error"]) == (sidestep.folder, 1, None), first
    assert (second["root"], second["saving"]) == (missing, []) and "No such" in second["error"], second
    save.mark.close()


def on_terminal(sidestep, rows, *arguments, until=None):
    """What `watch` writes to a terminal of so many rows; it is interrupted at ${until}."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 40, 0, 0))
    process = subprocess.Popen([sidestep.program, "watch", *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
                               env=sidestep.environment())
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # EIO: it has ended
            break
        shown += piece
        if until is not None and until in shown:
            process.send_signal(signal.SIGINT)
            until = None
    os.close(ours)
    assert process.wait(60) == 0
    return shown.decode().replace("\r\n", "\n")


def test_watch_on_a_terminal(sidestep):
    """watch draws bars and ranks, the slowest first, in no more lines than the terminal has"""
    save = Saving(sidestep)
    for rank in range(3, 203):
        with open(os.path.join(save.folder, f"__{rank}_0.distcp.part"), "wb") as file:
            file.truncate(2 << 20)
    shown = on_terminal(sidestep, 30, "--once", "--color=never", sidestep.folder)
    assert shown.startswith("\x1b[?7l") and shown.endswith("\x1b[?7h"), shown
    lines = shown[5:-5].split("\n")[:-1]
    assert len(lines) == 29, lines
    assert re.fullmatch(r"step-12  \[-{24}\] +[01] %  .*  203 ranks, 1 done", lines[0]), lines[0]
    assert re.fullmatch(r"  rank 3     \[-{24}\]   0 %  writing  0 B of 2\.0 MiB", lines[1]), lines[1]
    assert lines[-1] == "  and 176 more ranks, which are further", lines[-1]
    for rows in (4, 10):  # it stays within them, and draws over what it has drawn
        shown = on_terminal(sidestep, rows, "-i", "0.01s", "--color=never", sidestep.folder, sidestep.folder,
                            until=b"A\x1b[J")
        counts = {int(count) for count in re.findall(r"\x1b\[(\d+)A\x1b\[J", shown)}
        assert counts == {rows - 1}, (rows, shown)
        assert max(frame.count("\n") for frame in shown.split("\x1b[?7l")) == rows - 1, shown
    save.mark.close()


def test_watch_until_interrupted(sidestep):
    """watch follows a save to its end, and ends on an interrupt with status 0"""
    saved(sidestep, 1)
    save = Saving(sidestep)
    process = subprocess.Popen([sidestep.program, "watch", "-i", "0.05", sidestep.folder],
                               stdout=subprocess.PIPE, text=True, env=sidestep.environment())
    try:
        lines = [process.stdout.readline()]
        with open(os.path.join(save.folder, "__0_0.distcp.part"), "r+b") as file:
            file.seek(1 << 20)
            file.write(b"y" * (1 << 20))
        lines += [process.stdout.readline() for _ in range(2)]
        assert lines[0].startswith("step-12 ") and "/s" in lines[2], lines
        # Without its marker it is no longer a save; no checkpoint has its id.
        os.rename(save.folder, sidestep.path("foreign"))
        os.unlink(os.path.join(sidestep.path("foreign"), f".sidestep.{ID}.pending"))
        for line in process.stdout:
            lines.append(line)
            if line == "nothing is being saved\n":
                break
        assert lines[-2] == "step-12  aborted\n", lines
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_watch_sees_a_commit(sidestep):
    """watch reports that a save was committed, when its checkpoint exists"""
    b = saved(sidestep, 1)
    save_id = sidestep.json("show", b)["save_id"]
    hidden = sidestep.path(f".sidestep.{save_id}.saving")
    os.rename(b, hidden)
    process = subprocess.Popen([sidestep.program, "watch", "--json", "-i", "0.05", sidestep.folder],
                               stdout=subprocess.PIPE, text=True, env=sidestep.environment())
    try:
        assert save_id in process.stdout.readline()
        os.rename(hidden, b)
        for line in process.stdout:
            if "committed" in line:
                break
        assert f'"save_id":"{save_id}","committed":true' in line, line
    finally:
        process.kill()
        process.wait()
