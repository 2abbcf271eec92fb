/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify.h -- reads a whole checkpoint, and checks every byte against its hash.
 *
 * What comes in: an opened checkpoint (checkpoint/reader.h), or a path; a mode: structure only, or
 * all data.
 * What goes out: findings (verify_findings.h): what is wrong, in which file, with which tensor, and
 * its kind: damaged, incomplete, not readable now, without checksums.
 *
 * verify_stock.h checks items that PyTorch wrote, by their CRC32.  verify_foreign.h checks what
 * other programs wrote, as far as their formats have checksums, and lists the rest with what it is.
 *
 * Rule: what could not be read is neither damaged nor intact; it is reported as unreadable.
 *
 * Ownership: findings own their strings until they are released.
 *
 * Threads: the call blocks; the threads of ${workers} read and hash.  A budget limits the memory.
 *
 * Nothing is written, locked or renamed.
 */
#ifndef VERIFY_VERIFY_H
#define VERIFY_VERIFY_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "verify/verify_findings.h"

/* Size of one request, in bytes, plus up to two blocks: so small that the bytes are hashed while
 * they are in the processor's second-level cache. */
#define VERIFY_READ_BYTES ((uint64_t)HASH_BLOCK_BYTES)
/* The same for distant storage, and if the bytes are passed on. */
#define VERIFY_LARGE_READ_BYTES ((uint64_t)4 << 20)
/* Memory of all threads together for compressed items, which must be decoded completely.  A larger
 * item is decoded alone. */
#define VERIFY_MEMORY_BYTES ((uint64_t)1 << 30)

struct verify_options {
    /* For a file that cannot be read now, report also each tensor in it.  This is for callers that
     * continue without those tensors. */
    bool names_unread;
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    const bool volatile *cancel;
    struct budget *memory; /* NULL: one of VERIFY_MEMORY_BYTES */
    const bool *skips;     /* per file: do not verify it; NULL: verify all */
    /* If not NULL, gets all bytes of files of sidestep up to their footers, in pieces that have
     * been checked.  Called on any thread, in any order.  A failure, or a problem that is found,
     * ends the verification.  Compressed items are checked as they are stored, and are not decoded.
     */
    enum sidestep_status (*take)(void *context, size_t file, uint64_t begin, const uint8_t *bytes,
                                 uint64_t length, struct sidestep_error *err);
};

/* Verify all data of an opened checkpoint.  OK: everything was checked; see the findings. */
enum sidestep_status verify_reader(struct reader *reader, struct workers *workers,
                                   const struct verify_options *options,
                                   struct verify_findings *findings, struct sidestep_error *err);

/* Add what is wrong with the extra files.  verify_reader() calls it, unless it skips files or
 * passes bytes on. */
enum sidestep_status verify_extras(const struct reader *reader, struct verify_findings *findings,
                                   struct sidestep_error *err);

/* Open and verify ${path} according to ${mode}; ${options} may be NULL.  If there is a problem,
 * fails with the worst one, and the status of verify_findings_judge(). */
enum sidestep_status verify_path(struct store *store, const char *path,
                                 enum sidestep_verify_mode mode, uint32_t flags,
                                 struct workers *workers, const struct verify_options *options,
                                 struct sidestep_error *err);

/* The same of ${name} in ${parent}, see reader_open_in(). */
enum sidestep_status verify_in(struct store_dir *parent, const char *name, const char *path,
                               enum sidestep_verify_mode mode, struct workers *workers,
                               const struct verify_options *options, struct sidestep_error *err);

#endif
