# SPDX-License-Identifier: BSD-3-Clause
"""The prototypes of sidestep.h for ctypes: without them, a pointer would travel as an int."""

from __future__ import annotations

from ctypes import POINTER
from ctypes import c_bool as Bool
from ctypes import c_char_p as String
from ctypes import c_double as Double
from ctypes import c_int as Int
from ctypes import c_int32 as Int32
from ctypes import c_int64 as Int64
from ctypes import c_size_t as Size
from ctypes import c_uint32 as Uint32
from ctypes import c_uint64 as Uint64
from ctypes import c_void_p as Pointer
from typing import Any

from ._abi import (
    CheckpointInfo,
    ConvertOptions,
    ConvertReport,
    DiffOptions,
    DiffReport,
    DoctorReport,
    EngineOptions,
    Entry,
    ErrorInfo,
    GcReport,
    Handle,
    HugePages,
    LatestReport,
    Lengths,
    List,
    LoadOptions,
    LoadReport,
    Metric,
    Object,
    PathItem,
    Retention,
    SaveInfo,
    SaveOptions,
    SavingList,
    SeriesOptions,
    SeriesStatus,
    Stream,
    Strings,
    Tensor,
    TensorStats,
    VerifyOptions,
    VerifyReport,
)

_Err = POINTER(ErrorInfo)
_Path = POINTER(PathItem)

