/* SPDX-License-Identifier: BSD-3-Clause */
/* gc_report.h -- fills a struct sidestep_gc_report: what was removed, what was kept and why. */
#ifndef CATALOG_GC_REPORT_H
#define CATALOG_GC_REPORT_H

#include "base/base.h"

struct gc_report {
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
struct gc_report *gc_report_new(const char *parent);
void gc_report_free(struct gc_report *collecting);
/* As callbacks: ${context} is the collecting. */
void gc_report_add_removed(void *context, const char *name, uint64_t bytes);
void gc_report_add_kept(void *context, const char *name, const char *reason);
/* The report, which owns ${collecting} from then on; in every case.  ENOMEM if it had failed. */
enum sidestep_status gc_report_finish(struct gc_report *collecting,
                                      struct sidestep_gc_report *report,
                                      struct sidestep_error *err);

#endif
