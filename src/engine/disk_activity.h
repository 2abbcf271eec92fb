/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * disk_activity.h -- tells whether other programs read from the disk that a save writes to.
 *
 * A save itself reads almost nothing.  So the reads that the kernel counts come from others, most
 * likely from a data loader.
 *
 * The kernel counts per disk or partition, in /sys/dev/block/MAJOR:MINOR/stat.  File systems over a
 * network, in memory, or on several disks have no such file, and then no readers are seen.
 *
 * Callers hold a lock, unless a function says otherwise.
 */
#ifndef ENGINE_DISK_ACTIVITY_H
#define ENGINE_DISK_ACTIVITY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DISK_ACTIVITY_SAMPLE_NS 10000000u /* between two samples, at least */
/* Fewer bytes between two samples do not count: a file system reads a little for the writes. */
#define DISK_ACTIVITY_MIN_BYTES (16u << 10)
/* Others count as reading until this time has passed since their last reads. */
#define DISK_ACTIVITY_QUIET_NS 80000000u
/* An older sample is not compared with the next one. */
#define DISK_ACTIVITY_MAX_SAMPLE_AGE_NS 1000000000u

struct disk_activity {
    /* Constant while a save is written. */
    uint64_t device;
    char path[64]; /* "": the kernel has no counter */
    bool has_sample;
    uint64_t sampled_ns;
    uint64_t read_bytes;       /* counter at the last sample */
    _Atomic uint64_t until_ns; /* others count as reading until then; needs no lock */
};

/* The kernel's file for a device (st_dev). */
#define DISK_ACTIVITY_PATH "/sys/dev/block/%u:%u/stat"
/* Writes go to ${device} (st_dev) from now on. */
void disk_activity_watch_disk(struct disk_activity *r, uint64_t device);
/* Is a sample due?  If true, the caller must take it. */
bool disk_activity_claim_sample(struct disk_activity *r, uint64_t now_ns);
/* Get the number of bytes that were read from the disk so far.  False: the file cannot be parsed.
 * No lock needed. */
bool disk_activity_read_counter(const char *path, uint64_t *bytes);
/* Record a sample. */
void disk_activity_record_sample(struct disk_activity *r, uint64_t read_bytes, uint64_t now_ns);
/* No lock needed. */
static inline bool disk_activity_has_readers(const struct disk_activity *r, uint64_t now_ns)
{
    return now_ns < atomic_load(&r->until_ns);
}

#endif
