# SPDX-License-Identifier: BSD-3-Clause
"""Trainings that are killed by SIGKILL again and again, and resumed each time.

    killed_again.py KIND DIRECTORY KILLS [control=delete|random|anew]

KIND is accelerate, transformers, lightning or torchtitan.  This process imports the framework once,
with all that a first training has imported, and forks each start: a start then takes some tenths of
a second.  A training of STEPS steps is started until one start comes to its end by itself; then
what is there is judged, and the next training begins in a directory of its own, until KILLS starts
were killed.

Files of a user are put beside and into the checkpoints, while a training runs and after a kill, and
into all that a kill has left.  Judged is: each start goes on after the newest checkpoint that was
committed before it; all losses are those of a training that was never killed; these files are all
there, byte for byte; and nothing else is left of killed saves.  It prints "kills N trainings N
resumed N files N seconds N", and "wrong WHAT" for each thing that is wrong.

control=delete  the adapters delete directories whole, as they once did: files must be missing
control=random  random numbers are not restored: losses must differ
control=anew    nothing is resumed: starts must go back
"""

import contextlib
import importlib
import os
import random
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import forks

HERE = Path(__file__).parent
PATIENCE_S = 300
STEPS = 60  # of a training; on an idle machine, three or four kills end it
LOSS = re.compile(r"loss (\d+) (0x[0-9a-f.]+p[+-]\d+)")  # other lines may come between
NUMBER = re.compile(r"(?:checkpoint[-_]|step[-=])(\d+)")


class Kind:
    """program   one of this directory; modules: what this process imports for it
    home      where its checkpoints are, in its directory
    words     its further words; resume: those of a start that is not the first one
    goes_on   the first step of a start, when NUMBER is the newest that is committed
    """

    def __init__(self, program, modules, home, words, resume, goes_on):
        self.program, self.modules, self.home = program, modules, home
        self.words, self.resume, self.goes_on = words, resume, goes_on


KINDS = {
    "accelerate": Kind(
        "accelerate_train.py", ["sidestep.accelerate"], "checkpoints",
        [str(STEPS), "limit=2"], ["resume=auto"], lambda number: 2 * number + 3,
    ),
    "transformers": Kind(
        "hf_train.py", ["sidestep.transformers"], ".",
        [str(STEPS), "limit=2"], ["resume=true"], lambda number: number + 1,
    ),
    "lightning": Kind(  # which saves last.ckpt after the numbered one, every third step
        "lightning_run.py", ["sidestep.lightning", "torchdata.stateful_dataloader"], ".",
        ["--steps", str(STEPS), "--top-k", "1", "--save-last", "true"],
        ["--resume", "last"], lambda number: number - 3,
    ),
    "torchtitan": Kind(
        "titan_train.py", ["sidestep.torchtitan"], "checkpoint",
        [str(STEPS), "keep=2"], [], lambda number: number + 1,
    ),
}  # fmt: skip


def spoil(control):
    if control == "delete":
        directories = importlib.import_module("sidestep._directory")
        directories.delete = lambda path, why: shutil.rmtree(path) is None
    if control == "random":
        import torch

        torch.set_rng_state = lambda state: None


