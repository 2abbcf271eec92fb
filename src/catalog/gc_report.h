/* SPDX-License-Identifier: BSD-3-Clause */
/* gc_report.h -- fills a struct sidestep_gc_report: what was removed, what was kept and why. */
#ifndef CATALOG_GC_REPORT_H
#define CATALOG_GC_REPORT_H

#include "base/memory.h"

struct collecting {
    struct arena arena;
    const char *parent; /* "" or with a slash at its end: names follow */
    const char **removed;
    size_t removed_count, removed_room;
    const char **kept;
    size_t kept_count, kept_room;
    uint64_t bytes;
    bool failed; /* memory was short */
};

/* For what lies in ${parent}; NULL: no memory. */
struct collecting *collecting_new(const char *parent);
void collecting_free(struct collecting *collecting);
/* As callbacks: ${context} is the collecting. */
void collecting_removed(void *context, const char *name, uint64_t bytes);
void collecting_kept(void *context, const char *name, const char *reason);
/* The report, which owns ${collecting} from then on; in every case.  ENOMEM if it had failed. */
enum sidestep_status collecting_report(struct collecting *collecting,
                                       struct sidestep_gc_report *report,
                                       struct sidestep_error *err);

#endif
