/* SPDX-License-Identifier: BSD-3-Clause */
/* gc_report.h -- fills a struct sidestep_gc_report: what was removed, and what was kept and why. */
#ifndef CATALOG_GC_REPORT_H
#define CATALOG_GC_REPORT_H

#include "base/base.h"
#include "sidestep/sidestep_tools.h"

struct gc_report {
    struct arena arena;
    const char *parent; /* prefix of each name: "", or it ends with a slash */
    const char **removed;
    size_t removed_count, removed_capacity;
    const char **kept;
    size_t kept_count, kept_capacity;
    uint64_t bytes;
    bool failed; /* memory ran out */
};

/* Start a report for ${parent}. NULL: memory ran out. */
struct gc_report *gc_report_new(const char *parent);
void gc_report_free(struct gc_report *collecting);
/* Callbacks for a sweep: ${context} is the struct gc_report. */
void gc_report_add_removed(void *context, const char *name, uint64_t bytes);
void gc_report_add_kept(void *context, const char *name, const char *reason);
/* Make ${*report} from ${collecting}. Takes ${collecting} in every case: ${*report} owns it on
 * success, and it is freed on failure. ENOMEM: memory ran out while collecting. */
enum sidestep_status gc_report_finish(struct gc_report *collecting,
                                      struct sidestep_gc_report *report,
                                      struct sidestep_error *err);

#endif
