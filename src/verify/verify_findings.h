/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_findings.h -- what is wrong with a checkpoint: a list of problems, and what they come to.
 */
#ifndef VERIFY_VERIFY_FINDINGS_H
#define VERIFY_VERIFY_FINDINGS_H

#include "base/base.h"

#define VERIFY_MAX_PROBLEMS 1000u /* listed; the rest are counted */

/* Strings live in ${arena}. */
struct verify_findings {
    struct arena arena;
    struct sidestep_problem *problems;
    size_t count;
    size_t room;
    size_t most; /* that are listed; 0: VERIFY_MAX_PROBLEMS */
    uint32_t unlisted_count;
    uint64_t checked_bytes;
    /* Of what is being checked, relative to the path that was given: "" or with a slash at its end.
     */
    const char *folder;
    struct sidestep_unchecked *unchecked; /* files that were read, and have no checksums */
    size_t unchecked_count;
    size_t unchecked_room;
};
void verify_findings_release(struct verify_findings *findings);
/* ${file} and ${name} may be NULL. */
enum sidestep_status verify_findings_add(struct verify_findings *findings, const char *file,
                                         const char *name, const char *kind, const char *message,
                                         struct sidestep_error *err);
/* A file without checksums; ${what} it is, a constant. */
enum sidestep_status verify_findings_note(struct verify_findings *findings, const char *file,
                                          const char *what, struct sidestep_error *err);
/* OK: there are none.  ECORRUPT: there is damage.  EUNCOMMITTED: not all of it was written.  EPERM,
 * EIO: nothing worse is known than that something could not be read. */
enum sidestep_status verify_findings_judge(const struct verify_findings *findings);
/* The problem that decides: the first that is damage, or else incomplete, or else the first.  There
 * must be one. */
const struct sidestep_problem *verify_findings_worst(const struct verify_findings *findings);

/* The kind of problem that a failed read or check is. */
const char *verify_kind(enum sidestep_status status);

#endif
