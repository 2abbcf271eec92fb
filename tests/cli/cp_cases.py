"""`sidestep cp` that is killed in its last moment; tests/objects/test_copy.py has buckets."""
import array
import os
import shutil
import subprocess

from harness import Skip
from saver import FLOAT32, Saver


def killed_after_its_rename(sidestep, source, name):
    """Copy to NAME, and kill the copy before it removes its marker; returns the name of that."""
    target = sidestep.path(name)
    for turn in range(1, 20):  # at one file that it removes after the other
        killing = ["strace", "-qq", "-f", "-o", os.devnull, "-e", "trace=unlinkat",
                   "-e", f"inject=unlinkat:signal=KILL:when={turn}"]
        subprocess.run([*killing, sidestep.program, "cp", source, target], env=sidestep.environment(),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        names = os.listdir(target) if os.path.exists(target) else []
        found = [file for file in names if file.endswith(".pending")]
        if found:
            return found[0]
        shutil.rmtree(target, ignore_errors=True)
    raise AssertionError("no kill leaves a marker in a whole copy")


def test_cp_killed_after_its_rename(sidestep):
    """killed after its rename: the copy is whole, and gc or the next save removes its marker"""
    if not shutil.which("strace"):
        raise Skip("no strace here, which kills")
    saver = Saver(os.path.dirname(sidestep.program))
    numbers = array.array("f", range(1000))
    saver.save(sidestep.path("made"), 1, [(b"w", FLOAT32, [1000], numbers)], [])
    marker = killed_after_its_rename(sidestep, sidestep.path("made"), "one")
    states = {entry["name"]: entry["state"] for entry in
              sidestep.json("ls", sidestep.folder)["checkpoints"]}
    assert states == {"made": "committed", "one": "committed"}, states
    assert sidestep.run("verify", sidestep.path("one")).status == 0
    assert sidestep.run("diff", sidestep.path("made"), sidestep.path("one")).status == 0
    removed = sidestep.json("gc", sidestep.folder)["removed"]
    assert [os.path.basename(path) for path in removed] == [marker], removed
    assert sorted(os.listdir(sidestep.path("one"))) == sorted(os.listdir(sidestep.path("made")))
    killed_after_its_rename(sidestep, sidestep.path("made"), "two")
    saver.save(sidestep.path("two"), 2, [(b"w", FLOAT32, [1000], numbers)], [])
    saver.close()
    assert not [name for name in os.listdir(sidestep.path("two")) if name.endswith(".pending")]
    assert sidestep.run("verify", sidestep.path("two")).status == 0
