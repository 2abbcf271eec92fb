/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_findings.h -- a list of what is wrong with a checkpoint, and the resulting status. */
#ifndef VERIFY_VERIFY_FINDINGS_H
#define VERIFY_VERIFY_FINDINGS_H

#include "base/base.h"
#include "sidestep/sidestep_tools.h"

#define VERIFY_MAX_PROBLEMS 1000u /* that are listed; others are only counted */

/* Strings are allocated from ${arena}. */
struct verify_findings {
    struct arena arena;
    struct sidestep_problem *problems;
    size_t count;
    size_t capacity;
    size_t max_count; /* limit of listed problems; 0: VERIFY_MAX_PROBLEMS */
    uint32_t unlisted_count;
    uint64_t checked_bytes;
    /* The folder that is being checked, relative to the given path: "", or ending with a slash. */
    const char *folder;
    struct sidestep_unchecked *unchecked; /* files that were read but have no checksums */
    size_t unchecked_count;
    size_t unchecked_capacity;
};
void verify_findings_release(struct verify_findings *findings);
/* Add a problem.  ${file} and ${name} may be NULL. */
enum sidestep_status verify_findings_add(struct verify_findings *findings, const char *file,
                                         const char *name, const char *kind, const char *message,
                                         struct sidestep_error *err);
/* Add a file without checksums.  ${what}: what it is, a constant string. */
enum sidestep_status verify_findings_add_unchecked(struct verify_findings *findings,
                                                   const char *file, const char *what,
                                                   struct sidestep_error *err);
/* OK: no problems.  ECORRUPT: damage.  EUNCOMMITTED: the checkpoint was not written completely.
 * EPERM, EIO: the only problems are that something could not be read. */
enum sidestep_status verify_findings_judge(const struct verify_findings *findings);
/* The problem that decides the status: the first with damage, else the first that is incomplete,
 * else the first.  There must be one. */
const struct sidestep_problem *verify_findings_worst(const struct verify_findings *findings);

/* The kind of problem for the status of a failed read or check. */
const char *verify_kind(enum sidestep_status status);

#endif
