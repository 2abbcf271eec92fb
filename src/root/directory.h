/* SPDX-License-Identifier: BSD-3-Clause */
/* directory.h -- declares the operations of a root in a directory, for their table
 * (directory_root.c). */
#ifndef ROOT_DIRECTORY_H
#define ROOT_DIRECTORY_H

#include "root/root.h"

/* directory_owner.c */
enum sidestep_status directory_find_saves(struct store_dir *dir, const struct name_list *names,
                                          struct name_list *save_ids, struct sidestep_error *err);
enum sidestep_status directory_read_owner(struct store_dir *dir, const char *save_id,
                                          struct owner *owner, struct sidestep_error *err);
/* directory_writers.c */
enum sidestep_status directory_find_writers(struct writers *writers,
                                            const struct writers_save *save,
                                            struct sidestep_error *err);
/* directory_lease.c */
enum sidestep_status directory_take_lease(struct lease *lease, const char *path, bool starts_run,
                                          struct sidestep_error *err);
/* directory_delete.c */
const char *directory_find_objection(struct store_dir *root, const char *name, const char *save_id);
enum sidestep_status directory_delete_look(struct deletion *deletion, struct sidestep_error *err);
uint64_t directory_delete_bytes(const struct deletion *deletion);
enum sidestep_status directory_delete_hide(struct deletion *deletion, struct sidestep_error *err);
bool directory_delete_was_replaced(const struct deletion *deletion);
enum sidestep_status directory_delete_restore(struct deletion *deletion,
                                              struct sidestep_error *err);
enum sidestep_status directory_delete_finish(struct deletion *deletion, uint64_t *bytes,
                                             struct sidestep_error *err);
/* directory_probe.c */
enum sidestep_status directory_probe(struct doctor *doctor, struct store *store, const char *path,
                                     struct sidestep_error *err);

#endif
