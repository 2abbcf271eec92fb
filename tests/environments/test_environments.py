# SPDX-License-Identifier: BSD-3-Clause
"""Saves, loads, verifies and asks doctor in many environments: limits, locales, containers, other
memory allocators ...  ROWS has a line for each: its name, how to enter it, and what must hold.
Without SIDESTEP_LONG=1 only the first few are tried. `make environments` tries all.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
EVERY = os.environ.get("SIDESTEP_LONG") == "1"
PROGRAM = TOP / "build" / "sidestep"
LIBRARY = TOP / "build" / "libsidestep.so.0"
MOUNTS = ["unshare", "--mount"]
SOMEBODY = ["unshare", "--user", "--map-user=4242", "--map-group=4242"]  # no name, no rights


@dataclass
class Row:
    """An environment: how to enter it, from the outside to the inside, and what must hold there."""

    name: str
    prefix: list = field(default_factory=list)  # a command that runs the rest of its line
    cgroup: tuple = ()  # controller, file of version 1, file of version 2, value
    shell: str = ""  # what a shell does then; $FOLDER is where checkpoints will be
    confined: str = ""  # words for confine.py
    variables: dict = field(default_factory=dict)  # added to the environment; None: removed
    library: str = ""  # to be loaded first
    options: str = ""  # of Python
    package: str = ""  # of PyPI, in .venv/environments, that it takes
    inside: str = ""  # what the process does to itself (work.py)
    reason: str = ""  # what copy_reason must match
    doctor: dict = field(default_factory=dict)  # {finding: what its text and fix must match}
    fails: str = ""  # it cannot work, and must say this


CONTAINER = "EPERM:userfaultfd,io_uring_setup,io_uring_enter,io_uring_register"
NO_DEVICE = "[ ! -e /dev/userfaultfd ] || mount --bind /dev/null /dev/userfaultfd"
NOT_OFFERED = r"not offered here \(old kernel, or a filter\)"
QUICK = [
    Row("Docker's seccomp profile", MOUNTS, shell=NO_DEVICE,
        confined=f"{CONTAINER} ENOSYS:cachestat",
        reason="^userfaultfd needs .* no seccomp profile against it: Operation not permitted$",
        doctor={"userfaultfd": "profile must allow", "io_uring": "profile must allow",
                "cachestat": NOT_OFFERED}),
    Row("a filter that answers ENOSYS",
        confined="ENOSYS:userfaultfd,io_uring_setup,openat2,statx,cachestat",
        reason="userfaultfd is " + NOT_OFFERED + ": Function not implemented$",
        doctor={"userfaultfd": NOT_OFFERED, "io_uring": NOT_OFFERED}),
    Row("nobody's user, an empty environment", SOMEBODY, variables={"HOME": None, "PATH": None}),
    Row("ulimit -n 20", shell="ulimit -n 20"),
    # Without it the loader does not know where a program is, and so not what $ORIGIN is.
    Row("no /proc", MOUNTS, shell="mount -t tmpfs none /proc",
        variables={"LD_LIBRARY_PATH": str(TOP / "build")}),
    Row("storage that fails", confined="EIO:fsync,fdatasync,syncfs,sync_file_range", fails="EIO"),
]  # fmt: skip
ROWS = [
    Row("no HOME", variables={"HOME": None}),
    Row("a HOME that is not there", variables={"HOME": "/nonexistent"}),
    Row("a read-only root", MOUNTS, shell="mount --bind $FOLDER $FOLDER && "
        "mount -o remount,bind,ro / && ! touch /tmp/sidestep-may-not 2>/dev/null"),
    Row("/dev/shm of 64 MiB", MOUNTS, shell="mount -t tmpfs -o size=64m none /dev/shm"),
    Row("/dev/shm that is read-only", MOUNTS, shell="mount -t tmpfs -o ro none /dev/shm"),
    Row("no /sys", MOUNTS, shell="mount -t tmpfs none /sys"),
    Row("checkpoints in 64 MiB of memory", MOUNTS, shell="mount -t tmpfs -o size=64m none $FOLDER"),
    Row("umask 077", shell="umask 077"),
    Row("umask 000", shell="umask 000"),
    Row("ulimit -u: few processes", SOMEBODY, shell="ulimit -u 24"),
    Row("ulimit -c 0, -l 0, -q 0", shell="ulimit -c 0 && ulimit -l 0 && ulimit -q 0"),
    Row("ulimit -s: stacks of 256 KiB", shell="ulimit -s 256"),
    Row("ulimit -s unlimited", shell="ulimit -s unlimited"),
    Row("ulimit -v: 3 GiB of addresses", shell="ulimit -v 3145728"),
    Row("LANG=C", variables={"LANG": "C", "LC_ALL": "C"}),
    Row("LC_ALL=POSIX without UTF-8", variables={"LC_ALL": "POSIX", "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0"}),
    Row("a locale that is not there", variables={"LC_ALL": "tlh_QO.UTF-8"}),
    Row("TZ of a place far east", variables={"TZ": "Pacific/Kiritimati"}),
    Row("TZ that makes no sense", variables={"TZ": ":/nonexistent"}),
    Row("jemalloc", library="libjemalloc.so.2"),
    Row("mimalloc", library="libmimalloc.so.2.0"),
    Row("tcmalloc", library="libtcmalloc_minimal.so.4"),
    Row("MALLOC_ARENA_MAX=1", variables={"MALLOC_ARENA_MAX": "1"}),
    Row("MALLOC_PERTURB_, MALLOC_CHECK_", variables={"MALLOC_PERTURB_": "165",
        "MALLOC_CHECK_": "3"}),
    Row("huge pages for malloc", variables={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    Row("uvloop", inside="uvloop", package="uvloop"),
    Row("gevent", inside="gevent", package="gevent"),
    Row("PYTHONOPTIMIZE", variables={"PYTHONOPTIMIZE": "2"}),
    Row("PYTHONMALLOC=debug", variables={"PYTHONMALLOC": "debug"}),
    Row("PYTHONHASHSEED=0", variables={"PYTHONHASHSEED": "0"}),
    Row("PYTHONDONTWRITEBYTECODE", variables={"PYTHONDONTWRITEBYTECODE": "1"}),
    Row("PYTHONSAFEPATH", variables={"PYTHONSAFEPATH": "1"}),
    Row("python -X dev", options="-X dev"),
    Row("python -b -W error::BytesWarning", options="-b -W error::BytesWarning"),
    Row("python -X faulthandler", options="-X faulthandler"),
    Row("in a child by fork", inside="fork"),
    Row("in a child by spawn", inside="spawn"),
    Row("in a child by forkserver", inside="forkserver"),
    Row("without os.fork", inside="without_fork"),
    Row("no huge pages", confined="no-huge-pages", doctor={"huge_pages": "switched off"}),
    Row("a user namespace", ["unshare", "--user", "--map-root-user"]),
    Row("a network that is down", ["unshare", "--net"]),
    Row("a PID namespace", ["unshare", "--pid", "--fork", "--mount-proc"]),
    Row("process_vm_readv refused", confined="EPERM:process_vm_readv",
        reason="process_vm_readv", doctor={"memory_reading": "must allow process_vm_readv"}),
    Row("statx refused", confined="EPERM:statx"),
    Row("openat2 refused", confined="EPERM:openat2"),
    Row("renameat2 not offered", confined="ENOSYS:renameat2"),
    Row("fallocate not supported", confined="EOPNOTSUPP:fallocate"),
    Row("memfd_create, copy_file_range not offered",
        confined="ENOSYS:memfd_create,copy_file_range"),
    Row("ioprio_set, mbind refused", confined="EPERM:ioprio_set,mbind",
        doctor={"io_priority": "seccomp profile must allow ioprio_set"}),
    Row("vmsplice refused", confined="EPERM:vmsplice"),
    Row("a working directory that was deleted", inside="loses_its_directory"),
    Row("stdin closed", shell="exec <&-"),
    Row("stdin and stderr closed", shell="exec <&- 2>&-"),
    Row("SIGPIPE ignored", inside="ignores_pipes"),
    Row("SIGCHLD ignored, as under some init", shell="trap '' CHLD"),
    Row("SIGHUP ignored, as by nohup", shell="trap '' HUP"),
    Row("nice 19", ["nice", "-n", "19"]),
    Row("the idle class", ["chrt", "--idle", "0"]),
    Row("one processor", ["taskset", "--cpu-list", "0"]),
    Row("a session of its own", ["setsid", "--wait"]),
    Row("OMP_NUM_THREADS=1", variables={"OMP_NUM_THREADS": "1"}),
    Row("CUDA_VISIBLE_DEVICES empty", variables={"CUDA_VISIBLE_DEVICES": ""}),
    Row("a cgroup of 512 MiB", cgroup=("memory", "memory.limit_in_bytes", "memory.max", 512 << 20),
        doctor={"memory_limit": r"^512\.0 MiB in this cgroup"}),
    Row("a cgroup of 40 processes", cgroup=("pids", "pids.max", "pids.max", 40)),
    Row("a cgroup of half a processor", cgroup=("cpu", "cpu.cfs_quota_us", "cpu.max", 50000)),
]  # fmt: skip


def python_of(row):
    if not row.package:
        return sys.executable
    python = TOP / ".venv" / "environments" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{row.package} is not installed: tools/setup environments")
    return str(python)


def variables_of(row, folder):
    kept = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": os.environ.get("HOME", "/")}
    ours = {
        "PYTHONPATH": str(TOP / "python"),
        "SIDESTEP_LIBRARY": os.environ.get("SIDESTEP_LIBRARY", str(LIBRARY)),
        "FOLDER": str(folder),
    }
    if row.library:
        found = sorted(pathlib.Path("/usr/lib").rglob(row.library))
        if not found:
            pytest.skip(f"{row.library} is not installed: tools/setup environments")
        ours["LD_PRELOAD"] = str(found[0])
    every = {**kept, **row.variables, **ours}
    return {name: value for name, value in every.items() if value is not None}


@contextlib.contextmanager
def group_of(row):
    """A cgroup with the limit of the row; None: it wants none."""
    if not row.cgroup:
        yield None
        return
    controller, first, second, limit = row.cgroup
    for place, file in ((f"/sys/fs/cgroup/{controller}", first), ("/sys/fs/cgroup", second)):
        group = pathlib.Path(place, f"sidestep-{os.getpid()}")
        try:
            group.mkdir()
            (group / file).write_text(str(limit))
            break
        except OSError:
            if group.is_dir():
                group.rmdir()
    else:
        pytest.skip("no cgroup can be made here")
    try:
        yield group
    finally:
        group.rmdir()


def entered(row, group, command):
    """The command line that runs ``command`` in the environment."""
    first = f"echo $$ >{group}/cgroup.procs" if group else ""
    steps = " && ".join(step for step in (first, row.shell) if step)
    if row.confined:
        command = [sys.executable, str(HERE / "confine.py"), *row.confined.split(), "--", *command]
    if steps:
        command = ["bash", "-c", f'{{ {steps}; }} || exit 77; exec "$@"', "bash", *command]
    return [*row.prefix, *command]


@pytest.mark.parametrize("row", QUICK + (ROWS if EVERY else []), ids=lambda row: row.name)
def test_environment(row, tmp_path):
    python, variables = python_of(row), variables_of(row, tmp_path)
    with group_of(row) as group:
        options = {"env": variables, "cwd": TOP, "capture_output": True, "text": True}
        can = subprocess.run(entered(row, group, ["true"]), **options, check=False)
        if can.returncode != 0 and not row.library:
            pytest.skip(f"it cannot be entered here: {can.stderr.strip() or can.returncode}")
        command = [python, *row.options.split(), str(HERE / "work.py"), str(tmp_path)]
        done = subprocess.run(entered(row, group, [*command, str(PROGRAM), row.inside]), **options,
                              check=False, timeout=300)  # fmt: skip
    said = f"{row.name}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    if row.fails:
        assert done.returncode not in (0, 77) and re.search(row.fails, done.stderr), said
        return
    assert done.returncode == 0, said
    (told,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert told["state"] == "committed", said
    assert re.search(row.reason, told["reason"]), told["reason"]
    for name, words in row.doctor.items():
        finding = told["doctor"][name]
        assert re.search(words, f"{finding['text']} {finding['fix']}"), finding