# Every exported function: what it returns (an enum is an int), what it takes.
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "sidestep_version": (String, []),
    "sidestep_status_text": (String, [Int]),
    "sidestep_status_exit": (Int, [Int]),
    "sidestep_check_path": (Int, [String, _Err]),
    "sidestep_dtype_name": (String, [Int]),
    "sidestep_dtype_size": (Size, [Int]),
    "sidestep_dtype_from_name": (Int, [String]),
    # values
    "sidestep_value_none": (Pointer, []),
    "sidestep_value_bool": (Pointer, [Bool]),
    "sidestep_value_int": (Pointer, [Int64]),
    "sidestep_value_float": (Pointer, [Double]),
    "sidestep_value_str": (Pointer, [String]),
    "sidestep_value_bytes": (Pointer, [Pointer, Size]),
    "sidestep_value_list": (Pointer, []),
    "sidestep_value_tuple": (Pointer, []),
    "sidestep_value_dict": (Pointer, []),
    "sidestep_value_append": (Int, [Pointer, Pointer, _Err]),
    "sidestep_value_set": (Int, [Pointer, Pointer, Pointer, _Err]),
    "sidestep_value_free": (None, [Handle]),
    "sidestep_value_kind": (Int, [Pointer]),
    "sidestep_value_get_bool": (Bool, [Pointer]),
    "sidestep_value_get_int": (Int64, [Pointer]),
    "sidestep_value_get_float": (Double, [Pointer]),
    "sidestep_value_get_bytes": (Pointer, [Pointer, POINTER(Size)]),
    "sidestep_value_count": (Size, [Pointer]),
    "sidestep_value_item": (Pointer, [Pointer, Size]),
    "sidestep_value_key": (Pointer, [Pointer, Size]),
    "sidestep_value_from_pickle": (Int, [Pointer, Size, Handle, _Err]),
    "sidestep_value_to_pickle": (Int, [Pointer, Handle, POINTER(Size), _Err]),
    # state dicts
    "sidestep_state_dict_new": (Int, [Handle, _Err]),
    "sidestep_state_dict_free": (None, [Handle]),
    "sidestep_state_dict_add_tensor": (Int, [Pointer, POINTER(Tensor), _Err]),
    "sidestep_state_dict_add_value": (Int, [Pointer, String, _Path, Uint32, Pointer, _Err]),
    "sidestep_state_dict_add_bytes": (
        Int,
        [Pointer, String, _Path, Uint32, Pointer, Size, _Err],
    ),
    "sidestep_state_dict_set_value": (Int, [Pointer, String, Pointer, _Err]),
    "sidestep_state_dict_set_bytes": (Int, [Pointer, String, Pointer, Size, _Err]),
    "sidestep_state_dict_set_data": (Int, [Pointer, Pointer, Size, _Err]),
    "sidestep_state_dict_huge_pages": (Int, [Pointer, POINTER(HugePages), _Err]),
    "sidestep_state_dict_set_objects": (Int, [Pointer, POINTER(Object), Size, _Err]),
    "sidestep_state_dict_value": (Pointer, [Pointer, String]),
    "sidestep_state_dict_bytes": (Pointer, [Pointer, String, POINTER(Size)]),
    # the engine
    "sidestep_engine_open": (Int, [Handle, POINTER(EngineOptions), _Err]),
    "sidestep_engine_pause": (None, [Pointer]),
    "sidestep_engine_resume": (None, [Pointer]),
    "sidestep_engine_prepare": (Int, [Pointer, Pointer, _Err]),
    "sidestep_engine_close": (Int, [Handle, _Err]),
    "sidestep_save_async": (
        Int,
        [Pointer, String, Pointer, POINTER(SaveOptions), Handle, _Err],
    ),
    "sidestep_device_of": (Int32, [Pointer]),
    "sidestep_fence": (Int, [Pointer, POINTER(Stream), _Err]),
    "sidestep_fence_until": (Int, [Pointer, POINTER(Stream), Uint32, _Err]),
    "sidestep_save_poll": (Int, [Pointer, POINTER(SaveInfo)]),
    "sidestep_save_wait": (Int, [Pointer, Int, Int64, _Err]),
    "sidestep_save_watch": (Int, [Pointer, Int, Int64, _Err]),
    "sidestep_save_hurry": (None, [Pointer]),
    "sidestep_save_cancel": (None, [Pointer]),
    "sidestep_save_finish": (Int, [Handle, POINTER(SaveInfo), _Err]),
    "sidestep_save": (
        Int,
        [Pointer, String, Pointer, POINTER(SaveOptions), POINTER(SaveInfo), _Err],
    ),
    "sidestep_load_report_release": (None, [POINTER(LoadReport)]),
    "sidestep_load": (
        Int,
        [Pointer, String, Pointer, POINTER(LoadOptions), POINTER(LoadReport), _Err],
    ),
    # series
    "sidestep_series_open": (Int, [Pointer, String, POINTER(SeriesOptions), Handle, _Err]),
    "sidestep_name_of_step": (Int, [String, Uint64, String, _Err]),
    "sidestep_step_of_name": (Int, [String, String, POINTER(Uint64), _Err]),
    "sidestep_series_save_async": (
        Int,
        [Pointer, Uint64, Pointer, POINTER(SaveOptions), Handle, _Err],
    ),
    "sidestep_series_save": (
        Int,
        [Pointer, Uint64, Pointer, POINTER(SaveOptions), POINTER(SaveInfo), _Err],
    ),
    "sidestep_series_load": (
        Int,
        [
            Pointer,
            Pointer,
            POINTER(LoadOptions),
            POINTER(Uint64),
            POINTER(LoadReport),
            String,
            _Err,
        ],
    ),
    "sidestep_series_load_step": (
        Int,
        [Pointer, Uint64, Pointer, POINTER(LoadOptions), POINTER(LoadReport), _Err],
    ),
    "sidestep_series_should_save": (Int, [Pointer, Uint64, POINTER(Uint32), _Err]),
    "sidestep_series_quiet_until": (Uint64, [Pointer, Uint64]),
    "sidestep_series_request": (None, [Pointer, Uint32]),
    "sidestep_series_status": (Int, [Pointer, POINTER(SeriesStatus)]),
    "sidestep_series_note": (
        Int,
        [Pointer, Uint64, POINTER(Metric), Size, Strings, Size, _Err],
    ),
    "sidestep_series_prune": (Int, [Pointer, POINTER(GcReport), _Err]),
    "sidestep_series_delete": (Int, [Pointer, Uint64, _Err]),
    "sidestep_series_close": (Int, [Handle, _Err]),
    # looking at checkpoints
    "sidestep_list_root": (Int, [String, POINTER(List), _Err]),
    "sidestep_list_release": (None, [POINTER(List)]),
    "sidestep_list_saving": (Int, [String, POINTER(SavingList), _Err]),
    "sidestep_saving_list_release": (None, [POINTER(SavingList)]),
    "sidestep_find_latest": (
        Int,
        [String, Int, POINTER(VerifyOptions), POINTER(LatestReport), _Err],
    ),
    "sidestep_latest_report_release": (None, [POINTER(LatestReport)]),
    "sidestep_latest": (Int, [String, Int, Strings, _Err]),
    "sidestep_string_free": (None, [Strings]),
    "sidestep_checkpoint_open": (Int, [String, Handle, _Err]),
    "sidestep_checkpoint_close": (None, [Handle]),
    "sidestep_checkpoint_info": (Int, [Pointer, POINTER(CheckpointInfo)]),
    "sidestep_checkpoint_count": (Size, [Pointer]),
    "sidestep_checkpoint_entry": (POINTER(Entry), [Pointer, Size]),
    "sidestep_checkpoint_find": (POINTER(Entry), [Pointer, String]),
    "sidestep_checkpoint_read_tensor": (
        Int,
        [Pointer, String, Lengths, Lengths, Pointer, Size, _Err],
    ),
    "sidestep_checkpoint_read_bytes": (Int, [Pointer, String, Handle, POINTER(Size), _Err]),
    "sidestep_bytes_free": (None, [Handle]),
    "sidestep_decode": (Int, [String, Pointer, Size, Uint64, Handle, POINTER(Size), _Err]),
    "sidestep_checkpoint_read_value": (Int, [Pointer, String, Handle, _Err]),
    "sidestep_verify": (Int, [String, POINTER(VerifyOptions), POINTER(VerifyReport), _Err]),
    "sidestep_verify_report_release": (None, [POINTER(VerifyReport)]),
    "sidestep_diff": (Int, [String, String, POINTER(DiffOptions), POINTER(DiffReport), _Err]),
    "sidestep_diff_report_release": (None, [POINTER(DiffReport)]),
    "sidestep_gc": (Int, [String, Uint32, POINTER(GcReport), _Err]),
    "sidestep_gc_report_release": (None, [POINTER(GcReport)]),
    "sidestep_prune": (Int, [String, POINTER(Retention), Uint32, POINTER(GcReport), _Err]),
    "sidestep_pin": (Int, [String, Bool, _Err]),
    "sidestep_tag": (Int, [String, String, Bool, _Err]),
    "sidestep_rebuild": (Int, [String, _Err]),
    "sidestep_checkpoint_stats": (
        Int,
        [Pointer, POINTER(TensorStats), Size, POINTER(VerifyOptions), _Err],
    ),
    # other formats
    "sidestep_convert": (
        Int,
        [String, String, POINTER(ConvertOptions), POINTER(ConvertReport), _Err],
    ),
    "sidestep_convert_report_release": (None, [POINTER(ConvertReport)]),
    # what a machine allows
    "sidestep_doctor": (Int, [String, POINTER(DoctorReport), _Err]),
    "sidestep_doctor_report_release": (None, [POINTER(DoctorReport)]),
}
