# SPDX-License-Identifier: BSD-3-Clause
"""The public header of the library, sidestep.h, for ctypes: its numbers and structs.

Names are the header's without their prefix: ``struct sidestep_save_options`` is `SaveOptions`,
``SIDESTEP_TENSOR_REPLICATED`` is `TENSOR_REPLICATED`; ``struct sidestep_error`` is `ErrorInfo`.
What they mean is said there, and only there.  A test compiles the header and compares every
size, offset and number with this file, and `_prototypes` with every function.

Pointers that are handles, or whose bytes may hold zeros, are `c_void_p`.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure
from ctypes import c_bool as Bool
from ctypes import c_char_p as String
from ctypes import c_int as Int
from ctypes import c_int32 as Int32
from ctypes import c_int64 as Int64
from ctypes import c_size_t as Size
from ctypes import c_uint32 as Uint32
from ctypes import c_uint64 as Uint64
from ctypes import c_void_p as Pointer
from typing import Any, Optional, TypeVar

from ._abi_numbers import *  # noqa: F403 -- they are names of this module
from ._abi_numbers import GAINS
from ._abi_reports import ConvertOptions as ConvertOptions
from ._abi_reports import ConvertReport as ConvertReport
from ._abi_reports import Difference as Difference
from ._abi_reports import DiffOptions as DiffOptions
from ._abi_reports import DiffReport as DiffReport
from ._abi_reports import DoctorReport as DoctorReport
from ._abi_reports import Finding as Finding
from ._abi_reports import GcReport as GcReport
from ._abi_reports import OnProgress as OnProgress
from ._abi_reports import Problem as Problem
from ._abi_reports import Saving as Saving
from ._abi_reports import SavingList as SavingList
from ._abi_reports import TensorStats as TensorStats
from ._abi_reports import Unchecked as Unchecked
from ._abi_reports import VerifyReport as VerifyReport
from ._abi_reports import Writer as Writer
from ._abi_series import DUE_INTERVAL as DUE_INTERVAL
from ._abi_series import DUE_SAVE as DUE_SAVE
from ._abi_series import DUE_STOP as DUE_STOP
from ._abi_series import RETENTION_MAX as RETENTION_MAX
from ._abi_series import SERIES_ANY_RUN as SERIES_ANY_RUN
from ._abi_series import SERIES_CHECK_SPACE as SERIES_CHECK_SPACE
from ._abi_series import SERIES_INCREMENTAL as SERIES_INCREMENTAL
from ._abi_series import SERIES_MAKE_ROOM as SERIES_MAKE_ROOM
from ._abi_series import SERIES_REQUESTS as SERIES_REQUESTS
from ._abi_series import SERIES_SKIP_BUSY as SERIES_SKIP_BUSY
from ._abi_series import LatestReport as LatestReport
from ._abi_series import List as List
from ._abi_series import Listed as Listed
from ._abi_series import Metric as Metric
from ._abi_series import PassedOver as PassedOver
from ._abi_series import Retention as Retention
from ._abi_series import SeriesOptions as SeriesOptions
from ._abi_series import SeriesStatus as SeriesStatus

Bytes = bytes  # some structs have a field of this name

VERSION = "0.1.0"  # of the header that this file follows

# ---------------------------------------------------------------- structs

Handle = POINTER(Pointer)  # where a function puts a handle, or takes it from
Lengths = POINTER(Int64)  # shape, offsets, lengths or strides, in elements
Strings = POINTER(String)

AllReduceMax = CFUNCTYPE(Int, Pointer, POINTER(Uint64), Size)
Broadcast = CFUNCTYPE(Int, Pointer, Pointer, Size, Int32)
Gather = CFUNCTYPE(Int, Pointer, Pointer, Size, Pointer, POINTER(Size))
Scatter = CFUNCTYPE(Int, Pointer, Pointer, POINTER(Size), Pointer, Size)
OnEvent = CFUNCTYPE(None, Pointer, String)


class ErrorInfo(Structure):
    """``struct sidestep_error``: why a call failed, as the library says it."""

    status: int
    sys_errno: int
    rank: int
    where: Bytes
    message: Bytes
    _fields_ = [
        ("status", Int32),
        ("sys_errno", Int32),
        ("rank", Int32),
        ("reserved", Uint32 * 3),
        ("where", ctypes.c_char * 40),
        ("message", ctypes.c_char * 704),
    ]


class PathItem(Structure):
    """``struct sidestep_path_item``: a key of a dict, an integer key, or an index of a list."""

    key: Optional[Bytes]
    index: int
    flags: int
    _fields_ = [("key", String), ("index", Int64), ("flags", Uint32), ("reserved", Uint32)]


class Tensor(Structure):
    """``struct sidestep_tensor``: this rank's shard of one tensor."""

    struct_size: int
    name: Optional[Bytes]
    dtype: int
    ndim: int
    shape: Any
    offsets: Any
    lengths: Any
    strides: Any
    data: Optional[int]
    flags: int
    path_length: int
    path: Any
    turn: int
    reserved: int
    _fields_ = [
        ("struct_size", Size),
        ("name", String),
        ("dtype", Int),
        ("ndim", Uint32),
        ("shape", Lengths),
        ("offsets", Lengths),
        ("lengths", Lengths),
        ("strides", Lengths),
        ("data", Pointer),
        ("flags", Uint32),
        ("path_length", Uint32),
        ("path", POINTER(PathItem)),
        ("turn", Uint32),
        ("reserved", Uint32),
    ]