class Training:
    """One, in a directory of its own, with the files of a user in there."""

    def __init__(self, kind, folder, control, chance):
        self.kind, self.folder, self.control, self.chance = kind, folder, control, chance
        self.home, self.log = folder / kind.home, folder.with_suffix(".log")
        self.files = {}
        folder.mkdir(parents=True)
        self.log.touch()

    def start(self):
        """Fork a start.  Its process, and the least step that it may begin with."""
        numbers = [int(found[1]) for found in map(NUMBER.search, self.committed()) if found]
        first = self.kind.goes_on(max(numbers)) if numbers else 0
        pid = os.fork()
        if pid:
            return pid, first
        resumes = self.kind.resume if self.committed() and self.control != "anew" else []
        program = str(HERE / self.kind.program)
        words = [program, str(self.folder), *self.kind.words, *resumes]
        if self.kind is KINDS["torchtitan"]:
            os.environ.update(forks.of_rank(0, 1, forks.free_port()))
        spoil(self.control)
        forks.run_program(words, self.log, self.folder.with_suffix(".modules"))

    def committed(self):
        """What is committed, by name and time."""
        found = {}
        for path in self.home.glob("[!.]*/.metadata"):
            with contextlib.suppress(FileNotFoundError):
                found[path.parent.name] = path.stat().st_mtime_ns
        return found

    def losses(self, offset=0):
        """Of each step that was begun after a place in the log, all that its loss ever was."""
        found = {}
        for step, loss in LOSS.findall(self.log.read_text()[offset:]):
            if int(step) <= STEPS:  # one that is resumed at its end may go a step further
                found.setdefault(int(step), set()).add(loss)
        return found

    def put_files(self, places, running):
        """A file of a user into some of these directories."""
        for place in places:
            if self.chance.random() < 0.3:
                file = place / f"mine-{len(self.files)}.txt"
                with contextlib.suppress(FileNotFoundError):
                    data = self.chance.randbytes(self.chance.randint(0, 9000))
                    file.write_bytes(data)
                    self.files[file] = data, running or ".sidestep" in str(place)

    def seen(self):
        """The directories that a user may know of while it runs."""
        return [self.folder, self.home, *(self.home / name for name in self.committed())]

    def everywhere(self):
        """All directories, also hidden ones that a kill has left; but those for a framework's hooks
        are temporary with all that is in them."""
        folders = (folder for folder, _, _ in os.walk(self.folder) if "-hooks-" not in folder)
        return [Path(folder) for folder in folders]

    def place_of(self, file, may_move):
        """Where a file of the user is: where it was put.  But a hidden directory is renamed before
        it is emptied; and so is a checkpoint, which comes back if it then has other files: unless
        the deletion was killed there, and the file was put while it ran."""
        hidden = self.home.glob(f".sidestep*/{file.name}") if may_move else ()
        return next((path for path in (file, *hidden) if path.exists()), None)

    def sweep(self):
        """What the next save there would do: the last start has perhaps had nothing to save."""
        pid = os.fork()
        if not pid:
            importlib.import_module("sidestep._directory").collect_garbage(str(self.home))
            os._exit(0)
        os.waitpid(pid, 0)

    def problems(self, expected):
        """What is wrong after its end."""
        for file, (data, may_move) in self.files.items():
            there = self.place_of(file, may_move)
            if there is None or there.read_bytes() != data:
                yield f"'{file}' is gone, or not what it was"
        found = self.losses()
        if found != expected:
            differ = [step for step in {**expected, **found} if expected.get(step) != found.get(step)]
            yield f"the losses differ at {differ[:5]} of {len(expected)} steps"
        self.sweep()
        for path in self.home.glob(".sidestep*"):
            if "pending" not in path.name and not list(path.glob("mine-*")):
                yield f"'{path}' is left"


class Rig:
    def __init__(self, kind, directory, wanted, control):
        self.kind, self.directory, self.wanted, self.control = kind, directory, wanted, control
        self.chance = random.Random(3)
        self.kills = self.resumed = self.trainings = self.files = 0
        self.wrong = []

    def training(self, name):
        return Training(self.kind, self.directory / name, self.control, self.chance)

    def whole(self, name):
        """A training that is never killed."""
        training = self.training(name)
        pid, _ = training.start()
        _, status = os.waitpid(pid, 0)
        if status:
            self.wrong.append(f"the training that is not killed ended with {status}")
        return training

    def learn(self):
        """What a training imports; then its losses, and how long it takes."""
        modules = self.whole("imports").folder.with_suffix(".modules")
        forks.import_all(modules)
        began = time.monotonic()
        self.expected = self.whole("whole").losses()
        self.whole_s = time.monotonic() - began

    def kill(self, training, pid, patient):
        """After a while.  If patient, not before something is committed.  Its status."""
        before = training.committed()
        began = time.monotonic()
        while patient and training.committed() == before and time.monotonic() < began + PATIENCE_S:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.005)
        time.sleep(self.chance.uniform(0, self.whole_s / (4 if patient else 1)))
        training.put_files(training.seen(), True)
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]

    def start_once(self, training):
        """Start, and kill if there are kills left.  Whether it came to its end by itself."""
        offset = len(training.log.read_text())
        pid, first = training.start()
        self.resumed += first > 0
        if self.kills < self.wanted:
            status = self.kill(training, pid, self.chance.random() < 0.5)
        else:
            _, status = os.waitpid(pid, 0)
        begun = min(training.losses(offset), default=first)
        if begun < first:
            self.wrong.append(f"start goes back to step {begun}, {first} was to be the next")
        if os.WIFSIGNALED(status):
            self.kills += 1
            training.put_files(training.everywhere(), False)
            return False
        if status:
            self.wrong.append(f"a start ended with {os.WEXITSTATUS(status)}")
        return True

    def train(self):
        training = self.training(f"ended-{self.trainings}")
        self.trainings += 1
        ended = False
        while not ended and not self.wrong:
            ended = self.start_once(training)
        self.files += len(training.files)
        self.wrong += training.problems(self.expected) if ended else ()
        if self.wrong:
            print(training.log.read_text()[-3000:])
        else:
            shutil.rmtree(training.folder)

    def run(self):
        self.learn()
        began = time.monotonic()
        while self.kills < self.wanted and not self.wrong:
            self.train()
        seconds = time.monotonic() - began
        print("kills", self.kills, "trainings", self.trainings, "resumed", self.resumed, "files",
              self.files, "seconds", round(seconds))  # fmt: skip
        for what in self.wrong:
            print("wrong", what)


def main():
    name, directory, kills, *more = sys.argv[1:]
    control = dict(word.split("=") for word in more).get("control")
    for module in KINDS[name].modules:
        importlib.import_module(module)
    Rig(KINDS[name], Path(directory), int(kills), control).run()


main()
