# SPDX-License-Identifier: BSD-3-Clause
"""The numbers of sidestep.h: enums and constants, which `_abi` has as its own."""

from __future__ import annotations

from enum import IntEnum


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
    EDEVICE = 22


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


class Io(IntEnum):
    """How bytes go to storage and back (``enum sidestep_io``)."""

    IO_AUTO = 0
    IO_URING = 1
    IO_THREADS = 2
    IO_BUFFERED = 3


class Allowed(IntEnum):
    """Whether a machine allows something (``enum sidestep_allowed``)."""

    ALLOWED_NO = 0
    ALLOWED_PARTLY = 1
    ALLOWED_YES = 2
    ALLOWED_FACT = 3


class Compress(IntEnum):
    """``enum sidestep_compress``."""

    COMPRESS_NONE = 0
    COMPRESS_ZSTD = 1
    COMPRESS_PLANES = 2
    COMPRESS_AUTO = 3


class CopyAhead(IntEnum):
    """``enum sidestep_copy_ahead``."""

    COPY_AHEAD_AUTO = 0
    COPY_AHEAD_ALWAYS = 1
    COPY_AHEAD_NEVER = 2


class Snapshot(IntEnum):
    """How a save holds the state still (``enum sidestep_snapshot``)."""

    SNAPSHOT_AUTO = 0
    SNAPSHOT_COPY = 1
    SNAPSHOT_COW = 2


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
    COMPLETE = 6
    INCOMPLETE = 7
    DEAD = 8
    DAMAGED = 9


class Format(IntEnum):
    """What holds tensors (``enum sidestep_format``)."""

    FORMAT_AUTO = 0
    FORMAT_DCP = 1
    FORMAT_SAFETENSORS = 2
    FORMAT_TORCH = 3
    FORMAT_NPZ = 4


class Objects(IntEnum):
    """What becomes of objects that a format cannot hold (``enum sidestep_objects``)."""

    OBJECTS_REFUSE = 0
    OBJECTS_SKIP = 1
    OBJECTS_ASIDE = 2


MAX_NDIM = 64
MAX_NAME = 4096
MAX_PATH_ITEMS = 64
MAX_RANKS = 1048576

PATH_INT_KEY = 1
TENSOR_REPLICATED = 1
TENSOR_REQUIRES_GRAD = 2
TENSOR_PINNED = 4
TENSOR_CPU_WRITES = 8
TENSOR_FENCED = 16
OBJECT_PICKLE = 1
OBJECT_STORED = 2
ENGINE_NO_DIRECT_IO = 1
ENGINE_USER_MODE_FAULTS = 2
ENGINE_KEEP_PRIORITY = 4
ENGINE_KEEP_PACE = 8
SAVE_NOWAIT = 1
SAVE_NO_REPLACE = 2
SAVE_STILL = 4
SAVE_NOT_STICKY = 8
SAVE_PLAN_REUSED = 1
SAVE_STREAMED = 2
SAVE_VOLATILE = 4
SAVE_DIRECT_IO = 8
SAVE_URING = 16
SAVE_PAGEABLE = 32
SAVE_QUEUED = 64
MAX_QUEUE = 8
GAINS = 32
LOAD_PARTIAL = 1
LOAD_STRICT = 2
GC_DRY_RUN = 1
CONVERT_REPLACE = 1
CONVERT_MODEL_ONLY = 2
CONVERT_DRY_RUN = 4
CONVERT_PARTIAL = 8
