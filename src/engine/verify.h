/* SPDX-License-Identifier: BSD-3-Clause */
/* verify.h -- read everything, and check every byte against its hash. */
#ifndef ENGINE_VERIFY_H
#define ENGINE_VERIFY_H

#include "base/budget.h"
#include "base/workers.h"
#include "commit/reader.h"

#define VERIFY_READ_BYTES                                                                          \
    ((uint64_t)6 << 20)           /* at most, of one request; two blocks less, often               \
                                   */
#define VERIFY_MAX_PROBLEMS 1000u /* listed; the rest are counted */
/* For compressed items, which must be decoded whole: of all threads together.  A larger one is
 * decoded alone. */
#define VERIFY_MEMORY_BYTES ((uint64_t)1 << 30)

struct verify_options {
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    const bool volatile *cancel;
    struct budget *memory; /* NULL: one of VERIFY_MEMORY_BYTES */
};

/* What was found wrong.  Strings live in ${arena}. */
struct verify_findings {
    struct arena arena;
    struct sidestep_problem *problems;
    size_t count;
    size_t room;
    size_t most; /* that are listed; 0: VERIFY_MAX_PROBLEMS */
    uint32_t unlisted_count;
    uint64_t checked_bytes;
};
void verify_findings_release(struct verify_findings *findings);
/* ${file} and ${name} may be NULL. */
enum sidestep_status verify_add(struct verify_findings *findings, const char *file,
                                const char *name, const char *kind, const char *message,
                                struct sidestep_error *err);

/* All data of an opened checkpoint.  OK: it was checked, see the findings. */
enum sidestep_status verify_reader(struct reader *reader, struct workers *workers,
                                   const struct verify_options *options,
                                   struct verify_findings *findings, struct sidestep_error *err);

/* Does a failure to open or read a checkpoint speak of the checkpoint: it is not whole, or not to
 * be understood?  Else it could not be read now (permission, storage, descriptors, memory), which
 * says nothing of what is there. */
bool verify_is_damage(enum sidestep_status status);

/* Open and check ${path} according to ${mode}; ${options} may be NULL.  A problem is a failure that
 * names the first one: ECORRUPT, or EIO where all that is known is that something could not be
 * read. */
enum sidestep_status verify_path(struct store *store, const char *path,
                                 enum sidestep_verify_mode mode, uint32_t flags,
                                 struct workers *workers, const struct verify_options *options,
                                 struct sidestep_error *err);

#endif
