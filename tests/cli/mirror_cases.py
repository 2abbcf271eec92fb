"""`sidestep mirror`: once, and beside a run; tests/unit/mirror_test.c has what is sent and why."""
import json
import os
import shutil
import signal
import subprocess
import time

from harness import Skip, one_line
from saver import Run


def begun(sidestep, *steps):
    run = Run(os.path.dirname(sidestep.program), sidestep.path("near"))
    for step in steps:
        run.save(step)
    return run


def steps(sidestep, name="far"):
    listed = sidestep.json("ls", sidestep.path(name))["checkpoints"]
    assert {entry["state"] for entry in listed} <= {"committed"}, listed
    return [entry["step"] for entry in listed]


def test_mirror(sidestep):
    """mirror sends the newest, prints its path, and has nothing to do the second time"""
    near, far = sidestep.path("near"), sidestep.path("far")
    run = begun(sidestep, 1, 2)
    sidestep.expect("mirror", near, far, stdout=f"sent {far}/step-2\n",
                    stderr=f"sidestep: not sent: {near}/step-1: step 2 is at the mirror, which is newer\n")
    sidestep.expect("-q", "mirror", near, far)
    run.save(3)
    answer = sidestep.json("mirror", "--keep-last=1", near, far)
    assert list(answer) == ["root", "mirror", "step", "mirrored_step", "sent", "bytes", "passed", "removed"]
    assert (answer["step"], answer["mirrored_step"]) == (3, 3) and answer["bytes"] > 1000
    assert (answer["sent"], answer["removed"]) == ([f"{far}/step-3"], [f"{far}/step-2"]), answer
    run.close()
    assert steps(sidestep) == [3] and steps(sidestep, "near") == [1, 2, 3]
    assert sidestep.run("verify", f"{far}/step-3").status == 0
    sidestep.expect("latest", far, stdout=f"{far}/step-3\n")


def test_mirror_of_damage(sidestep):
    """mirror of a damaged checkpoint: the next older one is sent, and the status is 3"""
    near, far = sidestep.path("near"), sidestep.path("far")
    begun(sidestep, 1, 2).close()
    with open(f"{near}/step-2/__0_0.distcp", "r+b") as file:
        file.write(b"\0\1\2\3")
    result = sidestep.run("mirror", near, far)
    assert result.status == 3 and result.stdout == f"sent {far}/step-1\n", result.describe()
    assert "not sent: " in result.stderr and "__0_0.distcp" in result.stderr, result.describe()
    assert steps(sidestep) == [1]


def test_mirror_is_refused(sidestep):
    """mirror refuses what is no series, the root itself, the mirror of another run, wrong options"""
    near, far = sidestep.path("near"), sidestep.path("far")
    begun(sidestep, 1).close()
    other = Run(os.path.dirname(sidestep.program), sidestep.path("other"))
    other.save(5)
    other.close()
    sidestep.expect("mirror", sidestep.folder, far, status=10, stderr=one_line("no series at"))
    sidestep.expect("mirror", sidestep.path("none"), far, status=10, stderr=one_line("none"))
    sidestep.expect("mirror", near, near, status=2, stderr=one_line("the mirror is the root itself"))
    sidestep.expect("mirror", near, sidestep.path("a/b"), status=10, stderr=one_line("a/b"))
    sidestep.run("mirror", near, far)
    sidestep.expect("mirror", sidestep.path("other"), far, status=1, stderr=one_line("of another run"))
    assert steps(sidestep) == [1]
    for words in (["--keep-every=3"], ["--interval=3s"], ["--every=0"], ["--bytes-per-second=x"],
                  ["--keep-last=-1"], ["-f", "-i", "0"]):
        assert sidestep.run("mirror", *words, near, far).status == 2, words


def wait_for(what, seconds=60):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)


