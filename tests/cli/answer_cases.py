"""What commands report of a root with problems: they leave nothing out, and call nothing whole
that is not."""
import json
import os
import re
import shutil
import subprocess

from harness import other_user
from saved_cases import leave_unfinished, saved

SHARD = "__0_0.distcp"


def entries_of(sidestep, *arguments):
    """The state that ls reports of each name, in order."""
    listed = sidestep.json("ls", *arguments, sidestep.folder)
    return {entry["name"]: entry for entry in listed["checkpoints"]}


def empty(path):
    with open(path, "wb"):
        pass


def manifest_of(checkpoint):
    name, = [name for name in os.listdir(checkpoint) if "manifest" in name]
    return os.path.join(checkpoint, name)


# Each function damages a checkpoint, and returns what ls must report: for one of sidestep's, and
# for torch's.
OURS = {
    "a shard is missing": (lambda c: os.remove(f"{c}/{SHARD}"),
                           "file '__0_0.distcp': it is missing"),
    "a shard is cut": (lambda c: os.truncate(f"{c}/{SHARD}", 700),
                       "file '__0_0.distcp': it has 700 bytes instead of "),
    "a shard is empty": (lambda c: empty(f"{c}/{SHARD}"), "it has 0 bytes instead of "),
    "an empty .metadata": (lambda c: empty(f"{c}/.metadata"), r"\.metadata: "),
    "a short .metadata": (lambda c: os.truncate(f"{c}/.metadata", 100), r"\.metadata: "),
    "no .metadata": (lambda c: os.remove(f"{c}/.metadata"),
                     r"\.metadata is missing: 'sidestep rebuild' writes it again"),
    "no manifest": (lambda c: os.remove(manifest_of(c)), r"its manifest '.*' is missing"),
    "an empty manifest": (lambda c: empty(manifest_of(c)), r"manifest '.*': "),
}
TORCHS = {
    "a shard is missing": (lambda c: os.remove(f"{c}/{SHARD}"), "it is missing"),
    "a shard is cut": (lambda c: os.truncate(f"{c}/{SHARD}", 100), "has 100 bytes, but "),
    "an empty .metadata": (lambda c: empty(f"{c}/.metadata"), r"\.metadata: "),
}


def test_ls_of_the_damaged(sidestep):
    """ls shows what is missing, cut short or empty as damaged, with the reason"""
    saved(sidestep, 1)
    for kind, cases in (("ours", OURS), ("torch's", TORCHS)):
        for what, (damage, reason) in cases.items():
            target = sidestep.path("step-2")
            if kind == "ours":
                saved(sidestep, 2)
            else:
                sidestep.copy("torch-2.14.1/nested", "step-2")
            assert entries_of(sidestep)["step-2"]["state"] == "committed", (kind, what)
            damage(target)
            entry = entries_of(sidestep)["step-2"]
            assert (entry["state"], entry["step"]) == ("damaged", 2), (kind, what, entry)
            assert re.search(reason, entry["reason"]), (kind, what, entry["reason"])
            assert "open checkpoint" not in entry["reason"], entry["reason"]
            result = sidestep.run("ls", sidestep.folder)
            assert "'step-2' is damaged: " in result.stderr, result.describe()
            sidestep.expect("latest", "-q", sidestep.folder, stdout=sidestep.path("step-1") + "\n")
            shutil.rmtree(target)


def test_ls_of_what_is_no_file(sidestep):
    """a directory, or a link to nothing, instead of a shard: unreadable, and latest takes no other"""
    for make in (os.mkdir, lambda path: os.symlink("nowhere", path)):
        saved(sidestep, 1, 2)
        os.remove(sidestep.path(f"step-2/{SHARD}"))
        make(sidestep.path(f"step-2/{SHARD}"))
        result = sidestep.run("--json", "ls", sidestep.folder)
        states = {entry["name"]: entry["state"] for entry in json.loads(result.stdout)["checkpoints"]}
        assert result.status == 1 and states == {"step-1": "committed", "step-2": "unreadable"}, states
        result = sidestep.run("latest", sidestep.folder)
        assert result.status == 1 and result.stdout == "", result.describe()
        assert "which does not mean that it is damaged" in result.stderr, result.describe()
        shutil.rmtree(sidestep.path("step-1"))
        shutil.rmtree(sidestep.path("step-2"))


