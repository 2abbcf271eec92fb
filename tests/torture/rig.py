# SPDX-License-Identifier: BSD-3-Clause
"""rig.py -- what the torture rigs share: tools, commands with a deadline, checks of what a save left on
storage, and TAP."""
import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

SHARD = re.compile(r"__\d+_\d+(\.[0-9a-f]{32})?\.distcp$")
MANIFEST = re.compile(r"\.sidestep\.manifest\.[0-9a-f]{32}$")
UNKNOWN = "outcome unknown"
JOBS = 4
SHOWN = 10  # number of complaints that a failed test prints
PATIENCE = 20  # default of the seconds that a command may take


class Result:
    def __init__(self, status, out, err):
        self.status = status  # exit status; -N: killed by signal N; None: it did not end in time
        self.out = out.strip()
        self.err = err.strip()

    def __str__(self):
        return f"status {self.status}, '{self.out}', '{self.err[-600:]}'"


def finish_group(process):
    """Kill a process and all processes that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command, timeout=None, env=None, preexec_fn=None):
    """Run a command; return a Result. Also kill all processes that it started."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True,
                               preexec_fn=preexec_fn, env={**os.environ, **(env or {})})
    try:
        out, err = process.communicate(timeout=timeout or PATIENCE)
        status = process.returncode
    except subprocess.TimeoutExpired:
        finish_group(process)
        out, err = process.communicate()
        status = None
    finish_group(process)
    return Result(status, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def run_each(saver, commands):
    """The Results of commands of saver_tool, each in its own process, up to the first that fails. The
    program starts once for all of them, because its start costs most."""
    arguments = [word for command in commands for word in (",", *command)][1:]
    if len(commands) == 1:
        return [run([saver, *arguments])]
    whole = run([saver, *arguments], PATIENCE * len(commands))
    outs, errs = (re.split(r"^= (-?\d+)$", text, flags=re.MULTILINE)
                  for text in (whole.out, whole.err))
    results = [Result(int(status), out, err)
               for out, status, err in zip(outs[::2], outs[1::2], errs[::2])]
    ended_well = len(results) == len(commands) or results and results[-1].status != 0
    return results if ended_well else results + [Result(whole.status, outs[-1], errs[-1])]


class Rig:
    """One program of tests: its scratch directory, its tools, and its results so far."""

    def __init__(self, purpose, in_memory=False, place=None):
        """in_memory: use a scratch directory in memory, if possible, except with --long. place: where
        to make the scratch directory, instead of in the build folder."""
        parser = argparse.ArgumentParser(description=purpose)
        parser.add_argument("build", nargs="?", default="build", help="the folder of libsidestep.so")
        parser.add_argument("--long", action="store_true", help="run more trials of each test")
        settings = parser.parse_args()
        self.top = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
        self.build = os.path.abspath(settings.build)
        self.long = settings.long
        fast = in_memory and not self.long and os.access("/dev/shm", os.W_OK | os.X_OK)
        self.scratch = tempfile.mkdtemp(prefix="torture-",
                                        dir=place or ("/dev/shm" if fast else self.build))
        self.lock = threading.Lock()
        self.number = 0
        self.failed = 0
        self.folders = 0

    def tool(self, name):
        """The path of a program of tests/tools that is part of the build."""
        path = os.path.join(self.build, "tests", name)
        if not os.path.exists(path):
            self.bail(f"{path} is missing: run ninja -C {self.build} test-programs")
        return path

    def compile_saver(self, mpi):
        """Compile tests/tools/mpi_saver.c with an MPI, against the library; returns the program's
        path."""
        program = os.path.join(self.scratch, f"mpi_saver.{mpi}")
        sources = [f"{self.top}/tests/tools/mpi_saver.c"]
        sources += [f"{self.top}/tests/support/{name}.c"
                    for name in ("tensor_memory", "ways", "world")]
        result = run([f"mpicc.{mpi}", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall",
                      "-Wextra", f"-I{self.top}/include", f"-I{self.top}/tests", *sources,
                      "-o", program, f"-L{self.build}", "-lsidestep", f"-Wl,-rpath,{self.build}",
                      "-Wl,--wrap=sidestep_engine_open", "-ldl"], 120)
        if result.status != 0:
            self.bail(f"cannot compile mpi_saver: {result.err}")
        return program

    def folder(self):
        """Make a new, empty directory."""
        with self.lock:
            self.folders += 1
            path = os.path.join(self.scratch, f"t{self.folders}")
        os.mkdir(path)
        return path

    def test(self, name, complaints):
        """Print the TAP line of a test, which passes if there are no complaints."""
        self.number += 1
        print(f"{'not ' if complaints else ''}ok {self.number} - {name}", flush=True)
        for complaint in complaints[:SHOWN]:
            for line in str(complaint).splitlines():
                print(f"# {line}")
        if len(complaints) > SHOWN:
            print(f"# ... and {len(complaints) - SHOWN} more")
        self.failed += bool(complaints)

    def control(self, name, complaints):
        """A negative control: it passes if there are complaints about something broken."""
        self.test(f"{name} is caught ({len(complaints)} complaints)",
                  [] if complaints else ["nothing was found wrong with it"])

    def skip(self, name, reason):
        self.number += 1
        print(f"ok {self.number} - {name} # SKIP {reason}", flush=True)

    def bail(self, reason):
        shutil.rmtree(self.scratch, ignore_errors=True)
        print(f"Bail out! {reason}")
        sys.exit(1)

    def finish(self):
        shutil.rmtree(self.scratch, ignore_errors=True)
        print(f"1..{self.number}")
        sys.exit(1 if self.failed else 0)


def parallel(function, items):
    """The complaints of all calls, in order."""
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return [complaint for found in pool.map(function, items) for complaint in found]


def leftovers(folder):
    """Names in ${folder} that do not belong to a checkpoint, and names in its checkpoints that do
    not belong there."""
    found = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.startswith(".sidestep."):
            found.append(name)
        elif name != ".sidestep" and os.path.isdir(path):
            content = os.listdir(path)
            found += [f"{name}/{inner}" for inner in content
                      if inner != ".metadata" and not SHARD.match(inner)
                      and not MANIFEST.match(inner)]
            if len(content) != 3:
                found.append(f"{name}/ has {len(content)} names: {sorted(content)}")
    return found


def has_no_owner(folder, name):
    """Is it the directory of a save that was killed before it wrote its marker? Only gc can tell that
    such a save is dead."""
    path = os.path.join(folder, name)
    return name.endswith(".saving") and all(
        inner.endswith(".pending") and os.path.getsize(os.path.join(path, inner)) == 0
        for inner in os.listdir(path))


class Workload:
    """A command of a saver, and checks of what it leaves. before: the state (or step) that exists
    before, 0: none; after: the one that it saves."""

    def __init__(self, rig, saver, name, before, command="save"):
        self.rig = rig
        self.saver = saver
        self.name = name
        self.before = before
        self.after = before + 1
        self.command = command
        self.template = rig.folder()
        self.is_series = command == "series"
        if before:
            result = run([saver, "series" if self.is_series else "save",
                          os.path.join(self.template, "it"), str(before)])
            if result.status != 0:
                rig.bail(f"{name}: {result}")

    def prepare(self):
        folder = self.rig.folder()
        shutil.copytree(self.template, folder, symlinks=True, dirs_exist_ok=True)
        return folder

    def arguments(self, folder):
        return [self.saver, self.command, os.path.join(folder, "it"), str(self.after)]

    def looks(self, folder):
        """The command that prints the state that a reader, or a resume of a series, finds."""
        path = os.path.join(folder, "it")
        if self.is_series:
            return ["resume", path]
        check = "check-files" if self.command == "save-files" else "check"
        return [check, path, str(self.before), str(self.after)]

    def saves_again(self, folder):
        """The commands of a later save and of a reader of its state."""
        path = os.path.join(folder, "it")
        number = str(self.after + 5)
        if self.is_series:
            return [["series", path, number], ["resume", path]]
        return [["save", path, number], ["check", path, number]]

    @staticmethod
    def found(result):
        """(state that a reader found, None), or (None, complaint)."""
        if result.status != 0:
            return None, f"what is there cannot be loaded: {result}"
        return int(result.out.split()[1]) if " " in result.out else 0, None

    def judge(self, folder, result, killed=False):
        """Complaints about what a run that ended with ${result} left in ${folder}."""
        looked, *later = run_each(self.saver, [self.looks(folder), *self.saves_again(folder)])
        found, complaint = self.found(looked)
        if complaint:
            return [complaint]
        return self.judge_found(result, found, killed) + self.judge_next(folder, later)

    def judge_found(self, result, found, killed):
        if found not in (self.before, self.after):
            return [f"state {found} is there"]
        return [] if killed else self.judge_answer(result, found)

    def judge_answer(self, result, found):
        if result.status is None:
            return ["it did not end"]
        if result.status < 0 or result.status >= 125 and result.status != 130:
            return [f"it crashed: {result}"]
        if result.status == 0 and found != self.after:
            return [f"it reported success, but state {found} is there: {result}"]
        if result.status != 0 and ": " not in result.err:
            return [f"it failed without a message: {result}"]
        if result.status != 0 and found == self.after and UNKNOWN not in result.err:
            return [f"it reported a failure, but the checkpoint is there: {result}"]
        return []

    def judge_next(self, folder, results):
        """Complaints unless the next save succeeds and leaves nothing behind."""
        number = str(self.after + 5)
        if results[0].status != 0:
            return [f"the save after it: {results[0]}"]
        if results[1].status != 0 or results[1].out.split()[-1:] != [number]:
            return [f"the save after it is not whole: {results[1]}"]
        if self.is_series:
            left = leftovers(os.path.join(folder, "it"))
            return [f"left behind: {left}"] if left else []
        left = leftovers(folder)
        if any(not has_no_owner(folder, name) for name in left):
            return [f"left behind by the save after it: {left}"]
        return self.judge_gc(folder) if left else []

    def judge_gc(self, folder):
        kept = run([self.saver, "gc", folder])
        if kept.status != 0 or kept.out:
            return [f"gc: {kept}"]
        left = leftovers(folder)
        return [f"left behind: {left}"] if left else []


def workloads(rig, saver):
    return [Workload(rig, saver, "a new checkpoint", 0),
            Workload(rig, saver, "a new checkpoint, without io_uring", 0, "save-threads"),
            Workload(rig, saver, "a checkpoint in place of an older one", 1),
            Workload(rig, saver, "a compressed one in place of an older one", 1, "save-planes"),
            Workload(rig, saver, "small files, in place of an older one", 1, "save-files"),
            Workload(rig, saver, "a new series", 0, "series"),
            Workload(rig, saver, "an existing series", 1, "series")]


def calls_of(killer, arguments, scratch):
    """(Result of a run, names of its system calls on files)."""
    listing = os.path.join(scratch, "calls")
    result = run([killer, "-l", listing, *arguments])
    with open(listing) as file:
        return result, file.read().split()
