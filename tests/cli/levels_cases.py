"""--mirror: both levels together, and never an absent mirror for an empty one."""
import contextlib
import json
import os
import re
import shutil
import subprocess
import time

from harness import one_line, other_user
from saver import Run


def save(sidestep, root, *steps, mirror=None):
    run = Run(os.path.dirname(sidestep.program), root, mirror)
    for step in steps:
        run.save(step)
    run.close()


def two_levels(sidestep):
    """Step 1 is at the mirror alone, 2 at both, 3 at the root alone."""
    near, far = sidestep.path("near"), sidestep.path("far")
    save(sidestep, near, 1, mirror=far)
    save(sidestep, near, 2, mirror=far)
    save(sidestep, near, 3)
    shutil.rmtree(f"{near}/step-1")
    return near, far


def levels_of(sidestep, *words):
    listed = sidestep.json("ls", *words)
    return {entry["step"]: entry["level"] for entry in listed["checkpoints"]}


def test_ls_of_both_levels(sidestep):
    """ls --mirror says at which level each checkpoint is, and how far the mirror is behind"""
    near, far = two_levels(sidestep)
    for words in (["--mirror", near], [f"--mirror={far}", near]):
        assert levels_of(sidestep, *words) == {1: "mirror", 2: "both", 3: "near"}
        result = sidestep.expect("ls", *words, stdout=re.compile(
            r"STEP +STATE .* LEVEL +NAME\n *1 .* mirror +step-1\n *2 .* both +step-2\n *3 .* near +step-3\n"),
            stderr=one_line("the mirror lags: its newest step is 2, not 3"))
    listed = sidestep.json("ls", "--mirror", near)
    assert listed["mirror"] == far and listed["outdated"] is False
    assert [entry["path"] for entry in listed["checkpoints"]] == [
        f"{far}/step-1", f"{near}/step-2", f"{near}/step-3"]
    assert "level" not in sidestep.json("ls", near)["checkpoints"][0], result.describe()
    with open(f"{far}/step-2/.metadata", "wb"):
        pass  # of one save, and not the same
    assert [(entry["step"], entry["level"], entry["state"]) for entry
            in sidestep.json("ls", "--mirror", near)["checkpoints"]] == [
        (1, "mirror", "committed"), (2, "near", "committed"), (2, "mirror", "damaged"),
        (3, "near", "committed")]


def test_latest_of_both_levels(sidestep):
    """latest --mirror prints what a resume takes: the newer one of both, or what is left"""
    near, far = two_levels(sidestep)
    sidestep.expect("latest", "--mirror", near, stdout=f"{near}/step-3\n")
    assert sidestep.json("latest", "--mirror", near)["level"] == "near"
    with open(f"{near}/step-3/__0_0.distcp", "wb"):
        pass
    sidestep.expect("latest", "--mirror", near, stdout=f"{near}/step-2\n", stderr=one_line("step-3"))
    shutil.rmtree(f"{near}/step-2")
    answer = sidestep.json("latest", "--mirror", "--verify", near)
    assert (answer["path"], answer["level"]) == (f"{far}/step-2", "mirror")
    assert [passed["step"] for passed in answer["passed_over"]] == [3]
    shutil.rmtree(near)
    sidestep.expect("latest", f"--mirror={far}", near, stdout=f"{far}/step-2\n",
                    stderr=one_line("only its mirror is looked at"))
    sidestep.expect("latest", "--mirror", near, status=10, stderr=one_line("remembers no mirror"))


def test_latest_of_a_late_node(sidestep):
    """latest --mirror of an outdated root: the run went on from the mirror, at a lower step"""
    near, far = two_levels(sidestep)
    late = sidestep.path("late")
    os.rename(near, late)
    save(sidestep, near, mirror=far)
    save(sidestep, near, 2, mirror=far)
    assert levels_of(sidestep, "--mirror", late)[3] == "near"
    sidestep.expect("latest", "--mirror", late, stdout=f"{far}/step-2\n", stderr=one_line("is outdated"))
    assert sidestep.json("ls", "--mirror", late)["outdated"] is True
    sidestep.expect("check", "--mirror", late, status=1, stdout=re.compile(r"(?s).*is outdated.*"))
    sidestep.expect("latest", "--mirror", near, stdout=f"{near}/step-2\n")


def test_verify_of_both_levels(sidestep):
    """verify --mirror reads both levels, and finds damage at each"""
    near, far = two_levels(sidestep)
    counted = sidestep.json("verify", "--mirror", near)
    assert counted["counts"]["ok"] == 4 and counted["ok"], counted
    with open(f"{far}/step-1/__0_0.distcp", "r+b") as file:
        file.write(b"\0\1\2\3")
    assert sidestep.run("verify", near).status == 0
    result = sidestep.run("verify", "--mirror", near)
    assert result.status == 3 and f"{far}/step-1" in result.stdout, result.describe()