def test_ls_of_torch_uncommitted(sidestep):
    """shards without .metadata are incomplete, whatever the name of their directory"""
    for name in ("step-7", "mine", "best-so-far"):
        os.remove(sidestep.copy("torch-2.14.1/four_ranks", name) + "/.metadata")
    for name, entry in entries_of(sidestep).items():
        assert entry["state"] == "incomplete" and ".metadata" in entry["reason"], (name, entry)
        assert entry["ranks"] == 4 and entry["layout"] in ("dcp", "torchtitan"), (name, entry)


def test_ls_of_one_unreadable_file(sidestep):
    """a file that may not be read makes its checkpoint unreadable, not damaged"""
    user = other_user(sidestep)
    for name in (".metadata", "manifest", SHARD):
        checkpoint = saved(sidestep, 1)
        path = manifest_of(checkpoint) if name == "manifest" else f"{checkpoint}/{name}"
        os.chmod(path, 0)
        result = sidestep.run("ls", "--json", sidestep.folder, **user)
        assert result.status == 12 and '"unreadable"' in result.stdout, result.describe()
        assert '"damaged"' not in result.stdout, result.describe()
        assert re.search(r'"reason":"[^"]*Permission denied', result.stdout), result.describe()
        shutil.rmtree(checkpoint)


def test_every_state_has_a_reason(sidestep):
    """everything that no resume takes has a reason"""
    saved(sidestep, 1, 2, 3)
    ident = "ab" * 16
    for name, kind in (("step-1", "trash"), ("step-2", "bad")):
        os.rename(sidestep.path(name), sidestep.path(f".sidestep.{ident}.{kind}"))
    os.symlink("step-3", sidestep.path("latest"))
    os.symlink("step-3", sidestep.path("step-9"))
    os.symlink("nowhere", sidestep.path("step-10"))
    os.mkdir(sidestep.path("notes"))
    entries = entries_of(sidestep, "--all")
    states = {name: entry["state"] for name, entry in entries.items()}
    assert states == {f".sidestep.{ident}.trash": "trash", f".sidestep.{ident}.bad": "bad",
                      "latest": "foreign", "step-9": "foreign", "step-10": "foreign",
                      "notes": "foreign", "step-3": "committed"}, states
    for name, entry in entries.items():
        assert (entry["reason"] is None) == (name == "step-3"), entry
    assert "symbolic link" in entries["step-9"]["reason"], entries["step-9"]
    result = sidestep.run("ls", sidestep.folder)
    for name, where in (("step-9", "to another name in the same directory"),
                        ("step-10", "that leads to nothing; if its storage is not mounted, mount it")):
        assert f"'{name}' is not a checkpoint: it is a symbolic link {where}\n" in result.stderr, \
            result.describe()
    assert "'latest'" not in result.stderr, result.describe()


def test_latest_says_what_and_when(sidestep):
    """latest reports what it passes over and why, and with --json step, time and age of its find"""
    saved(sidestep, 1, 2, 3, 4)
    os.remove(sidestep.path("step-4/.metadata"))
    os.truncate(sidestep.path("step-3/" + SHARD), 700)
    ident = "cd" * 16
    os.rename(sidestep.path("step-2"), sidestep.path(f".sidestep.{ident}.bad"))
    bad = sidestep.path(f".sidestep.{ident}.bad")
    sidestep.expect("latest", sidestep.folder, stdout=sidestep.path("step-1") + "\n", stderr=(
        f"sidestep: passed over: '{sidestep.path('step-4')}' is damaged: its .metadata is missing "
        "('sidestep rebuild' makes a new one)\n"
        f"sidestep: passed over: '{sidestep.path('step-3')}' is damaged: file '{SHARD}': it has 700 "
        f"bytes instead of {os.path.getsize(sidestep.path('step-1/' + SHARD))}\n"
        f"sidestep: passed over: '{bad}' is damaged: a resume found it damaged, and set it aside\n"))
    sidestep.expect("latest", "-q", sidestep.folder, stdout=sidestep.path("step-1") + "\n")
    found = sidestep.json("latest", sidestep.folder)
    assert list(found) == ["path", "step", "saved_at", "age_seconds", "kept", "kept_because", "layout",
                           "passed_over"], found
    assert (found["path"], found["step"], found["layout"]) == (sidestep.path("step-1"), 1, None)
    listed = entries_of(sidestep)["step-1"]
    assert found["saved_at"] == listed["saved_at"] and 0 <= found["age_seconds"] < 3600, found
    assert [(p["path"], p["step"], p["state"]) for p in found["passed_over"]] == [
        (sidestep.path("step-4"), 4, "damaged"), (sidestep.path("step-3"), 3, "damaged"),
        (bad, 2, "bad")], found
    assert all(passed["reason"] for passed in found["passed_over"]), found


