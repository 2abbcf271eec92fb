#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kill_targets.py -- kills a save to an existing name with SIGKILL between any two of its changes. The
name is a checkpoint of torch, a symbolic link, a directory with a user's files, or an empty one.
Afterwards the old contents must be there, byte for byte, or the new checkpoint, complete. The next
save must succeed and leave nothing behind. The user's files and the link must never change.
"""
import os
import shutil

import kill_syscalls
import rig as rigs

TORCH = "tests/golden/torch-2.14.1/four_ranks"
MINE = {"config.json": b'{"hidden": 64}\n', "__0_0.txt": b"not a shard\n", "step-7": b"",
        "logs/.metadata": b"not a checkpoint's\n", "logs/__0_0.distcp": b"nor this\n"}
# These calls change something. A kill before another call is like a kill before the next of these.
CHANGES = {"openat", "openat2", "open", "mkdirat", "mkdir", "renameat2", "renameat", "rename",
           "unlinkat", "unlink", "rmdir", "linkat", "link", "fsync", "fdatasync", "write",
           "pwrite64", "fallocate", "ftruncate", "io_uring_enter"}


def content(top):
    """All files below ${top}: {name: bytes}."""
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, top)] = file.read()
    return found


class Target(rigs.Workload):
    """A save to a name that ${fill}(rig, saver, path) has made before."""

    def __init__(self, rig, saver, name, before, fill, command="save"):
        super().__init__(rig, saver, name, 0, command)
        fill(rig, saver, os.path.join(self.template, "it"))
        self.before = before
        self.after = 2
        self.old = content(os.path.join(self.template, "it"))
        self.mine = {name: text for name, text in MINE.items() if name in self.old}
        self.link = self.link_of(self.template)

    @staticmethod
    def link_of(folder):
        path = os.path.join(folder, "it")
        return os.readlink(path) if os.path.islink(path) else None

    def look(self, folder):
        """(state that is there, complaint). The state of torch's checkpoint is not ours, so its files
        are compared instead of loaded."""
        now = content(os.path.join(folder, "it"))
        if ".metadata" in self.old and now.get(".metadata") == self.old[".metadata"]:
            lost = [name for name, text in self.old.items() if now.get(name) != text]
            return self.before, f"old files are gone or have changed: {lost}" if lost else None
        return self.found(rigs.run([self.saver, *self.looks(folder)]))

    def judge(self, folder, result, killed=False):
        found, complaint = self.look(folder)
        complaints = self.judge_mine(folder) or ([complaint] if complaint else [])
        return complaints or self.judge_found(result, found, killed) + self.judge_next(folder)

    def judge_mine(self, folder):
        now = content(os.path.join(folder, "it"))
        lost = [name for name, text in self.mine.items() if now.get(name) != text]
        complaints = [f"files of the user are gone or have changed: {lost}"] if lost else []
        if self.link_of(folder) != self.link:
            complaints.append("the symbolic link has changed")
        return complaints

    def judge_next(self, folder):
        path = os.path.join(folder, "it")
        commands = [["save", path, "7"], ["check", path, "7"],
                    ["gc", os.path.dirname(os.path.realpath(path))]]
        for command, result in zip(commands, rigs.run_each(self.saver, commands)):
            if result.status != 0 or (command[0] == "gc" and result.out):
                return [f"then, {command[0]}: {result}"]
        left = [name for name in content(folder) if not name.startswith("it/")
                and not name.startswith("disk/it/")]
        names = set(content(path)) - set(self.mine)
        if len(names) != 3 or not all(
                name == ".metadata" or rigs.SHARD.match(name) or rigs.MANIFEST.match(name)
                for name in names):
            left += sorted(names)
        left += [name for name in os.listdir(os.path.dirname(os.path.realpath(path)))
                 if name.startswith(".sidestep.")]
        return self.judge_mine(folder) + ([f"left behind: {left}"] if left else [])


def nothing(_rig, _saver, path):
    os.mkdir(path)


def torch(rig, _saver, path):
    shutil.copytree(os.path.join(rig.top, TORCH), path)


def files(_rig, _saver, path):
    for name, text in MINE.items():
        os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
        with open(os.path.join(path, name), "wb") as file:
            file.write(text)


def older(rig, saver, path):
    result = rigs.run([saver, "save", path, "1"])
    if result.status != 0:
        rig.bail(f"an older one: {result}")


def torch_and_files(rig, saver, path):
    torch(rig, saver, path)
    files(rig, saver, path)


def link(rig, saver, path):
    disk = os.path.join(os.path.dirname(path), "disk")
    os.mkdir(disk)
    files(rig, saver, os.path.join(disk, "it"))
    older(rig, saver, os.path.join(disk, "it"))
    os.symlink("disk/it", path)


def kill_between_changes(rig, killer, target):
    def some(names):
        return [i + 1 for i, name in enumerate(names) if rig.long or name in CHANGES]

    return kill_syscalls.kill_everywhere(rig, killer, target, some)


def main():
    rig = rigs.Rig(__doc__, in_memory=True)
    saver = rig.tool("saver_tool")
    killer = rig.tool("nth_call")
    targets = [Target(rig, saver, "an empty directory", 0, nothing),
               Target(rig, saver, "files of a user", 0, files),
               Target(rig, saver, "a checkpoint of torch's and files of a user", 1,
                      torch_and_files),
               Target(rig, saver, "a symbolic link to an older one among files", 1, link)]
    for target in targets:
        complaints, calls = kill_between_changes(rig, killer, target)
        rig.test(f"{target.name}, killed between changes ({calls} calls)", complaints)
    careless = Target(rig, saver, "a careless saver", 1, torch, "careless")
    rig.control("a saver that overwrites torch's files",
                kill_between_changes(rig, killer, careless)[0])
    rig.finish()


if __name__ == "__main__":
    main()
