/* SPDX-License-Identifier: BSD-3-Clause */
/* listing.h -- the state of a listing while it is made, shared by the files list*.c. */
#ifndef CATALOG_LISTING_H
#define CATALOG_LISTING_H

#include "catalog/annotations.h"
#include "catalog/list.h"
#include "format/format.h"
#include "root/root.h"

/* A checkpoint that shares files with earlier saves. */
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
    int root_bytes;   /* length of ${root} without trailing slashes */
    uint32_t flags;   /* of list_root() */
    bool has_changed; /* a name changed or disappeared while it was read */
    struct annotations annotations;
    char run_id[SAVE_ID_HEX]; /* of the series; "": there is no series */
    uint64_t incarnation;
    char record[LEASE_KEEPS_BYTES]; /* of what the run keeps; "": there is none */
    struct sidestep_listed *entries;
    size_t count;
    struct listing_shared_files *sharing; /* as many as entries, at most */
    size_t sharing_count;
};

/* list_entry.c: fill ${entry} for ${name}. ENOTFOUND: it is not a checkpoint, or is gone. */
enum sidestep_status listing_read_entry(struct listing *l, const char *name,
                                        struct sidestep_listed *entry, struct sidestep_error *err);

void listing_set_state(struct sidestep_listed *entry, enum sidestep_presence state);

/* list_check.c: find out which committed checkpoints are damaged or cannot be read. */
enum sidestep_status listing_check(struct listing *l, struct sidestep_error *err);

/* list_annotations.c: read the annotations, and which run owns the series, from ROOT/.sidestep. */
enum sidestep_status listing_read_annotations(struct listing *l, struct sidestep_error *err);
/* Add pins, tags and metrics to ${entry}. */
enum sidestep_status listing_add_annotations(struct listing *l, struct sidestep_listed *entry,
                                             struct sidestep_error *err);
/* Set the reason of all entries that a resume skips, although they are whole. */
enum sidestep_status listing_mark_skipped(struct listing *l, struct sidestep_error *err);

#endif
