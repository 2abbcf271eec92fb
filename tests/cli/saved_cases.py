"""Checkpoints that sidestep wrote: steps, footers, large tensors, rebuild, gc."""
import array
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess

from saver import FLOAT32, Saver

W = struct.pack("<6f", 0, 1, 2, 3, 4, 5)
F_OFD_SETLK = 37  # Linux; the fcntl module has no name for it


def saved(sidestep, *steps, make=Saver.small):
    """Save step-N for each step."""
    saver = Saver(os.path.dirname(sidestep.program))
    for step in steps:
        make(saver, sidestep.path(f"step-{step}"), step)
    saver.close()
    return sidestep.path(f"step-{steps[-1]}")


def shard_of(checkpoint):
    name, = [name for name in os.listdir(checkpoint) if name.endswith(".distcp")]
    return name


def test_ls(sidestep):
    """ls shows step, ranks, time and size of sidestep's checkpoints"""
    saved(sidestep, 100, 9)
    first, second = sidestep.json("ls", sidestep.folder)["checkpoints"]
    assert (first["name"], first["step"], second["step"]) == ("step-9", 9, 100), first
    for entry in (first, second):
        assert entry["bytes"] == sidestep.json("show", entry["path"])["bytes"], entry
        assert entry["bytes"] == sidestep.json("verify", entry["path"])["checked_bytes"], entry
        assert entry["state"] == "committed" and entry["ranks"] == 1, entry
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["saved_at"]), entry
        sizes = [os.path.getsize(os.path.join(entry["path"], name))
                 for name in os.listdir(entry["path"])]
        assert entry["bytes"] == sum(sizes) and entry["files"] == len(sizes), (entry, sizes)
    sidestep.expect("ls", sidestep.folder, stdout=re.compile(
        r"STEP  STATE +SIZE  FILES  RANKS +AGE  NAME\n"
        r"   9  committed +[\d.]+ KiB +3 +1 +\d+ (s|min)  step-9\n"
        r" 100  committed +[\d.]+ KiB +3 +1 +\d+ (s|min)  step-100\n"))
    assert re.search(r"  20\d\d-\S+Z  step-9\n", sidestep.run("ls", "-v", sidestep.folder).stdout)


def test_show(sidestep):
    """show prints writer, step and contents"""
    checkpoint = saved(sidestep, 100)
    result = sidestep.run("show", checkpoint)
    assert re.fullmatch(
        rf"path        {checkpoint}\nformat      sidestep\nsave id     [0-9a-f]{{32}}\n"
        r"step        100\nranks       1\nsize        [\d.]+ KiB\ntensors     2\nobjects     1\n\n"
        r"TENSOR        DTYPE    SHAPE   SIZE  CHUNKS\n"
        r"count         int64    \[\]       8 B       1\n"
        r"model.weight  float32  \[2, 3\]  24 B       1\n\n"
        r"OBJECT +SIZE  VALUE\nepoch   +[\d.]+ K?i?B  3\n", result.stdout), result.describe()
    shown = sidestep.json("show", checkpoint)
    assert (shown["format"], shown["step"], shown["world_size"]) == ("sidestep", 100, 1), shown
    assert re.fullmatch("[0-9a-f]{32}", shown["save_id"]), shown
    assert [entry["value"] for entry in shown["objects"]] == [3], shown


def test_verify(sidestep):
    """verify checks sidestep's checkpoints, one and many"""
    checkpoint = saved(sidestep, 1, 2)
    report = sidestep.json("verify", checkpoint)
    assert report["ok"] and report["problems"] == [] and report["checked_bytes"] > 32, report
    assert sidestep.run("verify", sidestep.folder).stdout.count("\nok       ") == 1
    sidestep.expect("latest", "--verify", sidestep.folder, stdout=checkpoint + "\n")


