/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * extra_file.h -- the small files of a checkpoint, such as trainer_state.json: which names they may
 * have, and which lists of them are valid.
 *
 * The ranks give them to a save, and they are part of the checkpoint. File N of rank R is written
 * as `__R_N.<save id>.file`; in place and on object stores it keeps that name. The footer of the
 * rank's shard 0 lists the files of the rank; the manifest lists those of the checkpoint.
 */
#ifndef FORMAT_EXTRA_FILE_H
#define FORMAT_EXTRA_FILE_H

#include "base/base.h"
#include "codec/codec.h"

#define EXTRA_FILE_MAX_NAME_BYTES 1024u
#define EXTRA_FILE_MAX_DEPTH 8u                /* components of a name */
#define EXTRA_FILE_MAX_COUNT ((size_t)1 << 20) /* of a checkpoint */

struct extra_file {
    const char *name;   /* relative to the checkpoint */
    const char *stored; /* the name of the file that has the bytes; NULL: ${name} */
    uint64_t bytes;
    uint8_t sha256[HASH_SHA256_BYTES];
    uint32_t rank;   /* that gave it to the save */
    uint32_t number; /* among the files of the rank; a manifest does not keep it */
    bool is_alias;   /* a symbolic link to the checkpoint itself, without bytes */
    bool first_rank; /* if several ranks have one of this name, the lowest rank's is taken */
};

/* Check a name: a relative path of UTF-8 without control and combining characters, which no file of
 * sidestep or torch has. ${status}: of a violation (EINVAL for a writer, ECORRUPT for a reader). */
enum sidestep_status extra_file_check_name(const char *name, enum sidestep_status status,
                                           struct sidestep_error *err);
/* The same for all fields. */
enum sidestep_status extra_file_check(const struct extra_file *file, enum sidestep_status status,
                                      struct sidestep_error *err);
/* The name of the file with the bytes. */
static inline const char *extra_file_stored(const struct extra_file *file)
{
    return file->stored != NULL ? file->stored : file->name;
}

/* Names of which each leads to a file of its own, also on a file system that ignores case. Zeroed:
 * none. */
struct extra_file_names {
    struct hash_table names; /* folded: files and their directories */
    struct arena arena;
};
void extra_file_names_release(struct extra_file_names *names);
#define OWNED_EXTRA_FILE_NAMES                                                                     \
    __attribute__((cleanup(extra_file_names_release))) struct extra_file_names
/* Add the valid name of ${file}. ${status}: it is equal to an earlier name but for case, or one is
 * a directory of the other; the message says of which ranks the two are. */
enum sidestep_status extra_file_names_add(struct extra_file_names *names,
                                          const struct extra_file *file,
                                          enum sidestep_status status, struct sidestep_error *err);

#endif
