"""What the machine allows and can do: doctor and bench."""
import json
import os
import re
import signal
import subprocess
import sys
import time

from harness import Skip, one_line, other_user

STATES = {"yes", "partly", "no", "fact"}
NAMES = ["kernel", "processors", "memory", "userfaultfd", "memory_reading", "huge_pages",
         "io_uring", "cachestat", "cpu_priority", "io_priority", "durable", "shared", "free_space",
         "disk_scheduler", "rights", "writable", "commit", "object_stores"]
QUICK = ["--size=16MiB", "--runs=1"]


def findings(sidestep, *arguments):
    """{name: finding} of a run of doctor."""
    report = sidestep.json("doctor", *arguments)
    assert list(report) == ["directory", "findings"]
    found = {finding["name"]: finding for finding in report["findings"]}
    assert len(found) == len(report["findings"]), "a name came twice"
    return found


def test_doctor_json(sidestep):
    """doctor --json: every finding has a state and a text, and every "no" has a fix"""
    found = findings(sidestep, sidestep.folder)
    assert set(NAMES) <= set(found), sorted(found)
    for finding in found.values():
        assert list(finding) == ["name", "state", "text", "fix"], finding
        assert finding["state"] in STATES and finding["text"], finding
        assert finding["state"] != "no" or finding["fix"], finding
        assert finding["state"] not in ("yes", "fact") or finding["fix"] is None, finding
    assert os.listdir(sidestep.folder) == []


def test_doctor_table(sidestep):
    """doctor: one line for each finding, and one for each fix"""
    result = sidestep.run("doctor", sidestep.folder)
    assert result.status == 0 and result.stderr == "", result.describe()
    found = findings(sidestep, sidestep.folder)
    lines = result.stdout.splitlines()
    named = [line.split()[1] for line in lines if not line.startswith(" ")]
    assert named == list(found), result.describe()
    fixes = [finding["fix"] for finding in found.values() if finding["fix"]]
    assert [line.strip() for line in lines if line.startswith(" ")] == [f"fix: {fix}" for fix in fixes]


def test_doctor_of_memory(sidestep):
    """doctor: a file system in memory is not durable"""
    if not os.access("/dev/shm", os.W_OK):
        raise Skip("no /dev/shm here")
    found = findings(sidestep, "/dev/shm")
    assert found["durable"]["state"] == "no" and "tmpfs" in found["durable"]["text"]


def test_doctor_of_unwritable(sidestep):
    """doctor: a directory that cannot be written is a finding, with the reason"""
    found = findings(sidestep, "/proc")
    assert found["writable"]["state"] == "no" and found["writable"]["fix"], found["writable"]
    assert "direct_io" not in found


def test_doctor_in_a_container(sidestep):
    """doctor: system calls that a container refuses are named, with the fix"""
    done = subprocess.run([sys.executable, "tests/environments/confine.py",
                           "EPERM:process_vm_readv,cachestat", "--",
                           sidestep.program, "doctor", "--json", sidestep.folder],
                          stdout=subprocess.PIPE, check=False, env=sidestep.environment())
    if done.returncode == 77:
        raise Skip("no seccomp here")
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    for name, call in (("memory_reading", "process_vm_readv"), ("cachestat", "cachestat")):
        assert found[name]["state"] == "no", found[name]
        assert "refused (Operation not permitted)" in found[name]["text"], found[name]
        assert f"must allow {call}." in found[name]["fix"], found[name]


def test_doctor_of_a_memory_limit(sidestep):
    """doctor: the memory limit of a cgroup is reported, also of one around that of the process"""
    for place, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                         ("/sys/fs/cgroup", "memory.max")):
        outer = f"{place}/sidestep-{os.getpid()}"
        try:
            os.makedirs(f"{outer}/inner")
            with open(f"{outer}/{limit}", "w", encoding="ascii") as file:
                file.write(str(512 << 20))
            break
        except OSError:
            for folder in (f"{outer}/inner", outer):
                if os.path.isdir(folder):
                    os.rmdir(folder)
    else:
        raise Skip("no cgroup can be made here")
    try:
        done = subprocess.run(["sh", "-c", f'echo $$ >{outer}/inner/cgroup.procs; exec "$@"', "sh",
                               sidestep.program, "doctor", "--json", sidestep.folder],
                              stdout=subprocess.PIPE, check=True, env=sidestep.environment())
    finally:
        os.rmdir(f"{outer}/inner")
        os.rmdir(outer)
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["memory_limit"]["text"].startswith("512.0 MiB in this cgroup"), found