class Object(Structure):
    """``struct sidestep_object``: new contents of one object (`bytes` may hold zeros)."""

    index: int
    bytes: Any
    length: int
    kind: int
    _fields_ = [
        ("index", Uint64),
        ("bytes", String),
        ("length", Size),
        ("kind", Uint32),
        ("reserved", Uint32),
    ]


class Comm(Structure):
    """``struct sidestep_comm``: the collectives that the library calls."""

    struct_size: int
    context: Optional[int]
    rank: int
    size: int
    all_reduce_max: Any
    broadcast: Any
    gather: Any
    scatter: Any
    _fields_ = [
        ("struct_size", Size),
        ("context", Pointer),
        ("rank", Int32),
        ("size", Int32),
        ("all_reduce_max", AllReduceMax),
        ("broadcast", Broadcast),
        ("gather", Gather),
        ("scatter", Scatter),
    ]


class EngineOptions(Structure):
    """``struct sidestep_engine_options``."""

    struct_size: int
    comm: Any
    threads: int
    flags: int
    pool_bytes: int
    timeout_ms: int
    event_path: Optional[Bytes]
    on_event: Any
    event_context: Optional[int]
    io: int
    io_depth: int
    snapshot: int
    copy_ahead: int
    write_bytes_per_second: int
    background_cpus: Optional[Bytes]
    store: Optional[int]
    _fields_ = [
        ("struct_size", Size),
        ("comm", POINTER(Comm)),
        ("threads", Uint32),
        ("flags", Uint32),
        ("pool_bytes", Uint64),
        ("timeout_ms", Uint64),
        ("event_path", String),
        ("on_event", OnEvent),
        ("event_context", Pointer),
        ("io", Int),
        ("io_depth", Uint32),
        ("snapshot", Int),
        ("copy_ahead", Int),
        ("write_bytes_per_second", Uint64),
        ("background_cpus", String),
        ("store", Pointer),
    ]


class HugePages(Structure):
    """``struct sidestep_huge_pages``: how much of a state is on huge pages."""

    struct_size: int
    bytes: int
    huge_bytes: int
    took_ns: int
    sys_errno: int
    _fields_ = [
        ("struct_size", Size),
        ("bytes", Uint64),
        ("huge_bytes", Uint64),
        ("took_ns", Uint64),
        ("sys_errno", Int32),
        ("reserved", Uint32),
    ]


