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
from saver import Run
run = Run(sys.argv[1], sys.argv[2], keep_last=2)
for step in range(int(sys.argv[3]), 1 << 30):
    run.save(step)
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
        r"SIDESTEP UNKNOWN - .*/no: open directory '.*': No such file or directory \| 'age'=U .*\n"))
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


def judge_after_kill(sidestep, last):
    """The newest step, of which check, metrics and ls must agree; ${last} was committed before a kill."""
    report = sidestep.json("check", "--max-age=1h", "--verify=newest", sidestep.folder)
    root, = report["roots"]
    assert root["status"] == "OK" and last <= root["step"] <= last + 1, (last, report)
    found = metrics(sidestep, sidestep.folder)
    assert found["last_committed_step", sidestep.folder, None] == root["step"], (found, report)
    assert found["kept_checkpoints", sidestep.folder, None] == root["kept"] >= 1, (found, report)
    listed = {entry["step"]: entry["kept"] for entry in sidestep.json("ls", sidestep.folder)["checkpoints"]
              if entry["state"] == "committed"}
    assert max(listed) == root["step"] and listed[root["step"]] == "newest", (listed, report)
    return root["step"]


def test_check_after_kills(sidestep):
    """check, metrics and ls are right after a trainer was killed at any moment of its saves"""
    draw = random.Random(7)
    program = [sys.executable, "-c", SAVES, os.path.dirname(sidestep.program), sidestep.folder]
    here = os.path.dirname(os.path.abspath(__file__))
    last, pause = 0, 0.01
    for _ in range(1000 if os.environ.get("SIDESTEP_LONG") else 15):
        process = subprocess.Popen([*program, str(last + 1)], stdout=subprocess.PIPE,
                                   env={**os.environ, "PYTHONPATH": here})
        began = time.monotonic()
        for _ in range(draw.randrange(1, 4)):
            last, began = int(process.stdout.readline()), time.monotonic()
        time.sleep(draw.random() * pause)
        process.send_signal(signal.SIGKILL)
        told = [int(step) for step in process.stdout.read().split()]
        process.wait()
        pause = (time.monotonic() - began) / (len(told) + 1)  # about what a save takes here
        last = judge_after_kill(sidestep, max([last, *told]))
    kinds = [json.loads(line)["event"] for line in sidestep.run("events", "--json", sidestep.folder).stdout.splitlines()]
    assert kinds.count("opened") >= 15 and kinds.count("started") > kinds.count("committed") > 0, kinds[-50:]
    # The control: what a save leaves that does not keep its promise.
    newest = sidestep.path(f"step-{last}")
    os.truncate(os.path.join(newest, shard_of(newest)), 100)
    try:
        judge_after_kill(sidestep, last)
    except AssertionError:
        return
    raise AssertionError("a torn checkpoint was not noticed")


def event(time_, kind, **fields):
    """A line as a series keeps it."""
    return json.dumps({"event": kind, "time": time_, "rank": 0, **fields})


