/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * export.h -- how files that are no checkpoint come to exist: whole and durable, or not at all.
 *
 * They are written in a hidden directory beside the destination, of the kind that saves have (with
 * a locked mark, so that what a killed process leaves is known for what it is, and swept), and a
 * second mark that says that all files in it are ours, whatever they are called.  One rename then
 * puts the directory, or the one file in it, in its place.
 */
#ifndef CONVERT_EXPORT_H
#define CONVERT_EXPORT_H

#include "commit/commit.h"

struct export
{
    struct commit commit;
    bool is_file; /* the destination; else a directory */
    bool replace;
    bool exists; /* something is in its place already */
    bool (*is_known)(const char *name);
    const char *side; /* beside a file, or NULL: the name of another one, that goes with it */
};

/* Look at ${path}, and make the hidden directory.  EEXISTS: what is there must not be replaced: by
 * ${replace}, a file is replaced by a file, and a directory of files whose names ${is_known} by
 * one. On failure nothing is left behind.  export_end() in any case. */
enum sidestep_status export_begin(struct export *e, struct store *store, struct clock *clock,
                                  const char *path, bool is_file, bool replace,
                                  bool (*is_known)(const char *name), struct sidestep_error *err);
/* A new file: of the directory; or the one, called e->commit.name, or e->side. */
enum sidestep_status export_create_file(struct export *e, const char *name, uint32_t flags,
                                        struct store_file **file, struct sidestep_error *err);
/* Put all in its place.  The files have been synced and closed.  On failure the destination is as
 * it was; a file that was to be replaced may be the new one, whose name may not be durable.
 * EUNKNOWN: all was put in its place, but the path does not lead there any more. */
enum sidestep_status export_publish(struct export *e, struct sidestep_error *err);
/* Remove what was not published; close all handles. */
void export_end(struct export *e);

#endif
