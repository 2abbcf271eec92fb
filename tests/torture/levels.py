#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""levels.py -- random histories of a training with two levels: it is killed, its near level is lost or
comes back late, the mirror is away or not mounted, another run uses the same scratch. Each start must
go on from what was saved, bit for bit, and lose nothing that was acknowledged at a level that is
there."""
import os
import random
import re
import shutil
import signal
import subprocess
import time

import rig as rigs

HISTORIES, LONG_HISTORIES = 16, 1000
ROUNDS = 8
MOST_S = 60


class History:
    """One scratch directory, and what was acknowledged. A point is (attempt, step): a later attempt is
    a later incarnation, and a resume may go back to none of an earlier one."""

    def __init__(self, rig, seed, *, careless=False):
        self.random = random.Random(seed)
        self.folder = rig.folder()
        self.tools = [rig.tool("levels_tool"), rig.tool("saver_tool")]
        self.sidestep = os.path.join(rig.build, "sidestep")
        self.careless = ["careless"] if careless else []
        self.complaints = []
        self.saved = set()  # points that were or may have been saved
        self.far = (0, 0)  # acknowledged at the mirror
        self.near = {"near": (0, 0)}  # ... at each near level; the one in use is "near"
        self.attempt = 0
        self.foreign = None
        self.told = []
        os.mkdir(self.path("mount"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def complain(self, text):
        self.complaints.append(f"{text}; after: {'; '.join(self.told)}")

    # -- what happens to the levels

    def lose_near(self):
        if os.path.exists(self.path("near")):
            shutil.rmtree(self.path("near"))
        self.near["near"] = (0, 0)
        self.foreign = None

    def replace_node(self):
        """The node is replaced, and may return later with its old files."""
        name = f"old-{self.attempt}"
        if not os.path.exists(self.path("near")) or name in self.near:
            return
        os.rename(self.path("near"), self.path(name))
        self.near[name] = self.near["near"]
        self.near["near"] = (0, 0)
        self.foreign = None

    def return_late(self):
        old = [name for name in self.near if name != "near"]
        if not old:
            return
        name = self.random.choice(old)
        self.lose_near()
        os.rename(self.path(name), self.path("near"))
        self.near["near"] = self.near.pop(name)

    def share_scratch(self):
        """Another run has a checkpoint among ours, and wants our mirror."""
        other, step = self.path("other"), 5000 + self.attempt
        made = rigs.run([self.tools[1], "series", other, str(step)])
        if made.status != 0:
            self.complain(f"the other run: {made}")
        if os.path.exists(self.path("near/.sidestep/state")):  # else that run would go on there
            self.foreign = self.path(f"near/step-{step}")
            shutil.copytree(f"{other}/step-{step}", self.foreign, dirs_exist_ok=True)
        mirror = [self.sidestep, "mirror", other, self.path("mount/far")]
        if self.far > (0, 0) and rigs.run(mirror).status == 0:
            self.complain("another run got our mirror")

    def take_mirror_away(self):
        os.rename(self.path("mount"), self.path("away"))
        if self.random.random() < 0.5 and self.near["near"] > (0, 0):
            os.mkdir(self.path("mount"))  # an empty directory, as where nothing is mounted

    def bring_mirror_back(self):
        if not os.path.exists(self.path("away")):
            return
        shutil.rmtree(self.path("mount"), ignore_errors=True)
        os.rename(self.path("away"), self.path("mount"))

    # -- the training

    def run(self):
        """One attempt: to its end or killed, with the mirror there, away, or going away."""
        self.attempt += 1
        bound, denied = max(self.far, self.near["near"]), "no"
        if self.far > (0, 0):
            denied = self.random.choice(["no"] * 4 + ["before", "during"])
        if denied == "before":
            self.take_mirror_away()
        steps = self.random.randint(1, 6)
        kill_s = self.random.choice([None, self.random.uniform(0, 0.12)])
        self.told.append(f"attempt {self.attempt}: {steps} steps, killed after {kill_s}, "
                         f"mirror away: {denied}")
        process = subprocess.Popen(
            [self.tools[0], self.path("near"), self.path("mount/far"), str(self.attempt), str(steps),
             *self.careless], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if denied == "during":
            time.sleep(self.random.uniform(0, 0.05))
            self.take_mirror_away()
        try:
            if kill_s is not None:
                time.sleep(kill_s)
                process.kill()
            out, error = process.communicate(timeout=MOST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, error = process.communicate()
            self.complain("it did not end")
        self.bring_mirror_back()
        self.judge(out.splitlines(), error, process.returncode, bound, denied, steps)

    def judge(self, lines, error, status, bound, denied, steps):
        resumed = next((line for line in lines if line.startswith("resumed")), None)
        step = 0
        if status != -signal.SIGKILL and resumed is None and denied == "no":
            self.judge_refusal(error, bound)
        if resumed is not None:
            found = re.fullmatch(r"resumed (\d+) (\d+)", resumed)
            point = (int(found[2]), int(found[1])) if found else (0, 0)
            if denied == "before":
                self.complain(f"the mirror was away, and it {resumed}")
            if point < bound or (point not in self.saved and point != (0, 0)) or "nobody" in resumed:
                self.complain(f"it {resumed}, and {bound} is acknowledged")
            step = point[1]
            self.told.append(resumed)
        self.saved |= {(self.attempt, step + i) for i in range(1, steps + 1)}
        self.acknowledge(lines)
        if self.foreign is not None and not os.path.exists(f"{self.foreign}/.metadata"):
            self.complain(f"{self.foreign} of another run is gone")

    def judge_refusal(self, error, bound):
        """A near level without a checkpoint of ours may be refused: one of another run is in it, or it
        began a run of its own, was killed, and comes back when the mirror has another one."""
        is_of_others = bound == (0, 0) and "is of another run" in error
        is_another = self.near["near"] == (0, 0) and "give each run a mirror of its own" in error
        if not is_of_others and not is_another:
            self.complain(f"it did not start: {error}")

    def acknowledge(self, lines):
        for line in lines:
            level, *rest = line.split()
            if level == "near":
                self.near["near"] = max(self.near["near"], (self.attempt, int(rest[0])))
            elif level == "far":
                point = (self.attempt, int(rest[0]))  # or one of an earlier attempt
                self.far = max(self.far, point if point in self.saved else (0, 0))
            elif level == "closed" and self.near["near"][0] == self.attempt:
                self.far = max(self.far, self.near["near"])

    def play(self):
        events = [self.lose_near, self.replace_node, self.return_late, self.share_scratch]
        for _ in range(ROUNDS):
            self.run()
            for event in self.random.sample(events, self.random.randint(0, 2)):
                self.told.append(event.__name__)
                event()
        verified = rigs.run([self.sidestep, "verify", self.path("mount/far")])
        if verified.status != 0 and self.far > (0, 0):
            self.complain(f"what is at the mirror: {verified}")
        shutil.rmtree(self.folder)
        return self.complaints


def main():
    rig = rigs.Rig(__doc__, in_memory=True)
    seeds = range(LONG_HISTORIES if rig.long else HISTORIES)
    rig.test(f"{len(seeds)} random histories of two levels",
             rigs.parallel(lambda seed: History(rig, seed).play(), seeds))
    rig.control("a mirror that is away and is taken for none", rigs.parallel(
        lambda seed: History(rig, seed, careless=True).play(), range(HISTORIES)))
    rig.finish()


if __name__ == "__main__":
    main()