class Stream(Structure):
    """``struct sidestep_stream``."""

    device: int
    reserved: int
    stream: Any
    _fields_ = [
        ("device", Int32),
        ("reserved", Uint32),
        ("stream", Pointer),
    ]


class SaveOptions(Structure):
    """``struct sidestep_save_options``."""

    struct_size: int
    flags: int
    has_step: int
    step: int
    deadline_ms: int
    failure: Any
    spread_ms: int
    compress: int
    stream_count: int
    streams: Any
    codec: Optional[bytes]
    compress_level: int
    queue: int
    _fields_ = [
        ("struct_size", Size),
        ("flags", Uint32),
        ("has_step", Uint32),
        ("step", Uint64),
        ("deadline_ms", Uint64),
        ("failure", POINTER(ErrorInfo)),
        ("spread_ms", Uint64),
        ("compress", Int),
        ("stream_count", Uint32),
        ("streams", POINTER(Stream)),
        ("codec", String),
        ("compress_level", Uint32),
        ("queue", Uint32),
    ]


class Gain(Structure):
    """``struct sidestep_gain``: what compression gained, and what it cost."""

    raw_bytes: int
    stored_bytes: int
    encode_ns: int
    _fields_ = [
        ("raw_bytes", Uint64),
        ("stored_bytes", Uint64),
        ("encode_ns", Uint64),
    ]


class SaveInfo(Structure):
    """``struct sidestep_save_info``: how far a save is, and its times in nanoseconds."""

    struct_size: int
    state: int
    flags: int
    save_id: Bytes
    bytes_total: int
    bytes_staged: int
    bytes_written: int
    call_ns: int
    wait_ns: int
    plan_ns: int
    pool_ns: int
    stage_ns: int
    write_ns: int
    commit_ns: int
    held_ns: int
    release_ns: int
    snapshot: int
    cow_bytes: int
    copy_bytes: int
    faults: int
    faults_waited: int
    fault_bytes: int
    fault_ns: int
    fault_max_ns: int
    copy_reason: Bytes
    faults_disk: int
    pool_bytes: int
    ahead_bytes: int
    live_bytes: int
    raw_bytes: int
    stored_bytes: int
    encode_ns: int
    gains: Any
    device_bytes: int
    fenced_bytes: int
    device_ns: int
    fence_ns: int
    pin_reason: Bytes
    linked_bytes: int
    link_reason: Bytes
    huge_bytes: int
    huge_ns: int
    backed_off_ns: int
    _fields_ = [
        ("struct_size", Size),
        ("state", Int),
        ("flags", Uint32),
        ("save_id", ctypes.c_char * 40),
        ("bytes_total", Uint64),
        ("bytes_staged", Uint64),
        ("bytes_written", Uint64),
        ("call_ns", Uint64),
        ("wait_ns", Uint64),
        ("plan_ns", Uint64),
        ("pool_ns", Uint64),
        ("stage_ns", Uint64),
        ("write_ns", Uint64),
        ("commit_ns", Uint64),
        ("held_ns", Uint64),
        ("release_ns", Uint64),
        ("snapshot", Int),
        ("io_depth", Uint32),
        ("cow_bytes", Uint64),
        ("copy_bytes", Uint64),
        ("faults", Uint64),
        ("faults_waited", Uint64),
        ("fault_bytes", Uint64),
        ("fault_ns", Uint64),
        ("fault_max_ns", Uint64),
        ("copy_reason", ctypes.c_char * 128),
        ("faults_disk", Uint64),
        ("pool_bytes", Uint64),
        ("ahead_bytes", Uint64),
        ("live_bytes", Uint64),
        ("raw_bytes", Uint64),
        ("stored_bytes", Uint64),
        ("encode_ns", Uint64),
        ("gains", Gain * GAINS),
        ("device_bytes", Uint64),
        ("fenced_bytes", Uint64),
        ("device_ns", Uint64),
        ("fence_ns", Uint64),
        ("pin_reason", ctypes.c_char * 128),
        ("linked_bytes", Uint64),
        ("link_reason", ctypes.c_char * 128),
        ("huge_bytes", Uint64),
        ("huge_ns", Uint64),
        ("backed_off_ns", Uint64),
    ]


