# SPDX-License-Identifier: BSD-3-Clause
"""What saves, series and loads must do on storage that keeps checkpoints, from one host and from two.
show(backing) is a context whose .path is the directory ${backing} as a host sees it."""
import os
import re
import shutil
import subprocess

import mounts
import mpi_kill
import rig as rigs

RANKS = 4


def on_storage(workload, show, judge):
    """The complaints of judge(workload, folder), where the folder has what was there before
    ${workload}."""
    backing = workload.prepare()
    with show(backing) as mount:
        complaints = judge(workload, mount.path)
    shutil.rmtree(backing)
    return [f"{workload.name}: {text}" for text in complaints]


def some(workloads, rig):
    """In the short run, one of those that differ only in what they write."""
    return [workload for workload in workloads if rig.long or not workload.command.startswith(
        ("save-threads", "save-planes"))]


def sound(workload, folder):
    """It succeeds, and leaves what it should."""
    result = rigs.run(workload.arguments(folder))
    return workload.judge(folder, result) if result.status == 0 else [str(result)]


def doctor_says(rig, folder, word, reason):
    result = rigs.run([os.path.join(rig.build, "sidestep"), "doctor", folder])
    found = re.search(rf"^{word}\s+commit\s.*", result.out, re.MULTILINE)
    if found is None or reason not in found.group():
        return [f"doctor does not say '{word}', '{reason}': {result}"]
    return []


def start_on_two(rig, mpi, hosts, place, work):
    """Ranks 0 and 1 on one host, 2 and 3 on the other."""
    halves = [(RANKS // 2, mounts.on_host(host, place, work)) for host in hosts]
    process = mpi.start(halves, survive=True)
    said = mpi_kill.end(process, 6 * rigs.PATIENCE)
    return said, process.returncode


def left_in(folder):
    """Names of what is no checkpoint, in the folder and in its checkpoints."""
    found = [name for name in os.listdir(folder) if re.match(r"\.(sidestep\.|nfs)", name)]
    for name in os.listdir(folder):
        if name not in ("root", ".sidestep", *found):
            inside = [inner for inner in os.listdir(os.path.join(folder, name))
                      if inner != ".metadata" and not rigs.SHARD.match(inner)]
            found += [f"{name}/{inner}" for inner in inside[1:]]  # one is the manifest
    return [f"left behind: {name}" for name in found]


def save_from_two_hosts(rig, mpi, *shows):
    backing, place, logs = rig.folder(), rig.folder(), rig.folder()
    log = os.path.join(logs, "log")
    timeout_ms = 1000 * rigs.PATIENCE
    complaints = []
    with shows[0](backing) as one, shows[1](backing) as two:
        for target in ("root", "once", "once"):
            path = os.path.join(place, target)
            work = (mpi.train(path, timeout_ms, log) if target == "root"
                    else [mpi.program, "once", path, str(timeout_ms), log])
            said, status = start_on_two(rig, mpi, (one, two), place, work)
            if status != 0:
                complaints.append(f"{target}: status {status}: {said}")
        if complaints:
            return complaints
        for rank in range(RANKS):
            with open(f"{log}.{rank}") as file:
                told = file.read().count("COMMITTED")
            if told != mpi_kill.STEPS:
                complaints.append(f"rank {rank} was told of {told} commits")
        for host in (one, two):
            seen = rigs.run(mounts.on_host(host, place, mpi.command([(2, [
                mpi.program, "resume", os.path.join(place, "root")])])), 6 * rigs.PATIENCE,
                {"TMPDIR": mpi.scratch})
            if seen.out != f"step {mpi_kill.STEPS}":
                complaints.append(f"resumed: {seen}")
    return complaints + left_in(backing) + left_in(os.path.join(backing, "root"))


def second_owner(rig, saver, *shows):
    """A series is open on one host; another one opens it. Then only one of them may save."""
    backing = rig.folder()
    with shows[0](backing) as one, shows[1](backing) as two:
        first = subprocess.Popen([saver, "hold", os.path.join(one.path, "s")],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        first.stdout.readline()
        second = rigs.run([saver, "series", os.path.join(two.path, "s"), "1"])
        first.communicate(timeout=20)
        return second
