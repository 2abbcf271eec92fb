#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Saves, series and loads on storage with other rules than a local disk has, as a FUSE file system
of ours shows them (habit_mount): each habit either works, or is refused with a reason and leaves
nothing. Two mounts of one directory are two hosts."""
import os
import shutil

import judge
import mounts
import mpi_kill
import rig as rigs

# What storage does, by the habits of habit_mount.
WORKS = {
    "NFS": ["remember=3", "silly", "stale", "no-flags"],
    "NFS without locks": ["remember=3", "silly", "stale", "no-flags", "no-locks"],
    "NFS mounted with local_lock": ["remember=3", "silly", "stale", "no-flags", "local-locks"],
    "Lustre without flock": ["no-flags", "no-locks"],
    "GPFS": ["no-flags", "remember=1"],
    "CephFS": ["no-flags", "no-dir-sync"],
    "SMB": ["remember=1", "remember-stubbornly", "no-flags", "no-link", "no-dir-sync"],
}
REFUSED = {
    "a mount that only appends": (["append-only", "no-link"], "write at any place of a file"),
    "a mount without renames": (["no-rename", "no-link", "no-locks"], "rename a file"),
    "a mount that renames no directory": (["no-dir-rename", "local-locks"],
                                          "rename a directory that holds files"),
}
# Mounts of object stores, by what they call themselves, and where.
BY_DIRECTORY = "renames a directory object by object"
PRETENDERS = {
    "subtype=gcsfuse": BY_DIRECTORY,
    "subtype=s3fs": BY_DIRECTORY,
    "subtype=goofys": BY_DIRECTORY,
    "subtype=geesefs": BY_DIRECTORY,
    "fsname=blobfuse2": BY_DIRECTORY,
    "fsname=mountpoint-s3": "only appends to files, and renames none",
}
IN_PLACE_WORKS = {"a mount that renames no directory"}
SHORT = ["NFS", "Lustre without flock", "SMB"]  # of them, unless --long


def shown(rig, habits):
    """How a host sees a directory: with the habits."""
    return lambda backing: mounts.Mount(rig, backing, habits)


def test_works(rig, workloads, name, habits):
    complaints = []
    for workload in workloads:
        complaints += judge.on_storage(workload, shown(rig, habits), judge.sound)
    rig.test(f"{name}: saves, series and loads", complaints)


def is_refused(workload, folder, reason):
    """It fails with that reason, and changes nothing."""
    result = rigs.run(workload.arguments(folder))
    complaints = []
    if result.status in (0, None) or reason not in result.err or "s3://" not in result.err:
        complaints.append(f"not refused for '{reason}': {result}")
    seen = rigs.run([workload.saver, "check", os.path.join(folder, "it"), "1"])
    if seen.status != 0 or seen.out != (f"seed {workload.before}" if workload.before else "none"):
        complaints.append(f"what was there: {seen}")
    if not workload.is_series and rigs.leftovers(folder):
        complaints.append(f"left behind: {rigs.leftovers(folder)}")
    if workload.is_series and os.listdir(os.path.join(folder, "it")):
        complaints.append(f"left behind: {os.listdir(os.path.join(folder, 'it'))}")
    return complaints


def test_refused(rig, workloads, name, habits, reason):
    complaints = []
    for workload in workloads:
        if workload.is_series and workload.before:
            continue  # no series ever began there
        works = name in IN_PLACE_WORKS and workload.before
        complaints += judge.on_storage(
                workload, shown(rig, habits),
                judge.sound if works else lambda w, folder: is_refused(w, folder, reason))
    with mounts.Mount(rig, rig.folder(), habits) as mount:
        complaints += judge.doctor_says(rig, mount.path, "no", reason)
    rig.test(f"{name}: refused, for it cannot {reason}", complaints)


def test_pretenders(rig, workload):
    """What does all calls of a save, but is known not to keep a checkpoint whole."""
    complaints = []
    for options, reason in PRETENDERS.items():
        found = judge.on_storage(workload, shown(rig, [f"-o{options}"]),
                                 lambda w, folder, reason=reason: is_refused(w, folder, reason))
        with mounts.Mount(rig, rig.folder(), [f"-o{options}"]) as mount:
            found += judge.doctor_says(rig, mount.path, "no", reason)
        complaints += [f"{options}: {text}" for text in found]
    rig.test(f"{len(PRETENDERS)} mounts of object stores: refused by their names", complaints)
    rig.control("a mount that nobody knows",
                judge.on_storage(workload, shown(rig, ["-osubtype=sshfs"]),
                                 lambda w, folder: is_refused(w, folder, BY_DIRECTORY)))


def one_event(rig, workload, habit, number):
    """That event of a run goes wrong. Then the storage is well again."""
    backing = workload.prepare()
    with mounts.Mount(rig, backing, ["no-flags", f"{habit}={number}"]) as mount:
        result = rigs.run(workload.arguments(mount.path))
    with mounts.Mount(rig, backing, ["no-flags"]) as mount:
        complaints = workload.judge(mount.path, result)
    shutil.rmtree(backing)
    return [f"{workload.name}, {habit}={number}: {text}" for text in complaints]


def test_events(rig, workloads, habit, last, what):
    stride = 1 if rig.long else last // 3
    trials = [(workload, number) for workload in workloads
              for number in range(1, last + 1, stride)]
    complaints = rigs.parallel(lambda trial: one_event(rig, trial[0], habit, trial[1]), trials)
    rig.test(f"{len(trials)} saves, each with {what}", complaints)


# ---- two hosts

def test_two_hosts(rig, saver):
    if shutil.which("mpicc.mpich") is None or shutil.which("mpirun.mpich") is None:
        rig.skip("two hosts", "mpicc.mpich or mpirun.mpich is not installed")
        return
    mpi = mpi_kill.Mpi(rig, "mpich")
    names = list(WORKS) if rig.long else ["NFS"]
    for name in names:
        show = shown(rig, WORKS[name])
        rig.test(f"{name}: {judge.RANKS} ranks on two hosts",
                 judge.save_from_two_hosts(rig, mpi, show, show))
    show = shown(rig, WORKS["NFS"])
    second = judge.second_owner(rig, saver, show, show)
    told = second.status == 11 and "in use by" in second.err
    rig.test("NFS: a series has one owner on all hosts", [] if told else [f"{second}"])
    show = shown(rig, WORKS["NFS mounted with local_lock"])
    rig.control("locks that other hosts do not see: a second owner",
                [] if judge.second_owner(rig, saver, show, show).status else ["it was let in"])


def main():
    rig = rigs.Rig(__doc__, in_memory=True)
    reason = mounts.reason_not_to()
    if reason is not None or not os.path.exists(os.path.join(rig.build, "tests", "habit_mount")):
        rig.skip("storage with habits", reason or "libfuse3 (libfuse3-dev) was not there at build")
        rig.finish()
    saver = rig.tool("saver_tool")
    workloads = judge.some(rigs.workloads(rig, saver), rig)
    for name in WORKS if rig.long else SHORT:
        test_works(rig, workloads, name, WORKS[name])
    for name, (habits, why) in REFUSED.items():
        test_refused(rig, workloads, name, habits, why)
    test_pretenders(rig, workloads[0])
    test_events(rig, workloads, "lost", 24, "the answer to one change of names lost")
    test_events(rig, workloads, "close-error", 9, "one close after which nothing is left")
    careless = rigs.Workload(rig, saver, "a careless saver", 0, "careless")
    rig.control("a saver that takes no notice of errors", [
        text for number in range(4, 9) for text in one_event(rig, careless, "close-error", number)])
    test_two_hosts(rig, saver)
    rig.finish()


if __name__ == "__main__":
    main()
