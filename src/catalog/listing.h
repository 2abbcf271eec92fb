/* SPDX-License-Identifier: BSD-3-Clause */
/* listing.h -- a listing while it is made: what the files list*.c share. */
#ifndef CATALOG_LISTING_H
#define CATALOG_LISTING_H

#include "catalog/annotations.h"
#include "catalog/list.h"
#include "format/format.h"

/* A checkpoint with files of earlier saves. */
struct listing_shared_files {
    const char *save_id;
    const char **origins;
    size_t count;
};

struct listing {
    struct arena arena;
    struct store *store;
    struct store_dir *root_dir;
    const char *root;
    bool with_doubtful; /* list_candidates() */
    bool with_check;    /* list_root_checked() */
    bool has_changed;   /* what was listed had another name, or none, when it was looked into */
    struct annotations marks;
    char run_id[SAVE_ID_HEX]; /* of the series; "": there is none */
    uint64_t incarnation;
    struct sidestep_listed *entries;
    size_t count;
    struct listing_shared_files *sharing; /* as much room as for entries */
    size_t sharing_count;
};

/* list_entry.c: fill ${entry} with what lies under ${name}.  ENOTFOUND: it is no checkpoint, or is
 * gone. */
enum sidestep_status listing_read_entry(struct listing *l, const char *name,
                                        struct sidestep_listed *entry, struct sidestep_error *err);

void listing_set_state(struct sidestep_listed *entry, enum sidestep_presence state);
enum sidestep_status listing_set_reason(struct listing *l, struct sidestep_listed *entry,
                                        const char *reason, struct sidestep_error *err);

/* list_check.c: which of the committed checkpoints are damaged, or cannot be read? */
enum sidestep_status listing_check(struct listing *l, struct sidestep_error *err);

/* list_annotations.c: read ROOT/.sidestep. */
enum sidestep_status listing_read_annotations(struct listing *l, struct sidestep_error *err);
/* Pins, tags and metrics of ${entry}. */
enum sidestep_status listing_add_annotations(struct listing *l, struct sidestep_listed *entry,
                                             struct sidestep_error *err);
/* Of all entries: which would no resume take, although they are whole, and why? */
enum sidestep_status listing_mark_skipped(struct listing *l, struct sidestep_error *err);

#endif
