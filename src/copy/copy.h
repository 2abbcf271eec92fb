/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy.h -- data and functions that the files of sidestep_copy() share.
 *
 * What comes in: a checkpoint that is opened and checked as for a load, and a destination.
 * What goes out: the same bytes at the destination, by export.h on file systems and by
 * commit/object_copy.h on object stores. Or the source is a part of a checkpoint, and its files
 * become those of its ranks in a save of the whole (copy_to_save.c).
 *
 * Threads: each reads a range, checks it (verify/verify.h), and writes it. The thread that writes
 * the last bytes of a file adds its footer, and syncs it.
 */
#ifndef COPY_COPY_H
#define COPY_COPY_H

#include <stdatomic.h>

#include "checkpoint/checkpoint.h"
#include "copy/export.h"
#include "engine/engine.h"
#include "sidestep/sidestep_tools.h"
#include "verify/verify.h"

/* A data file of the source. */
struct copied_file {
    bool is_there;         /* at the destination, whole, before this call wrote to it */
    _Atomic uint64_t left; /* bytes before the footer that are not written yet */
    /* Guarded by the lock of struct checkpoint_copy: */
    struct store_file *to; /* open while it is written */
    bool is_opening;       /* a thread creates it */
    bool is_done;          /* synced and closed */
};

struct checkpoint_copy {
    /* Set by the caller of copy_run(). */
    struct sidestep_copy_options options;
    const char *source, *destination;
    const char *replaces; /* the save id of what alone is replaced; NULL: any, by ${options} */
    struct store *from, *to;
    struct clock *clock;
    struct throttle *throttle; /* limits the writes; NULL: nothing does */
    struct commit *save;       /* that the files of the source, a part, go to; it is begun or
                                  joined. NULL: all of a checkpoint is copied */

    struct reader *reader; /* of the source */
    struct workers *workers;
    struct buffer metadata, manifest, index; /* of the source; empty if there is none */
    uint8_t id[SAVE_ID_BYTES];               /* finds an interrupted copy again */
    struct arena arena;
    const char **names; /* of the data files, and behind them of the extra files */
    /* Of the data files at the destination, while they are written and when they are whole; the
     * same as ${names}, but in a save. */
    const char **written, **finals;
    /* The same of the extra files, by their rows in the manifest. */
    const char **extra_written, **extra_finals;
    uint64_t *sizes;
    size_t name_count;
    struct copied_file *files;
    struct store_dir *dir; /* that the files are written to; the target owns it */
    const struct copy_target *target;
    struct export export;        /* of a target on a file system */
    struct object_copied copied; /* of a target on an object store ... */
    struct commit commit;        /* ... and its commit */
    uint64_t total_bytes;
    uint64_t copied_count, copied_bytes;
    struct {
        struct lock lock LOCK_KIND(COPY);
        struct lock_condition changed;
        uint64_t done_bytes GUARDED_BY(&lock);
    } shared;
};

/* A kind of storage that a copy can be written to. */
struct copy_target {
    bool is_private; /* c->dir is a hidden directory that only copies of the same bytes write to */
    /* Sets c->dir, which may contain files of an earlier, interrupted copy. */
    enum sidestep_status (*begin)(struct checkpoint_copy *c, struct sidestep_error *err);
    enum sidestep_status (*publish)(struct checkpoint_copy *c, struct sidestep_error *err);
    /* ${stays}: leave what was not published, for the next copy. */
    void (*end)(struct checkpoint_copy *c, bool stays);
};
extern const struct copy_target copy_to_files;               /* copy_to_files.c */
extern const struct copy_target copy_to_objects;             /* copy_to_objects.c */
extern const struct copy_target copy_to_save[STORE_LAYOUTS]; /* copy_to_save.c */
/* Make ${file} durable, with its name. Takes it over. */
enum sidestep_status copy_seal_in_save(struct checkpoint_copy *c, const char *written,
                                       const char *final, struct store_file *file,
                                       struct sidestep_error *err);
/* Set the names at the destination. */
enum sidestep_status copy_name_in_save(struct checkpoint_copy *c, struct sidestep_error *err);

/* Copy from c->from to c->to. Call copy_release() in any case. */
enum sidestep_status copy_run(struct checkpoint_copy *c, struct sidestep_copy_report *report,
                              struct sidestep_error *err);
void copy_release(struct checkpoint_copy *c);
/* After ${status}: does what was written stay, for the same call to go on? Not if that would fail
 * again, and not on full storage, where others need the space at once. */
bool copy_can_resume(enum sidestep_status status);
/* The flags to open the source with. */
uint32_t copy_source_flags(const struct checkpoint_copy *c);

/* ---- copy_extras.c: the extra files */

/* Copy those that are not there, and check each at the destination. */
enum sidestep_status copy_extras(struct checkpoint_copy *c, struct sidestep_error *err);
/* Is ${name} at the destination an extra file, or a directory of one? */
bool copy_is_extra(const struct checkpoint_copy *c, const char *name);

/* ---- copy_files.c: the data files */

/* Write all files that are not there. */
enum sidestep_status copy_files(struct checkpoint_copy *c, struct sidestep_error *err);
/* Add to the progress. ECANCELLED if the caller cancelled. Any thread. */
enum sidestep_status copy_add_progress(struct checkpoint_copy *c, uint64_t bytes,
                                       struct sidestep_error *err);
/* Close and discard the files that are still open. */
void copy_files_discard(struct checkpoint_copy *c);

/* ---- copy_check.c: what is at the destination */

/* Set ${is_there} of the files that are already there and whole. */
enum sidestep_status copy_check_present(struct checkpoint_copy *c, struct sidestep_error *err);
/* Read the files that this call wrote, and check them by the checksums that their items have. */
enum sidestep_status copy_check_written(struct checkpoint_copy *c, struct sidestep_error *err);

#endif
