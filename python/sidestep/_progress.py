# SPDX-License-Identifier: BSD-3-Clause
"""`Progress`: how far a save is on this rank, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ._c import abi
from ._c.library import lib


@dataclass(frozen=True)
class Progress:
    """How far a save is on this rank, and what it cost.  Sizes in bytes, times in seconds; the time
    of a phase that has not ended is 0.

    state          "staging", "staged", "released", "written", "committed", "aborted", "unknown"
    bytes_total    what this rank writes
    call_s         how long the trainer was stopped, of which
    wait_s         ... for an earlier save
    plan_s         ... to agree and to plan
    pool_s         ... to allocate staging memory (first save)
    stage_s        ... to copy
    write_s        time in the background until this rank's bytes were durable
    commit_s       time in the background from then until the checkpoint existed (rank 0)
    plan_reused    the layout was that of the save before
    streamed       staging memory was short: part of the state was written during the call
    volatile       the storage does not survive power loss (tmpfs and the like)
    direct_io      written past the page cache
    io_depth       most requests in flight (known once written)
    snapshot       "cow" if memory was write-protected instead of copied, else "copy"
    cow_bytes      write-protected in the call, and copied in the background
    copy_bytes     copied in the call
    copy_reason    why the call copied what it could have protected; "": it was protected
    release_s      time in the background until all was copied and memory could be freed
    faults         writes of the program that had to wait for a copy, of which
    faults_waited  ... for one that was under way already
    fault_bytes    copied because of such writes
    fault_s        time that these writes waited, all threads together
    fault_max_s    the longest of these waits
    faults_disk    faults that had to wait for room in the staging memory
    pool_bytes     most staging memory that was in use at once (known once written)
    ahead_bytes    copied in the background, ahead of the disk
    pool_reason    why the staging memory is smaller than the state, or ""
    raw_bytes      with compression, of what was compressed or tried: the size before ... (known
                   once written)
    stored_bytes   ... and after
    encode_s       time of compression, all threads together
    gains          the same by dtype, and of "objects": (raw bytes, stored bytes, seconds)
    device_bytes   copied from devices, by their own copy engines; of which
    fenced_bytes   ... late: during the next forward and backward
    device_s       time from the beginning of the call until they were copied
    fence_s        time that the host waited in fences
    pageable       staging memory could not be pinned, so these copies were slow
    queued         it started while an earlier save was under way, and was written after that
    pin_reason     why staging memory could not be pinned, or ""
    linked_bytes   of bytes_total: shared with an earlier checkpoint, not written (known once
                   written)
    link_reason    why tensors that could have been shared were written, or ""
    huge_bytes     put on huge pages after the save ...
    huge_s         ... in this time of a background thread
    backed_off_s   of write_s: one write at a time, because others read from the disk (known once
                   written)
    cpu_s          processor time in the background, all threads together (known once written) ...
    cpu_wait_s     ... and how long these threads, of low priority, waited for a processor; much
                   more than cpu_s: the program keeps all processors busy
    compared_bytes of tensors that all ranks have: hashed in the call, because equal ones are
                   written by all ranks (SIDESTEP_REPLICAS) ...
    compare_s      ... in this time
    differs        names of such tensors whose values were found to differ in this save, or ""
    """

    state: str
    save_id: str
    bytes_total: int
    bytes_staged: int
    bytes_written: int
    call_s: float
    wait_s: float
    plan_s: float
    pool_s: float
    stage_s: float
    write_s: float
    commit_s: float
    plan_reused: bool
    streamed: bool
    volatile: bool
    direct_io: bool
    io_depth: int
    snapshot: str
    cow_bytes: int
    copy_bytes: int
    copy_reason: str
    release_s: float
    faults: int
    faults_waited: int
    fault_bytes: int
    fault_s: float
    fault_max_s: float
    faults_disk: int
    pool_bytes: int
    ahead_bytes: int
    pool_reason: str
    raw_bytes: int
    stored_bytes: int
    encode_s: float
    gains: dict[str, tuple[int, int, float]]
    device_bytes: int
    fenced_bytes: int
    device_s: float
    fence_s: float
    pageable: bool
    queued: bool
    pin_reason: str
    linked_bytes: int
    link_reason: str
    huge_bytes: int
    huge_s: float
    backed_off_s: float
    cpu_s: float
    cpu_wait_s: float
    compared_bytes: int
    compare_s: float
    differs: str


def state_name(state: int) -> str:
    """A state in the words of `Progress.state`."""
    return abi.SaveState(state).name[len("SAVE_") :].lower()


_FLAGS = {
    "plan_reused": abi.SAVE_PLAN_REUSED,
    "streamed": abi.SAVE_STREAMED,
    "volatile": abi.SAVE_VOLATILE,
    "direct_io": abi.SAVE_DIRECT_IO,
    "pageable": abi.SAVE_PAGEABLE,
    "queued": abi.SAVE_QUEUED,
}


def progress_of(info: abi.SaveInfo, waited_s: float, before_s: float) -> Progress:
    """``waited_s``: how long Python waited for an earlier save, and ``before_s``: how long the
    trainer had waited for an adapter before."""
    found: dict[str, Any] = {name: bool(info.flags & flag) for name, flag in _FLAGS.items()}
    found["state"] = state_name(info.state)
    found["snapshot"] = "cow" if info.snapshot == abi.Snapshot.SNAPSHOT_COW else "copy"
    found["gains"] = _gains(info)
    for field in fields(Progress):  # the others are the library's; times become seconds
        if field.name.endswith("_s"):
            found[field.name] = getattr(info, f"{field.name[:-2]}_ns") / 1e9
        elif field.name not in found:
            value = getattr(info, field.name)
            found[field.name] = value.decode("utf-8", "replace") if type(value) is bytes else value
    found["call_s"] += before_s + waited_s
    found["wait_s"] += waited_s
    return Progress(**found)


def _gains(info: abi.SaveInfo) -> dict[str, tuple[int, int, float]]:
    gains = {}
    for number, gain in enumerate(info.gains):
        if gain.raw_bytes:
            name = lib().sidestep_dtype_name(number).decode() if number else "objects"
            gains[name] = gain.raw_bytes, gain.stored_bytes, gain.encode_ns / 1e9
    return gains


def size_text(count: float) -> str:
    """A number of bytes, for people."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
