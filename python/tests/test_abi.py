# SPDX-License-Identifier: BSD-3-Clause
"""The generated module _c.abi says what sidestep.h says: every struct, number and function."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from header import ROOT, Function, Header, Measured, measure, parse

from sidestep._c import abi
from sidestep._c.abi import PROTOTYPES
from sidestep._c.library import lib

COMPILER = shutil.which("gcc") or shutil.which("cc")
PLAIN = {
    "void": None,
    "_Bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
}
# Where tools/make-abi departs on purpose from the type that the rules below give.
DEPARTURES = {
    # bytes that may hold zeros, by address: c_char_p would cut them
    ("sidestep_value_get_bytes", "result"): ctypes.c_void_p,
    # takes bytes, and keeps them alive; never read back
    ("sidestep_object", "bytes"): ctypes.c_char_p,
    # an array or the address of one
    ("sidestep_state_dict_set_data", 1): ctypes.c_void_p,
}


def class_name(c_name: str) -> str:
    """sidestep_save_options -> SaveOptions."""
    if c_name == "sidestep_error":
        return "ErrorInfo"
    return "".join(part.capitalize() for part in c_name.split("_")[1:])


def ctype_of(text: str | Function, abi: Any, header: Header) -> Any:
    """The ctypes type for a C type."""
    if isinstance(text, Function):
        parameters = [ctype_of(part, abi, header) for part in text.parameters]
        return ctypes.CFUNCTYPE(ctype_of(text.result, abi, header), *parameters)
    array = re.fullmatch(r"(char|uint32_t|struct \w+) \[(\w+)\]", text)
    if array:
        kind = array.group(1)
        item = ctypes.c_char if kind == "char" else ctype_of(kind, abi, header)
        count = array.group(2)
        return item * (int(count) if count.isdigit() else getattr(abi, count[len("SIDESTEP_") :]))
    text = " ".join(re.sub(r"\b(?:const|volatile)\b", " ", text).split())
    base, stars = text.rstrip("* "), text.count("*")
    kind: Any
    if base in ("char", "void") and stars:
        kind = ctypes.c_char_p if base == "char" else ctypes.c_void_p
        stars -= 1
    elif base.startswith("struct ") and base[7:] not in header.structs:  # a handle
        kind = ctypes.c_void_p
        stars -= 1
    elif base.startswith("struct "):
        kind = getattr(abi, class_name(base[7:]))
    else:
        kind = ctypes.c_int if base.startswith("enum ") else PLAIN[base]
    for _ in range(stars):
        kind = ctypes.POINTER(kind)
    return kind


def as_parameter(kind: Any) -> Any:
    """An array that is a parameter is a pointer."""
    if isinstance(kind, type) and issubclass(kind, ctypes.Array):
        return ctypes.c_char_p if kind._type_ is ctypes.c_char else ctypes.POINTER(kind._type_)
    return kind


def wrong_structs(abi: Any, header: Header, measured: Measured) -> list[str]:
    wrong = []
    for name, fields in header.structs.items():
        ours = getattr(abi, class_name(name), None)
        if ours is None:
            wrong.append(f"struct {name} is missing")
            continue
        if ctypes.sizeof(ours) != measured.sizes[name]:
            wrong.append(f"{name}: {ctypes.sizeof(ours)} bytes, not {measured.sizes[name]}")
        if [part for part, _ in ours._fields_] != list(fields):
            wrong.append(f"{name}: has other fields: {[part for part, _ in ours._fields_]}")
            continue
        for part, kind in ours._fields_:
            place = getattr(ours, part)
            if place.offset != measured.offsets[name, part]:
                wrong.append(f"{name}.{part}: at {place.offset}")
            if place.size != measured.field_sizes[name, part]:
                wrong.append(f"{name}.{part}: {place.size} bytes")
            expected = DEPARTURES.get((name, part)) or ctype_of(fields[part], abi, header)
            if kind is not expected:
                wrong.append(f"{name}.{part}: is a {kind.__name__}, not a {expected.__name__}")
    return wrong


def wrong_numbers(abi: Any, header: Header, measured: Measured) -> list[str]:
    wrong = []
    for c_name, members in header.enums.items():
        ours = {item.name: int(item) for item in getattr(abi, class_name(c_name))}
        theirs = {name[len("SIDESTEP_") :]: measured.numbers[name] for name in members}
        wrong += [f"{c_name}: {pair}" for pair in set(ours.items()) ^ set(theirs.items())]
    version = [measured.numbers[f"SIDESTEP_VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH")]
    if ".".join(map(str, version)) != abi.VERSION:
        wrong.append(f"VERSION is {abi.VERSION}, not {version}")
    for c_name in header.numbers:
        name = c_name[len("SIDESTEP_") :]
        if not name.startswith("VERSION_") and getattr(abi, name, None) != measured.numbers[c_name]:
            wrong.append(f"{name} is {getattr(abi, name, None)}, not {measured.numbers[c_name]}")
    return wrong


def wrong_prototypes(prototypes: dict[str, Any], header: Header) -> list[str]:
    wrong = [f"{name}: in one only" for name in set(header.functions) ^ set(prototypes)]
    for name in set(header.functions) & set(prototypes):
        function = header.functions[name]
        result, parameters = prototypes[name]
        if len(parameters) != len(function.parameters):
            wrong.append(f"{name}: {len(parameters)} parameters, not {len(function.parameters)}")
        pairs = [("result", result, function.result)]
        pairs += [(i, *pair) for i, pair in enumerate(zip(parameters, function.parameters))]
        for place, ours, theirs in pairs:
            expected = DEPARTURES.get((name, place)) or ctype_of(theirs, abi, header)
            expected = as_parameter(expected)
            if ours is not expected:
                wrong.append(f"{name}, {place}: is {ours}, not {expected}")
    return wrong


@pytest.fixture(scope="module")
def header() -> Header:
    if COMPILER is None:
        pytest.skip("no C compiler")
    return parse(COMPILER)


@pytest.fixture(scope="module")
def measured(header: Header, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure(COMPILER, header, tmp_path_factory.mktemp("abi"))


def test_structs(header: Header, measured: Measured) -> None:
    assert wrong_structs(abi, header, measured) == []
    assert len(header.structs) >= 20
    assert len(measured.offsets) >= 130
    ours = {
        name
        for name, kind in vars(abi).items()
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure)
    } - {"Structure", "Sized"}
    assert ours == {class_name(name) for name in header.structs}


def test_numbers(header: Header, measured: Measured) -> None:
    assert wrong_numbers(abi, header, measured) == []
    assert len(header.enums) >= 6
    assert len(header.numbers) >= 15


def test_prototypes(header: Header) -> None:
    assert wrong_prototypes(PROTOTYPES, header) == []
    assert len(header.functions) >= 65


def test_the_library_has_all() -> None:
    library = lib()
    for name, (result, parameters) in PROTOTYPES.items():
        assert getattr(library, name).restype is result
        assert getattr(library, name).argtypes == parameters


def test_sized() -> None:
    assert abi.SaveInfo().struct_size == ctypes.sizeof(abi.SaveInfo)
    assert abi.Tensor().name is None
    assert abi.SaveOptions(step=3).step == 3


def test_a_field_that_does_not_exist_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        abi.SaveOptions().stepp = 1


def test_the_module_is_made_of_this_header(tmp_path: Path) -> None:
    """What the tests run with is what tools/make-abi writes now."""
    pytest.importorskip("pycparser")
    if COMPILER is None:
        pytest.skip("no C compiler")
    made = tmp_path / "abi.py"
    subprocess.run([sys.executable, str(ROOT / "tools" / "make-abi"), str(made)], check=True)
    assert made.read_text() == Path(abi.__file__).read_text()


def with_fields(kind: type[ctypes.Structure], fields: list[Any]) -> type[ctypes.Structure]:
    return type(kind.__name__, (ctypes.Structure,), {"_fields_": fields})


# Each is wrong in one way, and named in what is found.
WRONG_STRUCTS = {
    "a field is missing": lambda fields: fields[:-1],
    "a field more": lambda fields: [*fields, ("more", ctypes.c_int)],
    "two in the wrong order": lambda fields: [fields[1], fields[0], *fields[2:]],
    "too narrow": lambda fields: [
        (name, ctypes.c_uint32 if name == "step" else kind) for name, kind in fields
    ],
    "a sign": lambda fields: [
        (name, ctypes.c_int32 if name == "flags" else kind) for name, kind in fields
    ],
    "a pointer to another": lambda fields: [
        (name, ctypes.POINTER(abi.PathItem) if name == "failure" else kind) for name, kind in fields
    ],
}


@pytest.mark.parametrize("how", WRONG_STRUCTS)
def test_a_wrong_struct_is_found(how: str, header: Header, measured: Measured) -> None:
    wrong = with_fields(abi.SaveOptions, WRONG_STRUCTS[how](list(abi.SaveOptions._fields_)))
    other = SimpleNamespace(**{**vars(abi), "SaveOptions": wrong})
    found = wrong_structs(other, header, measured)
    assert found
    assert all("sidestep_save_options" in problem for problem in found)


@pytest.mark.parametrize(
    "name, prototype",
    [
        ("sidestep_save", (ctypes.c_int, [ctypes.c_void_p] * 5)),
        ("sidestep_value_item", (ctypes.c_int, [ctypes.c_void_p, ctypes.c_size_t])),
        ("sidestep_value_int", (ctypes.c_void_p, [ctypes.c_int])),
        ("sidestep_of_nothing", (None, [])),
    ],
)
def test_a_wrong_prototype_is_found(name: str, prototype: Any, header: Header) -> None:
    found = wrong_prototypes({**PROTOTYPES, name: prototype}, header)
    assert found
    assert all(problem.startswith(name) for problem in found)


def test_a_wrong_number_is_found(header: Header, measured: Measured) -> None:
    other = SimpleNamespace(**{**vars(abi), "SAVE_VOLATILE": 3, "VERSION": "0.0.9"})
    assert len(wrong_numbers(other, header, measured)) == 2
