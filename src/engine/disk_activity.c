/* SPDX-License-Identifier: BSD-3-Clause */
/* disk_activity.c -- see disk_activity.h. */
#include "engine/disk_activity.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/base.h"

#define SECTOR_BYTES 512u /* of the kernel's counters, whatever the disk has */

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
    /* What was read before this save, or while it stood still, is in nobody's way. */
    if (now_ns - r->sampled_ns > DISK_ACTIVITY_MAX_SAMPLE_AGE_NS)
        r->has_sample = false;
    r->sampled_ns = now_ns;
    return true;
}

/* Reads completed, reads merged, sectors read, ...: the kernel's Documentation/block/stat.rst. */
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
    /* Less than before: the counter of another disk in its place, or one that has begun again. */
    if (r->has_sample && read_bytes >= r->read_bytes &&
        read_bytes - r->read_bytes >= DISK_ACTIVITY_MIN_BYTES)
        atomic_store(&r->until_ns, now_ns + DISK_ACTIVITY_QUIET_NS);
    r->has_sample = true;
    r->read_bytes = read_bytes;
}
