/* SPDX-License-Identifier: BSD-3-Clause */
/* bypass.c -- see bypass.h. */
#include "snapshot/bypass.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define LINE_BYTES 256

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

/* The values of /proc/self/ksm_stat.  Newer kernels have more lines. */
struct ksm {
    bool reports_mergeable; /* the kernel reports whether memory is mergeable */
    bool mergeable;         /* what it reports: some memory is mergeable */
    bool merged;            /* some pages were merged or scanned: all that older kernels report */
};

static void parse_ksm_line(struct ksm *ksm, const char *line)
{
    static const char may[] = "ksm_mergeable: ";
    static const char *const counts[] = {"ksm_rmap_items %llu", "ksm_merging_pages %llu"};
    unsigned long long count;

    if (strncmp(line, may, strlen(may)) == 0) {
        ksm->reports_mergeable = true;
        ksm->mergeable = strncmp(line + strlen(may), "yes", 3) == 0;
    }
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        ksm->merged = ksm->merged || (sscanf(line, counts[i], &count) == 1 && count != 0);
}

/* Some kernels report neither value (before 6.1, or without KSM).  There a merge is found
 * afterwards: the page is no longer protected (cow_check.c). */
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
    bypass->merges = may_merge();
    return SIDESTEP_OK;
}
