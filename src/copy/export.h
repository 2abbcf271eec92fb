/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * export.h -- publishes files that are not a checkpoint: whole and durable, or not at all.
 *
 * In a bucket, commit/object_export.h does it. Elsewhere the files are written in a hidden
 * directory beside the destination, like those of saves.  A locked pending marker shows that a
 * process is writing it, so that a sweep can remove what a killed process leaves.  A second marker
 * says that sidestep wrote all files in it, whatever their names. One rename then publishes the
 * directory, or the one file in it.
 */
#ifndef COPY_EXPORT_H
#define COPY_EXPORT_H

#include "commit/commit.h"

struct export
{
    const struct export_ops *ops; /* for the storage of the destination */
    struct object_export objects; /* if that is a bucket */
    struct commit commit;
    bool is_file; /* the destination is a file; else a directory */
    bool replace;
    const char *replaces; /* the save id of the checkpoint that alone is replaced; NULL: any */
    bool exists;          /* the destination exists and is not an empty directory */
    bool (*is_known)(const char *name);
    bool stays;       /* export_end() leaves what was not published, to be resumed */
    const char *head; /* the file whose appearance publishes the others, which are sealed before */
    char infix[SAVE_ID_HEX + 1]; /* in names of other files of a directory: "." and an id, or "" */
};

struct export_ops {
    enum sidestep_status (*begin)(struct export *e, const char *path,
                                  const uint8_t id[SAVE_ID_BYTES], struct sidestep_error *err);
    enum sidestep_status (*create_file)(struct export *e, const char *name, uint32_t flags,
                                        struct store_file **file, struct sidestep_error *err);
    enum sidestep_status (*seal_file)(struct export *e, const char *name, struct store_file *file,
                                      struct sidestep_error *err);
    enum sidestep_status (*publish)(struct export *e, struct sidestep_error *err);
    void (*end)(struct export *e);
};
extern const struct export_ops export_to_files; /* export_to_files.c */

/* Check ${path}, and make the hidden directory.  EEXISTS: what is there must not be replaced.  With
 * ${replace}, a file may replace a file, and a directory may replace one whose names all satisfy
 * ${is_known}.  On failure nothing is left behind.  Call export_end() in any case. */
enum sidestep_status export_begin(struct export *e, struct store *store, struct clock *clock,
                                  const char *path, bool is_file, bool replace,
                                  bool (*is_known)(const char *name), struct sidestep_error *err);
/* The same for a directory of files with names of sidestep, so that it needs no second marker.  It
 * replaces only the checkpoint of the save ${replaces}, or, if that is NULL, any.  If a dead
 * process left the hidden directory of this ${id}, go on in it.  ELOCKED: a live one writes to it.
 * export_end() leaves it if e->stays. */
enum sidestep_status export_resume(struct export *e, struct store *store, struct clock *clock,
                                   const char *path, const uint8_t id[SAVE_ID_BYTES], bool replace,
                                   const char *replaces, bool (*is_known)(const char *name),
                                   struct sidestep_error *err);
/* Create a file: any in a directory; otherwise only e->commit.name.  e->head is set. */
static inline enum sidestep_status export_create_file(struct export *e, const char *name,
                                                      uint32_t flags, struct store_file **file,
                                                      struct sidestep_error *err)
{
    return e->ops->create_file(e, name, flags, file, err);
}
/* ${file} is whole: make it durable, and close it, also on failure. Any thread. */
static inline enum sidestep_status export_seal_file(struct export *e, const char *name,
                                                    struct store_file *file,
                                                    struct sidestep_error *err)
{
    return e->ops->seal_file(e, name, file, err);
}
/* Publish everything.  The files must be sealed.  On failure the destination is as it
 * was, except that a file that was to be replaced may be replaced by the new one, not durably.
 * EUNKNOWN: everything was published, but the path no longer leads there. */
static inline enum sidestep_status export_publish(struct export *e, struct sidestep_error *err)
{
    return e->ops->publish(e, err);
}
/* Remove what was not published; close all handles. */
static inline void export_end(struct export *e)
{
    e->ops->end(e);
}

#endif