def test_latest_says_nothing_of_the_old(sidestep):
    """checkpoints that are older than the found one are not passed over"""
    saved(sidestep, 1, 2)
    os.remove(sidestep.path("step-1/.metadata"))
    assert sidestep.json("latest", sidestep.folder)["passed_over"] == []
    sidestep.expect("latest", sidestep.folder, stdout=sidestep.path("step-2") + "\n")


def test_latest_of_links_and_torn_saves(sidestep):
    """latest reports newer links and torn saves of other programs, and no others"""
    saved(sidestep, 1)
    os.symlink("step-1", sidestep.path("step-9"))
    os.symlink("step-1", sidestep.path("latest"))
    os.mkdir(sidestep.path("step-8"))
    os.remove(sidestep.copy("torch-2.14.1/four_ranks", "step-7") + "/.metadata")
    passed = sidestep.json("latest", sidestep.folder)["passed_over"]
    assert [(os.path.basename(p["path"]), p["state"]) for p in passed] == [
        ("step-9", "foreign"), ("step-7", "incomplete")], passed
    result = sidestep.run("latest", sidestep.folder)
    assert f"passed over: '{sidestep.path('step-9')}': it is a symbolic link" in result.stderr


def test_verify_counts_all(sidestep):
    """verify of a directory leaves nothing out: whatever is not ok makes the status not 0"""
    saved(sidestep, 1, 2)
    os.remove(sidestep.path("step-2/.metadata"))
    report = sidestep.json("verify", sidestep.folder, status=3)
    assert report["ok"] is False and report["counts"]["damaged"] == 1, report
    lost, = [entry for entry in report["checkpoints"] if not entry["ok"]]
    assert lost["path"] == sidestep.path("step-2") and lost["state"] == "damaged", lost
    problem, = lost["problems"]
    assert (problem["file"], problem["kind"]) == (".metadata", "missing"), problem
    result = sidestep.run("verify", sidestep.folder)
    assert "1 ok, 1 damaged, 0 uncommitted, 0 not readable" in result.stdout, result.describe()
    assert sidestep.run("verify", sidestep.path("step-2")).status == 3
    os.remove(sidestep.copy("torch-2.14.1/four_ranks", "step-9") + "/.metadata")
    assert sidestep.json("verify", sidestep.folder, status=3)["counts"]["uncommitted"] == 1
    shutil.rmtree(sidestep.path("step-2"))
    for name in ("step-9", "mine"):
        os.rename(sidestep.path("step-9"), sidestep.path(name))
        result = sidestep.run("verify", sidestep.folder)
        assert result.status == 4 and f"INCOMPLETE  {sidestep.path(name)}  " in result.stdout, \
            result.describe()
        assert "  .metadata: incomplete: it is missing" in result.stdout, result.describe()
        assert result.stdout.count("incomplete") == 1, result.describe()


def test_verify_names_the_unfinished(sidestep):
    """verify names saves under way and dead ones, no failures, and checkpoints set aside, failures"""
    left = leave_unfinished(sidestep)
    os.mkdir(sidestep.path("notes"))
    report = sidestep.json("verify", sidestep.folder)
    assert report["counts"] == {"ok": 1, "damaged": 0, "uncommitted": 0, "unreadable": 0, "dead": 1,
                                "saving": 0, "trash": 0, "other": 1, "gone": 0}, report
    dead, = report["unfinished"]
    assert (dead["path"], dead["state"], dead["target"]) == (left, "dead", "step-2"), dead
    bad = sidestep.path(f".sidestep.{'cd' * 16}.bad")
    shutil.copytree(sidestep.path("step-1"), bad)
    os.truncate(f"{bad}/{SHARD}", 700)
    report = sidestep.json("verify", sidestep.folder, status=3)
    assert [entry["state"] for entry in report["checkpoints"]] == ["bad", "committed"], report


def test_verify_of_what_cannot_be_opened(sidestep):
    """a root that may not be read is not reported as empty"""
    user = other_user(sidestep)
    saved(sidestep, 1)
    os.mkdir(sidestep.path("root"))
    shutil.move(sidestep.path("step-1"), sidestep.path("root/step-1"))
    for mode in (0o000, 0o111, 0o444):
        os.chmod(sidestep.path("root"), mode)
        for command in ("verify", "ls", "latest", "watch --once", "gc -n"):
            result = sidestep.run(*command.split(), sidestep.path("root"), **user)
            assert result.status == 12, (oct(mode), result.describe())
    os.chmod(sidestep.path("root"), 0o755)