def test_doctor_of_another_user(sidestep):
    """doctor: what a user may not do is reported, with a fix"""
    if os.geteuid() != 0:
        raise Skip("needs root, to give it up")
    if open("/proc/sys/vm/unprivileged_userfaultfd", encoding="ascii").read().strip() == "1":
        raise Skip("userfaultfd is allowed to everybody here")
    nobody = other_user(sidestep)
    os.chmod(sidestep.folder, 0o777)
    done = subprocess.run([sidestep.program, "doctor", "--json", sidestep.folder],
                          stdout=subprocess.PIPE, check=False, env=sidestep.environment(), **nobody)
    assert done.returncode == 0, done
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    for name in ("userfaultfd", "cpu_priority"):
        assert found[name]["state"] in ("no", "partly") and found[name]["fix"], found[name]


def test_bench_json(sidestep):
    """bench --json: a number for each run, a prediction that follows from them, and no files left"""
    report = sidestep.json("bench", "--size=16MiB", "--runs=2", "--state=160MiB", "--mtbf=6h",
                           sidestep.folder)
    assert report["bytes"] == 16 << 20 and isinstance(report["direct_io"], bool)
    seconds = report["seconds"]
    assert list(seconds) == ["memory_copy", "disk_write", "disk_read", "save_stall",
                             "save_background", "load"]
    for numbers in seconds.values():
        assert len(numbers) == 2 and 0 < numbers[0] <= numbers[1], seconds
    told = report["prediction"]
    assert told["state_bytes"] == 160 << 20 and told["mtbf_seconds"] == 21600
    for ours, measured in [("stall_seconds", "save_stall"), ("background_seconds", "save_background"),
                           ("load_seconds", "load")]:
        assert abs(told[ours] / (sum(seconds[measured]) / 2) - 10) < 1e-6, (ours, told)
    # Young's formula, and at least the time of a save.
    young = max((2 * told["stall_seconds"] * 21600) ** 0.5, told["background_seconds"])
    assert 0.99 < told["interval_seconds"] / young < 1.01, told
    assert 0 < told["saving_share"] < 1 and 0 < told["failure_share"] <= 1
    assert os.listdir(sidestep.folder) == []


def test_bench_table(sidestep):
    """bench: a table and three sentences; no progress line if it is fast"""
    result = sidestep.run("bench", *QUICK, sidestep.folder)
    assert result.status == 0, result.describe()
    lines = result.stdout.splitlines()
    assert re.fullmatch(r"WHAT +TIME +BEST +WORST +RATE +RATIO", lines[0]), result.describe()
    assert len([line for line in lines if re.search(r"\d\.\d{3} s ", line)]) == 6, result.describe()
    assert "With a failure every 24h: save every " in result.stdout


def test_bench_usage(sidestep):
    """bench: invalid sizes, times and numbers"""
    for argument in ["--size=1MiB", "--size=big", "--size=-1G", "--size=1e9", "--size=0x10G",
                     "--size=1Q", "--state=0", "--mtbf=never", "--mtbf=0h", "--mtbf=inf", "--runs=0",
                     "--runs=101"]:
        name, value = argument.split("=")
        result = sidestep.run("bench", argument, sidestep.folder)
        assert result.status == 2 and f"bench: {name}: '{value}'" in result.stderr, result.describe()
    assert os.listdir(sidestep.folder) == []


def test_bench_without_space(sidestep):
    """bench: a size that does not fit is refused before anything is written"""
    sidestep.expect("bench", "--size=1000TiB", sidestep.folder, status=28,
                    stderr=one_line("too little free space"))
    assert os.listdir(sidestep.folder) == []


def test_bench_nowhere(sidestep):
    """bench: a missing directory, and one that cannot be written"""
    sidestep.expect("bench", *QUICK, sidestep.path("none"), status=10,
                    stderr=one_line("none", "No such file"))
    result = sidestep.run("bench", *QUICK, "/proc")
    assert result.status != 0 and "/proc" in result.stderr, result.describe()


def test_bench_interrupted(sidestep):
    """bench: an interrupt ends it with status 130, and nothing is left behind"""
    process = subprocess.Popen([sidestep.program, "bench", "--size=16MiB", "--runs=100",
                                sidestep.folder], env=sidestep.environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not os.listdir(sidestep.folder):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == b"", (process.returncode, out, err)
    assert b"interrupted" in err, err
    assert os.listdir(sidestep.folder) == []
