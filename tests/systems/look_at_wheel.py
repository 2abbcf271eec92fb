# SPDX-License-Identifier: BSD-3-Clause
"""look_at_wheel.py WHEEL: what a wheel must be, whoever installs it. Exit status 1: it is not."""

import os
import re
import subprocess
import sys
import tempfile
import zipfile

MOST_BYTES = 1_500_000
# What every Linux with glibc has, and nettle, which is in the wheel.
MAY_NEED = re.compile(r"lib(c|m|pthread|dl|rt)\.so\.\d|ld-linux-[a-z0-9-]+\.so\.\d|libnettle-.*")


def printed(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def problems_of(wheel):
    bytes_of_wheel = os.path.getsize(wheel)
    if bytes_of_wheel > MOST_BYTES:
        yield f"it has {bytes_of_wheel} bytes, more than {MOST_BYTES}"
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        library = os.path.join(folder, "sidestep", "libsidestep.so.0")
        for program in (library, os.path.join(folder, "sidestep", "bin", "sidestep")):
            for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", printed("readelf", "-dW", program)):
                if not MAY_NEED.fullmatch(needed) and needed != "libsidestep.so.0":
                    yield f"{os.path.basename(program)} needs {needed}"
        symbols = printed("nm", "-D", library)
        if "__assert_fail" not in symbols:
            yield "it was built without asserts"
        for name in re.findall(r" [TDBRVW] (\S+)", symbols):
            if not name.startswith(("sidestep_", "LIBSIDESTEP")):
                yield f"it exports {name}"


def main():
    found = list(problems_of(sys.argv[1]))
    for problem in found:
        print(f"{sys.argv[1]}: {problem}", file=sys.stderr)
    if not found:
        print(f"{sys.argv[1]}: {os.path.getsize(sys.argv[1])} bytes")
    return 1 if found else 0


sys.exit(main())
