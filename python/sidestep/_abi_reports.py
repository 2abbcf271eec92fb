# SPDX-License-Identifier: BSD-3-Clause
"""What the header's functions that look at things report: the rest of `_abi`, which exports it."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure
from ctypes import c_bool as Bool
from ctypes import c_char_p as String
from ctypes import c_double as Double
from ctypes import c_int as Int
from ctypes import c_int64 as Int64
from ctypes import c_size_t as Size
from ctypes import c_uint32 as Uint32
from ctypes import c_uint64 as Uint64
from ctypes import c_void_p as Pointer
from typing import Any, Optional

Strings = POINTER(String)
OnProgress = CFUNCTYPE(None, Pointer, Uint64, Uint64)


class Problem(Structure):
    """``struct sidestep_problem``: one thing that verification found wrong."""

    file: Optional[bytes]
    name: Optional[bytes]
    kind: bytes
    message: bytes
    _fields_ = [("file", String), ("name", String), ("kind", String), ("message", String)]


class Unchecked(Structure):
    """``struct sidestep_unchecked``: a file without checksums."""

    file: bytes
    what: bytes
    _fields_ = [("file", String), ("what", String)]


class VerifyReport(Structure):
    """``struct sidestep_verify_report``."""

    ok: bool
    unlisted_count: int
    checked_bytes: int
    problem_count: int
    problems: Any
    owner: Optional[int]
    status: int
    reserved: int
    unchecked_count: int
    unchecked: Any
    _fields_ = [
        ("ok", Bool),
        ("unlisted_count", Uint32),
        ("checked_bytes", Uint64),
        ("problem_count", Size),
        ("problems", POINTER(Problem)),
        ("owner", Pointer),
        ("status", Int),
        ("reserved", Uint32),
        ("unchecked_count", Size),
        ("unchecked", POINTER(Unchecked)),
    ]


class Difference(Structure):
    """``struct sidestep_difference``: a name that two checkpoints do not have alike."""

    name: bytes
    kind: bytes
    message: bytes
    element_count: int
    max_abs: float
    max_rel: float
    ndim: int
    reserved: int
    first: Any
    _fields_ = [
        ("name", String),
        ("kind", String),
        ("message", String),
        ("element_count", Uint64),
        ("max_abs", Double),
        ("max_rel", Double),
        ("ndim", Uint32),
        ("reserved", Uint32),
        ("first", POINTER(Int64)),
    ]


class DiffReport(Structure):
    """``struct sidestep_diff_report``."""

    same: bool
    reserved: int
    same_count: int
    same_by_hash: int
    read_bytes: int
    difference_count: int
    differences: Any
    owner: Optional[int]
    _fields_ = [
        ("same", Bool),
        ("reserved", Uint32),
        ("same_count", Size),
        ("same_by_hash", Size),
        ("read_bytes", Uint64),
        ("difference_count", Size),
        ("differences", POINTER(Difference)),
        ("owner", Pointer),
    ]


class DiffOptions(Structure):
    """``struct sidestep_diff_options``."""

    struct_size: int
    threads: int
    flags: int
    on_progress: Any
    context: Optional[int]
    cancel: Any
    _fields_ = [
        ("struct_size", Size),
        ("threads", Uint32),
        ("flags", Uint32),
        ("on_progress", OnProgress),
        ("context", Pointer),
        ("cancel", POINTER(Bool)),
    ]


class Writer(Structure):
    """``struct sidestep_writer``: one rank of a save, as storage shows it."""

    rank: int
    reserved: int
    state_name: bytes
    bytes: int
    written_bytes: int
    _fields_ = [
        ("rank", Uint32),
        ("reserved", Uint32),
        ("state_name", String),
        ("bytes", Uint64),
        ("written_bytes", Uint64),
    ]


class Saving(Structure):
    """``struct sidestep_saving``: a save that is under way."""

    name: Optional[bytes]
    path: bytes
    save_id: bytes
    owner: Optional[bytes]
    step: int
    is_dead: bool
    rank_count: int
    done_count: int
    failed_count: int
    bytes: int
    written_bytes: int
    expected_bytes: int
    expected_ranks: int
    reserved: int
    writers: Any
    _fields_ = [
        ("name", String),
        ("path", String),
        ("save_id", String),
        ("owner", String),
        ("step", Int64),
        ("is_dead", Bool),
        ("rank_count", Uint32),
        ("done_count", Uint32),
        ("failed_count", Uint32),
        ("bytes", Uint64),
        ("written_bytes", Uint64),
        ("expected_bytes", Uint64),
        ("expected_ranks", Uint32),
        ("reserved", Uint32),
        ("writers", POINTER(Writer)),
    ]


class SavingList(Structure):
    """``struct sidestep_saving_list``."""

    count: int
    entries: Any
    owner: Optional[int]
    unread_count: int
    unread: Any
    unread_status: int
    reserved: int
    _fields_ = [
        ("count", Size),
        ("entries", POINTER(Saving)),
        ("owner", Pointer),
        ("unread_count", Size),
        ("unread", Strings),
        ("unread_status", Int),
        ("reserved", Uint32),
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


class TensorStats(Structure):
    """``struct sidestep_tensor_stats``."""

    name: bytes
    element_count: int
    nan_count: int
    inf_count: int
    has_range: int
    has_mean: int
    min: float
    max: float
    mean: float
    _fields_ = [
        ("name", String),
        ("element_count", Uint64),
        ("nan_count", Uint64),
        ("inf_count", Uint64),
        ("has_range", Uint32),
        ("has_mean", Uint32),
        ("min", Double),
        ("max", Double),
        ("mean", Double),
    ]


class ConvertOptions(Structure):
    """``struct sidestep_convert_options``."""

    struct_size: int
    to: int
    objects: int
    flags: int
    ranks: int
    threads: int
    dtype: int
    max_shard_bytes: int
    include: Any
    include_count: int
    exclude: Any
    exclude_count: int
    rename: Any
    rename_count: int
    mapping: Optional[bytes]
    compress: Optional[bytes]
    on_progress: Any
    context: Optional[int]
    cancel: Any
    _fields_ = [
        ("struct_size", Size),
        ("to", Int),
        ("objects", Int),
        ("flags", Uint32),
        ("ranks", Uint32),
        ("threads", Uint32),
        ("dtype", Int),
        ("max_shard_bytes", Uint64),
        ("include", Strings),
        ("include_count", Size),
        ("exclude", Strings),
        ("exclude_count", Size),
        ("rename", Strings),
        ("rename_count", Size),
        ("mapping", String),
        ("compress", String),
        ("on_progress", OnProgress),
        ("context", Pointer),
        ("cancel", POINTER(Bool)),
    ]


class ConvertReport(Structure):
    """``struct sidestep_convert_report``."""

    to: bytes
    tensor_count: int
    object_count: int
    tensor_bytes: int
    bytes_read: int
    file_count: int
    files: Any
    left_out_count: int
    left_out: Any
    aside: Optional[bytes]
    overflow_count: int
    overflows: Any
    lost_count: int
    lost: Any
    owner: Optional[int]
    lost_status: int
    reserved: int
    _fields_ = [
        ("from", String),
        ("to", String),
        ("tensor_count", Size),
        ("object_count", Size),
        ("tensor_bytes", Uint64),
        ("bytes_read", Uint64),
        ("file_count", Size),
        ("files", Strings),
        ("left_out_count", Size),
        ("left_out", Strings),
        ("aside", String),
        ("overflow_count", Size),
        ("overflows", Strings),
        ("lost_count", Size),
        ("lost", Strings),
        ("owner", Pointer),
        ("lost_status", Int),
        ("reserved", Uint32),
    ]
