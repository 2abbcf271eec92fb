/* SPDX-License-Identifier: BSD-3-Clause */
/* bypass.c -- reads what is pinned and what may be merged from /proc/self; see bypass.h. */
#include "snapshot/bypass.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

#define LINE_BYTES 256
#define PATH_BYTES 300 /* of a name in /proc/self/fdinfo */
/* The kernel shows the buffers of a ring only while no thread has the ring locked. */
#define RING_TRIES 20u
#define RING_PAUSE_NS 100000
/* The address of a slot without a buffer, before Linux 6.13 (the kernel's dummy_ubuf); its length
 * is 1, or 4 GiB. Later kernels show "<none>". */
#define EMPTY_SLOT UINT64_MAX

static enum sidestep_status read_pinned_bytes(uint64_t *bytes, struct sidestep_error *err)
{
    static const char path[] = "/proc/self/status";
    char line[LINE_BYTES];
    unsigned long long kib;
    bool found = false;

    FILE *file = fault_hit("bypass.status") ? NULL : fopen(path, "re");
    if (file == NULL)
        return FAIL_SYS(err, "open %s, to see whether memory is pinned for devices", path);
    while (!found && fgets(line, sizeof(line), file) != NULL)
        found = sscanf(line, "VmPin: %llu kB", &kib) == 1;
    (void)fclose(file);
    if (!found)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "%s has no VmPin: nothing says whether memory is pinned for devices", path);
    *bytes = (uint64_t)kib << 10;
    return SIDESTEP_OK;
}

/* ---- buffers registered with io_uring */

/* Add up the buffers that ${path} lists.  False: it does not list all buffers of the ring. */
static bool add_ring_buffers(const char *path, uint64_t *bytes)
{
    char line[LINE_BYTES];
    unsigned slots = 0, listed = 0, slot, length;
    unsigned long long address;
    bool has_count = false;

    FILE *file = fopen(path, "re");
    if (file == NULL)
        return errno == ENOENT; /* it was closed meanwhile */
    while (fgets(line, sizeof(line), file) != NULL && (!has_count || listed < slots)) {
        if (!has_count) {
            has_count = sscanf(line, "UserBufs: %u", &slots) == 1;
        } else {
            bool shown = sscanf(line, "%u: 0x%llx/%u", &slot, &address, &length) == 3;
            *bytes += shown && address != EMPTY_SLOT ? length : 0;
            listed += shown || strstr(line, "<none>") != NULL;
        }
    }
    (void)fclose(file);
    return has_count && listed == slots;
}

/* Add up the buffers of a ring.  A ring that is always locked counts as pinned. */
static void count_ring(const char *name, uint64_t *bytes)
{
    char path[PATH_BYTES];
    uint64_t found = 0;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%s", name);
    for (unsigned tries = 1; !add_ring_buffers(path, &found); tries++) {
        found = 0;
        if (tries == RING_TRIES) {
            found = 1;
            break;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = RING_PAUSE_NS}, NULL);
    }
    *bytes += found;
}

/* statx(2) takes less time than readlink(2), and shows no file type for such descriptors. It must
 * not ask storage, which may not answer: the program has files open that are not ours, and those of
 * a mirror. */
static bool is_ring(int directory, const char *name)
{
    static const char ring[] = "anon_inode:[io_uring]";
    char target[sizeof(ring)];
    struct statx stat;

    /* Where a filter refuses it, each may be one. */
    bool is_known =
        statx(atoi(name), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &stat) == 0;
    return (!is_known || (stat.stx_mode & S_IFMT) == 0) &&
           readlinkat(directory, name, target, sizeof(target)) == sizeof(ring) - 1 &&
           memcmp(target, ring, sizeof(ring) - 1) == 0;
}

/* See bypass.h for why VmPin is not enough. */
static enum sidestep_status read_ring_bytes(uint64_t *bytes, struct sidestep_error *err)
{
    static const char path[] = "/proc/self/fd";
    const struct dirent *entry;

    DIR *all = opendir(path);
    if (all == NULL)
        return FAIL_SYS(err, "open %s, to see whether memory is pinned for devices", path);
    while ((entry = readdir(all)) != NULL)
        if (is_ring(dirfd(all), entry->d_name))
            count_ring(entry->d_name, bytes);
    (void)closedir(all);
    return SIDESTEP_OK;
}

/* ---- merged pages */

/* The values of /proc/self/ksm_stat.  Newer kernels have more lines. */
struct ksm {
    bool reports_mergeable; /* the kernel reports whether memory is mergeable */
    bool mergeable;         /* what it reports: some memory is mergeable */
    bool merged;            /* some pages were merged or scanned; older kernels report only this */
};

static void parse_ksm_line(struct ksm *ksm, const char *line)
{
    static const char key[] = "ksm_mergeable: ";
    static const char *const counts[] = {"ksm_rmap_items %llu", "ksm_merging_pages %llu"};
    unsigned long long count;

    if (strncmp(line, key, strlen(key)) == 0) {
        ksm->reports_mergeable = true;
        ksm->mergeable = strncmp(line + strlen(key), "yes", 3) == 0;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(counts); i++)
        ksm->merged = ksm->merged || (sscanf(line, counts[i], &count) == 1 && count != 0);
}

/* Some kernels report neither value (before 6.1, or without KSM).  Then cow_check.c
 * finds the merge afterwards: the page is no longer protected. */
static bool may_merge(void)
{
    char line[LINE_BYTES];
    struct ksm ksm = {0};

    FILE *file = fopen("/proc/self/ksm_stat", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        parse_ksm_line(&ksm, line);
    if (file != NULL)
        (void)fclose(file);
    return ksm.reports_mergeable ? ksm.mergeable : ksm.merged;
}

enum sidestep_status bypass_read(struct bypass *bypass, struct sidestep_error *err)
{
    *bypass = (struct bypass){0};
    if (fault_hit("trust.others")) /* negative control of the attack tests */
        return SIDESTEP_OK;
    TRY(read_pinned_bytes(&bypass->pinned_bytes, err));
    if (bypass->pinned_bytes == 0)
        TRY(read_ring_bytes(&bypass->pinned_bytes, err));
    bypass->merges = may_merge();
    return SIDESTEP_OK;
}
