# SPDX-License-Identifier: BSD-3-Clause
"""standins.py: where the torch of this Python was built for CUDA, and installed without CUDA's
libraries, makes empty ones beside torch's own. Each function returns 100, "no device". With them
torch starts, finds no device, and works on the CPU.
"""

import collections
import importlib.util
import pathlib
import re
import subprocess
import tempfile

NO_DEVICE = 100


def printed(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def is_found(name):
    """Whether the loader finds it in a place of the system."""
    return f"\t{name} " in printed("/sbin/ldconfig", "-p")


def absent_libraries(libraries):
    present = {path.name for path in libraries}
    needed = set()
    for path in libraries:
        needed.update(re.findall(r"\(NEEDED\).*\[(.*)\]", printed("readelf", "-dW", path)))
    return sorted(name for name in needed - present if not is_found(name))


def symbols_of(libraries):
    """(what they define, what they want: {version or "": names})."""
    defined, wanted = set(), collections.defaultdict(set)
    for path in libraries:
        for line in printed("nm", "-D", path).splitlines():
            kind, symbol = line.split()[-2:]
            name, _, version = symbol.partition("@")
            if kind == "U":
                wanted[version.lstrip("@")].add(name)
            elif kind.isupper() or kind in "iuvw":
                defined.add(name)
    return defined, wanted


def versions_from(libraries):
    """{library: versions that somebody wants of it}."""
    versions = collections.defaultdict(set)
    for path in libraries:
        library = ""
        for line in printed("readelf", "-VW", path).splitlines():
            file = re.search(r"File: (\S+) ", line)
            library = file[1] if file else library
            version = re.search(r" Name: (\S+) .*Version:", line)
            if version:
                versions[library].add(version[1])
    return versions


def make(path, names, versions):
    """A library with these functions: {version or "": names}."""
    with tempfile.TemporaryDirectory() as folder:
        source, script = pathlib.Path(folder, "it.s"), pathlib.Path(folder, "map")
        lines = [".text"]
        for name in sorted(set().union(*names.values())):
            lines += [f".globl {name}", f".type {name}, @function", f"{name}:"]
        lines += [f"mov ${NO_DEVICE}, %eax", "ret"]
        source.write_text("\n".join(lines) + "\n")
        nodes = [f"{node} {{ {''.join(f'{name}; ' for name in sorted(names.get(node, ())))}}};"
                 for node in sorted(versions)]
        script.write_text("\n".join(nodes) + "\n")
        options = [f"-Wl,--version-script={script}"] if nodes else []
        command = ["gcc", "-shared", "-nostdlib", "-o", path, source, f"-Wl,-soname,{path.name}"]
        subprocess.run([*command, *options], check=True)


def main():
    folder = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib"
    libraries = [path for path in folder.iterdir() if ".so" in path.name]
    absent = absent_libraries(libraries)
    defined, wanted = symbols_of(libraries)
    versions = versions_from(libraries)
    loose = wanted[""] - defined  # nobody says which library has them
    for name in absent:
        names = {version: wanted[version] for version in versions[name]}
        make(folder / name, {**names, "": loose}, versions[name])
        loose = set()


main()