def samples(sidestep, *words):
    text = sidestep.expect("metrics", *words, stdout=re.compile(r"(?s).*# EOF\n")).stdout
    return {(name, level): int(value) for name, level, value in re.findall(
        r'sidestep_(\w+)\{root="[^"]*",level="(\w+)"\} (\d+)', text)}


def test_check_of_both_levels(sidestep):
    """check and metrics --mirror look at both levels; a mirror that lags is critical"""
    near, far = two_levels(sidestep)
    sidestep.expect("check", "--mirror", "--max-age=1h", near, stdout=re.compile(
        rf"SIDESTEP OK - near {near}: step 3 of .*, 2 kept; mirror {far}: step 2 of .*, 2 kept \| "
        r"'near age'=\d+s;;3600 'near kept'=2 .* 'mirror kept'=2 'mirror bytes'=\d+B\n"))
    roots = sidestep.json("check", "--mirror", near)["roots"]
    assert [(root["root"], root["level"], root["place"]) for root in roots] == [
        (near, "near", near), (near, "mirror", far)]
    found = samples(sidestep, "--mirror", near)
    assert (found["last_committed_step", "near"], found["last_committed_step", "mirror"]) == (3, 2)
    shutil.rmtree(f"{far}/step-1")
    shutil.rmtree(f"{far}/step-2")
    sidestep.copy("sidestep-1/plain", "far/step-2")  # an old one
    for name in os.listdir(f"{far}/step-2"):
        os.utime(f"{far}/step-2/{name}", (0, 0))
    sidestep.expect("check", "--max-age=1h", near, stdout=re.compile(r"SIDESTEP OK .*\n"))
    sidestep.expect("check", "--mirror", "--max-age=1h", near, status=2, stdout=re.compile(
        rf"SIDESTEP CRITICAL - mirror {far}: the newest checkpoint is .* old, .*; near .*\n"))


def test_an_absent_mirror_is_not_empty(sidestep):
    """--mirror fails if the mirror is away, is not mounted, or is that of another run"""
    near, far = two_levels(sidestep)
    os.rename(far, far + ".away")
    other = sidestep.path("other")
    for is_there in (False, True):
        if is_there:
            os.mkdir(far)  # what an unmounted file system leaves
        for command in ("ls", "latest", "verify"):
            result = sidestep.run(command, "--mirror", near)
            assert result.status not in (0, 10) and not result.stdout, result.describe()
        sidestep.expect("check", "--mirror", near, status=3,
                        stdout=re.compile(r"SIDESTEP UNKNOWN - mirror .*\n"))
        found = samples(sidestep, "--mirror", near)
        assert (found["up", "near"], found["up", "mirror"], found["health", "mirror"]) == (1, 0, 3)
        assert ("last_committed_step", "mirror") not in found
    os.rmdir(far)
    save(sidestep, other, 1, mirror=far)
    sidestep.expect("latest", "--mirror", near, status=1, stderr=one_line("the mirror of another run"))
    sidestep.expect("check", "--mirror", near, status=3,
                    stdout=re.compile(r".*the mirror of another run.*\n"))


def test_mirror_option(sidestep):
    """--mirror takes a place only after '=', for one root, which remembers its own"""
    near, far = two_levels(sidestep)
    save(sidestep, sidestep.path("alone"), 1)
    sidestep.expect("ls", "--mirror", sidestep.path("alone"), status=10,
                    stderr=one_line("remembers no mirror"))
    for words, status, why in ([["ls", "--mirror", far, near], 2, "one operand too many"],
                               [["ls", "--mirror=", near], 2, "needs an argument: PLACE"],
                               [["metrics", f"--mirror={far}", near, near], 2, "is for one ROOT"],
                               [["check", f"--mirror={far}", near, near], 3, "is for one ROOT"]):
        result = sidestep.run(*words)
        assert result.status == status and why in result.stderr and not result.stdout, result.describe()
    assert sidestep.run("help", "check").stdout.count("--mirror[=PLACE]") == 1


# ---- the commands that remove

def four_and_three(sidestep):
    """Steps 1 to 4 at the root and 1 to 3 at the mirror; at each also a directory of somebody else."""
    near, far = sidestep.path("near"), sidestep.path("far")
    for step in (1, 2, 3):
        save(sidestep, near, step, mirror=far)
    save(sidestep, near, 4)
    for place in (near, far):
        os.mkdir(f"{place}/notes")
        with open(f"{place}/notes/step-1.txt", "w", encoding="ascii") as file:
            file.write("mine")
    return near, far


