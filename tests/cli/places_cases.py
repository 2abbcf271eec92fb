"""Wrong paths: a checkpoint instead of its parent, unreadable directories, checkpoints passed
over."""
import array
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from harness import Skip, other_user
from saver import Saver
from usage_cases import COMMANDS


def locked(sidestep, *steps):
    """Copies of a checkpoint, the last of which may not be read."""
    for step in steps:
        sidestep.copy("torch-2.14.1/nested", f"step-{step}")
    path = sidestep.path(f"step-{steps[-1]}")
    os.chmod(path, 0)
    return path


def test_checkpoint_for_root(sidestep):
    """a checkpoint instead of a root: the message says so"""
    checkpoint = sidestep.copy("torch-2.14.1/nested")
    for arguments in (["latest"], ["latest", "--verify"]):
        sidestep.expect(*arguments, checkpoint, status=2, stderr=f"sidestep: '{checkpoint}' is a "
                        "checkpoint itself; give the directory that contains the checkpoints\n")
    sidestep.expect("ls", checkpoint, stderr=f"sidestep: '{checkpoint}' is a checkpoint itself: "
                    "'sidestep show' says what is in it\n")


def test_root_for_checkpoint(sidestep):
    """a root instead of a checkpoint: the message names a checkpoint in it"""
    for step in (3, 12):
        sidestep.copy("torch-2.14.1/nested", f"step-{step}")
    root = sidestep.path("")
    for arguments in (["show", root], ["cat", root, "w"]):
        sidestep.expect(*arguments, status=4, stderr=f"sidestep: open '{root}': there is no .metadata; "
                        "the directory contains checkpoints, for example 'step-3': name one of them\n")
    empty = os.path.join(root, "step-12", "none")
    os.mkdir(empty)
    sidestep.expect("show", empty, status=4,
                    stderr=f"sidestep: open '{empty}': there is no checkpoint yet\n")
    sidestep.expect("verify", empty, status=4,
                    stderr=f"sidestep: open checkpoint '{empty}': there is no checkpoint yet\n")
    bare = os.path.join(root, "step-12", "bare")
    os.makedirs(os.path.join(bare, "folder"))
    sidestep.expect("show", bare, status=4, stderr=f"sidestep: open '{bare}': there is no .metadata\n")


def test_mistyped_path(sidestep):
    """a path that is not there: the message offers the nearest that is, and says it once"""
    for name in ("step-10", "step-20", "step-1000", "other"):
        os.makedirs(sidestep.path(f"run/{name}"))
    absent = "No such file or directory"
    for path, hint in (("run/step-21", "did you mean 'run/step-20', 'run/step-10' or 'run/step-1000'?"),
                       ("run/ohter/", "did you mean 'run/other'?"),
                       ("rum/step-10", "did you mean 'run'?"),
                       ("none/step-10", "there is no 'none'")):
        for command in ("show", "rebuild", "ls"):
            said = {"show": "open", "ls": "list"}.get(command, command)
            sidestep.expect(command, path, status=10, cwd=sidestep.folder,
                            stderr=f"sidestep: {said} '{path}': {absent}; {hint}\n")
    sidestep.expect("show", "run/else", status=10, cwd=sidestep.folder,
                    stderr=f"sidestep: open 'run/else': {absent}\n")
    sidestep.expect("prune", "--keep-last=1", "rum", status=10, cwd=sidestep.folder,
                    stderr=f"sidestep: list 'rum': {absent}; did you mean 'run'?\n")


def test_directory_without_rights(sidestep):
    """what may not be written to is named, not what would have been made there"""
    user = other_user(sidestep)
    checkpoint = sidestep.copy("torch-2.14.1/nested", "step-1")
    os.chmod(sidestep.folder, 0o555)
    refused = f"directory '{sidestep.folder}' may not be written to: Permission denied\n"
    for arguments, said in ((["pin", checkpoint], f"pin '{checkpoint}'"),
                            (["convert", "--to=dcp", checkpoint, sidestep.path("x")], "convert '.*'"),
                            (["cp", checkpoint, sidestep.path("x")], "copy '.*'")):
        sidestep.expect(*arguments, status=12, **user,
                        stderr=re.compile(f"sidestep: {said}: {re.escape(refused)}"))
    result = sidestep.run("doctor", sidestep.folder, **user)
    assert re.search(rf"(?m)^no +writable +{re.escape(refused)}", result.stdout), result.describe()
    os.chmod(sidestep.folder, 0o755)


