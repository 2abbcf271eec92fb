#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""errno_syscalls.py -- makes each system call on files of a save fail, once and from then on, with
each possible errno; and makes each call that changes something succeed and report a failure, as
network file systems do, also of prune, gc, cp and convert. The program must end by itself, with a
complete checkpoint or with a reason, and what was there must stay. After the fault, the same must
succeed and leave nothing behind.
"""
import errno
import os
import shutil

import rig as rigs

ERRORS = ["EIO", "ENOSPC", "EACCES", "EINTR"]
INTERRUPTIBLE = ("open", "read", "write", "pread64", "pwrite64", "fsync", "fdatasync", "fallocate",
                 "ftruncate", "close", "fcntl", "statx", "fstatfs")
DONE_ERRORS = ["EIO", "ENOSPC", "EDQUOT", "EACCES", "EROFS", "ENOENT", "EEXIST"]
# What a command says when it has done its work, or may have.
UNSURE = ("all was written", "holds the whole checkpoint", "standard output", "unknown")
STRIDE = 8  # without --long, only one of this many combinations is tried


def may_fail_with(call, name):
    if name == "EINTR":
        return call.startswith(INTERRUPTIBLE)
    if name == "ENOSPC":
        return call not in ("close", "fstat", "fcntl", "getdents64", "getcwd", "read", "pread64",
                            "newfstatat", "statx", "fstatfs")
    return True


def plan(names, everything):
    """(number of the call, its name, errno, whether all later calls fail too) of each trial:
    everything, or one in STRIDE."""
    all_of_them = [(number, call, error, sticky)
                   for number, call in enumerate(names, 1)
                   for error in ERRORS if may_fail_with(call, error)
                   for sticky in (False, True)
                   # A call that is always interrupted is retried for ever, as it should be.
                   if not (sticky and error == "EINTR")]
    return all_of_them if everything else all_of_them[::STRIDE]


def plan_done(names, everything):
    """The same of calls that take place and report a failure, each only once."""
    all_of_them = [(number, call, error) for number, call in enumerate(names, 1)
                   for error in DONE_ERRORS]
    return all_of_them if everything else all_of_them[::STRIDE]


def put_foreign(folder):
    """Files of the user beside everything; returns a check that they are what they were."""
    paths = [os.path.join(folder, name) for name in ("notes.txt", ".sidestep.notes", "step-0.txt")]
    for path in paths:
        with open(path, "w") as file:
            file.write(path)

    def check():
        return [f"{path} is gone or has changed" for path in paths
                if not os.path.exists(path) or open(path).read() != path]
    return check


def report_everywhere(rig, killer, workload):
    """Each call of a save that changes something is carried out, and reported to have failed."""
    sample = workload.prepare()
    result, names = rigs.calls_of(killer, ["-d", *workload.arguments(sample)], rig.scratch)
    trials = plan_done(names, rig.long)

    def trial(how):
        number, call, error = how
        folder = workload.prepare()
        check = put_foreign(os.path.join(folder, "it") if workload.is_series and workload.before
                            else folder)
        result = rigs.run([killer, "-k", str(number), "-d", "-e", str(getattr(errno, error)),
                           *workload.arguments(folder)], timeout=30)
        found = check()
        for path in (folder, os.path.join(folder, "it")):
            if os.path.exists(os.path.join(path, ".sidestep.notes")):
                os.unlink(os.path.join(path, ".sidestep.notes"))
        found += workload.judge(folder, result)
        shutil.rmtree(folder)
        return [f"{error} reported by call {number}, {call}: {text}" for text in found]

    return rigs.parallel(trial, trials), len(trials)


class Command:
    """A command of sidestep over a root with step-1 and step-2, and what must be there after it."""

    def __init__(self, rig, saver, words):
        self.rig, self.program, self.words = rig, os.path.join(rig.build, "sidestep"), words
        self.name = words[0]
        self.template = rig.folder()
        for step in ("1", "2"):
            rigs.run([saver, "save", os.path.join(self.template, f"step-{step}"), step])

    def prepare(self):
        folder = self.rig.folder()
        shutil.copytree(self.template, folder, symlinks=True, dirs_exist_ok=True)
        return folder

    def arguments(self, folder):
        return [self.program, *(word.replace("ROOT", folder) for word in self.words)]

    def verify(self, folder, name):
        return rigs.run([self.program, "verify", os.path.join(folder, name)])

    def judge(self, folder, result):
        """Complaints about what is there."""
        found = []
        if result.status is None or result.status < 0 or result.status >= 125:
            found.append(f"it crashed, or did not end: {result}")
        if result.status != 0 and ": " not in result.err:
            found.append(f"it failed without a message: {result}")
        step_1, step_2 = (self.verify(folder, f"step-{step}") for step in (1, 2))
        if step_2.status != 0:
            found.append(f"the newest checkpoint: {step_2}; after {result}")
        if step_1.status != 0 and (self.name != "prune" or step_1.status == 3):
            found.append(f"the older checkpoint: {step_1}; after {result}")
        made = self.verify(folder, "made")
        unsure = any(words in result.err for words in UNSURE)
        if made.status == 3 or (self.makes() and not unsure
                                and (made.status == 0) != (result.status == 0)):
            found.append(f"what it made: {made}; after {result}")
        return found

    def makes(self):
        return self.name in ("cp", "convert")

    def judge_again(self, folder):
        """Complaints unless the same command now ends well, or has done its work."""
        is_made = self.verify(folder, "made").status == 0
        again = rigs.run(self.arguments(folder))
        if again.status != 0 and not is_made:
            return [f"the same again: {again}"]
        swept = rigs.run([self.program, "gc", "--yes", folder])
        left = [name for name in os.listdir(folder) if name.startswith(".sidestep.")
                and name != ".sidestep.notes"]
        return [f"left after gc: {left}; {swept}"] if left or swept.status else []


COMMANDS = [("prune", "--yes", "--keep-last=1", "ROOT"), ("gc", "--yes", "ROOT"),
            ("cp", "ROOT/step-2", "ROOT/made"), ("convert", "--to=dcp", "ROOT/step-2", "ROOT/made"),
            ("convert", "--model-only", "ROOT/step-2", "ROOT/made")]


def report_of_command(rig, killer, command):
    sample = command.prepare()
    result, names = rigs.calls_of(killer, ["-a", "-d", *command.arguments(sample)], rig.scratch)
    if result.status != 0 or len(names) < 5:
        return [f"without a fault: {result}, {len(names)} calls"], 0
    trials = plan_done(names, rig.long)

    def trial(how):
        number, call, error = how
        folder = command.prepare()
        check = put_foreign(folder)
        result = rigs.run([killer, "-a", "-k", str(number), "-d", "-e",
                           str(getattr(errno, error)), *command.arguments(folder)], timeout=30)
        if result.status == 127:
            return []  # the dynamic loader failed
        found = command.judge(folder, result) + command.judge_again(folder) + check()
        shutil.rmtree(folder)
        return [f"{error} reported by call {number}, {call}: {text}" for text in found]

    return rigs.parallel(trial, trials), len(trials)


def fail_everywhere(rig, killer, workload):
    sample = workload.prepare()
    result, names = rigs.calls_of(killer, workload.arguments(sample), rig.scratch)
    if result.status != 0 or len(names) < 20:
        return [f"without a fault: {result}, {len(names)} calls"], 0
    trials = plan(names, rig.long)

    def trial(how):
        number, call, error, sticky = how
        folder = workload.prepare()
        result = rigs.run([killer, "-k", str(number), "-e", str(getattr(errno, error)),
                           *(["-s"] if sticky else []), *workload.arguments(folder)], timeout=30)
        found = workload.judge(folder, result)
        shutil.rmtree(folder)
        return [f"{error} {'from' if sticky else 'at'} call {number}, {call}: {text}"
                for text in found]

    return rigs.parallel(trial, trials), len(trials)


def main():
    rig = rigs.Rig(__doc__, in_memory=True)
    saver = rig.tool("saver_tool")
    killer = rig.tool("nth_call")
    for workload in rigs.workloads(rig, saver):
        complaints, count = fail_everywhere(rig, killer, workload)
        rig.test(f"{workload.name}, with {count} faults", complaints)
    for workload in rigs.workloads(rig, saver):
        complaints, count = report_everywhere(rig, killer, workload)
        rig.test(f"{workload.name}, with {count} false failures", complaints)
    for words in COMMANDS:
        complaints, count = report_of_command(rig, killer, Command(rig, saver, words))
        rig.test(f"{' '.join(words[:-1])}, with {count} false failures", complaints)
    careless = rigs.Workload(rig, saver, "a careless saver", 0, "careless")
    rig.control("a saver that ignores errors", fail_everywhere(rig, killer, careless)[0])
    rig.finish()


if __name__ == "__main__":
    main()
