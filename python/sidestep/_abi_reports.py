# SPDX-License-Identifier: BSD-3-Clause
"""What the header's functions that look at things report: the rest of `_abi`, which exports it."""

from __future__ import annotations

from ctypes import POINTER, Structure
from ctypes import c_bool as Bool
from ctypes import c_char_p as String
from ctypes import c_int as Int
from ctypes import c_size_t as Size
from ctypes import c_uint32 as Uint32
from ctypes import c_uint64 as Uint64
from ctypes import c_void_p as Pointer
from typing import Any, Optional

Strings = POINTER(String)


class Problem(Structure):
    """``struct sidestep_problem``: one thing that verification found wrong."""

    file: Optional[bytes]
    name: Optional[bytes]
    kind: bytes
    message: bytes
    _fields_ = [("file", String), ("name", String), ("kind", String), ("message", String)]


class VerifyReport(Structure):
    """``struct sidestep_verify_report``."""

    ok: bool
    unlisted_count: int
    checked_bytes: int
    problem_count: int
    problems: Any
    owner: Optional[int]
    _fields_ = [
        ("ok", Bool),
        ("unlisted_count", Uint32),
        ("checked_bytes", Uint64),
        ("problem_count", Size),
        ("problems", POINTER(Problem)),
        ("owner", Pointer),
    ]


class GcReport(Structure):
    """``struct sidestep_gc_report``."""

    removed_count: int
    removed: Any
    kept_count: int
    kept: Any
    bytes: int
    owner: Optional[int]
    _fields_ = [
        ("removed_count", Size),
        ("removed", Strings),
        ("kept_count", Size),
        ("kept", Strings),
        ("bytes", Uint64),
        ("owner", Pointer),
    ]


class Finding(Structure):
    """``struct sidestep_finding``."""

    name: bytes
    state_name: bytes
    state: int
    reserved: int
    text: bytes
    fix: Optional[bytes]
    _fields_ = [
        ("name", String),
        ("state_name", String),
        ("state", Int),
        ("reserved", Uint32),
        ("text", String),
        ("fix", String),
    ]


class DoctorReport(Structure):
    """``struct sidestep_doctor_report``."""

    count: int
    findings: Any
    owner: Optional[int]
    _fields_ = [
        ("count", Size),
        ("findings", POINTER(Finding)),
        ("owner", Pointer),
    ]
