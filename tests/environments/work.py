# SPDX-License-Identifier: BSD-3-Clause
"""work.py FOLDER PROGRAM INSIDE: what must work in each environment. Saves into FOLDER at once and
in the background, loads both, verifies both with the command line PROGRAM, and asks doctor. It
prints what it found as JSON. INSIDE: what the process does to itself, by name; "": nothing.
"""

import json
import os
import subprocess
import sys


def gevent():
    from gevent import monkey

    monkey.patch_all()


def without_fork():
    del os.fork


def ignores_pipes():
    import signal

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def main():
    folder, program, inside = sys.argv[1], sys.argv[2], sys.argv[3]
    if inside in ("gevent", "without_fork", "ignores_pipes"):
        globals()[inside]()
    elif inside in ("spawn", "fork", "forkserver"):
        import multiprocessing

        context = multiprocessing.get_context(inside)
        process = context.Process(target=work, args=(folder, program, ""))
        process.start()
        process.join()
        return process.exitcode
    work(folder, program, inside)
    return 0


def work(folder, program, inside):
    import torch

    import sidestep

    def state(seed):
        torch.manual_seed(seed)
        return {"weight": torch.randn(1 << 20), "step": seed, "list": [torch.ones(3) * seed, "ü"]}

    def check(name):
        got = state(0)
        sidestep.load(got, checkpoint_id=f"{folder}/{name}")
        expected = state(7)
        assert torch.equal(got["weight"], expected["weight"]), "another weight was loaded"
        assert got["step"] == 7 and torch.equal(got["list"][0], expected["list"][0])
        assert got["list"][1] == "ü"
        done = run(program, "verify", f"{folder}/{name}")
        assert done.returncode == 0, done

    saved = state(7)
    if inside == "loses_its_directory":  # torch itself must have loaded all that it loads
        os.mkdir(f"{folder}/x")
        os.chdir(f"{folder}/x")
        os.rmdir(f"{folder}/x")
    sidestep.save(saved, checkpoint_id=f"{folder}/at-once")
    check("at-once")
    handle = sidestep.async_save(saved, checkpoint_id=f"{folder}/in-background")
    saved["weight"].zero_()  # protected, or copied already
    if inside == "uvloop":
        wait_in_a_loop(handle)
    handle.result()
    check("in-background")
    doctor = run(program, "doctor", "--json", folder)
    assert doctor.returncode == 0, doctor
    found = {row["name"]: row for row in json.loads(doctor.stdout)["findings"]}
    progress = handle.progress()
    told = {"snapshot": progress.snapshot, "reason": progress.copy_reason, "doctor": found,
            "state": progress.state, "io_depth": progress.io_depth}  # fmt: skip
    print(json.dumps(told), flush=True)


def wait_in_a_loop(handle):
    import uvloop

    async def wait():
        await handle

    uvloop.run(wait())


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
