/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket.h -- declares the operations of a root in a bucket, for their table (bucket_root.c). */
#ifndef ROOT_BUCKET_H
#define ROOT_BUCKET_H

#include "root/root.h"

/* bucket_owner.c */
enum sidestep_status bucket_find_saves(struct store_dir *dir, const struct name_list *names,
                                       struct name_list *save_ids, struct sidestep_error *err);
enum sidestep_status bucket_read_owner(struct store_dir *dir, const char *save_id,
                                       struct owner *owner, struct sidestep_error *err);
/* bucket_writers.c */
enum sidestep_status bucket_find_writers(struct writers *writers, const struct writers_save *save,
                                         struct sidestep_error *err);
/* bucket_lease.c. ELOCKED: other processes took each incarnation that this one tried. */
enum sidestep_status bucket_take_lease(struct lease *lease, const char *path, bool starts_run,
                                       struct sidestep_error *err);
/* bucket_index.c */
enum sidestep_status bucket_read_index(struct store_dir *root_dir,
                                       index_is_annotation *is_annotation, bool keeps,
                                       struct sidestep_error *err);
/* bucket_probe.c */
enum sidestep_status bucket_probe(struct doctor *doctor, struct store *store, const char *url,
                                  struct sidestep_error *err);

#endif