def test_damage(sidestep):
    """a flipped bit is found, named, and passed over; no damaged byte reaches standard output"""
    checkpoint = saved(sidestep, 1, 2)
    shard = os.path.join(checkpoint, shard_of(checkpoint))
    with open(shard, "r+b") as file:
        data = file.read()
        file.seek(data.index(W) + 9)
        file.write(b"\x77")
    report = sidestep.json("verify", checkpoint, status=3)
    problem, = report["problems"]
    assert problem["file"] == os.path.basename(shard) and problem["name"] == "model.weight", problem
    assert problem["kind"] == "hash", problem
    assert re.fullmatch(r"bytes \d+ to \d+ do not match their hash", problem["message"]), problem
    result = sidestep.run("verify", checkpoint)
    assert result.stdout.count("model.weight") == 1, result.describe()
    assert result.stdout.count(os.path.basename(shard)) == 1, result.describe()
    result = sidestep.run("cat", checkpoint, "model.weight", binary=True)
    assert result.status == 3 and result.stdout == b"", result.describe()
    sidestep.expect("latest", "--verify", sidestep.folder, stdout=sidestep.path("step-1") + "\n",
                    stderr=re.compile(f"sidestep: passed over: '{checkpoint}' is damaged: __0_0.distcp: "
                                      "model.weight: bytes .*\n"))