def test_a_root_that_is_none(sidestep):
    """a dangling link, a loop of links and a file are not reported as empty roots"""
    os.symlink("nowhere", sidestep.path("dangling"))
    os.symlink("loop", sidestep.path("loop"))
    for name in ("dangling", "loop"):
        result = sidestep.run("latest", sidestep.path(name))
        assert result.status == 2 and result.stdout == "", result.describe()
    for command in ("ls", "verify", "gc -n", "watch --once", "prune --keep-last=1 -n", "show"):
        result = sidestep.run(*command.split(), sidestep.path("loop"))
        assert result.status == 2 and "levels of symbolic links" in result.stderr, result.describe()
        result = sidestep.run(*command.split(), sidestep.path("dangling"))
        assert result.status == 10, result.describe()


def test_marks_that_may_not_be_read(sidestep):
    """if pins and annotations cannot be read, no command reports that there are none"""
    user = other_user(sidestep)
    saved(sidestep, 1)
    sidestep.expect("pin", sidestep.path("step-1"))
    os.chmod(sidestep.path(".sidestep"), 0)
    for command in ("ls", "latest"):
        result = sidestep.run(command, sidestep.folder, **user)
        assert result.status == 12 and "'.sidestep'" in result.stderr, result.describe()


def test_gc_and_watch_name_what_they_cannot_see(sidestep):
    """gc and watch name directories that they cannot look into"""
    user = other_user(sidestep)
    saved(sidestep, 1)
    left = leave_unfinished(sidestep)
    os.chmod(sidestep.path("step-1"), 0)
    os.chmod(left, 0)
    os.mkdir(sidestep.path("lost+found"), 0)
    kept = sidestep.run("gc", "-n", sidestep.folder, **user)
    for path in (sidestep.path("step-1"), left):
        assert re.search(f"kept {path}: .*(cannot be opened|Permission denied)", kept.stdout), \
            kept.describe()
    assert "lost+found" not in kept.stdout, kept.describe()
    result = sidestep.run("watch", "--once", "--json", sidestep.folder, **user)
    assert result.status == 12, result.describe()
    unread = json.loads(result.stdout)["unread"]
    assert len(unread) == 2 and all("Permission denied" in line for line in unread), unread
    result = sidestep.run("watch", "--once", sidestep.folder, **user)
    assert result.status == 12 and "nothing that can be seen is being saved" in result.stdout, \
        result.describe()
    assert result.stderr.count("cannot look into") == 2, result.describe()


def test_watch_ends_in_the_dark(sidestep):
    """a save whose checkpoint cannot be read is not reported as given up"""
    user = other_user(sidestep)
    left = leave_unfinished(sidestep)
    process = subprocess.Popen([sidestep.program, "watch", "--json", "-i", "0.01s", sidestep.folder],
                               stdout=subprocess.PIPE, env=sidestep.environment(), **user)
    first = json.loads(process.stdout.readline())
    assert [save["name"] for save in first["saving"]] == ["step-2"], first
    os.chmod(left, 0)
    os.rename(left, sidestep.path("step-2"))
    ended = []
    while not ended:
        ended = json.loads(process.stdout.readline())["ended"]
    process.terminate()
    process.communicate()
    assert [(end["name"], end["committed"]) for end in ended] == [("step-2", None)], ended


def test_show_of_a_damaged_object(sidestep):
    """an object that does not match its hash is damage: status 3"""
    checkpoint = saved(sidestep, 1)
    shown, = [entry for entry in sidestep.json("show", checkpoint)["objects"]]
    with open(f"{checkpoint}/{shown['file']}", "r+b") as file:
        file.seek(shown["file_offset"] + 200)
        byte = file.read(1)[0]
        file.seek(shown["file_offset"] + 200)
        file.write(bytes([byte ^ 1]))
    for arguments in ([], ["--tree"], ["--json"]):
        result = sidestep.run("show", *arguments, checkpoint)
        assert result.status == 3 and "do not match their hash" in result.stdout + result.stderr, \
            result.describe()
    assert sidestep.run("show", checkpoint, "model.*").status == 0


def test_pin_of_what_is_no_checkpoint(sidestep):
    """pin reports what is there, if it is not a whole checkpoint"""
    saved(sidestep, 1)
    os.remove(sidestep.path("step-1/.metadata"))
    for path, words in ((sidestep.path("step-1"), "it is damaged: its .metadata is missing"),
                        (sidestep.path("step-7"), "there is no checkpoint")):
        result = sidestep.run("pin", path)
        assert result.status == 10 and words in result.stderr, result.describe()
