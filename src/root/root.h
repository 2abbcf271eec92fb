/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * root.h -- operates on what checkpoints lie in: a directory, or a prefix of a bucket.
 *
 * A root has a table of operations, because the two differ in more than single calls of storage:
 * a directory has names that can be renamed and locks that end with their holder; a bucket has
 * keys, conditional puts and a clock of its own. root.c chooses the table by the layout of the
 * store. No other code asks which of the two a root is; commit/form.h does the same for the steps
 * of a save. Each family of operations has one file for directories and one for buckets:
 *
 *     family    directory            bucket            answers
 *     owner     directory_owner.c    bucket_owner.c    who writes a save, and has it ended?
 *     writers   directory_writers.c  bucket_writers.c  how far are the ranks of a save?
 *     lease     directory_lease.c    bucket_lease.c    which run owns a series?
 *     deletion  directory_delete.c   bucket_root.c     a checkpoint goes, as a whole
 *     probe     directory_probe.c    bucket_probe.c    what does this storage allow?
 *
 * What comes in: open directories of a store (store/store.h). What goes out: facts, and changes
 * that other processes see as a whole or not at all.
 *
 * Ownership: handles and memory belong to the struct of the family until it is released.
 *
 * Threads: none here. A lease may be checked by any thread; all else belongs to one.
 */
#ifndef ROOT_ROOT_H
#define ROOT_ROOT_H

#include "commit/commit.h"
#include "root/deletion.h"
#include "root/doctor_findings.h"
#include "root/index.h"
#include "root/lease.h"
#include "root/lease_state.h"
#include "root/owner.h"
#include "root/writers.h"

struct root_ops {
    /* ---- owner.h, writers.h */
    enum sidestep_status (*find_saves)(struct store_dir *dir, const struct name_list *names,
                                       struct name_list *save_ids, struct sidestep_error *err);
    enum sidestep_status (*read_owner)(struct store_dir *dir, const char *save_id,
                                       struct owner *owner, struct sidestep_error *err);
    enum sidestep_status (*find_writers)(struct writers *writers, const struct writers_save *save,
                                         struct sidestep_error *err);

    /* ---- remove what dead saves left (commit/sweep.h) in the root, and in checkpoints below it */
    enum sidestep_status (*sweep)(struct sweep *sweep, struct sidestep_error *err);
    enum sidestep_status (*sweep_below)(struct sweep *sweep, struct sidestep_error *err);

    /* ---- lease.h. ${path} is that of the root, whose directories are open. ${starts_run}: start a
     * run if there is none yet; false: for a caller that only deletes. */
    enum sidestep_status (*take_lease)(struct lease *lease, const char *path, bool starts_run,
                                       struct sidestep_error *err);
    /* Rename a damaged checkpoint, so that nobody takes it again. OK also if it keeps its name,
     * because it cannot be renamed, or was replaced: the next resume looks at it again. */
    enum sidestep_status (*set_aside)(struct lease *lease, const char *name, const char *save_id,
                                      struct sidestep_error *err);

    /* ---- index.h. Read the manifests and annotations of ${root_dir}, for which
     * store_dir_remember() was called, so that small_file_read() finds them. What cannot be read
     * now is read when it is needed. ${keeps}: write the index again if it lacked more than one in
     * a thousand names; the listing does not fail if this fails. NULL: files are quick to read. */
    enum sidestep_status (*read_index)(struct store_dir *root_dir,
                                       index_is_annotation *is_annotation, bool keeps,
                                       struct sidestep_error *err);

    /* ---- deletion.h */
    struct deletion_ops deletion;

    /* ---- doctor_findings.h: find out what the storage at ${path} supports */
    enum sidestep_status (*probe)(struct doctor *doctor, struct store *store, const char *path,
                                  struct sidestep_error *err);
};

extern const struct root_ops root_directory;
extern const struct root_ops root_bucket;

const struct root_ops *root_of(const struct store *store);

/* The calls. */
static inline enum sidestep_status root_find_saves(struct store_dir *dir,
                                                   const struct name_list *names,
                                                   struct name_list *save_ids,
                                                   struct sidestep_error *err)
{
    return root_of(dir->store)->find_saves(dir, names, save_ids, err);
}
static inline enum sidestep_status root_read_owner(struct store_dir *dir, const char *save_id,
                                                   struct owner *owner, struct sidestep_error *err)
{
    return root_of(dir->store)->read_owner(dir, save_id, owner, err);
}
static inline enum sidestep_status root_find_writers(struct writers *writers,
                                                     const struct writers_save *save,
                                                     struct sidestep_error *err)
{
    return root_of(save->dir->store)->find_writers(writers, save, err);
}
static inline enum sidestep_status root_sweep(struct sweep *sweep, struct sidestep_error *err)
{
    return root_of(sweep->parent->store)->sweep(sweep, err);
}
static inline enum sidestep_status root_sweep_below(struct sweep *sweep, struct sidestep_error *err)
{
    return root_of(sweep->parent->store)->sweep_below(sweep, err);
}
static inline enum sidestep_status root_set_aside(struct lease *lease, const char *name,
                                                  const char *save_id, struct sidestep_error *err)
{
    return root_of(lease->store)->set_aside(lease, name, save_id, err);
}
static inline enum sidestep_status root_read_index(struct store_dir *root_dir,
                                                   index_is_annotation *is_annotation, bool keeps,
                                                   struct sidestep_error *err)
{
    const struct root_ops *ops = root_of(root_dir->store);

    return ops->read_index != NULL ? ops->read_index(root_dir, is_annotation, keeps, err)
                                   : SIDESTEP_OK;
}
static inline enum sidestep_status root_probe(struct doctor *doctor, struct store *store,
                                              const char *path, struct sidestep_error *err)
{
    return root_of(store)->probe(doctor, store, path, err);
}

#endif