def test_urls_are_refused(sidestep):
    """each command refuses a URL of an unknown scheme, and no directory 'gs:' appears"""
    url = "gs://bucket/run"
    local = sidestep.copy("torch-2.14.1/nested")
    cases = (["ls", url], ["show", url], ["latest", url], ["verify", url], ["cat", url, "w"],
             ["diff", url, local], ["diff", local, url], ["convert", url, "out"],
             ["convert", local, url], ["convert", "--mapping", url, local, "out"],
             ["cp", url, "out"], ["cp", local, url],
             ["mirror", url, "out"], ["mirror", local, url], ["gc", url], ["prune", "--yes", "--keep-last=1", url], ["watch", "--once", url],
             ["pin", url], ["unpin", url], ["tag", url, "best"], ["rebuild", url],
             ["doctor", url], ["bench", url], ["events", url], ["trace", url], ["report", url])
    without_place = ["completion", "help", "version"]
    monitored = ["check", "metrics"]  # a place that cannot be looked at is a result: unknown
    assert {case[0] for case in cases}.union(without_place, monitored) == set(COMMANDS)
    for arguments in cases:
        sidestep.expect(*arguments, status=5, cwd=sidestep.folder,
                        stderr=re.compile(rf"sidestep: .*'{url}' is a URL that cannot .*\n"))
    assert not os.path.exists(sidestep.path("gs:"))
    os.makedirs(sidestep.path("gs:/bucket/run"))  # the control: as a path it is accepted
    sidestep.expect("ls", f"./{url}", cwd=sidestep.folder, stderr=re.compile("sidestep: .*no checkpoint yet\n"))


def test_a_capital_scheme_is_refused(sidestep):
    """a capital S3 is refused, and the message says what to write"""
    sidestep.expect("ls", "S3://bucket/x", status=5,
                    stderr=re.compile("sidestep: .*with a capital letter: write 's3://'\n"))


def test_help_of_nonsense(sidestep):
    """help of an unknown command lists the commands"""
    sidestep.expect("help", "nonsense", status=2, stderr=re.compile(
        r"sidestep: help: unknown command 'nonsense'; the commands are: ls, show, .*, version\n.*\n"))


def test_ls_of_the_unreadable(sidestep):
    """ls lists what it cannot look into, and has status 12"""
    user = other_user(sidestep)
    locked(sidestep, 1)
    result = sidestep.run("ls", sidestep.folder, **user)
    assert result.status == 12 and "no checkpoint" not in result.stderr, result.describe()
    assert re.search(r"^ *1  unreadable +- +- +- .* step-1\n", result.stdout, re.MULTILINE), \
        result.describe()
    assert result.stderr == (
        "sidestep: 'step-1' cannot be read: open directory 'step-1': Permission denied\n"
        f"sidestep: ls: in '{sidestep.folder}', 1 directory cannot be read: 'step-1'\n"), \
        result.describe()
    result = sidestep.run("ls", sidestep.path("step-1"), **user)
    assert result.status == 12, result.describe()
    os.chmod(sidestep.path("step-1"), 0o755)
    os.mkdir(sidestep.path("lost+found"), 0)
    result = sidestep.run("ls", sidestep.folder, **user)
    assert result.status == 0 and "lost" not in result.stdout, result.describe()


