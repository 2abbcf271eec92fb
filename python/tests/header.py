# SPDX-License-Identifier: BSD-3-Clause
"""Reads the public headers as a C compiler sees them, so that test_abi.py can compare."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "sidestep" / "sidestep_tools.h"  # includes the others


@dataclass
class Function:
    """A function, or what a pointer to a function points to: its type texts."""

    result: str
    parameters: list[str]


@dataclass
class Header:
    """What the headers declare.  Names are the C names."""

    structs: dict[str, dict[str, str | Function]] = field(default_factory=dict)
    enums: dict[str, list[str]] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    numbers: list[str] = field(default_factory=list)  # macros that are numbers


@dataclass
class Measured:
    """What the compiler makes of it."""

    sizes: dict[str, int] = field(default_factory=dict)
    offsets: dict[tuple[str, str], int] = field(default_factory=dict)
    field_sizes: dict[tuple[str, str], int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


def _preprocess(compiler: str, *options: str) -> str:
    command = [compiler, "-E", *options, "-DSIDESTEP_API=", str(HEADER)]
    done = subprocess.run(command, capture_output=True, text=True)
    # The header defines the macro again, which is a warning.
    assert done.returncode == 0, done.stderr
    return done.stdout


def _own_text(preprocessed: str) -> str:
    """Without the system's headers: line markers tell where each line is from."""
    own, lines = False, []
    for line in preprocessed.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            own = Path(marker.group(1)).parent == HEADER.parent
        elif own:
            lines.append(line)
    return "\n".join(lines)


def _split(text: str, separator: str) -> list[str]:
    """At separators outside of parentheses and braces."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "({":
            depth += 1
        elif c in ")}":
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [" ".join(part.split()) for part in parts if part.strip()]


def type_and_name(declaration: str) -> tuple[str | Function, str]:
    """("const char *", "name") of "const char *name"; arrays are "char [40]"."""
    pointer = re.fullmatch(r"(.*)\(\*(\w+)\)\((.*)\)", declaration)
    if pointer:
        parameters = [type_and_name(part)[0] for part in _split(pointer.group(3), ",")]
        return Function(pointer.group(1).strip(), parameters), pointer.group(2)
    plain = re.fullmatch(r"(.*?[\s*])(\w+)\s*((?:\[\w+\])?)", declaration)
    assert plain, declaration
    return f"{plain.group(1).strip()} {plain.group(3)}".strip(), plain.group(2)


def parse(compiler: str) -> Header:
    """Every struct, enum, function and number of the headers."""
    header = Header()
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)+", "", _own_text(_preprocess(compiler)))
    for declaration in _split(text, ";"):
        body = re.fullmatch(r"(struct|enum) (\w+) ?\{(.*)\}", declaration)
        if body and body.group(1) == "struct":
            fields = [type_and_name(part) for part in _split(body.group(3), ";")]
            header.structs[body.group(2)] = {name: kind for kind, name in fields}
        elif body:
            names = [part.split()[0] for part in _split(body.group(3), ",")]
            header.enums[body.group(2)] = names
        elif "(" in declaration:
            function = re.fullmatch(r"(.*?[\s*])(\w+) ?\((.*)\)", declaration)
            assert function, declaration
            inside = [] if function.group(3) == "void" else _split(function.group(3), ",")
            parameters = [type_and_name(part)[0] for part in inside]
            header.functions[function.group(2)] = Function(function.group(1).strip(), parameters)
        else:
            assert re.fullmatch(r"struct \w+", declaration), declaration
    for name, value in re.findall(
        r"^#define (SIDESTEP_\w+) (\S+)$", _preprocess(compiler, "-dM"), re.MULTILINE
    ):
        if re.fullmatch(r"\d+u?", value):
            header.numbers.append(name)
    return header


def measure(compiler: str, header: Header, folder: Path) -> Measured:
    """Compile and run a program that prints every size, offset and number."""
    lines = []
    for name, fields in header.structs.items():
        lines.append(f'printf("size {name} - %zu\\n", sizeof(struct {name}));')
        for part in fields:
            lines.append(
                f'printf("field {name} {part} %zu %zu\\n", offsetof(struct {name}, {part}), '
                f"sizeof(((struct {name} *)0)->{part}));"
            )
    for number in header.numbers + [name for names in header.enums.values() for name in names]:
        lines.append(f'printf("number {number} - %lld\\n", (long long)({number}));')
    source, program = folder / "measure.c", folder / "measure"
    source.write_text(
        "#include <sidestep/sidestep_tools.h>\n#include <stdio.h>\nint main(void)\n{\n"
        + "\n".join(lines)
        + "\nreturn 0;\n}\n"
    )
    subprocess.run([compiler, f"-I{ROOT / 'include'}", "-o", str(program), str(source)], check=True)
    measured = Measured()
    for line in subprocess.check_output([str(program)], text=True).splitlines():
        kind, name, part, *numbers = line.split()
        if kind == "size":
            measured.sizes[name] = int(numbers[0])
        elif kind == "number":
            measured.numbers[name] = int(numbers[0])
        else:
            measured.offsets[name, part] = int(numbers[0])
            measured.field_sizes[name, part] = int(numbers[1])
    return measured
