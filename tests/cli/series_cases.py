"""Commands that change the checkpoints of a run: prune, pin, tag."""
import fcntl
import os
import re
import struct
import subprocess

from saver import Run
from saved_cases import F_OFD_SETLK, saved


def steps(sidestep):
    return [entry["step"] for entry in sidestep.json("ls", sidestep.folder)["checkpoints"]]


def test_prune(sidestep):
    """prune keeps the last ones and those that are pinned, and prints what it deletes"""
    saved(sidestep, 8, 9, 10, 11, 12)
    sidestep.expect("pin", sidestep.path("step-9"))
    result = sidestep.run("prune", "--keep-last", "2", "-n", sidestep.folder)
    assert result.status == 0 and re.search(r"(?m)^would remove .*/step-8$", result.stdout)
    assert re.search(r"(?m)^kept .*/step-9: it is pinned$", result.stdout), result.describe()
    assert re.search(r"would be freed\n", result.stderr), result.describe()
    assert steps(sidestep) == [8, 9, 10, 11, 12]
    answer = sidestep.json("prune", "--keep-last=2", "--yes", sidestep.folder)
    assert list(answer) == ["dry_run", "removed", "kept", "bytes"] and answer["bytes"] > 1000
    assert [os.path.basename(path) for path in answer["removed"]] == ["step-8", "step-10"], answer
    assert steps(sidestep) == [9, 11, 12]
    sidestep.expect("unpin", sidestep.path("step-9"))
    answer = sidestep.json("prune", "--keep-last=0", "--keep-every=3", "--yes", sidestep.folder)
    assert steps(sidestep) == [9, 12], answer
    sidestep.expect("latest", sidestep.folder, stdout=sidestep.path("step-12") + "\n")


def test_prune_asks(sidestep):
    """prune does nothing without options or a confirmation"""
    saved(sidestep, 1, 2)
    for arguments in (["--yes"], ["--keep-last", "1"], ["--keep-last", "x", "-y"],
                      ["--keep-last", "-1", "-y"], ["--keep-last", "4294967296", "-y"],
                      ["--keep-last", "1", "--keep-best", "1", "-y"]):
        result = sidestep.run("prune", *arguments, sidestep.folder)
        assert result.status == 2, (arguments, result.describe())
    assert steps(sidestep) == [1, 2]
    result = sidestep.run("prune", "--keep-last", "1", "-y", sidestep.path("nowhere"))
    assert result.status == 10, result.describe()
    sidestep.run("prune", "--keep-last", "1", "-y", sidestep.folder)
    assert steps(sidestep) == [2]


def test_prune_while_a_run_is_at_work(sidestep):
    """prune refuses a series that a run has open"""
    saved(sidestep, 1, 2)
    os.mkdir(sidestep.path(".sidestep"))
    with open(sidestep.path(".sidestep/lock"), "w", encoding="ascii") as lock:
        fcntl.fcntl(lock, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        result = sidestep.run("prune", "--keep-last", "1", "-y", sidestep.folder)
        assert result.status == 11 and "in use" in result.stderr, result.describe()
        sidestep.expect("pin", sidestep.path("step-1"))  # but it can be pinned
    assert steps(sidestep) == [1, 2]


def test_two_prunes_at_once(sidestep):
    """several prunes at once leave what each of them would leave, and nothing half-deleted"""
    for round_ in range(3):
        saved(sidestep, *range(20 * round_ + 1, 20 * round_ + 13))
        command = [sidestep.program, "prune", "--keep-last", "2", "--yes", sidestep.folder]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                   for _ in range(4)]
        for process in running:
            output = process.communicate()[0]
            assert process.returncode == 0, output.decode()
        assert steps(sidestep) == [20 * round_ + 11, 20 * round_ + 12]
        assert not [name for name in os.listdir(sidestep.folder) if name.startswith(".trash")]
        assert sidestep.run("verify", sidestep.path(f"step-{20 * round_ + 11}")).status == 0


def test_marks_are_listed(sidestep):
    """ls shows pins and tags; they are refused where there is no checkpoint"""
    saved(sidestep, 1, 2)
    sidestep.expect("tag", sidestep.path("step-1"), "best")
    assert sidestep.json("tag", sidestep.path("step-1"), "release-1") == {
        "path": sidestep.path("step-1"), "tag": "release-1", "tagged": True}
    assert sidestep.json("pin", sidestep.path("step-1"))["pinned"] is True
    first, second = sidestep.json("ls", sidestep.folder)["checkpoints"]
    assert first["pinned"] and first["tags"] == ["best", "release-1"] and not first["abandoned"]
    assert not second["pinned"] and second["tags"] == [] and second["metrics"] == {}
    sidestep.expect("ls", sidestep.folder, stdout=re.compile(
        r"STEP  STATE .* AGE  ANNOTATIONS            NAME\n"
        r"   1  .*  pinned best release-1  step-1\n   2  .*  -                      step-2\n"))
    sidestep.expect("tag", "--remove", sidestep.path("step-1"), "best")
    assert sidestep.json("ls", sidestep.folder)["checkpoints"][0]["tags"] == ["release-1"]
    for arguments, status in ((["pin", sidestep.path("step-3")], 10),
                              (["tag", sidestep.path("step-1"), "a/b"], 2),
                              (["pin", sidestep.folder], 10)):
        assert sidestep.run(*arguments).status == status, arguments