def left_behind(*places):
    """What a killed save leaves, at each place."""
    left = [f"{place}/.sidestep.{'ab' * 16}.saving" for place in places]
    for path in left:
        os.mkdir(path)
        with open(f"{path}/__0_0.distcp.part", "wb") as file:
            file.write(b"x" * 1000)
    return left


def names(*places):
    return [sorted(os.listdir(place)) for place in places]


def test_prune_of_both_levels(sidestep):
    """prune --mirror keeps the same at both levels, each by itself: pins hold where they are"""
    near, far = four_and_three(sidestep)
    sidestep.expect("pin", f"{far}/step-1")
    before = names(near, far)
    words = ["prune", "--mirror", "--keep-last=1", near]
    gone = [f"{near}/step-1", f"{near}/step-2", f"{near}/step-3", f"{far}/step-2"]
    would = sidestep.json(*words, "--dry-run")
    assert would["removed"] == gone and names(near, far) == before, would
    assert f"{far}/step-1: it is pinned" in would["kept"] and would["bytes"] > 4 * 4000, would
    assert {path.split(":")[0] for path in would["kept"]} == {
        f"{near}/step-4", f"{far}/step-1", f"{far}/step-3"}, would
    sidestep.expect(*words, status=2, stderr=re.compile("(?s).*give --yes or --dry-run.*"))
    status, shown = sidestep.on_terminal(*words, typed=b"n\n")
    assert status == 1 and shown.count("[y/N]") == 1 and names(near, far) == before, shown
    assert re.findall(r"(?m)^would remove (.*?)\r", shown) == gone, shown
    status, shown = sidestep.on_terminal(*words, typed=b"y\n")
    assert status == 0 and shown.count("[y/N]") == 1, shown
    assert names(near, far) == [[".sidestep", "notes", "step-4"], [".sidestep", "notes", "step-1", "step-3"]]
    assert os.listdir(f"{near}/notes") == os.listdir(f"{far}/notes") == ["step-1.txt"]


def test_gc_of_both_levels(sidestep):
    """gc --mirror removes leftovers at both levels, after one question, and nothing else"""
    near, far = four_and_three(sidestep)
    before = names(near, far)
    left = left_behind(near, far)
    assert sidestep.json("gc", "--mirror", "-n", near)["removed"] == left
    status, shown = sidestep.on_terminal("gc", "--mirror", near, typed=b"n\n")
    assert status == 1 and shown.count("[y/N]") == 1 and all(map(os.path.exists, left)), shown
    sidestep.expect("gc", f"--mirror={far}", near, stdout="".join(f"removed {path}\n" for path in left),
                    stderr="sidestep: 2.0 KiB freed\n")
    assert names(near, far) == before
    sidestep.expect("gc", "--mirror", near, stderr="sidestep: nothing to remove\n")


REMOVALS = (["gc", "--yes"], ["prune", "--yes", "--keep-last=1"])


def test_removal_at_both_levels_or_none(sidestep):
    """gc and prune --mirror remove nothing if one of both cannot be read, or is in use"""
    near, far = four_and_three(sidestep)
    before = names(near, far)
    run = Run(os.path.dirname(sidestep.program), near)
    sidestep.expect(*REMOVALS[1], "--mirror", near, status=11, stderr=one_line("in use"))
    run.close()
    assert names(near, far) == before
    left_behind(near, far)
    before = names(near, far)
    os.rename(far, far + ".away")
    for is_there in (False, True):
        if is_there:
            os.mkdir(far)  # what an unmounted file system leaves
        for words in REMOVALS:
            result = sidestep.run(*words, "--mirror", near)
            assert result.status == 1 and not result.stdout, result.describe()
            assert names(near, far + ".away") == before
    os.rmdir(far)
    os.rename(far + ".away", far)
    user = other_user(sidestep)
    for folder, _, files in os.walk(sidestep.folder):
        for name in [".", *files]:
            os.chmod(os.path.join(folder, name), 0o777)
    for place in (near, far):
        os.chmod(place, 0o333)  # its records can be read, and it cannot be listed
        for words in REMOVALS:
            sidestep.expect(*words, "--mirror", near, status=12, stderr=one_line(place), **user)
        os.chmod(place, 0o777)
    assert names(near, far) == before


def test_removal_of_an_outdated_root(sidestep):
    """gc and prune --mirror of an outdated root: the mirror is that of the run, which went on"""
    near, far = four_and_three(sidestep)
    late = sidestep.path("late")
    os.rename(near, late)
    save(sidestep, near, mirror=far)
    save(sidestep, near, 5, mirror=far)
    left_behind(late, far)
    before = names(late, far)
    for words in REMOVALS:
        sidestep.expect(*words, "--mirror", late, status=1, stderr=one_line(
            "is outdated", "nothing was removed", "without --mirror", f"'{far}'"))
    assert names(late, far) == before
    sidestep.expect("watch", "--once", "--mirror", late, stderr=one_line("is outdated"), stdout=re.compile(
        f"{late}: .*{'ab' * 16}.*dead.*\n{far}: .*{'ab' * 16}.*dead.*\n"))


