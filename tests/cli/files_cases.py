"""Small files that were saved with a checkpoint: each command treats them as a part of it."""
import os
import re
import shutil

from harness import one_line
from saved_cases import saved
from saver import FILES, Saver

STATE = dict(FILES)[b"trainer_state.json"]


def with_files(sidestep, *steps):
    return saved(sidestep, *steps, make=Saver.with_files)


def in_place(sidestep):
    """A checkpoint in a directory that another process uses, so that its files keep their names."""
    path = sidestep.path("step-1")
    os.mkdir(path)
    with open(os.path.join(path, "notes.txt"), "w") as file:
        file.write("mine")
    return with_files(sidestep, 1)


def both(sidestep):
    """A checkpoint in a new directory, and one in a directory that was there."""
    yield with_files(sidestep, 2)
    yield in_place(sidestep)


def test_show(sidestep):
    """show lists small files, their sizes and ranks, with their hashes in JSON"""
    for checkpoint in both(sidestep):
        shown = sidestep.run("show", checkpoint).stdout
        assert "\nsmall files 4\n" in shown, shown
        assert re.search(r"\n\nFILE +SIZE +RANK\n", shown), shown
        assert re.search(r"\ntrainer_state.json +12 B +0\n", shown), shown
        assert re.search(r"\noptimizer_0 +a link +0\n", shown), shown
        files = {entry["name"]: entry for entry in sidestep.json("show", checkpoint)["files"]}
        assert set(files) == {"trainer_state.json", "tokenizer/vocab.txt", "empty", "optimizer_0"}
        state = files["trainer_state.json"]
        with open(os.path.join(checkpoint, state["stored"]), "rb") as file:
            assert file.read() == STATE
        assert (state["bytes"], state["rank"], len(state["sha256"])) == (12, 0, 64), state
        assert files["optimizer_0"]["alias"] and files["optimizer_0"]["stored"] is None
        some = sidestep.json("show", checkpoint, "tok*")
        assert [entry["name"] for entry in some["files"]] == ["tokenizer/vocab.txt"], some
        assert some["tensors"] == [], some
    assert sidestep.json("show", saved(sidestep, 3))["files"] == []


def test_cat(sidestep):
    """cat --file writes the bytes of a small file, and nothing of one that was changed"""
    for checkpoint in both(sidestep):
        for name, data in FILES:
            sidestep.expect("cat", "--file", checkpoint, name.decode(), binary=True, stdout=data)
        sidestep.expect("cat", "--file", checkpoint, "none", status=10,
                        stderr=one_line("file 'none' is not in checkpoint", checkpoint))
        sidestep.expect("cat", checkpoint, "empty", status=10,
                        stderr=one_line("'empty'", "is a small file", "--file"))
        assert sidestep.run("cat", "--file", "--npy", checkpoint, "empty").status == 2
        with open(os.path.join(checkpoint, "trainer_state.json"), "r+b") as file:
            file.write(b"[")
        sidestep.expect("cat", "--file", checkpoint, "trainer_state.json", status=3, stdout="",
                        stderr=one_line("trainer_state.json", "do not match their hash"))


def test_ls(sidestep):
    """ls counts each small file once, whatever number of names it has"""
    sizes = sum(len(data) for _, data in FILES)
    for checkpoint in both(sidestep):
        entry, = [entry for entry in sidestep.json("ls", sidestep.folder)["checkpoints"]
                  if entry["path"] == checkpoint]
        assert (entry["small_files"], entry["small_bytes"]) == (3, sizes), entry
        notes = 4 if os.path.exists(os.path.join(checkpoint, "notes.txt")) else 0
        assert entry["bytes"] == sidestep.json("show", checkpoint)["bytes"] + notes, entry
        plain = saved(sidestep, 3)
        other, = [entry for entry in sidestep.json("ls", sidestep.folder)["checkpoints"]
                  if entry["path"] == plain]
        assert (other["small_files"], other["small_bytes"]) == (0, 0), other
        assert entry["files"] == other["files"] + 3 + bool(notes), (entry, other)


def test_verify(sidestep):
    """verify finds a small file that was overwritten, and one that was removed"""
    for checkpoint in both(sidestep):
        assert sidestep.json("verify", checkpoint)["ok"]
        stored = {entry["name"]: entry["stored"]
                  for entry in sidestep.json("show", checkpoint)["files"]}["trainer_state.json"]
        with open(os.path.join(checkpoint, stored), "r+b") as file:
            file.write(b"[")
        problem, = sidestep.json("verify", checkpoint, status=3)["problems"]
        assert problem["file"] == "trainer_state.json" and problem["kind"] == "hash", problem
        os.remove(os.path.join(checkpoint, stored))
        problem, = sidestep.json("verify", checkpoint, status=3)["problems"]
        assert problem["file"] == "trainer_state.json" and problem["kind"] == "missing", problem
        assert sidestep.json("ls", sidestep.folder)["checkpoints"][0]["state"] == "damaged"
        shutil.rmtree(checkpoint)


