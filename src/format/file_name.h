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

#define NAMES_MAX 256 /* bytes of any name below, NUL included */
#define NAMES_METADATA ".metadata"
#define NAMES_SERIES_DIR ".sidestep"
#define NAMES_COMMIT_LOCK ".sidestep.committing"

enum names_kind {
    NAMES_NONE,     /* not one of ours */
    NAMES_SAVING,   /* .sidestep.<id>.saving    directory */
    NAMES_TRASH,    /* .sidestep.<id>.trash     directory */
    NAMES_BAD,      /* .sidestep.<id>.bad       directory */
    NAMES_OUTCOME,  /* .sidestep.<id>.outcome   file */
    NAMES_PENDING,  /* .sidestep.<id>.pending   file */
    NAMES_MANIFEST, /* .sidestep.manifest.<id>  file */
    NAMES_YES,      /* __<rank>.<id>.yes        file */
    NAMES_FAILED,   /* __<rank>.<id>.failed     file */
    NAMES_SHARD,    /* __<rank>_<n>.<id>.distcp or __<rank>_<n>.distcp (id "") */
    NAMES_PART,     /* the same with ".part" behind */
    NAMES_META_TMP, /* .metadata.<id> */
    NAMES_EXPORT,   /* .sidestep.<id>.export    file */
    NAMES_LOCK,     /* NAMES_COMMIT_LOCK: no id; not for names_format() */
};
struct names_parsed {
    enum names_kind kind;
    char save_id[SAVE_ID_HEX]; /* "" if the name has none */
    uint32_t rank;
    uint32_t shard;
};
/* Strict: exactly the forms above, 32 lower-case hexadecimal digits, no leading zeroes. */
struct names_parsed names_parse(const char *name);

/* Write the name of ${kind} into ${out}.  ${save_id} may be "" for SHARD and PART only. */
void names_format(enum names_kind kind, const char *save_id, uint32_t rank, uint32_t shard,
                  char out[NAMES_MAX]);

bool names_end_with(const char *name, const char *ending);
/* The number that [digits, end), which are digits, say; -1: there is none, or it is too large. */
int64_t names_number(const char *digits, const char *end);
/* The ending of ${name} that is one of names above, and so of no checkpoint; NULL: it has none. */
const char *names_reserved_ending(const char *name);

/* A relative path that stays beneath its directory: not empty, not absolute, no "." or ".." or
 * empty component, no NUL or control byte, at most 4,095 bytes. */
bool names_is_beneath(const char *path, size_t length);

#endif
