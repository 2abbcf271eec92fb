# SPDX-License-Identifier: BSD-3-Clause
"""Where the steps of a sitting run: on a GPU, or on the stand-in driver when they are rehearsed."""

import contextlib
import json
import os
import random
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def say(name, **figures):
    """One result, as a line of JSON. ``ok``: False if it is wrong; left out for mere figures."""
    print(json.dumps({"name": name, **figures}), flush=True)


class Gpu:
    """torch's device, with several streams."""

    name = "cuda"

    def __init__(self, streams=6):
        self.streams = [torch.cuda.Stream() for _ in range(streams)]

    def tensor(self, words):
        return torch.zeros(words, dtype=torch.int32, device="cuda")

    @contextlib.contextmanager
    def on(self, stream):
        """Work of this block is queued there."""
        with torch.cuda.stream(self.streams[stream]):
            yield

    def join(self, later, earlier):
        """What is queued on ``later`` from now on waits for what ``earlier`` has."""
        self.streams[later].wait_stream(self.streams[earlier])

    def delay(self, rng):
        """Keep the current stream busy for up to a few ms."""
        torch.cuda._sleep(int(rng.random() ** 4 * 5e6))

    def wait(self):
        torch.cuda.synchronize()

    def differing(self, words, number):
        """How many words of a tensor in host memory are not ``number``."""
        return int((words.cuda() != number).sum())

    def problem(self):
        """A mistake that only the stand-in sees."""
        return


class StandIn:
    """The stand-in driver, which takes the place of NVIDIA's in this process."""

    name = "standin"

    def __init__(self, streams=6):
        sys.path.insert(0, str(ROOT / "python" / "tests"))
        import standin

        self.device_tensor = standin.device_tensor
        self.driver = standin.Driver()
        for where, name, value in standin.replacements(self.driver):
            setattr(where, name, value)
        self.driver.slow(2000)
        self.streams = [self.driver.new_stream(0) for _ in range(streams)]

    def tensor(self, words):
        return self.device_tensor(self.driver, torch.zeros(words, dtype=torch.int32))

    @contextlib.contextmanager
    def on(self, stream):
        before, self.driver.stream = self.driver.stream, self.streams[stream]
        yield
        self.driver.stream = before

    def join(self, _later, _earlier):
        self.wait()

    def delay(self, _rng):
        """Its streams are slow as they are."""

    def wait(self):
        for stream in self.streams:
            self.driver.synchronize(0, stream)
        self.driver.wait()

    def differing(self, words, number):
        return int((words != number).sum())

    def problem(self):
        found = self.driver.problem()
        self.driver.forgive()
        return found.decode() if found else None


def make(name):
    """By its name."""
    return {"cuda": Gpu, "standin": StandIn}[name]()


def scratch(size):
    """A folder on the fastest storage that has room for ``size`` bytes."""
    for folder in ("/dev/shm", os.environ.get("TMPDIR", "/tmp")):
        with contextlib.suppress(OSError):
            room = os.statvfs(folder)
            if room.f_bavail * room.f_frsize > size:
                return folder
    raise SystemExit(f"no room for {size} bytes in /dev/shm or $TMPDIR")


def seeded(seed):
    """Random numbers that a later run can have again."""
    say("seed", value=seed)
    return random.Random(seed)