def test_cp(sidestep):
    """cp copies small files, and the copy is whole"""
    for checkpoint in both(sidestep):
        copy = sidestep.path("copy")
        sidestep.json("cp", checkpoint, copy)
        for name, data in FILES:
            sidestep.expect("cat", "--file", copy, name.decode(), binary=True, stdout=data)
        assert sidestep.json("verify", copy)["ok"]
        shutil.rmtree(copy)


def contents(sidestep, checkpoint):
    """The small files, as show lists them; without ranks and stored names, which may differ."""
    return sorted((entry["name"], entry["bytes"], entry["alias"], entry["sha256"])
                  for entry in sidestep.json("show", checkpoint)["files"])


def test_rebuild(sidestep):
    """rebuild lists small files again: from the manifest, and without one from the shards"""
    for checkpoint in both(sidestep):
        before = sidestep.json("show", checkpoint)["files"]
        for lost in (r"[.]metadata", r"[.]metadata|.*manifest.*"):
            for name in os.listdir(checkpoint):
                if re.fullmatch(lost, name):
                    os.remove(os.path.join(checkpoint, name))
            sidestep.expect("rebuild", checkpoint, stdout=f"rebuilt {checkpoint}\n")
            assert sidestep.json("show", checkpoint)["files"] == before, lost
            assert sidestep.json("verify", checkpoint)["ok"], lost
            for name, data in FILES:
                sidestep.expect("cat", "--file", checkpoint, name.decode(), binary=True, stdout=data)


def test_diff(sidestep):
    """diff compares small files by their hashes"""
    saver = Saver(os.path.dirname(sidestep.program))
    a, b, same = sidestep.path("a"), sidestep.path("b"), sidestep.path("same")
    saver.with_files(a)
    saver.with_files(same)
    saver.small(b, files=[(b"trainer_state.json", b'{"step": 4}\n'), (b"tokenizer/vocab.txt", b"a"),
                          (b"new", b"n"), (b"optimizer_0", b"")])
    saver.close()
    report = sidestep.json("diff", a, same)
    assert report["same"] and (report["same_count"], report["same_by_hash"]) == (7, 6), report
    result = sidestep.run("diff", a, b)
    assert result.status == 1 and result.stdout == (
        "empty: a file of 0 bytes, in the first only\n"
        "new: a file of 1 bytes, in the second only\n"
        "optimizer_0: a link to the checkpoint, and a file of 0 bytes\n"
        "tokenizer/vocab.txt: a file of 5 bytes, and a file of 1 bytes\n"
        "trainer_state.json: a file of 12 bytes: the bytes differ\n"
        "different: 3 alike, 5 not\n"), result.describe()
    differences = sidestep.json("diff", a, b, status=1)["differences"]
    assert {entry["kind"] for entry in differences} == {"file"}, differences
    stock = sidestep.path("plain")
    sidestep.json("convert", "--objects=skip", a, stock)
    names = [entry["name"] for entry in sidestep.json("diff", a, stock, status=1)["differences"]]
    assert names == ["epoch"], names  # another format has no files


def test_convert(sidestep):
    """convert --to=dcp takes small files along, and with --partial those that are whole"""
    source = with_files(sidestep, 1)
    for ranks in ("1", "3"):
        target = sidestep.path("out" + ranks)
        sidestep.json("convert", "--to=dcp", "--ranks=" + ranks, source, target)
        assert contents(sidestep, target) == contents(sidestep, source)
        assert os.readlink(os.path.join(target, "optimizer_0")) == "."
        assert sidestep.json("verify", target)["ok"] and sidestep.json("diff", source, target)["same"]
    sidestep.json("convert", "--to=dcp", "--model-only", source, sidestep.path("model"))
    assert sidestep.json("show", sidestep.path("model"))["files"] == []
    with open(os.path.join(source, "trainer_state.json"), "r+b") as file:
        file.write(b"[")
    assert sidestep.json_error("convert", "--to=dcp", source, sidestep.path("bad"), status=3)[
        "message"].count("file 'trainer_state.json': its bytes do not match their hash") == 1
    report = sidestep.json("convert", "--partial", source, sidestep.path("rest"), status=3)
    assert report["lost"] == ["file 'trainer_state.json': its bytes do not match their hash"], report
    assert [name for name, *_ in contents(sidestep, sidestep.path("rest"))] == [
        "empty", "optimizer_0", "tokenizer/vocab.txt"]
    assert sidestep.json("verify", sidestep.path("rest"))["ok"]
