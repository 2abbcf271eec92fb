# SPDX-License-Identifier: BSD-3-Clause
"""sitting.py --sitting TIME -- all that a borrowed GPU is wanted for, the most valuable first.

Each step is a process of its own with a share of the time. Steps that measure no time run together.
What a step prints goes to OUT/results.jsonl at once, and OUT/summary.txt is written anew after each
step: a sitting that is cut off loses the step that was under way, not what that had found. Needs no
network.

--rehearse runs the same steps, each for moments, over the stand-in driver and on processors.
"""

import argparse
import importlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUERY = "name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max"

# (stage, name, module, share of the time, arguments). The steps of a stage run together; those that
# measure time have a stage of their own. What is left over goes to the stages that follow.
ONE = ["--gib", "1"]
MANY = [*ONE, "--tensors", "10000"]
STEPS = [
    (1, "stand-in", "probe", 0.30, ["--place", "standin"]),
    (1, "driver", "probe", 0.30, []),
    (1, "tests", "checks", 0.30, []),
    (1, "race", "race", 0.30, ["--words", "2e9"]),
    (1, "training", "train", 0.40, []),
    (2, "figures", "gpu_bench", 0.20, [*ONE, "--runs", "5", "--ways", "pinned,shared,default"]),
    (3, "many tensors", "gpu_bench", 0.20, [*MANY, "--runs", "3", "--ways", "pinned"]),
    (4, "4 GiB", "gpu_bench", 0.20, ["--gib", "4", "--runs", "3", "--ways", "pinned,shared"]),
    (5, "long race", "race", 0.40, ["--words", "1e10"]),
    (6, "16 GiB", "gpu_bench", 0.40, ["--gib", "16", "--runs", "3", "--ways", "pinned"]),
    (7, "32 GiB", "gpu_bench", 0.40, ["--gib", "32", "--runs", "2", "--ways", ""]),
    (8, "process", "gpu_bench", 1.0, [*ONE, "--runs", "2", "--ways", "process"]),
]
SMALL = ["--gib", "0.001", "--tensors", "6", "--runs", "1", "--ways", "default"]
REHEARSAL = [
    (1, "stand-in", "probe", 0.5, ["--place", "standin"]),
    (1, "tests", "checks", 0.5, ["--collect-only"]),
    (1, "race", "race", 0.5, ["--place", "standin", "--words", "5e5", "--at-once", "262144"]),
    (2, "training", "train", 0.5, ["--device", "cpu", "--steps", "8", "--variant", "foreach"]),
    (3, "figures", "gpu_bench", 1.0, ["--device", "cpu", *SMALL]),
]
TIMED = ("race", "train", "gpu_bench")
"""Modules that end by themselves after --seconds."""


class Results:
    """What was found, in two files."""

    def __init__(self, folder, budget):
        self.folder, self.budget = Path(folder), budget
        self.began, self.records, self.steps = time.monotonic(), [], []
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lines = os.open(
            self.folder / "results.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
        )

    def add(self, step, record):
        self.records.append({"step": step, **record})
        os.write(self.lines, json.dumps(self.records[-1]).encode() + b"\n")
        os.fsync(self.lines)

    def finish(self, step, state, seconds):
        self.steps.append((step, state, seconds))
        self.write_summary()
        print(f"{step}: {state}", flush=True)

    def bad(self):
        return [record for record in self.records if record.get("ok") is False]

    def write_summary(self):
        minutes = (time.monotonic() - self.began) / 60
        text = [f"{minutes:.1f} of {self.budget / 60:.1f} minutes", ""]
        text += [f"{name:16} {state:20} {seconds:7.1f} s" for name, state, seconds in self.steps]
        for title, chosen in (
            ("wrong, or a goal that was missed", self.bad()),
            ("skipped", [r for r in self.records if "skipped" in r]),
            ("all else", [r for r in self.records if r.get("ok", True) and "skipped" not in r]),
        ):
            text += ["", f"{title}: {len(chosen)}"] + [f"  {in_words(r)}" for r in chosen]
        new = self.folder / "summary.txt.new"
        new.write_text("\n".join(text) + "\n")
        new.replace(self.folder / "summary.txt")


def in_words(record):
    """One line for people."""
    rest = {k: v for k, v in record.items() if k not in ("step", "name", "ok")}
    values = ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in rest.items()
    )
    return f"[{record['step']}] {record.get('name', '')}: {values}"


