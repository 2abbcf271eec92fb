# SPDX-License-Identifier: BSD-3-Clause
"""demorun.py -- runs a training under torchrun, kills it in the middle of a save, and checks its
results: for tools/demo and tools/demo-bucket.
"""
import json
import os
import signal
import subprocess
import time

from demolib import (BUILD, HERE, RUN_SECONDS, TOP, VENV_PYTHON, descendants, fail, output_of,
                     signal_all)

SCRIPT = os.path.join(TOP, "tools", "demo_train.py")
STEPS, SAVE_EVERY, KILL_AFTER = 24, 6, 12  # the save after that of step KILL_AFTER is killed
ATTEMPTS = 3

LOAD = """
import sys, torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save(sys.argv[1], sys.argv[2])
state = torch.load(sys.argv[2], weights_only=True)["trainer"]
weights = torch.load(sys.argv[3], weights_only=True)
assert state["step"] == int(sys.argv[4]), state["step"]
assert set(weights) == set(state["model"])
assert all(torch.equal(weights[name], state["model"][name]) for name in weights)
count = sum(p.numel() for p in weights.values())
print(f"torch {torch.__version__} loads it: step {state['step']}, {count:,} parameters, equal to weights.pt")
"""


class Run:
    """One run of the training under torchrun."""

    def __init__(self, name, root, ranks, *more, dcp="sidestep", steps=STEPS, save_every=SAVE_EVERY,
                 variables=None):
        self.name, self.root, self.ranks = name, root, ranks
        self.report_path = os.path.join(HERE, name + ".json")
        self.errors = os.path.join(HERE, name + ".err")
        self.weights = os.path.join(HERE, name + ".pt")
        environment = os.environ | {
            "OMP_NUM_THREADS": "1", "SIDESTEP_LIBRARY": os.path.join(BUILD, "libsidestep.so"),
            "PYTHONPATH": os.path.join(TOP, "python"), "PYTHONWARNINGS": "ignore", **(variables or {})}
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [VENV_PYTHON, "-m", "torch.distributed.run", "--standalone",
                 "--nproc-per-node", str(ranks), SCRIPT, "--text", os.path.join(HERE, "text"),
                 "--root", root, "--steps", str(steps), "--save-every", str(save_every),
                 "--report", self.report_path, "--weights", self.weights, "--dcp", dcp, *more],
                env=environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def pids(self):
        """The processes of the ranks: those below torchrun that run the script."""
        def is_ours(pid):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            return SCRIPT.encode() in words and b"torch.distributed.run" not in words

        return descendants(self.process.pid, is_ours)

    def end(self):
        """Leave nothing behind, however the demo ends."""
        if self.process.poll() is None:
            signal_all(self.pids(), signal.SIGKILL)
            self.process.kill()
            self.process.wait()

    def wait(self):
        try:
            return self.process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()
            return fail(f"the run '{self.name}' did not end within {RUN_SECONDS} s; see {self.errors}")

    def complain(self, status):
        with open(self.errors, encoding="utf-8", errors="replace") as errors:
            fail(f"the run '{self.name}' failed, exit status {status}:\n{errors.read()[-4000:]}")

    def must_succeed(self):
        status = self.wait()
        if status:
            self.complain(status)
        with open(self.report_path, encoding="utf-8") as report:
            self.report = json.load(report)
        self.losses = {int(step): loss for step, loss in self.report["losses"].items()}
        return self


# ---------------------------------------------------------------- killing

def kill_in_a_save(run, being_written):
    """Kill all ranks while they write. False: the run ended before.

    The ranks are stopped first, so that the storage can be inspected. If the save has ended by
    then, they continue, and the kill waits for the next save.
    """
    deadline = time.monotonic() + RUN_SECONDS

    while run.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
        if not being_written(run.root):
            continue
        pids = run.pids()
        signal_all(pids, signal.SIGSTOP)
        if len(pids) == run.ranks and being_written(run.root):
            signal_all(pids, signal.SIGKILL)
            if run.wait() == 0:
                fail("torchrun did not notice that its ranks were killed")
            return bool(being_written(run.root))
        signal_all(pids, signal.SIGCONT)
    if run.process.poll() != 0:
        status = run.process.poll()
        run.end()
        run.complain(status)
    return False


def run_and_kill(begin, being_written):
    """Start a run with ``begin()``, and kill it while being_written(root) is true."""
    for _ in range(ATTEMPTS):
        run = begin()
        try:
            if kill_in_a_save(run, being_written):
                return run
        finally:
            run.end()
    return fail(f"no save of '{run.name}' could be caught while it was being written, in {ATTEMPTS} runs")


# ---------------------------------------------------------------- checking

def check_resumed(run, newest):
    if os.path.basename(run.report["resumed_from"]) != f"step-{newest}":
        fail(f"expected to resume from step-{newest}, not from {run.report['resumed_from']}")


def same_losses(reference, run, newest):
    if sorted(run.losses) != list(range(newest + 1, STEPS + 1)):
        fail(f"'{run.name}' has losses of steps {sorted(run.losses)}")
    for step, loss in run.losses.items():
        if loss != reference.losses[step]:
            fail(f"step {step}: loss {loss} in '{run.name}', {reference.losses[step]} uninterrupted")


def loss_fell(run):
    first, last = (float.fromhex(run.losses[step]) for step in (1, STEPS))
    if last > 0.7 * first:
        fail(f"the loss did not fall: {first} at step 1, {last} at step {STEPS}")
    return first, last


def stock_loads(path, weights):
    """Load the checkpoint ``path`` with stock torch, and compare it with the file ``weights``."""
    return "Stock PyTorch: " + output_of(
        VENV_PYTHON, "-W", "ignore", "-c", LOAD, path, os.path.join(HERE, "torch.pt"), weights,
        str(STEPS)).strip() + "."
