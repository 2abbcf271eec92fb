"""What monitors ask: check and metrics."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from harness import Skip, other_user
from saved_cases import saved, shard_of

SAVES = """
import os, sys, time
from saver import Saver
saver = Saver(sys.argv[1])
for step in range(int(sys.argv[3]), 1 << 30):
    saver.small(os.path.join(sys.argv[2], f"step-{step}"), step)
    print(step, flush=True)
"""


def metrics(sidestep, *roots):
    """The samples, as {(name, root, state): value}; the document must be one that ends."""
    text = sidestep.expect("metrics", *roots, stdout=re.compile(r"(?s).*# EOF\n")).stdout
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r'sidestep_(\w+)\{(.*)\} (\d+)', line).groups()
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
            assert set(labels) <= {"root", "state", "version"}, line
            found[name, labels.get("root"), labels.get("state")] = int(value)
    return found


def test_check_ok(sidestep):
    """check of a young checkpoint is one line with performance data, and status 0"""
    saved(sidestep, 1, 2)
    sidestep.expect("check", "--max-age", "30m", sidestep.folder, stdout=re.compile(
        rf"SIDESTEP OK - {sidestep.folder}: step 2 of \d+ s ago, 2 kept \| "
        r"'age'=\d+s;;1800 'kept'=2 'bytes'=\d+B\n"))
    report = sidestep.json("check", sidestep.folder)
    assert report["status"] == "OK" and report["roots"][0]["findings"] == [], report
    assert report["roots"][0]["newest"] == sidestep.path("step-2"), report
    found = metrics(sidestep, sidestep.folder)
    assert found["up", sidestep.folder, None] == 1
    assert found["last_committed_step", sidestep.folder, None] == 2
    assert found["entries", sidestep.folder, "committed"] == 2
    stamp = found["last_committed_timestamp_seconds", sidestep.folder, None]
    assert 0 <= time.time() - stamp < 600


def test_check_of_what_is_old(sidestep):
    """check of a checkpoint that is too old is critical, and says how old"""
    sidestep.copy("sidestep-1/plain", "step-12")
    for name in os.listdir(sidestep.path("step-12")):
        os.utime(os.path.join(sidestep.path("step-12"), name), (0, 0))
    sidestep.expect("check", "--max-age=1s", sidestep.folder, status=2, stdout=re.compile(
        r"SIDESTEP CRITICAL - .*: the newest checkpoint is .* old, and at most 1 s is allowed \| .*\n"))


def test_check_without_a_checkpoint(sidestep):
    """check of an empty root is critical, and of one that is not there unknown: never ok"""
    sidestep.expect("check", sidestep.folder, status=2,
                    stdout=re.compile(r"SIDESTEP CRITICAL - .*: there is no checkpoint yet \| .*\n"))
    sidestep.expect("check", sidestep.path("no"), status=3, stdout=re.compile(
        r"SIDESTEP UNKNOWN - .*/no: list '.*': No such file or directory \| 'age'=U .*\n"))
    found = metrics(sidestep, sidestep.path("no"))
    assert set(name for name, _, _ in found) == {"up", "health", "build_info"}, found
    assert found["up", sidestep.path("no"), None] == 0
    assert sidestep.run("check", "gs://bucket/run").status == 3


def test_check_of_what_cannot_be_read(sidestep):
    """check is unknown if a checkpoint cannot be read that may be the newest"""
    user = other_user(sidestep)
    saved(sidestep, 1, 2)
    os.chmod(sidestep.path("step-2"), 0)
    result = sidestep.run("check", sidestep.folder, **user)
    os.chmod(sidestep.path("step-2"), 0o755)
    assert result.status == 3 and "'step-2' cannot be read" in result.stdout, result.describe()


def test_check_of_damage(sidestep):
    """check warns of a damaged newest checkpoint; a flipped bit is found if it reads"""
    newest = saved(sidestep, 1, 2)
    with open(os.path.join(newest, shard_of(newest)), "r+b") as shard:
        shard.seek(5)
        byte = shard.read(1)
        shard.seek(5)
        shard.write(bytes([byte[0] ^ 1]))
    assert sidestep.run("check", sidestep.folder).status == 0  # it does not read tensors
    for verify in ("newest", "sample", "all"):
        report = sidestep.json("check", "--verify", verify, sidestep.folder, status=1)
        assert report["roots"][0]["newest"] == sidestep.path("step-1"), report
    os.unlink(os.path.join(newest, shard_of(newest)))
    report = sidestep.json("check", sidestep.folder, status=1)
    assert report["roots"][0]["step"] == 1 and report["roots"][0]["kept"] == 1, report
    assert "damaged" in report["roots"][0]["findings"][0]["message"], report


def test_check_of_an_older_one(sidestep):
    """check --verify=all reads the older checkpoints, and a sample does in turns"""
    saved(sidestep, 1, 2)
    shard = os.path.join(sidestep.path("step-1"), shard_of(sidestep.path("step-1")))
    with open(shard, "r+b") as file:
        file.write(b"\xff\xff")
    for verify, status in (("newest", 0), ("sample", 1), ("all", 1)):  # one other: its turn
        assert sidestep.run("check", "--verify", verify, sidestep.folder).status == status, verify


def test_check_of_several(sidestep):
    """check of several roots names the worst first, and its label names the root"""
    saved(sidestep, 7)
    empty = sidestep.path("a'=|b")
    os.mkdir(empty)
    result = sidestep.expect("check", sidestep.folder, empty, sidestep.path("no"), status=2,
                             stdout=re.compile(r"SIDESTEP CRITICAL - .*\n"))
    text, values = result.stdout.rstrip("\n").split(" |")
    places = [text.index(piece) for piece in ("no checkpoint yet", "No such file", "step 7")]
    assert places == sorted(places), result.describe()
    assert "|" not in text and "a___b kept'=0" in values, result.describe()
    assert [root["status"] for root in sidestep.json("check", sidestep.folder, empty, status=2)["roots"]] \
        == ["OK", "CRITICAL"]


def test_check_min_kept(sidestep):
    """check warns if fewer checkpoints are kept than are demanded"""
    saved(sidestep, 1, 2)
    assert sidestep.run("check", "--min-kept=2", sidestep.folder).status == 0
    sidestep.expect("check", "--min-kept=3", sidestep.folder, status=1, stdout=re.compile(
        r"SIDESTEP WARNING - .*: 2 checkpoints, and at least 3 should be kept \| .*\n"))


def test_wrong_use_of_check(sidestep):
    """wrong usage of check has status 3: to a monitor, 2 is critical"""
    for arguments in ((), ("--max-age", "soon", "."), ("--verify", "most", "."), ("--wrong", "."),
                      ("--min-kept", "0", "."), ("--max-age=0s", ".")):
        result = sidestep.run("check", *arguments, cwd=sidestep.folder)
        assert result.status == 3 and result.stdout == "", result.describe()


def test_metrics_for_prometheus(sidestep):
    """promtool accepts the metrics, whatever a root is called, and the alert rules pass their tests"""
    promtool = shutil.which("promtool")
    if promtool is None:
        raise Skip("promtool is not installed (package prometheus)")
    root = sidestep.path('a"b\\c\nd')
    os.mkdir(root)
    saved(sidestep, 3)
    text = sidestep.run("metrics", sidestep.folder, root, os.fsencode(root) + b"\xff").stdout
    done = subprocess.run([promtool, "check", "metrics"], input=text.encode(), check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout.decode()
    rules = os.path.join("contrib", "prometheus", "sidestep.rules.test.yml")
    done = subprocess.run([promtool, "test", "rules", rules], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout.decode()
    broken = subprocess.run([promtool, "check", "metrics"], input=b"a{ 1\n", check=False,
                            stderr=subprocess.DEVNULL)
    assert broken.returncode != 0  # the control


def test_metrics_out(sidestep):
    """metrics --out replaces a file in one step, or leaves it as it was"""
    saved(sidestep, 3)
    out = sidestep.path("m.prom")
    sidestep.expect("metrics", "--out", out, sidestep.folder)
    with open(out, encoding="utf-8") as file:
        assert file.read().endswith("# EOF\n")
    assert os.stat(out).st_mode & 0o777 == 0o644
    sidestep.expect("metrics", "-o", sidestep.path("no/m.prom"), sidestep.folder, status=1,
                    stderr=re.compile("sidestep: metrics: write '.*/no/m.prom': No such file.*\n"))
    assert sorted(os.listdir(sidestep.folder)) == ["m.prom", "step-3"]


def test_check_after_kills(sidestep):
    """check and metrics are right after a trainer was killed at any moment"""
    draw = random.Random(7)
    program = [sys.executable, "-c", SAVES, os.path.dirname(sidestep.program), sidestep.folder]
    here = os.path.dirname(os.path.abspath(__file__))
    last = 0
    for _ in range(20):
        process = subprocess.Popen([*program, str(last + 1)], stdout=subprocess.PIPE,
                                   env={**os.environ, "PYTHONPATH": here})
        for _ in range(draw.randrange(1, 4)):
            last = int(process.stdout.readline())
        time.sleep(draw.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        last = max([last, *map(int, process.stdout.read().split()[:1])])
        process.wait()
        report = sidestep.run("--json", "check", "--max-age=10m", sidestep.folder)
        root = json.loads(report.stdout)["roots"][0]
        assert report.status == 0 and root["step"] >= last, (last, report.describe())
        found = metrics(sidestep, sidestep.folder)
        assert found["last_committed_step", sidestep.folder, None] == root["step"]
        last = root["step"]
