/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * export.h -- publishes files that are not a checkpoint: whole and durable, or not at all.
 *
 * The files are written in a hidden directory beside the destination, like those of saves.  A
 * locked pending marker shows that a process is writing it, so that a sweep can remove what a
 * killed process leaves.  A second marker says that all files in it are ours, whatever their names.
 * One rename then publishes the directory, or the one file in it.
 */
#ifndef CONVERT_EXPORT_H
#define CONVERT_EXPORT_H

#include "commit/commit.h"

struct export
{
    struct commit commit;
    bool is_file; /* the destination is a file; else a directory */
    bool replace;
    bool exists; /* the destination exists and is not an empty directory */
    bool (*is_known)(const char *name);
    const char *side; /* name of a second file, beside the first; or NULL */
    bool stays;       /* export_end() leaves what was not published, to be resumed */
};

/* Check ${path}, and make the hidden directory.  EEXISTS: what is there must not be replaced.  With
 * ${replace}, a file may replace a file, and a directory may replace one whose names all satisfy
 * ${is_known}.  On failure nothing is left behind.  Call export_end() in any case. */
enum sidestep_status export_begin(struct export *e, struct store *store, struct clock *clock,
                                  const char *path, bool is_file, bool replace,
                                  bool (*is_known)(const char *name), struct sidestep_error *err);
/* The same for a directory of files with names of sidestep, so that it needs no second marker.  If
 * a dead process left the hidden directory of this ${id}, go on in it.  ELOCKED: a live one writes
 * to it.  export_end() leaves it if e->stays. */
enum sidestep_status export_resume(struct export *e, struct store *store, struct clock *clock,
                                   const char *path, const uint8_t id[SAVE_ID_BYTES], bool replace,
                                   bool (*is_known)(const char *name), struct sidestep_error *err);
/* Create a file: any in a directory; otherwise only e->commit.name and e->side. */
enum sidestep_status export_create_file(struct export *e, const char *name, uint32_t flags,
                                        struct store_file **file, struct sidestep_error *err);
/* Publish everything.  The files must be synced and closed.  On failure the destination is as it
 * was, except that a file that was to be replaced may be replaced by the new one, not durably.
 * EUNKNOWN: everything was published, but the path no longer leads there. */
enum sidestep_status export_publish(struct export *e, struct sidestep_error *err);
/* Remove what was not published; close all handles. */
void export_end(struct export *e);

#endif
