/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * disk_activity.h -- does somebody read from the disk that a save writes to?  A save reads next to
 * nothing itself, so what the kernel counts are others' reads: a data loader's, most likely.
 *
 * The kernel counts for a disk or a partition, in /sys/dev/block/MAJOR:MINOR/stat.  File systems
 * over a network, in memory, or of several disks have no such file, and then nobody is seen.
 * The caller has a lock, but for what says otherwise.
 */
#ifndef ENGINE_DISK_ACTIVITY_H
#define ENGINE_DISK_ACTIVITY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DISK_ACTIVITY_SAMPLE_NS 10000000u
/* Less than that between two samples is nobody: what a file system looks up for the writes. */
#define DISK_ACTIVITY_MIN_BYTES (16u << 10)
/* So long after reads were seen, nobody reads any more. */
#define DISK_ACTIVITY_QUIET_NS 80000000u
/* A sample that old is compared with nothing. */
#define DISK_ACTIVITY_MAX_SAMPLE_AGE_NS 1000000000u

struct disk_activity {
    /* Constant while a save is written. */
    uint64_t device;
    char path[64]; /* "": nothing is to be known */
    bool has_sample;
    uint64_t sampled_ns;
    uint64_t read_bytes;       /* by then */
    _Atomic uint64_t until_ns; /* others read until then; read without the lock */
};

/* The kernel's file for a device (st_dev). */
#define DISK_ACTIVITY_PATH "/sys/dev/block/%u:%u/stat"
/* Writes go to ${device} (st_dev) from now on. */
void disk_activity_watch_disk(struct disk_activity *r, uint64_t device);
/* Is it time for a sample?  Then it is the caller who takes it. */
bool disk_activity_claim_sample(struct disk_activity *r, uint64_t now_ns);
/* Bytes that were read from the disk since it is there; false: the file does not say.  Without the
 * lock. */
bool disk_activity_read_counter(const char *path, uint64_t *bytes);
/* What a sample says. */
void disk_activity_record_sample(struct disk_activity *r, uint64_t read_bytes, uint64_t now_ns);
/* Without the lock. */
static inline bool disk_activity_has_readers(const struct disk_activity *r, uint64_t now_ns)
{
    return now_ns < atomic_load(&r->until_ns);
}

#endif