def in_child(module, arguments, output, log):
    """Become the step. Forked from a process that has loaded torch, which takes seconds, but has
    never asked for a device."""
    os.setsid()
    os.dup2(output, 1)
    os.dup2(log, 2)
    code = 1
    try:
        importlib.import_module(module).main(arguments)
        code = 0
    except SystemExit as end:
        print(end, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def end_group(child):
    """Of a step that is over, and what it started."""
    for number, wait in ((signal.SIGTERM, 2), (signal.SIGKILL, 0)):
        try:
            os.killpg(child, number)
        except ProcessLookupError:
            return
        time.sleep(wait)


class Step:
    """A step under way."""

    def __init__(self, results, name, module, arguments, seconds):
        """Start it; it has so many seconds."""
        if module in TIMED:  # it should end by itself before it is cut off
            arguments = [*arguments, "--seconds", str(0.8 * seconds)]
        self.results, self.name, self.rest, self.state = results, name, b"", None
        self.began = time.monotonic()
        self.ends = self.began + seconds
        path = results.folder / f"log-{name.replace(' ', '-')}.txt"
        self.log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self.log, f"==== {name}: {module} {' '.join(arguments)}\n".encode())
        self.source, output = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.close(self.source)
            in_child(module, arguments, output, self.log)
        os.close(output)

    def fileno(self):
        return self.source

    def read(self):
        """Take what it has printed; the end of that is its end."""
        data = os.read(self.source, 65536)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            try:
                self.results.add(self.name, json.loads(line))
            except (ValueError, TypeError):
                os.write(self.log, line + b"\n")
        if not data:
            self.end()

    def cut_off(self):
        """Its time is over."""
        self.results.add(self.name, {"name": "cut off", "ok": False})
        end_group(self.child)
        self.end("cut off")

    def end(self, state=None):
        _, status = os.waitpid(self.child, 0)
        for descriptor in (self.source, self.log):
            os.close(descriptor)
        code = os.waitstatus_to_exitcode(status)
        self.state = state or ("done" if code == 0 else f"ended with {code}")
        self.results.finish(self.name, self.state, time.monotonic() - self.began)


def run_stage(results, steps, ends):
    """Run steps together, each for its share of the sitting."""
    left = ends - time.monotonic() - 3
    if left <= 1:
        for name, *_ in steps:
            results.finish(name, "no time was left", 0)
        return
    running = [
        Step(results, name, module, arguments, min(share * results.budget, left))
        for name, module, share, arguments in steps
    ]
    while running:
        left = min(step.ends for step in running) - time.monotonic()
        for step in select.select(running, [], [], max(0, left))[0]:
            step.read()
        for step in running:
            if step.state is None and time.monotonic() >= step.ends:
                step.cut_off()
        running = [step for step in running if step.state is None]


def preload():
    """What all steps would take seconds to load. None of it asks for a device."""
    for module in ("torch._dynamo", "torch.distributed.checkpoint.state_dict"):
        importlib.import_module(module)


def machine():
    """What it ran on."""
    import torch

    figures = {"python": sys.version.split()[0], "torch": torch.__version__}
    figures["torch_cuda"] = torch.version.cuda
    figures["processors"] = os.cpu_count()
    figures["memory"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    figures["kernel"] = os.uname().release
    try:
        command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]
        figures["gpu"] = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        figures["gpu"] = f"unknown: {error}"
    return figures


def seconds_of(text):
    """ "20m" -> 1200.0"""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:])
    try:
        value = float(text[:-1] if unit else text) * (unit or 1)
    except ValueError:
        value = 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no time such as 90s, 20m or 1h")
    return value


def parse():
    parser = argparse.ArgumentParser(
        prog="tests/gpu/run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sitting", type=seconds_of, required=True, metavar="TIME")
    parser.add_argument("--out", default="gpu-sitting", help="folder of the results")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU")
    parser.add_argument("--only", default="", metavar="STEP,STEP", help="of those of --list")
    parser.add_argument("--list", action="store_true", help="print the steps, and end")
    options = parser.parse_args()
    steps = REHEARSAL if options.rehearse else STEPS
    only = [name.strip() for name in options.only.split(",") if name.strip()]
    unknown = set(only) - {name for _, name, *_ in steps}
    if unknown:
        parser.error(f"--only: there is no step {', '.join(sorted(unknown))}; see --list")
    return options, [step for step in steps if not only or step[1] in only]


def main():
    """Run the steps; 1: something was wrong, or a step did not end."""
    options, steps = parse()
    if options.list:
        for stage, name, module, share, arguments in steps:
            print(f"{stage}. {name:14} {share:4.0%} of the time  {module} {' '.join(arguments)}")
        return 0
    sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "bench")]
    if options.rehearse:
        os.environ["OMP_NUM_THREADS"] = "1"
    results = Results(options.out, options.sitting)
    if {module for _, _, module, *_ in steps} & set(TIMED):
        preload()
    results.add("machine", {"name": "machine", **machine()})
    ends = time.monotonic() + options.sitting
    for _, stage in itertools.groupby(steps, key=lambda step: step[0]):
        run_stage(results, [step[1:] for step in stage], ends)
    print(f"{len(results.bad())} wrong or missed; see {results.folder}/summary.txt")
    return int(bool(results.bad()) or any(state != "done" for _, state, _ in results.steps))


if __name__ == "__main__":
    sys.exit(main())
