# SPDX-License-Identifier: BSD-3-Clause
"""demolib.py -- what the demos share: the text to train on, listings of checkpoints, comparison of
checkpoints byte by byte, and signals to processes."""
import glob
import json
import os
import shutil
import subprocess
import sys
import sysconfig

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(TOP, "build")
HERE = os.path.join(BUILD, "demo")
SIDESTEP = os.path.join(BUILD, "sidestep")
VENV_PYTHON = os.path.join(TOP, ".venv", "bin", "python")

MAX_TEXT_BYTES = 8 << 20
RUN_SECONDS = 300  # a run that takes longer counts as hung


def fail(message):
    sys.exit(f"demo: {message}")


def output_of(*command, **options):
    """Run a command and return its output; end the demo if it fails."""
    done = subprocess.run(command, text=True, capture_output=True, **options)
    if done.returncode:
        fail(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_text(path):
    """Write a real text to train on: Python's standard library, or else this repository."""
    library = sysconfig.get_paths()["stdlib"]
    sources = sorted(glob.glob(os.path.join(library, "*.py")))
    what = f"Python's standard library ({library})"
    if sum(os.path.getsize(source) for source in sources) < 1 << 18:
        sources = sorted(glob.glob(os.path.join(TOP, "*", "**", "*.[chm]*"), recursive=True))
        sources = [s for s in sources if os.path.isfile(s) and not s.startswith(BUILD)]
        what = "this repository"
    with open(path, "wb") as text:
        for source in sources:
            with open(source, "rb") as file:
                text.write(file.read(MAX_TEXT_BYTES - text.tell()))
        return f"{text.tell() / 1e6:.1f} MB of {what}"


def parts_of(root):
    """The unfinished files of saves in progress."""
    return glob.glob(os.path.join(glob.escape(root), ".sidestep.*.saving", "*.part"))


def listing(root):
    return json.loads(output_of(SIDESTEP, "ls", "--json", root))["checkpoints"]


def compare_checkpoints(a, b):
    """Compare every tensor of two checkpoints, byte by byte."""
    names = []
    for path in (a, b):
        output_of(SIDESTEP, "verify", path)
        shown = json.loads(output_of(SIDESTEP, "show", "--json", path))
        names.append([tensor["name"] for tensor in shown["tensors"]])
    if names[0] != names[1] or not names[0]:
        fail(f"{a} and {b} have different tensors: {names}")
    for name in names[0]:
        one, other = (subprocess.run([SIDESTEP, "cat", path, name], check=True,
                                     stdout=subprocess.PIPE).stdout for path in (a, b))
        if one != other or not one:
            fail(f"{name} differs between {a} and {b}")
    return len(names[0])


def descendants(top, is_ours):
    """Processes below ${top} for which is_ours(pid) is true."""
    parents, ours = {}, []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
                parents[int(pid)] = int(stat.read().rpartition(")")[2].split()[1])
            if is_ours(int(pid)):
                ours.append(int(pid))
        except OSError:
            continue  # the process has ended, or belongs to another user
    found = []
    for pid in ours:
        above = parents.get(pid, 0)
        while above and above != top:
            above = parents.get(above, 0)
        if above:
            found.append(pid)
    return found


def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def prepare():
    for needed in (SIDESTEP, os.path.join(BUILD, "libsidestep.so")):
        if not os.path.exists(needed):
            fail(f"{needed} is missing; type 'make' first")
    os.chdir(TOP)
    shutil.rmtree(HERE, ignore_errors=True)
    os.makedirs(HERE)
