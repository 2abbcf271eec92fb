# SPDX-License-Identifier: BSD-3-Clause
"""How far a save is on this rank, and what it cost: what the library knows of it, for Python."""

from __future__ import annotations

from dataclasses import dataclass

from . import _abi
from ._abi import SaveState
from ._library import lib


@dataclass(frozen=True)
class Progress:
    """How far a save is on this rank, and what it cost.  Sizes in bytes, times in seconds; the time
    of a phase that has not ended is 0.

    state          "staging", "staged", "released", "written", "committed", "aborted", "unknown"
    bytes_total    what this rank writes
    call_s         the trainer was stopped, of which
    wait_s         ... for an earlier save
    plan_s         ... to agree and to plan
    pool_s         ... to allocate staging memory (first save)
    stage_s        ... to copy
    write_s        in the background, until this rank's bytes were durable
    commit_s       in the background, from then until the checkpoint existed (rank 0)
    plan_reused    the layout was that of the save before
    streamed       staging memory was short: part of the state was written during the call
    volatile       the storage does not survive power loss (tmpfs and the like)
    direct_io      written past the page cache
    io_depth       requests in flight, at most, while it was written (once written)
    snapshot       "cow" if memory was write-protected instead of copied, else "copy"
    cow_bytes      write-protected; copied in the background
    copy_bytes     copied during the call
    copy_reason    why anything large was copied, or ""
    release_s      in the background, until all was copied and memory might be freed
    faults         writes of the program that had to wait for a copy, of which
    faults_waited  ... for one that was under way already
    fault_bytes    copied because of them
    fault_s        how long they waited, all threads together
    fault_max_s    the longest of them
    faults_disk    faults that had to wait for room in the staging memory
    pool_bytes     of staging memory, that were needed at once (known once written)
    ahead_bytes    copied in the background, ahead of the disk
    live_bytes     written straight from the tensors, without a copy
    raw_bytes      with compression, once written: of what was compressed or tried, ...
    stored_bytes   ... what it takes
    encode_s       all threads together
    gains          the same by dtype ("objects" for these): (raw bytes, stored bytes, seconds)
    device_bytes   copied from devices, by their own copy engines; of which
    fenced_bytes   ... late: beside the next forward and backward
    device_s       from the beginning of the call until they were copied
    fence_s        the host waited in fences
    pageable       staging memory could not be pinned, so these copies were slow
    queued         it started while an earlier save was under way, and was written after that
    pin_reason     why, or ""
    linked_bytes   of bytes_total: shared with an earlier checkpoint, not written (once written)
    link_reason    why what could have been shared was written, or ""
    huge_bytes     after it: put on huge pages again, which forked processes had split ...
    huge_s         ... in this time of a background thread
    backed_off_s   of write_s: one write at a time, because others read from the disk (once written)
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
    live_bytes: int
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


def state_name(state: int) -> str:
    """As `Progress.state` says it."""
    return SaveState(state).name[len("SAVE_") :].lower()


def progress_of(info: _abi.SaveInfo, waited_s: float) -> Progress:
    """``waited_s``: in Python, for an earlier save."""
    return Progress(
        state=state_name(info.state),
        save_id=info.save_id.decode("ascii", "replace"),
        bytes_total=info.bytes_total,
        bytes_staged=info.bytes_staged,
        bytes_written=info.bytes_written,
        call_s=info.call_ns / 1e9 + waited_s,
        wait_s=info.wait_ns / 1e9 + waited_s,
        plan_s=info.plan_ns / 1e9,
        pool_s=info.pool_ns / 1e9,
        stage_s=info.stage_ns / 1e9,
        write_s=info.write_ns / 1e9,
        commit_s=info.commit_ns / 1e9,
        plan_reused=bool(info.flags & _abi.SAVE_PLAN_REUSED),
        streamed=bool(info.flags & _abi.SAVE_STREAMED),
        volatile=bool(info.flags & _abi.SAVE_VOLATILE),
        direct_io=bool(info.flags & _abi.SAVE_DIRECT_IO),
        io_depth=info.io_depth,
        snapshot="cow" if info.snapshot == _abi.Snapshot.SNAPSHOT_COW else "copy",
        cow_bytes=info.cow_bytes,
        copy_bytes=info.copy_bytes,
        copy_reason=info.copy_reason.decode("utf-8", "replace"),
        release_s=info.release_ns / 1e9,
        faults=info.faults,
        faults_waited=info.faults_waited,
        fault_bytes=info.fault_bytes,
        fault_s=info.fault_ns / 1e9,
        fault_max_s=info.fault_max_ns / 1e9,
        faults_disk=info.faults_disk,
        pool_bytes=info.pool_bytes,
        ahead_bytes=info.ahead_bytes,
        live_bytes=info.live_bytes,
        raw_bytes=info.raw_bytes,
        stored_bytes=info.stored_bytes,
        encode_s=info.encode_ns / 1e9,
        gains=_gains(info),
        device_bytes=info.device_bytes,
        fenced_bytes=info.fenced_bytes,
        device_s=info.device_ns / 1e9,
        fence_s=info.fence_ns / 1e9,
        pageable=bool(info.flags & _abi.SAVE_PAGEABLE),
        queued=bool(info.flags & _abi.SAVE_QUEUED),
        pin_reason=info.pin_reason.decode("utf-8", "replace"),
        linked_bytes=info.linked_bytes,
        link_reason=info.link_reason.decode("utf-8", "replace"),
        huge_bytes=info.huge_bytes,
        huge_s=info.huge_ns / 1e9,
        backed_off_s=info.backed_off_ns / 1e9,
    )


def _gains(info: _abi.SaveInfo) -> dict[str, tuple[int, int, float]]:
    gains = {}
    for number, gain in enumerate(info.gains):
        if gain.raw_bytes:
            name = lib().sidestep_dtype_name(number).decode() if number else "objects"
            gains[name] = gain.raw_bytes, gain.stored_bytes, gain.encode_ns / 1e9
    return gains
