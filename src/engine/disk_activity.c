/* SPDX-License-Identifier: BSD-3-Clause */
/* disk_activity.c -- samples the kernel's read counter of a disk; see disk_activity.h. */
#include "engine/disk_activity.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/base.h"

#define SECTOR_BYTES 512u /* Unit of the kernel's counters, for every disk. */

void disk_activity_watch_disk(struct disk_activity *r, uint64_t device)
{
    if (r->device == device && r->path[0] != '\0')
        return;
    r->device = device;
    r->has_sample = false;
    atomic_store(&r->until_ns, 0);
    snprintf(r->path, sizeof(r->path), DISK_ACTIVITY_PATH, major(device), minor(device));
    if (access(r->path, R_OK) != 0)
        r->path[0] = '\0';
}

bool disk_activity_claim_sample(struct disk_activity *r, uint64_t now_ns)
{
    if (r->path[0] == '\0' || now_ns < r->sampled_ns + DISK_ACTIVITY_SAMPLE_NS)
        return false;
    /* Do not compare with a sample from before this save or a pause: those reads are over. */
    if (now_ns - r->sampled_ns > DISK_ACTIVITY_MAX_SAMPLE_AGE_NS)
        r->has_sample = false;
    r->sampled_ns = now_ns;
    return true;
}

/* The file has: reads completed, reads merged, sectors read, ...; see the kernel's
 * Documentation/block/stat.rst. */
bool disk_activity_read_counter(const char *path, uint64_t *bytes)
{
    char text[256];
    uint64_t sectors;
    OWNED_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

    if (n <= 0)
        return false;
    text[n] = '\0';
    if (sscanf(text, "%*u %*u %20" SCNu64, &sectors) != 1 || sectors > UINT64_MAX / SECTOR_BYTES)
        return false;
    *bytes = sectors * SECTOR_BYTES;
    return true;
}

void disk_activity_record_sample(struct disk_activity *r, uint64_t read_bytes, uint64_t now_ns)
{
    /* A smaller count means that the disk was replaced, or that its counter was reset. */
    if (r->has_sample && read_bytes >= r->read_bytes &&
        read_bytes - r->read_bytes >= DISK_ACTIVITY_MIN_BYTES)
        atomic_store(&r->until_ns, now_ns + DISK_ACTIVITY_QUIET_NS);
    r->has_sample = true;
    r->read_bytes = read_bytes;
}
