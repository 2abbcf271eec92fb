# SPDX-License-Identifier: BSD-3-Clause
"""The command line and the small savers of tests/tools, run against a store.

Each is a process of its own in a clean environment, and no secret may be in what it says.
"""

import contextlib
import os
import signal
import subprocess
import time

import tool

SECONDS = 900  # rank 0 waits 600 for a rank that could say neither yes nor no
FAST = {"SIDESTEP_OBJECT_DEADLINE_MS": "400"}  # of a request with all its repetitions


def build():
    return tool.program().parent.parent


def path_of(name):
    return build() / ("sidestep" if name == "sidestep" else f"tests/{name}")


def environment_of(store, **more):
    """What a program finds the store by; None takes a variable away."""
    found = {name: os.environ[name] for name in tool.PASSED_ON if name in os.environ}
    found.update(HOME="/nonexistent", LD_LIBRARY_PATH=str(build()))
    found.update(store.environment() if store else {"AWS_EC2_METADATA_DISABLED": "true"})
    found.update(more)
    return {name: value for name, value in found.items() if value is not None}


def run(store, name, *words, **more):
    """A program to its end, whatever that is."""
    environment = environment_of(store, **more)
    command = [str(path_of(name)), *map(str, words)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, errors="replace"
    )
    check_secrets(environment, done.stdout + done.stderr)
    assert done.returncode >= 0, (command, done.returncode, done.stderr)
    return done


def check_secrets(environment, said):
    for variable in tool.SECRETS:
        secret = environment.get(variable)
        assert not secret or secret not in said, variable


def well(store, name, *words, **more):
    """What a program printed, which has to succeed."""
    done = run(store, name, *words, **more)
    assert done.returncode == 0, (name, words, done.stdout, done.stderr)
    return done.stdout


def sidestep(store, *words, **more):
    return well(store, "sidestep", *words, **more)


def save(store, url, seed, **more):
    return run(store, "saver_tool", "save", url, seed, **more)


def held(store, url, *seeds):
    """Which of these states is there, whole: its seed; None: no checkpoint."""
    said = well(store, "saver_tool", "check", url, *seeds).split()
    return None if said == ["none"] else int(said[1])


def keys(store, prefix=""):
    """What is in the bucket, past the protocol; and the uploads under way."""
    state = store.control()
    found = [item["key"] for item in state["objects"] if item["key"].startswith(prefix)]
    return found, [item["key"] for item in state["uploads"]]


# ---- killed at a request


@contextlib.contextmanager
def started(store, *words):
    process = subprocess.Popen(
        list(map(str, words)),
        env=environment_of(store),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_at(store, at, command, done_first):
    """The n-th request stalls, before or after its deed.  Then the process is killed."""
    fault = {"fault": "stall"} if done_first else {"fault": "stall", "where": "request"}
    store.control(clear=["log"], rules=[{**fault, "at": at}])
    with started(store, *command) as process:
        deadline = time.monotonic() + SECONDS
        while process.poll() is None and not store.control()["rules"][0]["fired"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    store.control(release=True, rules=[])