def test_what_lies_before_a_cut(sidestep):
    """of a shard that was cut, only what followed the cut is lost"""
    numbers = array.array("f", range(1 << 18))
    checkpoint = saved(sidestep, 1, make=lambda saver, path, step: saver.save(
        path, step, [(name, FLOAT32, [1 << 18], numbers) for name in (b"a", b"b", b"c")], []))
    shard = os.path.join(checkpoint, shard_of(checkpoint))
    tensors = sorted(sidestep.json("show", checkpoint)["tensors"],
                     key=lambda tensor: tensor["chunks"][0]["file_offset"])
    chunk = tensors[1]["chunks"][0]
    os.truncate(shard, chunk["file_offset"] + chunk["file_bytes"] // 2)
    report = sidestep.json("verify", checkpoint, status=3)
    lost = {problem["name"] for problem in report["problems"] if problem["name"] is not None}
    assert lost == {tensors[1]["name"], tensors[2]["name"]}, report
    assert {problem["kind"] for problem in report["problems"]} == {"size"}, report
    with open(shard, "r+b") as file:
        file.seek(tensors[0]["chunks"][0]["file_offset"] + 100000)
        file.write(b"\xff")
    report = sidestep.json("verify", checkpoint, status=3)
    assert tensors[0]["name"] in {problem["name"] for problem in report["problems"]}, report


def test_cat(sidestep):
    """cat writes what was saved"""
    checkpoint = saved(sidestep, 1)
    sidestep.expect("cat", checkpoint, "model.weight", binary=True, stdout=W)
    sidestep.expect("cat", checkpoint, "count", binary=True, stdout=struct.pack("<q", -7))
    sidestep.expect("cat", "--value", checkpoint, "epoch", stdout="3\n")


def test_cat_big(sidestep):
    """cat writes a tensor that is larger than its memory in pieces, in order"""
    shape = [3, 5, 2500, 1000]
    numbers = array.array("f", range(2500000)) * 15
    checkpoint = saved(sidestep, 1, make=lambda saver, path, step: saver.save(
        path, step, [(b"big", FLOAT32, shape, numbers)], []))
    with open(sidestep.path("out"), "wb") as out:
        result = sidestep.run("cat", checkpoint, "big", stdout=out)
    assert result.status == 0 and result.stderr == "", result.describe()
    with open(sidestep.path("out"), "rb") as file:
        assert file.read() == numbers.tobytes()
    with open("/dev/full", "wb") as full:
        result = sidestep.run("cat", checkpoint, "big", stdout=full)
    assert result.status == 28, result.describe()


def test_cat_npy_of_damage(sidestep):
    """cat --npy of a damaged tensor writes nothing, not even the header, whatever its size"""
    for count in (1000, 15 << 20):  # one piece, and two
        numbers = array.array("f", range(1000)) * (count // 1000)
        checkpoint = saved(sidestep, count, make=lambda saver, path, step: saver.save(
            path, step, [(b"w", FLOAT32, [len(numbers)], numbers)], []))
        result = sidestep.run("cat", "--npy", checkpoint, "w", binary=True)
        assert result.status == 0 and result.stdout.endswith(numbers.tobytes()), count
        assert result.stdout.startswith(b"\x93NUMPY"), count
        place = sidestep.json("show", checkpoint)["tensors"][0]["chunks"][0]
        with open(os.path.join(checkpoint, place["file"]), "r+b") as file:
            file.seek(place["file_offset"] + place["file_bytes"] - 2000)
            file.write(b"\xff\xff")
        result = sidestep.run("cat", "--npy", checkpoint, "w", binary=True)
        assert result.status == 3 and result.stdout == b"", (count, len(result.stdout))


def test_cat_memory(sidestep):
    """cat writes a tensor of 300 MB with room for less than half of it"""
    numbers = array.array("f", bytes(300000000))
    checkpoint = saved(sidestep, 1, make=lambda saver, path, step: saver.save(
        path, step, [(b"big", FLOAT32, [75000000], numbers)], []))
    limited = 'ulimit -v 140000; exec "$0" cat "$1" big | wc -c'
    done = subprocess.run(["sh", "-c", limited, sidestep.program, checkpoint], capture_output=True,
                          text=True, env=sidestep.environment(), check=False)
    assert done.stdout.strip() == "300000000" and done.stderr == "", done


def test_hostile_names(sidestep):
    """names with control characters are saved, escaped in tables, and exact in JSON"""
    name = "layer\x1b[31m\n\u202e.w"
    checkpoint = saved(sidestep, 1, make=lambda saver, path, step: saver.save(
        path, step, [(name.encode(), FLOAT32, [1], array.array("f", [1]))], []))
    assert r"layer\x1b[31m\n\u202e.w  float32  [1]" in sidestep.run("show", checkpoint).stdout
    tree = sidestep.run("show", "--tree", checkpoint).stdout
    assert tree.endswith("layer\\x1b[31m\\n\\u202e  (1, 4 B)\n  w  float32 [1]  4 B\n"), tree
    assert sidestep.json("show", checkpoint)["tensors"][0]["name"] == name
    sidestep.expect("cat", checkpoint, name, binary=True, stdout=struct.pack("<f", 1))


def test_rebuild(sidestep):
    """rebuild writes a lost .metadata again, and refuses a readable one"""
    checkpoint = saved(sidestep, 100)
    before = sidestep.json("show", checkpoint)
    result = sidestep.run("rebuild", checkpoint)
    assert result.status not in (0, 2) and result.stderr.count("\n") == 1, result.describe()
    os.remove(os.path.join(checkpoint, ".metadata"))
    assert sidestep.run("show", checkpoint).status == 4
    sidestep.expect("rebuild", checkpoint, stdout=f"rebuilt {checkpoint}\n")
    after = sidestep.json("show", checkpoint)
    assert after["tensors"] == before["tensors"] and after["objects"] == before["objects"], after
    assert sidestep.json("verify", checkpoint)["ok"]
    os.remove(os.path.join(checkpoint, ".metadata"))
    assert sidestep.json("rebuild", checkpoint) == {"path": checkpoint, "rebuilt": True}


def test_rebuild_keeps_step_and_time(sidestep):
    """rebuild takes step and time from the manifest, never from the directory's name"""
    checkpoint = saved(sidestep, 100)
    listed, = sidestep.json("ls", sidestep.folder)["checkpoints"]
    moved = sidestep.path("best-of-3")
    os.rename(checkpoint, moved)
    os.remove(os.path.join(moved, ".metadata"))
    sidestep.expect("rebuild", moved, stdout=f"rebuilt {moved}\n")
    again, = sidestep.json("ls", sidestep.folder)["checkpoints"]
    assert (again["step"], again["saved_at"]) == (100, listed["saved_at"]), again
    # Without its manifest the step is unknown, whatever the name of the directory.
    for name in os.listdir(moved):
        if name == ".metadata" or "manifest" in name:
            os.remove(os.path.join(moved, name))
    os.rename(moved, sidestep.path("step-7"))
    assert sidestep.run("rebuild", sidestep.path("step-7")).status == 0
    assert sidestep.json("show", sidestep.path("step-7"))["step"] is None
    assert sidestep.json("verify", sidestep.path("step-7"))["ok"]
    # A manifest of another save shows nothing about this one.
    os.remove(os.path.join(sidestep.path("step-7"), ".metadata"))
    other = saved(sidestep, 8)
    stranger, = [name for name in os.listdir(other) if "manifest" in name]
    mine, = [name for name in os.listdir(sidestep.path("step-7")) if "manifest" in name]
    shutil.copy(os.path.join(other, stranger), os.path.join(sidestep.path("step-7"), mine))
    assert sidestep.run("rebuild", sidestep.path("step-7")).status == 0
    assert sidestep.json("show", sidestep.path("step-7"))["step"] is None


def test_latest_by_step(sidestep):
    """latest goes by the step, and ignores numbers that are not steps"""
    checkpoint = saved(sidestep, 9, 100)
    stock = sidestep.copy("torch-2.14.1/nested", "llama-3000")
    sidestep.expect("latest", sidestep.folder, stdout=checkpoint + "\n")
    entry, = [entry for entry in sidestep.json("ls", sidestep.folder)["checkpoints"]
              if entry["path"] == stock]
    assert entry["step"] is None, entry


def leave_unfinished(sidestep):
    """Make what a killed save leaves: a directory with its hidden name, and an unlocked marker."""
    checkpoint = saved(sidestep, 1, 2)
    name = ".sidestep." + "ab" * 16
    left = sidestep.path(name + ".saving")
    shutil.move(checkpoint, left)
    os.remove(os.path.join(left, ".metadata"))
    with open(os.path.join(left, name + ".pending"), "w", encoding="utf-8") as mark:
        mark.write(f"target step-2\nowner 1\nhost {socket.gethostname()}\nrun \n")
    return left


def listed(sidestep):
    return {entry["path"]: entry for entry in sidestep.json("ls", sidestep.folder)["checkpoints"]}


def unfinished(sidestep):
    """The saves in the root, with state and step, which 'ls' and 'watch' must agree on."""
    entries = {path: (entry["state"], entry["step"], entry["target"])
               for path, entry in listed(sidestep).items() if entry["state"] != "committed"}
    watched = {save["path"]: ("dead" if save["dead"] else "saving", save["step"], save["name"])
               for save in sidestep.json("watch", "--once", sidestep.folder)["saving"]}
    assert watched == entries, (watched, entries)
    return watched


def test_unfinished(sidestep):
    """what a killed save left is listed as dead, with its target, and is not a checkpoint"""
    left = leave_unfinished(sidestep)
    entries = listed(sidestep)
    states = {path: entry["state"] for path, entry in entries.items()}
    assert states == {left: "dead", sidestep.path("step-1"): "committed"}, states
    assert (entries[left]["step"], entries[left]["target"]) == (2, "step-2"), entries[left]
    assert entries[left]["reason"] == (f"the save of 'step-2' was killed (process 1 on "
                                       f"{socket.gethostname()}); 'sidestep gc' removes it")
    sidestep.expect("ls", sidestep.folder, stdout=re.compile(
        rf"STEP .*\n   1  committed .*\n   2  dead .* {os.path.basename(left)} \(step-2\)\n"))
    sidestep.expect("latest", sidestep.folder, stdout=sidestep.path("step-1") + "\n")
    result = sidestep.run("verify", sidestep.folder)
    assert result.status == 0 and f"dead  {left}  the save of 'step-2' was killed" in \
        result.stdout, result.describe()
    assert sidestep.run("verify", left).status == 4


def test_saving(sidestep):
    """a save with a living owner is listed as saving, also in place of a checkpoint"""
    left = leave_unfinished(sidestep)
    there = sidestep.path("step-3")
    shutil.copytree(left, there, ignore=shutil.ignore_patterns("*manifest*"))
    marks = [open(os.path.join(folder, name), "r+b") for folder in (left, there)
             for name in os.listdir(folder) if name.endswith(".pending")]
    for mark in marks:
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(mark, F_OFD_SETLK, lock)
    entries = listed(sidestep)
    assert {path: (entry["state"], entry["step"], entry["target"])
            for path, entry in entries.items()} == {
                left: ("saving", 2, "step-2"), there: ("saving", 3, "step-3"),
                sidestep.path("step-1"): ("committed", 1, None)}, entries
    assert "is under way (process 1 on" in entries[left]["reason"], entries
    assert unfinished(sidestep) == {left: ("saving", 2, "step-2"), there: ("saving", 3, "step-3")}
    for mark in marks:
        mark.close()
    assert unfinished(sidestep) == {left: ("dead", 2, "step-2"), there: ("dead", 3, "step-3")}


def test_gc(sidestep):
    """gc --dry-run prints what gc removes"""
    left = leave_unfinished(sidestep)
    would = sidestep.json("gc", "--dry-run", sidestep.folder)
    assert would["dry_run"] is True and os.path.isdir(left), would
    assert would["removed"] == [left], would
    result = sidestep.run("gc", sidestep.folder)
    assert result.status == 0 and result.stdout == f"removed {left}\n", result.describe()
    assert re.fullmatch(r"sidestep: [\d.]+ KiB freed\n", result.stderr), result.describe()
    assert os.listdir(sidestep.folder) == ["step-1"]
    assert sidestep.json("verify", sidestep.path("step-1"))["ok"]


def leave_in_place(checkpoint):
    """Make what a killed save in place leaves in a checkpoint, which stays whole."""
    save_id = "cd" * 16
    left = {f".sidestep.{save_id}.pending": f"target step-1\nowner 1\nhost {socket.gethostname()}\nrun \n",
            f"__0_0.{save_id}.distcp": "a" * 5000, f"__1_0.{save_id}.distcp.part": "b" * 700,
            f"__0.{save_id}.yes": "", f".sidestep.manifest.{save_id}": "no manifest"}
    for name, text in left.items():
        with open(os.path.join(checkpoint, name), "w", encoding="utf-8") as file:
            file.write(text)
    return {os.path.join(checkpoint, name): len(text) for name, text in left.items()}


def test_gc_in_place(sidestep):
    """gc prints what it removes inside checkpoints, too; so does a dry run, with the bytes"""
    left = leave_unfinished(sidestep)
    files = leave_in_place(sidestep.path("step-1"))  # no save: it would remove the other
    size = sum(os.path.getsize(os.path.join(left, name)) for name in os.listdir(left))
    would = sidestep.json("gc", "--dry-run", sidestep.folder + "/")
    assert all(map(os.path.exists, [left, *files])), would
    assert sorted(would["removed"]) == sorted([left, *files]), would
    assert would["bytes"] == size + sum(files.values()), would
    done = sidestep.json("gc", sidestep.folder + "/")
    assert {**done, "dry_run": True} == would, done
    assert not any(map(os.path.exists, [left, *files])), done
    assert sidestep.json("verify", sidestep.path("step-1"))["ok"]
    assert sidestep.json("gc", sidestep.folder)["removed"] == []
    leave_in_place(sidestep.path("step-1"))
    result = sidestep.run("gc", "-n", ".", cwd=sidestep.folder)
    assert f"would remove step-1/__0_0.{'cd' * 16}.distcp\n" in result.stdout, result.describe()


def test_gc_keeps(sidestep):
    """gc keeps what has a living owner, and says so; a directory without a marker has none"""
    left = leave_unfinished(sidestep)
    mark = os.path.join(left, os.path.basename(left).replace(".saving", ".pending"))
    with open(mark, "r+b") as file:
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, F_OFD_SETLK, lock)
        sidestep.expect("gc", sidestep.folder, stdout=f"kept {left}: its owner is alive\n",
                        stderr="sidestep: nothing to remove\n")
        assert os.path.isdir(left)
    os.remove(mark)
    result = sidestep.run("gc", sidestep.folder)
    assert result.status == 0 and result.stdout.startswith("removed "), result.describe()
    assert not os.path.exists(left)


def test_gc_asks(sidestep):
    """gc asks on a terminal, and everything but yes means no"""
    left = leave_unfinished(sidestep)
    for typed in (b"n\n", b"\n", b"yep\n", b"\x04"):
        status, shown = sidestep.on_terminal("gc", sidestep.folder, typed=typed)
        assert status == 1 and "Remove it? [y/N] " in shown, shown
        assert "nothing was removed" in shown and os.path.isdir(left), shown
    status, shown = sidestep.on_terminal("gc", sidestep.folder, typed=b"yes\n")
    removed = "removed " + left.removesuffix("saving")  # after the prompt, or after the echo of the answer
    assert status == 0 and removed in shown and not os.path.exists(left), shown


def test_colors(sidestep):
    """states have colours on a terminal"""
    saved(sidestep, 1)
    status, shown = sidestep.on_terminal("ls", sidestep.folder)
    assert status == 0 and "\x1b[32mcommitted\x1b[0m" in shown and "\x1b[1mSTEP\x1b[0m" in shown, shown