def keep(sidestep, *lines, name="events.rank-0", mode="w"):
    os.makedirs(sidestep.path(".sidestep"), exist_ok=True)
    with open(sidestep.path(f".sidestep/{name}"), mode, encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def save_of(step, began, call=0.5):
    """The events of a save of rank 0."""
    times = {"call_ns": int(call * 1e9), "stage_ns": 1000000, "write_ns": 2000000000, "commit_ns": 1000000000}
    common = {"save_id": f"{step:032x}", "path": f"/run/step-{step}", "step": step, "bytes": 3 << 30, **times}
    return [event(began, "started", **{**common, "call_ns": 0}), event(began + 1, "staged", **common),
            event(began + 3, "written", **common), event(began + 4, "committed", **common)]


def test_events(sidestep):
    """events of several ranks come in the order of time, whatever else is in the files"""
    keep(sidestep, event(100.5, "opened", path="/run", ranks=2, host="a", incarnation=1), "", "no JSON",
         '{"event":"x"}', '{"event":1,"time":1,"rank":0}', event(-1, "early"), "[" * 100000, *save_of(7, 200))
    keep(sidestep, event(150, "rejected", path="/run/step-6", message="its \x1b[31mhash"), name="events.on-b")
    os.mkfifo(sidestep.path(".sidestep/events.fifo"))
    os.symlink("/etc/passwd", sidestep.path(".sidestep/events.link"))
    sidestep.expect("events", sidestep.folder, stdout=(
        "1970-01-01T00:01:40Z  rank 0     opened         /run  start 1, 2 ranks on a\n"
        "1970-01-01T00:02:30Z  rank 0     rejected       /run/step-6  its \\x1b[31mhash\n"
        "1970-01-01T00:03:20Z  rank 0     started        step 7  3.0 GiB\n"
        "1970-01-01T00:03:21Z  rank 0     staged         step 7  3.0 GiB\n"
        "1970-01-01T00:03:23Z  rank 0     written        step 7  3.0 GiB\n"
        "1970-01-01T00:03:24Z  rank 0     committed      step 7  3.0 GiB  training waited 0.500 s, "
        "then 3.00 s in the background\n"))
    lines = sidestep.run("events", "--json", sidestep.folder).stdout.splitlines()
    assert [json.loads(line)["event"] for line in lines][:2] == ["opened", "rejected"], lines


def test_events_of_nothing(sidestep):
    """a root without events: not found, and the message says where they would be"""
    for command in ("events", "trace"):
        sidestep.expect(command, sidestep.folder, status=10, stderr=re.compile(
            "sidestep: no events are kept in '.*': a series keeps them in .sidestep/.*\n"))
        sidestep.expect(command, "s3://bucket/run", status=5, stderr=re.compile(
            "sidestep: 's3://bucket/run' is in an object store, .*SIDESTEP_EVENTS=FILE\n"))


def test_events_that_come(sidestep):
    """events --follow prints what is appended, also to a new file after the old one was renamed"""
    keep(sidestep, event(1, "opened"))
    command = [sidestep.program, "events", "--follow", "--json", sidestep.folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=sidestep.environment(), text=True) as process:
        read = lambda: json.loads(process.stdout.readline())["event"]
        assert read() == "opened"
        keep(sidestep, event(2, "second"), mode="a")
        assert read() == "second"
        keep(sidestep, event(3, "third"), mode="a")
        os.rename(sidestep.path(".sidestep/events.rank-0"), sidestep.path(".sidestep/events.rank-0.old"))
        keep(sidestep, event(4, "fourth"))
        assert [read(), read()] == ["third", "fourth"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stdout.read() == ""


def test_trace(sidestep):
    """trace has the call, the phases and the end of a save, in microseconds"""
    keep(sidestep, event(100, "opened", host="a<b"), *save_of(7, 200))
    trace = json.loads(sidestep.run("trace", sidestep.folder).stdout)["traceEvents"]
    bars = {bar["name"]: (bar["tid"], bar["ts"], bar["dur"]) for bar in trace if bar["ph"] == "X"}
    assert bars == {"save 7": (1, 200e6, 0.5e6), "stage 7": (2, 200.999e6, 0.001e6), "write 7": (2, 201e6, 2e6),
                    "commit 7": (2, 203e6, 1e6)}, bars
    assert [mark["name"] for mark in trace if mark["ph"] == "i"] == ["opened", "committed 7"]
    assert [part["args"]["name"] for part in trace if part["name"] == "process_name"] == ["rank 0 on a<b"]
    sidestep.expect("trace", "-o", sidestep.path("trace.json"), sidestep.folder)
    with open(sidestep.path("trace.json"), encoding="utf-8") as file:
        assert json.load(file)["traceEvents"] == trace


def test_report(sidestep):
    """report sums up saves and kills, and shows names and messages of others as text"""
    saved(sidestep, 1, 2)
    attack = "<script>alert(1)</script>&\""
    os.mkdir(sidestep.path("<img src=x>"))
    keep(sidestep, event(1000, "opened", incarnation=1), *save_of(1, 1100), event(2000, "opened", incarnation=2),
         *save_of(2, 2100, call=1.5), event(3000, "aborted", step=3, message=attack, call_ns=0))
    sidestep.run("pin", sidestep.path("step-1"))
    sidestep.run("tag", sidestep.path("step-1"), "good")
    page = sidestep.run("report", sidestep.folder).stdout
    assert '<td class="text">pinned; good</td>' in page, page
    assert "<script" not in page and "<img" not in page, page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;" in page and "&lt;img src=x&gt;" in page, page
    assert "Training waited 2.000 s for 2 saves, 1.0000 s each and 1.5000 s at most, which is 0.100 %" in page, page
    # One kill in 2000 s: the square root of 2 x 1 s x 2000 s.
    assert "The job was killed every 2000 s." in page and "is then 63 s" in page, page
    assert page.count("<rect") == 3 and page.endswith("</html>\n"), page
    bare = sidestep.path("bare")
    os.mkdir(bare)
    assert "No events are kept here" in sidestep.run("report", bare).stdout