def test_removal_of_a_lost_root(sidestep):
    """gc, prune and watch --mirror=PLACE of a root that is lost: its mirror is left"""
    near, far = four_and_three(sidestep)
    left, = left_behind(far)
    shutil.rmtree(near)
    for words in REMOVALS:
        sidestep.expect(*words, "--mirror", near, status=10, stderr=one_line("remembers no mirror"))
        sidestep.expect(*words, near, status=10, stderr=one_line("No such file"))
    note = f"sidestep: there is no '{near}': only its mirror is looked at\n"
    sidestep.expect("watch", "--once", f"--mirror={far}", near, stderr=note, stdout=re.compile(
        f"{far}: .* dead.*\n{near}: nothing is being saved\n|{near}: nothing.*\n{far}: .* dead.*\n"))
    sidestep.expect("gc", f"--mirror={far}", near, stdout=f"removed {left}\n", stderr=re.compile(
        re.escape(note) + "sidestep: .* freed\n"))
    assert sidestep.json("prune", "--keep-last=1", "-y", f"--mirror={far}", near)["removed"] == [
        f"{far}/step-1", f"{far}/step-2"]
    assert names(far) == [[".sidestep", "notes", "step-3"]]


def test_prunes_beside_a_mirror(sidestep):
    """prune --mirror beside mirror --follow, which prunes there, too: each waits for the other"""
    near, far = sidestep.path("near"), sidestep.path("far")
    save(sidestep, near, 1, mirror=far)
    with running(sidestep, "-q", "mirror", "-f", "-i", "0.01", "--keep-last=2", near, far) as follower:
        for step in range(2, 14):
            save(sidestep, near, step)
            result = sidestep.run("prune", "--yes", "--keep-last=2", "--mirror", near)
            assert result.status == 0, result.describe()
        follower.terminate()
        assert follower.wait(60) == 0
    assert sidestep.run("mirror", near, far).status == 0
    sidestep.expect("prune", "--yes", "--keep-last=2", "--mirror", near, stdout=re.compile("(?s).*"),
                    stderr=re.compile("(?s).*"))
    assert levels_of(sidestep, "--mirror", near)[13] == "both"
    assert names(near) == [[".sidestep", "step-12", "step-13"]] and len(os.listdir(far)) == 3, names(far)
    assert sidestep.run("verify", "--mirror", near).status == 0


# ---- watch

@contextlib.contextmanager
def running(sidestep, *words):
    with subprocess.Popen([sidestep.program, *words], stdout=subprocess.PIPE, text=True,
                          env=sidestep.environment()) as process:
        try:
            yield process
        finally:
            process.kill()


def next_look(watch, what):
    """The next look that has some of this."""
    until = time.monotonic() + 60
    for line in watch.stdout:
        assert time.monotonic() < until, f"no {what}: {line}"
        if json.loads(line)[what]:
            return json.loads(line)
    raise AssertionError("it has ended")


def test_watch_of_both_levels(sidestep):
    """watch --mirror shows what is being sent to the mirror, and that it is there"""
    near, far = two_levels(sidestep)
    assert [json.loads(line)["root"] for line in sidestep.run(
        "watch", "--once", "--json", "--mirror", cwd=near).stdout.splitlines()] == [".", far]
    hidden = f"{far}/.sidestep.{sidestep.json('show', f'{far}/step-2')['save_id']}.saving"
    with running(sidestep, "watch", "--json", "-i", "0.02", "--mirror", near) as watch:
        first = json.loads(watch.stdout.readline()), json.loads(watch.stdout.readline())
        assert [(look["root"], look["level"], look["saving"]) for look in first] == [
            (near, "near", []), (far, "mirror", [])]
        os.rename(f"{far}/step-2", hidden)
        saving = next_look(watch, "saving")
        assert (saving["root"], saving["level"], saving["saving"][0]["path"]) == (far, "mirror", hidden), saving
        os.rename(hidden, f"{far}/step-2")
        ended = next_look(watch, "ended")
        assert (ended["root"], ended["ended"][0]["committed"]) == (far, True), ended
        shutil.move(near, near + ".away")
        lost = next_look(watch, "error")
        assert (lost["root"], json.loads(watch.stdout.readline())["level"]) == (near, "mirror"), lost
    os.rename(near + ".away", near)
    os.rename(far, far + ".away")
    sidestep.expect("watch", "--mirror", near, status=1, stderr=one_line("is no mirror now"))
    sidestep.expect("watch", f"--mirror={far}", near, near, status=2, stderr=re.compile("(?s).*is for one ROOT.*"))