def test_why_each_is_kept(sidestep):
    """ls and latest say why the retention of the run keeps each; without one, there is no column"""
    build = os.path.dirname(sidestep.program)
    run = Run(build, sidestep.folder)
    for step in (1, 2, 3, 4):
        run.save(step)
    run.close()
    assert "KEPT" not in sidestep.run("ls", sidestep.folder).stdout
    assert sidestep.json("latest", sidestep.folder)["kept"] == "all"
    Run(build, sidestep.folder, keep_last=2).close()  # it has committed nothing, so it deletes nothing
    sidestep.expect("pin", sidestep.path("step-1"))
    found = [(entry["kept"], entry["kept_because"]) for entry in sidestep.json("ls", sidestep.folder)["checkpoints"]]
    assert found == [("pinned", "it is pinned"), (None, None), ("last", "it is one of the last"),
                     ("newest", "it is the newest valid checkpoint")], found
    sidestep.expect("ls", sidestep.folder, stdout=re.compile(
        r"STEP .* AGE  KEPT    ANNOTATIONS  NAME\n   1 .*  pinned  pinned       step-1\n"
        r"   2 .*  -       -            step-2\n   3 .*  last    -            step-3\n"
        r"   4 .*  newest  -            step-4\n"))
    latest = sidestep.json("latest", sidestep.folder)
    assert (latest["kept"], latest["kept_because"]) == ("newest", "it is the newest valid checkpoint"), latest


def test_what_was_left_is_not_the_latest(sidestep):
    """ls shows what a run has left behind; latest passes it over, and says so"""
    saved(sidestep, 1, 2)
    pinned = sidestep.path("step-1")
    sidestep.expect("pin", pinned)  # this makes the directory of annotations
    for step in (2, 1):
        save_id = sidestep.json("show", sidestep.path(f"step-{step}"))["save_id"]
        with open(sidestep.path(f".sidestep/abandoned.step-{step}"), "w", encoding="ascii") as mark:
            mark.write(f"save {save_id}\n")
        if step == 1:
            break
        first, second = sidestep.json("ls", sidestep.folder)["checkpoints"]
        assert not first["abandoned"] and first["reason"] is None, first
        assert second["abandoned"] and "was left" in second["reason"], second
        assert second["state"] == "committed" and not second["renamed"], second
        for arguments in (["latest"], ["latest", "--verify"]):
            result = sidestep.run(*arguments, sidestep.folder)
            assert result.stdout == pinned + "\n", result.describe()
            assert re.search(r"passed over: '.*/step-2' was left behind", result.stderr), arguments
    result = sidestep.run("latest", sidestep.folder)
    assert result.status == 1 and "'step-2' was left behind" in result.stderr, result.describe()


def test_prune_names_what_it_leaves(sidestep):
    """prune says why each checkpoint stays, also unreadable and foreign ones"""
    saved(sidestep, 1, 2, 3, 4)
    sidestep.copy("torch-2.14.1/nested", "step-5")
    os.remove(sidestep.path("step-4/.metadata"))
    sidestep.copy("torch-2.14.1/nested", "best")
    os.mkdir(sidestep.path("checkpoint-7"))
    with open(sidestep.path("checkpoint-7/trainer_state.json"), "w", encoding="ascii") as file:
        file.write('{"global_step": 7}')
    kept = sidestep.json("prune", "--keep-last=1", "-n", sidestep.folder)["kept"]
    reasons = {os.path.basename(path): reason
               for path, reason in (line.split(": ", 1) for line in kept)}
    assert sorted(reasons) == ["best", "checkpoint-7", "step-3", "step-4", "step-5"], reasons
    assert reasons["step-3"] == "it is the newest valid checkpoint", reasons
    assert reasons["best"] == "its step is not known", reasons
    assert reasons["step-4"] == "it is damaged", reasons
    assert reasons["checkpoint-7"] == "another program wrote it", reasons
    assert "sidestep did not write it" in reasons["step-5"], reasons
    assert "'sidestep convert --to=dcp'" in reasons["step-5"], reasons
    # ... which is true: the converted one may be deleted
    sidestep.json("convert", "--to=dcp", sidestep.path("step-5"), sidestep.path("step-6"))
    result = sidestep.run("prune", "--keep-last=1", "--yes", sidestep.folder)
    assert "sidestep did not write it" in result.stdout and steps(sidestep)[-1] == 7
    sidestep.json("convert", "--to=dcp", sidestep.path("step-5"), sidestep.path("step-8"))
    removed = sidestep.json("prune", "--keep-last=1", "--yes", sidestep.folder)["removed"]
    assert removed == [sidestep.path("step-6")], removed
