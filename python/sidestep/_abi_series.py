# SPDX-License-Identifier: BSD-3-Clause
"""The part of `_abi` that is about series and listings; `_abi` has all of its names."""

from __future__ import annotations

from ctypes import POINTER, Structure
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

Bytes = bytes  # some structs have a field of this name

RETENTION_MAX = 1
SERIES_REQUESTS = 1
SERIES_SKIP_BUSY = 2
SERIES_ANY_RUN = 4
SERIES_CHECK_SPACE = 8
SERIES_MAKE_ROOM = 16
SERIES_INCREMENTAL = 32
DUE_INTERVAL = 1
DUE_SAVE = 2
DUE_STOP = 4


class Retention(Structure):
    """``struct sidestep_retention``: which checkpoints stay."""

    struct_size: int
    flags: int
    keep_last: int
    keep_every: int
    keep_best: int
    metric: Optional[Bytes]
    _fields_ = [
        ("struct_size", Size),
        ("flags", Uint32),
        ("keep_last", Uint32),
        ("keep_every", Uint64),
        ("keep_best", Uint32),
        ("reserved", Uint32),
        ("metric", String),
    ]


class SeriesOptions(Structure):
    """``struct sidestep_series_options``."""

    struct_size: int
    flags: int
    max_restarts: int
    prefix: Optional[Bytes]
    retention: Any
    interval_steps: int
    interval_ms: int
    check_ms: int
    mtbf_ms: int
    max_lost: float
    name: Optional[Bytes]
    _fields_ = [
        ("struct_size", Size),
        ("flags", Uint32),
        ("max_restarts", Uint32),
        ("prefix", String),
        ("retention", POINTER(Retention)),
        ("interval_steps", Uint64),
        ("interval_ms", Uint64),
        ("check_ms", Uint64),
        ("mtbf_ms", Uint64),
        ("max_lost", Double),
        ("name", String),
    ]


class SeriesStatus(Structure):
    """``struct sidestep_series_status``."""

    struct_size: int
    interval_ms: int
    skipped: int
    agreements: int
    lost: float
    queued: int
    _fields_ = [
        ("struct_size", Size),
        ("interval_ms", Uint64),
        ("skipped", Uint64),
        ("agreements", Uint64),
        ("lost", Double),
        ("queued", Uint64),
    ]


class Metric(Structure):
    """``struct sidestep_metric``."""

    name: Bytes
    value: float
    _fields_ = [("name", String), ("value", Double)]


class Listed(Structure):
    """``struct sidestep_listed``: one directory under a root."""

    name: Bytes
    path: Bytes
    state_name: Bytes
    state: int
    ranks: int
    step: int
    bytes: int
    files: int
    saved_at: int
    save_id: Optional[Bytes]
    run_id: Optional[Bytes]
    incarnation: int
    is_pinned: bool
    is_abandoned: bool
    is_renamed: bool
    tag_count: int
    metric_count: int
    shared_files: int
    tags: Any
    metrics: Any
    layout: Optional[Bytes]
    reason: Optional[Bytes]
    naming: Optional[Bytes]
    target: Optional[Bytes]
    status: int
    reserved: int
    _fields_ = [
        ("name", String),
        ("path", String),
        ("state_name", String),
        ("state", Int),
        ("ranks", Uint32),
        ("step", Int64),
        ("bytes", Uint64),
        ("files", Uint64),
        ("saved_at", Int64),
        ("save_id", String),
        ("run_id", String),
        ("incarnation", Uint64),
        ("is_pinned", Bool),
        ("is_abandoned", Bool),
        ("is_renamed", Bool),
        ("tag_count", Uint32),
        ("metric_count", Uint32),
        ("shared_files", Uint32),
        ("tags", POINTER(String)),
        ("metrics", POINTER(Metric)),
        ("layout", String),
        ("reason", String),
        ("naming", String),
        ("target", String),
        ("status", Int),
        ("reserved", Uint32),
    ]


class List(Structure):
    """``struct sidestep_list``: what lies under a root."""

    count: int
    entries: Any
    owner: Optional[int]
    _fields_ = [("count", Size), ("entries", POINTER(Listed)), ("owner", Pointer)]


class PassedOver(Structure):
    """``struct sidestep_passed_over``: a checkpoint that was not taken, and why."""

    path: Bytes
    state_name: Bytes
    reason: Bytes
    step: int
    status: int
    reserved: int
    _fields_ = [
        ("path", String),
        ("state_name", String),
        ("reason", String),
        ("step", Int64),
        ("status", Int),
        ("reserved", Uint32),
    ]


class LatestReport(Structure):
    """``struct sidestep_latest_report``: the newest checkpoint under a root."""

    path: Optional[Bytes]
    layout: Optional[Bytes]
    step: int
    saved_at: int
    passed_count: int
    passed: Any
    owner: Optional[int]
    _fields_ = [
        ("path", String),
        ("layout", String),
        ("step", Int64),
        ("saved_at", Int64),
        ("passed_count", Size),
        ("passed", POINTER(PassedOver)),
        ("owner", Pointer),
    ]
