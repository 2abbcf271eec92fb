/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * file_name.h -- writes and parses the names of all files and directories on storage.
 *
 * Hidden names never contain the name of the checkpoint, so that tools which search for
 * "step-(\d+)" anywhere in a name do not take them for checkpoints.
 */
#ifndef FORMAT_FILE_NAME_H
#define FORMAT_FILE_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/footer.h"

#define FILE_NAME_BYTES 256 /* enough for any name below, with its NUL */
#define FILE_NAME_METADATA ".metadata"
#define FILE_NAME_SERIES_DIR ".sidestep"
/* Directories in which hooks of frameworks write begin with this: they are not published. */
#define FILE_NAME_UNPUBLISHED ".sidestep-"
#define FILE_NAME_COMMIT_LOCK ".sidestep.committing"

enum file_name_kind {
    FILE_NAME_NONE,         /* not a name of sidestep */
    FILE_NAME_SAVING,       /* .sidestep.<id>.saving    directory */
    FILE_NAME_TRASH,        /* .sidestep.<id>.trash     directory */
    FILE_NAME_BAD,          /* .sidestep.<id>.bad       directory */
    FILE_NAME_OUTCOME,      /* .sidestep.<id>.outcome   file */
    FILE_NAME_PENDING,      /* .sidestep.<id>.pending   file */
    FILE_NAME_MANIFEST,     /* .sidestep.manifest.<id>  file */
    FILE_NAME_INDEX,        /* .sidestep.index.<id>     file */
    FILE_NAME_VOTE,         /* __<rank>.<id>.yes        file */
    FILE_NAME_FAILED,       /* __<rank>.<id>.failed     file */
    FILE_NAME_SHARD,        /* __<rank>_<n>.<id>.distcp or __<rank>_<n>.distcp (id "") */
    FILE_NAME_PART,         /* the same, followed by ".part" */
    FILE_NAME_EXTRA,        /* __<rank>_<n>.<id>.file   file */
    FILE_NAME_METADATA_TMP, /* .metadata.<id> */
    FILE_NAME_EXPORT,       /* .sidestep.<id>.export    file */
    FILE_NAME_LOCK,         /* FILE_NAME_COMMIT_LOCK; not for file_name_format() */
};
struct file_name {
    enum file_name_kind kind;
    char save_id[SAVE_ID_HEX]; /* "" if the name has none */
    uint32_t rank;
    uint32_t shard; /* of EXTRA: the number of the file */
};
/* Parse a name.  It must have exactly one of the forms above, with 32 lower-case hexadecimal digits
 * and no leading zeroes. */
struct file_name file_name_parse(const char *name);

/* Write the name of ${kind} to ${out}.  ${save_id} may be "" only for SHARD and PART. */
void file_name_format(enum file_name_kind kind, const char *save_id, uint32_t rank, uint32_t shard,
                      char out[FILE_NAME_BYTES]);

/* Do names of this kind begin with the rank that made them? */
static inline bool file_name_has_rank(enum file_name_kind kind)
{
    return kind == FILE_NAME_VOTE || kind == FILE_NAME_FAILED || kind == FILE_NAME_SHARD ||
           kind == FILE_NAME_PART || kind == FILE_NAME_EXTRA;
}
/* Is it a save id of sidestep?  NULL is not. */
bool file_name_is_save_id(const char *id);
bool file_name_has_suffix(const char *name, const char *ending);
/* The number with the decimal digits [digits, end).  -1: there are none, other characters, or it is
 * too large. */
int64_t file_name_parse_number(const char *digits, const char *end);
/* The suffix of ${name}, if only files of sidestep have it.  Otherwise NULL. */
const char *file_name_reserved_suffix(const char *name);

/* Is it a relative path that stays beneath its directory?  It is not empty or absolute, has no
 * empty component, no "." or "..", no NUL or control byte, and at most 4,095 bytes. */
bool file_name_is_beneath(const char *path, size_t length);

#endif