class LoadOptions(Structure):
    """``struct sidestep_load_options``."""

    struct_size: int
    flags: int
    verify: int
    failure: Any
    streams: Any
    stream_count: int
    reserved: int
    _fields_ = [
        ("struct_size", Size),
        ("flags", Uint32),
        ("verify", Int),
        ("failure", POINTER(ErrorInfo)),
        ("streams", POINTER(Stream)),
        ("stream_count", Uint32),
        ("reserved", Uint32),
    ]


class LoadReport(Structure):
    """``struct sidestep_load_report``: what a load found."""

    struct_size: int
    bytes_loaded: int
    bytes_read: int
    missing_count: int
    unexpected_count: int
    mismatched_count: int
    missing: Any
    unexpected: Any
    mismatched: Any
    owner: Optional[int]
    _fields_ = [
        ("struct_size", Size),
        ("bytes_loaded", Uint64),
        ("bytes_read", Uint64),
        ("missing_count", Size),
        ("unexpected_count", Size),
        ("mismatched_count", Size),
        ("missing", Strings),
        ("unexpected", Strings),
        ("mismatched", Strings),
        ("owner", Pointer),
    ]


class CheckpointInfo(Structure):
    """``struct sidestep_checkpoint_info``."""

    struct_size: int
    path: Bytes
    format: Bytes
    save_id: Bytes
    step: int
    world_size: int
    bytes: int
    tensor_count: int
    object_count: int
    shared_bytes: int
    damaged_count: int
    damage: Optional[Bytes]
    unread_count: int
    unread: Optional[Bytes]
    unread_status: int
    reserved2: int
    _fields_ = [
        ("struct_size", Size),
        ("path", String),
        ("format", String),
        ("save_id", String),
        ("step", Int64),
        ("world_size", Uint32),
        ("reserved", Uint32),
        ("bytes", Uint64),
        ("tensor_count", Size),
        ("object_count", Size),
        ("shared_bytes", Uint64),
        ("damaged_count", Size),
        ("damage", String),
        ("unread_count", Size),
        ("unread", String),
        ("unread_status", Int),
        ("reserved2", Uint32),
    ]


class Chunk(Structure):
    """``struct sidestep_chunk``: one stored box of a tensor."""

    offsets: Any
    lengths: Any
    file: Bytes
    file_offset: int
    file_bytes: int
    transform: Optional[Bytes]
    _fields_ = [
        ("offsets", Lengths),
        ("lengths", Lengths),
        ("file", String),
        ("file_offset", Uint64),
        ("file_bytes", Uint64),
        ("transform", String),
    ]


class Entry(Structure):
    """``struct sidestep_entry``: a tensor or object of a checkpoint."""

    name: Bytes
    is_object: bool
    dtype: int
    dtype_name: Optional[Bytes]
    ndim: int
    shape: Any
    bytes: int
    chunk_count: int
    chunks: Any
    path_length: int
    path: Any
    _fields_ = [
        ("name", String),
        ("is_object", Bool),
        ("dtype", Int),
        ("dtype_name", String),
        ("ndim", Uint32),
        ("shape", Lengths),
        ("bytes", Uint64),
        ("chunk_count", Size),
        ("chunks", POINTER(Chunk)),
        ("path_length", Uint32),
        ("path", POINTER(PathItem)),
    ]


class VerifyOptions(Structure):
    """``struct sidestep_verify_options``."""

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


SizedStruct = TypeVar("SizedStruct", bound=Structure)


def sized(kind: type[SizedStruct]) -> SizedStruct:
    """A zeroed struct with its ``struct_size`` set, as the header's ``..._INIT`` makes it."""
    return kind(ctypes.sizeof(kind))
