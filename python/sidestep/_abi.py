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
from enum import IntEnum
from typing import Any, Optional, TypeVar

from ._abi_series import DUE_INTERVAL as DUE_INTERVAL
from ._abi_series import DUE_SAVE as DUE_SAVE
from ._abi_series import DUE_STOP as DUE_STOP
from ._abi_series import RETENTION_MAX as RETENTION_MAX
from ._abi_series import SERIES_ANY_RUN as SERIES_ANY_RUN
from ._abi_series import SERIES_CHECK_SPACE as SERIES_CHECK_SPACE
from ._abi_series import SERIES_MAKE_ROOM as SERIES_MAKE_ROOM
from ._abi_series import SERIES_REQUESTS as SERIES_REQUESTS
from ._abi_series import SERIES_SKIP_BUSY as SERIES_SKIP_BUSY
from ._abi_series import List as List
from ._abi_series import Listed as Listed
from ._abi_series import Metric as Metric
from ._abi_series import Retention as Retention
from ._abi_series import SeriesOptions as SeriesOptions
from ._abi_series import SeriesStatus as SeriesStatus

Bytes = bytes  # some structs have a field of this name

VERSION = "0.1.0"  # of the header that this file follows

# ---------------------------------------------------------------- numbers


class Status(IntEnum):
    """Why a call failed (``enum sidestep_status``)."""

    OK = 0
    EINVAL = 1
    ENOMEM = 2
    EIO = 3
    ENOSPC = 4
    EPERM = 5
    ENOTFOUND = 6
    EEXISTS = 7
    ECORRUPT = 8
    EUNSAFE = 9
    EUNCOMMITTED = 10
    EUNSUPPORTED = 11
    EMISMATCH = 12
    ELOCKED = 13
    EBUSY = 14
    EPEER = 15
    EDISAGREE = 16
    ETIMEDOUT = 17
    EABORTED = 18
    EUNKNOWN = 19
    EFORKED = 20
    ECANCELLED = 21


class Dtype(IntEnum):
    """Element types (``enum sidestep_dtype``); the names are torch's in capitals."""

    DTYPE_NONE = 0
    FLOAT64 = 1
    FLOAT32 = 2
    FLOAT16 = 3
    BFLOAT16 = 4
    COMPLEX64 = 5
    COMPLEX128 = 6
    INT8 = 7
    INT16 = 8
    INT32 = 9
    INT64 = 10
    UINT8 = 11
    BOOL = 12
    UINT16 = 13
    UINT32 = 14
    UINT64 = 15
    COMPLEX32 = 16
    FLOAT8_E4M3FN = 17
    FLOAT8_E5M2 = 18
    FLOAT8_E4M3FNUZ = 19
    FLOAT8_E5M2FNUZ = 20
    FLOAT8_E8M0FNU = 21
    FLOAT4_E2M1FN_X2 = 22
    BITS8 = 23
    BITS1X8 = 24
    BITS2X4 = 25
    BITS4X2 = 26
    BITS16 = 27
    BCOMPLEX32 = 28
    DTYPE_END = 29


class ValueKind(IntEnum):
    """What a value is (``enum sidestep_value_kind``)."""

    VALUE_NONE = 0
    VALUE_BOOL = 1
    VALUE_INT = 2
    VALUE_FLOAT = 3
    VALUE_STR = 4
    VALUE_BYTES = 5
    VALUE_LIST = 6
    VALUE_TUPLE = 7
    VALUE_DICT = 8
    VALUE_OPAQUE = 9


class SaveState(IntEnum):
    """How far a save is (``enum sidestep_save_state``)."""

    SAVE_STAGING = 0
    SAVE_STAGED = 1
    SAVE_RELEASED = 2
    SAVE_WRITTEN = 3
    SAVE_COMMITTED = 4
    SAVE_ABORTED = 5
    SAVE_UNKNOWN = 6


class VerifyMode(IntEnum):
    """What a load checks (``enum sidestep_verify_mode``)."""

    VERIFY_READ = 0
    VERIFY_BEFORE = 1
    VERIFY_STRUCTURE = 2


class Presence(IntEnum):
    """What a directory is (``enum sidestep_presence``)."""

    COMMITTED = 0
    SAVING = 1
    TRASH = 2
    BAD = 3
    FOREIGN = 4
    UNREADABLE = 5


MAX_NDIM = 64
MAX_NAME = 4096
MAX_PATH_ITEMS = 64
MAX_RANKS = 1048576

PATH_INT_KEY = 1
TENSOR_REPLICATED = 1
TENSOR_REQUIRES_GRAD = 2
OBJECT_PICKLE = 1
OBJECT_STORED = 2
ENGINE_NO_DIRECT_IO = 1
SAVE_NOWAIT = 1
SAVE_NO_REPLACE = 2
SAVE_PLAN_REUSED = 1
SAVE_STREAMED = 2
SAVE_VOLATILE = 4
SAVE_DIRECT_IO = 8
LOAD_PARTIAL = 1
LOAD_STRICT = 2
GC_DRY_RUN = 1

# ---------------------------------------------------------------- structs

Handle = POINTER(Pointer)  # where a function puts a handle, or takes it from
Lengths = POINTER(Int64)  # shape, offsets, lengths or strides, in elements
Strings = POINTER(String)

AllReduceMax = CFUNCTYPE(Int, Pointer, POINTER(Uint64), Size)
Broadcast = CFUNCTYPE(Int, Pointer, Pointer, Size, Int32)
Gather = CFUNCTYPE(Int, Pointer, Pointer, Size, Pointer, POINTER(Size))
Scatter = CFUNCTYPE(Int, Pointer, Pointer, POINTER(Size), Pointer, Size)
OnEvent = CFUNCTYPE(None, Pointer, String)
OnProgress = CFUNCTYPE(None, Pointer, Uint64, Uint64)


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
    ]


class SaveOptions(Structure):
    """``struct sidestep_save_options``."""

    struct_size: int
    flags: int
    has_step: int
    step: int
    deadline_ms: int
    failure: Any
    _fields_ = [
        ("struct_size", Size),
        ("flags", Uint32),
        ("has_step", Uint32),
        ("step", Uint64),
        ("deadline_ms", Uint64),
        ("failure", POINTER(ErrorInfo)),
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
    ]


class LoadOptions(Structure):
    """``struct sidestep_load_options``."""

    struct_size: int
    flags: int
    verify: int
    failure: Any
    _fields_ = [
        ("struct_size", Size),
        ("flags", Uint32),
        ("verify", Int),
        ("failure", POINTER(ErrorInfo)),
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


class Problem(Structure):
    """``struct sidestep_problem``: one thing that verification found wrong."""

    file: Optional[Bytes]
    name: Optional[Bytes]
    kind: Bytes
    message: Bytes
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


SizedStruct = TypeVar("SizedStruct", bound=Structure)


def sized(kind: type[SizedStruct]) -> SizedStruct:
    """A zeroed struct with its ``struct_size`` set, as the header's ``..._INIT`` makes it."""
    return kind(ctypes.sizeof(kind))
