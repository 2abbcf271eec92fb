# SPDX-License-Identifier: BSD-3-Clause
"""A training that is killed by SIGKILL again and again, and resumed each time.

    killed_again.py KIND DIRECTORY KILLS [control=delete|random]

KIND is accelerate, transformers, lightning or torchtitan.  This process imports the framework once,
and forks each start of the training: so a start takes less than a second.  It puts files of its own
beside and into the checkpoints.  At the end it compares these files, and the losses of all steps
with those of a run that was never killed.  It prints "kills N resumed N steps N files N", and
"wrong WHAT" for each thing that is wrong.

control=delete  the adapters delete directories whole, as they once did: files must be missing
control=random  random numbers are not restored: losses must differ
"""

import contextlib
import importlib
import os
import random
import re
import runpy
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PATIENCE_S = 300
LOSS = re.compile(r"loss (\d+) (0x[0-9a-f.]+p[+-]\d+)")  # other lines may come between


class Kind:
    def __init__(self, program, modules, home, words, resume):
        self.program, self.modules, self.home = program, modules, home
        self.words, self.resume = words, resume


KINDS = {
    "accelerate": Kind(
        "accelerate_train.py", ["sidestep.accelerate"], "checkpoints",
        lambda steps: [str(steps), "limit=2"], ["resume=auto"],
    ),
    "transformers": Kind(
        "hf_train.py", ["sidestep.transformers"], ".",
        lambda steps: [str(steps), "limit=2"], ["resume=true"],
    ),
    "lightning": Kind(
        "lightning_run.py", ["sidestep.lightning", "torchdata.stateful_dataloader"], ".",
        lambda steps: ["--steps", str(steps), "--top-k", "1", "--save-last", "true"],
        ["--resume", "last"],
    ),
    "torchtitan": Kind(
        "titan_train.py", ["sidestep.torchtitan"], "checkpoint",
        lambda steps: [str(steps), "keep=2"], [],
    ),
}  # fmt: skip


def alone():
    """The environment of a run of one rank, for programs that want one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": port}
    os.environ.update(names, MASTER_ADDR="127.0.0.1")


def spoil(control):
    if control == "delete":
        directories = importlib.import_module("sidestep._directory")
        directories.delete = lambda path, why: shutil.rmtree(path) is None
    if control == "random":
        import torch

        torch.set_rng_state = lambda state: None


class Rig:
    def __init__(self, kind, directory, kills, control):
        self.kind, self.kills, self.control = kind, kills, control
        self.ended, self.whole = directory / "ended", directory / "whole"
        self.steps = 12 * (kills + 1)
        self.chance = random.Random(3)
        self.files = {}
        self.resumed = 0
        self.wrong = []

    def start(self, folder, more):
        """Fork a start of the training.  Its process."""
        pid = os.fork()
        if pid:
            return pid
        log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        program = str(HERE / self.kind.program)
        sys.argv = [program, str(folder), *self.kind.words(self.steps), *more]
        if self.kind is KINDS["torchtitan"]:
            alone()
        spoil(self.control)
        status = 1
        try:
            runpy.run_path(program, run_name="__main__")
            status = 0
        except SystemExit as end:
            status = int(bool(end.code))
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)

    def committed(self):
        """What is committed, by name and time."""
        found = {}
        for path in (self.ended / self.kind.home).glob("[!.]*/.metadata"):
            with contextlib.suppress(FileNotFoundError):
                found[path.parent.name] = path.stat().st_mtime_ns
        return found

    def put_files(self):
        """Files of a user, beside and in the checkpoints; and see that the others are there."""
        home = self.ended / self.kind.home
        places = [self.ended, home, *(home / name for name in self.committed())]
        for place in places:
            if self.chance.random() < 0.3:
                file = place / f"mine-{len(self.files)}.txt"
                with contextlib.suppress(FileNotFoundError):
                    file.write_text(f"of the user {len(self.files)}")
                    self.files[file] = file.read_bytes()

    def check_files(self):
        for file, data in self.files.items():
            if not file.exists() or file.read_bytes() != data:
                self.wrong.append(f"'{file}' is gone, or not what it was")

    def end_one(self, number):
        """Start, wait a while, and kill.  Each second time not before something is committed."""
        before = self.committed()
        began = time.monotonic()
        pid = self.start(self.ended, self.kind.resume if before else [])
        self.resumed += bool(before)
        patient = number % 2 == 0 or not before
        while patient and self.committed() == before and time.monotonic() < began + PATIENCE_S:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.005)
        time.sleep(self.chance.uniform(0, 0.3 if patient else 1.5))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            self.wrong.append(f"start {number} ended with {os.WEXITSTATUS(status)}")
        self.put_files()

    def run(self):
        for folder in (self.whole, self.ended):
            folder.mkdir(parents=True)
        _, status = os.waitpid(self.start(self.whole, []), 0)
        if status:
            self.wrong.append(f"the whole run ended with {status}")
        for number in range(self.kills):
            if not self.wrong:
                self.end_one(number)
        _, status = os.waitpid(self.start(self.ended, self.kind.resume), 0)
        if status:
            self.wrong.append(f"the last run ended with {status}")
        self.check_files()
        expected, found = losses(self.whole), losses(self.ended)
        if expected != found:
            differ = [step for step in expected if expected[step] != found.get(step)]
            self.wrong.append(f"the losses differ at {differ[:5]} of {len(expected)} steps")
        home = self.ended / self.kind.home
        left = [path.name for path in home.glob(".sidestep*") if "pending" not in path.name]
        if left:
            self.wrong.append(f"left: {left}")
        print("kills", self.kills, "resumed", self.resumed, "steps", len(found), "files",
              len(self.files))  # fmt: skip
        for what in self.wrong:
            print("wrong", what)
        if self.wrong:
            print(self.ended.with_suffix(".log").read_text()[-3000:])


def losses(folder):
    """Of each step, all that it ever was."""
    found = {}
    for step, loss in LOSS.findall(folder.with_suffix(".log").read_text()):
        found.setdefault(int(step), set()).add(loss)
    return found


def main():
    name, directory, kills, *more = sys.argv[1:]
    control = dict(word.split("=") for word in more).get("control")
    for module in KINDS[name].modules:
        importlib.import_module(module)
    Rig(KINDS[name], Path(directory), int(kills), control).run()


main()
