"""--mirror of the commands that look: both levels together, and never an absent mirror for an empty one."""
import os
import re
import shutil

from harness import one_line
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
