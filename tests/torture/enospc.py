#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""enospc.py -- saves, copies and conversions to storage that is too small by various amounts, and saves
under limits of file sizes and descriptors. Each must fail with the right status and free the space
that it used, the old checkpoint must stay, and with enough space the next one must succeed.
"""
import os
import resource
import subprocess

import rig as rigs

PAGE = 4096
NEAR = 256 << 10
SMALL = "no space left on storage"


def used(folder):
    stat = os.statvfs(folder)
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


def mount(folder, size, again=False):
    options = f"{'remount,' if again else ''}size={size}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def room_for(rig, saver, in_place):
    """The approximate peak of the space that a save uses."""
    folder = rig.folder()
    mount(folder, 64 << 20)
    rigs.run([saver, "save", os.path.join(folder, "it"), "1"])
    need = used(folder)
    subprocess.run(["umount", folder], check=True)
    return 2 * need if in_place else need


def save_into(rig, saver, size, in_place):
    """Save to storage of this size; return (complaints, whether the checkpoint fitted)."""
    folder = rig.folder()
    path = os.path.join(folder, "it")
    mount(folder, 64 << 20)
    try:
        if in_place:
            rigs.run([saver, "save", path, "1"])
        before = used(folder)
        if size < before or not mount(folder, size, again=True):
            return [], False
        result = rigs.run([saver, "save", path, "2"])
        seen = rigs.run([saver, "check", path, "1", "2"])
        complaints = []
        wanted = "seed 2" if result.status == 0 else "seed 1" if in_place else "none"
        if seen.out != wanted:
            complaints.append(f"{result}; then: {seen}")
        if result.status not in (0, 28) or (result.status and not result.err.startswith(SMALL)):
            complaints.append(str(result))
        if result.status != 0 and used(folder) > before:
            complaints.append(f"{used(folder) - before} bytes were not given back: {result}")
        mount(folder, 64 << 20, again=True)
        result = rigs.run([saver, "save", path, "3"])
        if result.status != 0 or rigs.leftovers(folder):
            complaints.append(f"with room: {result}, {rigs.leftovers(folder)}")
        return complaints, seen.out == "seed 2"
    finally:
        subprocess.run(["umount", folder], check=True)


def sweep(rig, saver, in_place):
    need = room_for(rig, saver, in_place)
    sizes = list(range(PAGE * 4, need - NEAR, NEAR // 8 + PAGE))
    sizes += list(range(max(PAGE, need - NEAR), need + 32 * PAGE, PAGE if rig.long else 2 * PAGE))
    complaints, fitted = [], 0
    for size in sizes:
        found, fits = save_into(rig, saver, size, in_place)
        complaints += [f"{size} bytes: {text}" for text in found]
        fitted += fits
    if fitted in (0, len(sizes)):
        complaints.append(f"{fitted} of {len(sizes)} sizes were enough: nothing was tried")
    return complaints, len(sizes)


def command_into(folder, words, size):
    """Run a command to storage of this size; return (complaints, whether it succeeded)."""
    target = os.path.join(folder, "it")
    mount(folder, size)
    try:
        before = used(folder)
        result = rigs.run([*words, target])
        complaints = []
        if result.status not in (0, 28) or (result.status and "storage is full" not in result.err):
            complaints.append(str(result))
        if result.status and used(folder) > before:
            complaints.append(f"{used(folder) - before} bytes were not given back: {result}")
        if result.status and os.listdir(folder):
            complaints.append(f"left: {os.listdir(folder)}")
        mount(folder, 64 << 20, again=True)
        again = rigs.run([*words, target]) if result.status else result
        if again.status != 0 or os.listdir(folder) != ["it"]:
            complaints.append(f"with room: {again}, {os.listdir(folder)}")
        return complaints, result.status == 0
    finally:
        subprocess.run(["umount", folder], check=True)


def sweep_command(rig, saver, *words):
    source = os.path.join(rig.folder(), "source")
    rigs.run([saver, "save", source, "1"])
    need = sum(entry.stat().st_size for entry in os.scandir(source))
    command = [os.path.join(rig.build, "sidestep"), *words, source]
    complaints, fitted = [], 0
    sizes = range(8 * PAGE, need + 16 * PAGE, PAGE if rig.long else 5 * PAGE)
    for size in sizes:
        found, fits = command_into(rig.folder(), command, size)
        complaints += [f"{size} bytes: {text}" for text in found]
        fitted += fits
    if fitted in (0, len(sizes)):
        complaints.append(f"{fitted} of {len(sizes)} sizes were enough: nothing was tried")
    return complaints, len(sizes)


def under_limit(workload, which, limit):
    """Complaints about a save under a resource limit."""
    folder = workload.prepare()
    result = rigs.run(workload.arguments(folder),
                      preexec_fn=lambda: resource.setrlimit(which, (limit, limit)))
    if result.status == 127:
        return []  # the dynamic loader failed already
    return [f"limit {limit}: {text}" for text in workload.judge(folder, result)]


def main():
    rig = rigs.Rig(__doc__)
    saver = rig.tool("saver_tool")
    probe = rig.folder()
    if mount(probe, 1 << 20):
        subprocess.run(["umount", probe], check=True)
        for in_place in (False, True):
            complaints, count = sweep(rig, saver, in_place)
            where = "in place" if in_place else "of a new one"
            rig.test(f"a save {where} on storage of {count} sizes", complaints)
        for words in (["cp"], ["convert", "--to=dcp"]):
            complaints, count = sweep_command(rig, saver, *words)
            rig.test(f"{words[0]} to storage of {count} sizes", complaints)
    else:
        rig.skip("saves, copies and conversions to storage that is too small", "a tmpfs cannot be mounted here")
    workload = rigs.Workload(rig, saver, "a save in place", 1)
    compressed = rigs.Workload(rig, saver, "a compressed save in place", 1, "save-zstd")
    sizes = [1, 50, 1000] + list(range(PAGE, 300 << 10, 6 * PAGE))
    for what, saves in (("", workload), (", compressed", compressed)):
        rig.test("limits on the size of files" + what, rigs.parallel(
            lambda limit: under_limit(saves, resource.RLIMIT_FSIZE, limit), sizes))
    rig.test("limits on descriptors", rigs.parallel(
        lambda limit: under_limit(workload, resource.RLIMIT_NOFILE, limit), list(range(3, 40))))
    careless = rigs.Workload(rig, saver, "a careless saver", 0, "careless")
    rig.control("a saver that ignores errors", rigs.parallel(
        lambda limit: under_limit(careless, resource.RLIMIT_NOFILE, limit), list(range(3, 20))))
    rig.finish()


if __name__ == "__main__":
    main()
