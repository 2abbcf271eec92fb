#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""race.py -- two processes save to one path at once, again and again. At the end there must be one
complete state, and each process must end with success or a reason. If two processes open one series,
one of them must be refused."""
import os
import shutil
import subprocess

import rig as rigs

ROUNDS = 220


def race_once(rig, saver, command, in_place):
    folder = rig.folder()
    path = os.path.join(folder, "it")
    if in_place:
        rigs.run([saver, "save", path, "3"])
    both = [subprocess.Popen([saver, command, path, seed], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for seed in ("1", "2")]
    errors = [process.communicate(timeout=30)[1].decode() for process in both]
    ends = [process.returncode for process in both]
    complaints = []
    if 0 not in ends:
        complaints.append(f"both failed: {errors}")
    for status, error in zip(ends, errors):
        if status < 0 or status > 28 or (status != 0 and ": " not in error):
            complaints.append(f"one ended with status {status}: '{error.strip()}'")
    seen, *kept = rigs.run_each(saver, [["check", path, "1", "2"], ["gc", folder]])
    if seen.status != 0 or "seed" not in seen.out:
        complaints.append(f"what is there is not one of the two, whole: {seen}")
    kept = kept[0] if kept else rigs.run([saver, "gc", folder])
    left = [name for name in rigs.leftovers(folder) if ".aside" not in name]
    if kept.status != 0 or left:
        complaints.append(f"left behind after gc: {left}, {kept}; {ends} {errors}")
    shutil.rmtree(folder)
    return complaints


def races(rig, saver, command, in_place):
    rounds = ROUNDS * (4 if rig.long else 1)
    complaints = []
    for number in range(rounds):
        complaints += [f"round {number}: {text}"
                       for text in race_once(rig, saver, command, in_place)]
    return complaints, rounds


def second_owner(rig, saver):
    root = os.path.join(rig.folder(), "root")
    first = subprocess.Popen([saver, "hold", root], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    first.stdout.readline()
    second = rigs.run([saver, "series", root, "1"])
    first.stdin.close()
    first.wait(20)
    complaints = []
    if second.status != 11 or f"process {first.pid} on" not in second.err:
        complaints.append(f"the second owner: {second}")
    if first.returncode != 0:
        complaints.append(f"the first owner: status {first.returncode}")
    third = rigs.run([saver, "series", root, "1"])
    if third.status != 0:
        complaints.append(f"after the first has closed: {third}")
    return complaints


def main():
    rig = rigs.Rig(__doc__, in_memory=True)
    saver = rig.tool("saver_tool")
    for in_place in (False, True):
        complaints, rounds = races(rig, saver, "save", in_place)
        where = "in place of a third" if in_place else "to a new path"
        rig.test(f"{rounds} races of two saves {where}", complaints)
    rig.test("a series has one owner", second_owner(rig, saver))
    caught = []
    for _ in range(ROUNDS * 2):
        caught += race_once(rig, saver, "careless", False)
        if caught:
            break
    rig.control("a saver that writes name by name", caught)
    rig.finish()


if __name__ == "__main__":
    main()