def test_mirror_follows(sidestep):
    """mirror --follow waits for the root, sends what is saved, and ends well with SIGTERM"""
    near, far = sidestep.path("near"), sidestep.path("far")
    with subprocess.Popen([sidestep.program, "--json", "mirror", "-f", "-i", "0.05", near, far],
                          env=sidestep.environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as follower:
        try:
            run = begun(sidestep, 1)
            wait_for(lambda: os.path.exists(f"{far}/step-1/.metadata"))
            run.save(2)
            wait_for(lambda: os.path.exists(f"{far}/step-2/.metadata"))
            sidestep.expect("pin", f"{near}/step-2")
            wait_for(lambda: os.path.exists(f"{far}/.sidestep/pin.step-2"))
            run.close()
        finally:
            follower.send_signal(signal.SIGTERM)
        out, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0
    assert [json.loads(line)["sent"] for line in out.splitlines()] == [[f"{far}/step-1"],
                                                                      [f"{far}/step-2"]]


CHANGES = "mkdirat renameat2 unlinkat fsync pwrite64 ftruncate fallocate".split()


def kill_at(sidestep, call, turn, *words):
    """Run it, killed at the TURN-th of these calls of a thread; was it killed?"""
    killing = ["strace", "-qq", "-f", "-o", os.devnull, "-e", f"trace={call}",
               "-e", f"inject={call}:signal=KILL:when={turn}"]
    done = subprocess.run([*killing, sidestep.program, *words], env=sidestep.environment(),
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return done.returncode not in (0, 3)


def test_mirror_killed_anywhere(sidestep):
    """mirror killed at each of its changes: only whole ones are there, and it goes on"""
    if not shutil.which("strace"):
        raise Skip("no strace here, which kills")
    near, far = sidestep.path("near"), sidestep.path("far")
    words = ["-q", "mirror", "-j1", "--keep-last=1", near, far]
    run, step, kills = begun(sidestep, 1), 1, 0
    sidestep.expect(*words, stdout=f"sent {far}/step-1\n")
    for call in CHANGES:
        turn = 1
        while True:
            step += 1
            run.save(step)
            sidestep.expect("tag", f"{near}/step-{step}", "this")
            is_killed = kill_at(sidestep, call, turn, *words)
            there = [entry["step"] for entry in sidestep.json("ls", far)["checkpoints"]
                     if entry["state"] == "committed"]
            assert there and set(there) <= {step - 1, step}, (call, turn, there)
            assert sidestep.run("verify", f"{far}/step-{there[-1]}").status == 0, (call, turn)
            assert sidestep.run(*words).status == 0, (call, turn)
            listed = sidestep.json("ls", far)["checkpoints"]
            assert [(entry["step"], entry["tags"]) for entry in listed] == [(step, ["this"])], (call, turn)
            hidden = set(os.listdir(far)) - {f"step-{step}", ".sidestep"}
            assert not hidden, (call, turn, hidden)
            if not is_killed:
                break
            kills += 1
            turn += 1
    run.close()
    assert kills > 12, kills
    assert steps(sidestep, "near") == list(range(1, step + 1))


class Process:
    """One that waits to be killed, and the file to which `mirror --after` it writes."""

    def __init__(self, sidestep):
        self.log = sidestep.path("log")
        self.sidestep, self.waiting = sidestep, subprocess.Popen(["sleep", "1000"])

    def leave(self, *words):
        with open(self.log, "wb") as log:
            done = subprocess.run([self.sidestep.program, "mirror", f"--after={self.waiting.pid}", *words],
                                  env=self.sidestep.environment(), stdin=subprocess.DEVNULL, stdout=log,
                                  stderr=log, check=False, timeout=60)
        assert done.returncode == 0, self.said()

    def left(self):
        """The processes that wait for it."""
        word, found = f"--after={self.waiting.pid}", []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    found += [int(pid)] if word in file.read().split("\0") else []
            except OSError:
                pass
        return found

    def end(self):
        self.waiting.kill()
        self.waiting.wait()

    def said(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()


def test_mirror_after_a_process(sidestep):
    """mirror --after returns at once, and what it leaves sends when the process has been killed"""
    near, far = sidestep.path("near"), sidestep.path("far")
    process = Process(sidestep)
    try:
        run = begun(sidestep, 1)
        process.leave("--keep-last=2", near, far)
        run.save(2)
        run.close()
        assert not os.path.exists(far)
    finally:
        process.end()
    wait_for(lambda: f"sent {far}/step-2\n" in process.said())
    assert steps(sidestep) == [2]
    process.leave(near, far)  # it has ended
    wait_for(lambda: "nothing to send: step 2 is at the mirror\n" in process.said())


def test_mirror_after_tries_again(sidestep):
    """mirror --after waits for a mirror that is away, and ends if the root is gone"""
    near, far = sidestep.path("near"), sidestep.path("away/far")
    process = Process(sidestep)
    process.end()
    begun(sidestep, 1).close()
    process.leave(near, far)
    wait_for(lambda: "; trying again\n" in process.said())
    os.mkdir(sidestep.path("away"))
    wait_for(lambda: f"sent {far}/step-1\n" in process.said())
    assert process.said().count("trying again") == 1, process.said()
    process.leave(sidestep.path("none"), far)
    wait_for(lambda: "none" in process.said())
    assert "trying again" not in process.said()


def test_mirror_after_leaves_nothing_open(sidestep):
    """mirror --after: nobody waits for the output of what is left, and SIGTERM ends that without a send"""
    near, far = sidestep.path("near"), sidestep.path("far")
    process = Process(sidestep)
    try:
        begun(sidestep, 1).close()
        sidestep.expect("mirror", f"--after={process.waiting.pid}", near, far)  # reads to the end
        left = process.left()
        assert len(left) == 1
        os.kill(left[0], signal.SIGTERM)
        wait_for(lambda: not process.left())
        assert not os.path.exists(far)
    finally:
        process.end()


def test_mirror_after_in_another_root(sidestep):
    """mirror --after sends nothing if the root is another directory by then"""
    near, far = sidestep.path("near"), sidestep.path("far")
    process = Process(sidestep)
    try:
        begun(sidestep, 1).close()
        process.leave(near, far)
        os.rename(near, sidestep.path("old"))
        begun(sidestep, 5).close()
    finally:
        process.end()
    wait_for(lambda: "is another directory now" in process.said())
    assert not os.path.exists(far)


def test_mirror_that_the_run_remembers(sidestep):
    """mirror does not make a mirror anew that the run has had, or fill an empty one"""
    near, far = sidestep.path("near"), sidestep.path("far")
    begun(sidestep, 1).close()
    with open(f"{near}/.sidestep/mirror-at", "w", encoding="utf-8") as file:
        file.write(far)
    sidestep.expect("mirror", near, far, status=10, stderr=one_line("far"))
    assert not os.path.exists(far)
    os.mkdir(far)
    sidestep.expect("mirror", near, far, status=1, stderr=one_line("is its file system mounted?"))
    assert not os.listdir(far)
    os.remove(f"{near}/.sidestep/mirror-at")
    sidestep.run("mirror", near, far)
    assert steps(sidestep) == [1]


def test_mirror_after_is_refused(sidestep):
    """mirror --after refuses what is no process, and --follow beside it"""
    near, far = sidestep.path("near"), sidestep.path("far")
    for words in (["--after=0"], ["--after=x"], ["--after=1", "-f"]):
        assert sidestep.run("mirror", *words, near, far).status == 2, words
