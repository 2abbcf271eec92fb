/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * file_name.h -- the names on disk, in one place.  Hidden names never contain the target's name, so
 * that other tools' finders ("step-(\d+)" anywhere in a name) do not take them for checkpoints.
 */
#ifndef FORMAT_FILE_NAME_H
#define FORMAT_FILE_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/footer.h"

#define FILE_NAME_BYTES 256 /* bytes of any name below, NUL included */
#define FILE_NAME_METADATA ".metadata"
#define FILE_NAME_SERIES_DIR ".sidestep"
#define NAMES_COMMIT_LOCK ".sidestep.committing"

enum file_name_kind {
    FILE_NAME_NONE,         /* not one of ours */
    FILE_NAME_SAVING,       /* .sidestep.<id>.saving    directory */
    FILE_NAME_TRASH,        /* .sidestep.<id>.trash     directory */
    FILE_NAME_BAD,          /* .sidestep.<id>.bad       directory */
    FILE_NAME_OUTCOME,      /* .sidestep.<id>.outcome   file */
    FILE_NAME_PENDING,      /* .sidestep.<id>.pending   file */
    FILE_NAME_MANIFEST,     /* .sidestep.manifest.<id>  file */
    FILE_NAME_VOTE,         /* __<rank>.<id>.yes        file */
    FILE_NAME_FAILED,       /* __<rank>.<id>.failed     file */
    FILE_NAME_SHARD,        /* __<rank>_<n>.<id>.distcp or __<rank>_<n>.distcp (id "") */
    FILE_NAME_PART,         /* the same with ".part" behind */
    FILE_NAME_METADATA_TMP, /* .metadata.<id> */
    FILE_NAME_EXPORT,       /* .sidestep.<id>.export    file */
    FILE_NAME_LOCK,         /* NAMES_COMMIT_LOCK: no id; not for file_name_format() */
};
struct file_name {
    enum file_name_kind kind;
    char save_id[SAVE_ID_HEX]; /* "" if the name has none */
    uint32_t rank;
    uint32_t shard;
};
/* Strict: exactly the forms above, 32 lower-case hexadecimal digits, no leading zeroes. */
struct file_name file_name_parse(const char *name);

/* Write the name of ${kind} into ${out}.  ${save_id} may be "" for SHARD and PART only. */
void file_name_format(enum file_name_kind kind, const char *save_id, uint32_t rank, uint32_t shard,
                      char out[FILE_NAME_BYTES]);

bool file_name_has_suffix(const char *name, const char *ending);
/* The number that [digits, end), which are digits, say; -1: there is none, or it is too large. */
int64_t file_name_parse_number(const char *digits, const char *end);
/* The ending of ${name} that is one of names above, and so of no checkpoint; NULL: it has none. */
const char *file_name_reserved_suffix(const char *name);

/* A relative path that stays beneath its directory: not empty, not absolute, no "." or ".." or
 * empty component, no NUL or control byte, at most 4,095 bytes. */
bool file_name_is_beneath(const char *path, size_t length);

#endif
