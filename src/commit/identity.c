/* SPDX-License-Identifier: BSD-3-Clause */
/* identity.c -- finds out whose checkpoint, and whose directory, a name on storage leads to. */
#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "commit/commit.h"
#include "commit/referenced_files.h"
#include "commit/small_file.h"
#include "format/format.h"

uint64_t commit_identity(const char *save_id)
{
    uint64_t hash = XXH3_64bits(save_id, strlen(save_id));

    return hash != 0 ? hash : 1;
}

enum sidestep_status commit_read_identity(struct store_dir *dir, uint64_t *identity,
                                          struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};
    OWNED_METADATA metadata = {0};
    OWNED_ARENA arena = {0};
    struct manifest manifest;
    uint8_t sha256[HASH_SHA256_BYTES];
    uint64_t length;
    struct sidestep_error why = {0};
    enum sidestep_status status = small_file_hash(
        dir, FILE_NAME_METADATA, 0, DCP_METADATA_MAX_BYTES, &length, sha256, NULL, &why);

    *identity = 0;
    if (status == SIDESTEP_OK &&
        referenced_files_find_manifest(dir, sha256, length, &arena, &manifest, NULL)) {
        *identity = commit_identity(manifest.save_id);
        return SIDESTEP_OK;
    }
    if (status == SIDESTEP_OK)
        status = small_file_read(dir, FILE_NAME_METADATA, 0, DCP_METADATA_MAX_BYTES, &bytes, &why);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    status = dcp_metadata_read(bytes.bytes, bytes.length, &metadata, NULL);
    if (status == SIDESTEP_ENOMEM) /* with more memory the result would differ */
        return FAIL_NOMEM(err, bytes.length);
    *identity = status == SIDESTEP_OK && metadata.save_id != NULL
                    ? commit_identity(metadata.save_id)
                    : XXH3_64bits(bytes.bytes, bytes.length) | 1;
    return SIDESTEP_OK;
}

bool commit_owns_name(const struct commit *commit, const char *name)
{
    struct store_stat stat;

    assert(commit->parent != NULL);
    return store_stat(commit->parent, name, &stat, NULL) == SIDESTEP_OK &&
           stat.inode == commit->dir_identity.inode && stat.device == commit->dir_identity.device;
}