def test_commands_on_the_unreadable(sidestep):
    """what may not be read is neither damaged nor missing: status 12"""
    user = other_user(sidestep)
    checkpoint = locked(sidestep, 1)
    for arguments in (["verify"], ["show"], ["cat", "w"], ["latest"], ["gc"], ["rebuild"]):
        result = sidestep.run(arguments[0], checkpoint, *arguments[1:], **user)
        assert result.status == 12 and "Permission denied" in result.stderr, result.describe()
    for arguments in (["verify"], ["latest"], ["latest", "--verify"]):
        result = sidestep.run(*arguments, sidestep.folder, **user)
        assert result.status == 12 and "Permission denied" in result.stderr, result.describe()
    os.chmod(checkpoint, 0o755)
    os.chmod(os.path.join(checkpoint, "__0_0.distcp"), 0)
    result = sidestep.run("latest", sidestep.folder, **user)
    assert result.status == 12 and "__0_0.distcp" in result.stderr, result.describe()
    shard = "__0_0.distcp"
    sidestep.expect("verify", checkpoint, status=12, **user, stdout=re.compile(
        f"UNREADABLE  {checkpoint}  .* checked, 1 problem\n"
        f"  {shard}: permission: open '{shard}': Permission denied\n"))
    for arguments in (["show"], ["show", "--json"], ["show", "--stats"], ["diff", checkpoint],
                      ["convert", sidestep.path("x.pt")], ["cat", "w"],
                      ["convert", "--partial", sidestep.path("x.pt")]):
        result = sidestep.run(arguments[0], *arguments[1:-1], checkpoint, arguments[-1], **user) \
            if arguments[0] in ("cat", "convert", "diff") else \
            sidestep.run(*arguments, checkpoint, **user)
        assert result.status == 12, result.describe()
        assert "Permission denied" in result.stdout + result.stderr, result.describe()
    result = sidestep.run("show", checkpoint, **user)
    assert f"\nnot read    file '{shard}': open '{shard}': Permission denied\n" in result.stdout
    assert "damage" not in result.stdout, result.describe()
    os.chmod(os.path.join(checkpoint, "__0_0.distcp"), 0o644)
    os.chmod(os.path.join(checkpoint, ".metadata"), 0)
    for command, said in (("verify", "open checkpoint"), ("show", "open")):
        sidestep.expect(command, checkpoint, status=12, **user, stderr=f"sidestep: {said} "
                        f"'{checkpoint}': .metadata: Permission denied\n")


def test_verify_and_latest_beside_the_unreadable(sidestep):
    """verify counts an unreadable checkpoint, and latest ends: it may be the newest"""
    user = other_user(sidestep)
    locked(sidestep, 1, 2)
    result = sidestep.run("verify", sidestep.folder, **user)
    assert result.status == 12 and "1 ok, 0 damaged, 0 uncommitted, 1 not readable" in result.stdout, \
        result.describe()
    for arguments in ([], ["--verify"]):
        result = sidestep.run("latest", *arguments, sidestep.folder, **user)
        assert (result.status, result.stdout) == (12, ""), result.describe()
        assert "step-2" in result.stderr and \
            "make it readable" in result.stderr, result.describe()


def test_latest_is_interrupted(sidestep):
    """an interrupt ends latest --verify with status 130, and it names nothing"""
    saver = Saver(os.path.dirname(sidestep.program))
    numbers = array.array("f", bytes(64 << 20))
    for step in (1, 2):
        saver.save(sidestep.path(f"step-{step}"), step, [(b"big", 2, [16 << 20], numbers)], [])
    saver.close()
    if not shutil.which("strace"):
        raise Skip("no strace here, which makes reading slow")
    shard, = [name for name in os.listdir(sidestep.path("step-2")) if name.endswith(".distcp")]
    with tempfile.NamedTemporaryFile() as calls:
        slow = ["strace", "-qq", "-f", "-o", calls.name, "-P", sidestep.path(f"step-2/{shard}"),
                "-e", "trace=pread64", "-e", "inject=pread64:delay_exit=500000"]
        process = subprocess.Popen([*slow, sidestep.program, "latest", "--verify", sidestep.folder],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=sidestep.environment(), start_new_session=True)
        while process.poll() is None and b"pread64" not in calls.read():
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert stdout == b"" and process.returncode in (130, -signal.SIGINT), (process, stdout, stderr)
