/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_export.h -- makes an export exist on an object store: whole, or not at all.
 *
 * One object publishes all files, the head: the file itself, or, in a directory, the index that
 * names the others (model.safetensors, if it is the only one). Steps, for a target s3://B/P/NAME:
 *
 *      1 begin    delete what dead exports left, and list what is there; put the marker
 *                 NAME/.sidestep/<id>/export, and again every minute, as that of a save
 *      2 files    to keys that contain the id, so nobody else uses them; each as soon as it is
 *                 whole; the parts of the head are sent, but it is not completed
 *      3 replace  put a marker with the id of the files that nobody will name any more
 *      4 publish  complete the head, on the condition that its key holds what it held in step 2;
 *                 then delete what was replaced, and the markers last
 *      abort      abort the uploads, delete the files, and the marker last
 *
 * If step 4 gets a 412 or no answer, the metadata of the head says who made it. If that does not
 * decide it, the outcome is UNKNOWN, and nothing is deleted.
 *
 * A sweep (object_sweep.c) deletes files with an id only where the marker of this id is dead (O6)
 * and the index does not name them. So files without a marker, which are those of whole
 * directories, are never deleted.
 */
#ifndef COMMIT_OBJECT_EXPORT_H
#define COMMIT_OBJECT_EXPORT_H

#include "commit/name_list.h"
#include "commit/object_layout.h"
#include "commit/referenced_files.h"
#include "object/object.h"

struct commit;

struct object_export {
    struct commit *commit;
    bool is_file; /* the target is a file; otherwise a directory */
    bool replace;
    bool (*is_known)(const char *name); /* only such names may be replaced */
    struct name_list replaced;          /* keys that the directory had before */
    struct name_list replaced_ids;      /* the ids in those keys */
    char head_key[OBJECT_KEY_BYTES];
    char head_tag[OBJECT_TAG_BYTES]; /* "": there was none */
    struct store_file *head;         /* all but its end is sent */
    bool stays;                      /* the export is published, or may be */
};

/* Step 1. Set the members up to ${is_known}, and ${commit} as for commit_begin(). EEXISTS: what is
 * there must not be replaced. Call object_export_end() in any case. */
enum sidestep_status object_export_begin(struct object_export *e, const char *url,
                                         const uint8_t id[SAVE_ID_BYTES],
                                         struct sidestep_error *err);
/* Step 2: create a file. ${is_head}: it publishes the others; exactly one file does. */
enum sidestep_status object_export_create(struct object_export *e, const char *name, bool is_head,
                                          struct store_file **file, struct sidestep_error *err);
/* Finish ${file}, which is whole. Takes ${file} over, also on failure. */
enum sidestep_status object_export_seal(struct object_export *e, bool is_head,
                                        struct store_file *file, struct sidestep_error *err);
/* Steps 3 and 4. EEXISTS: another process has changed the target. EUNKNOWN: the store does not
 * tell. */
enum sidestep_status object_export_publish(struct object_export *e, struct sidestep_error *err);
void object_export_end(struct object_export *e);

/* ---- object_export_sweep.c */

/* The id in the name of a file of a directory that was exported. False: it has none. */
bool object_export_parse(const char *name, char id[SAVE_ID_HEX]);
/* Add the files that the index in ${dir} names, if there is an index. */
enum sidestep_status object_export_read_index(struct store_dir *dir,
                                              struct referenced_files *named);
/* Abort the uploads of heads for ${dir} that began so long ago that they are dead. Call it only if
 * all exports there are dead. ${each} gets their names. */
void object_export_abort_heads(struct store_dir *dir, bool dry_run,
                               void (*each)(void *context, const char *name), void *context);

#endif
