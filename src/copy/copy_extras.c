/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_extras.c -- copies the extra files of a checkpoint; see copy.h.
 *
 * Each is written, synced, and read back: only the hash of what is at the destination counts.
 */
#include <string.h>

#include "base/base.h"
#include "copy/copy.h"

#define PIECE_BYTES ((size_t)4 << 20)

bool copy_is_extra(const struct checkpoint_copy *c, const char *name)
{
    const struct manifest *manifest = &c->reader->manifest;
    size_t length = strlen(name);

    for (size_t i = 0; i < manifest->extra_count; i++) {
        const char *theirs = manifest->extras[i].name;
        if (strncmp(theirs, name, length) == 0 && (theirs[length] == '\0' || theirs[length] == '/'))
            return true;
    }
    return false;
}

/* Is the file at the destination, with the listed hash? ${*is_there}: a file of this name is. */
static bool is_whole(struct checkpoint_copy *c, const struct extra_file *file, bool *is_there,
                     struct sidestep_error *err)
{
    uint8_t sha256[HASH_SHA256_BYTES];
    OWNED_FILE *opened = NULL;
    struct store_stat stat;

    *is_there = store_file_open(c->dir, extra_file_stored(file), 0, &opened, err) == SIDESTEP_OK;
    if (!*is_there || store_file_stat(opened, &stat, err) != SIDESTEP_OK)
        return false;
    struct source source = small_file_source(opened, stat.size);
    return stat.size == file->bytes && hash_sha256_source(&source, sha256, err) == SIDESTEP_OK &&
           memcmp(sha256, file->sha256, sizeof(sha256)) == 0 &&
           (!c->target->is_private || store_file_sync(opened, err) == SIDESTEP_OK);
}

static enum sidestep_status write_pieces(struct checkpoint_copy *c, const struct extra_file *file,
                                         struct store_file *from, struct store_file *to,
                                         struct sidestep_error *err)
{
    OWNED uint8_t *piece = memory_resize(NULL, min_u64(file->bytes, PIECE_BYTES), 1);

    if (piece == NULL)
        return FAIL_NOMEM(err, PIECE_BYTES);
    for (uint64_t at = 0; at < file->bytes;) {
        size_t bytes = (size_t)min_u64(file->bytes - at, PIECE_BYTES);
        TRY(store_file_read_at(from, piece, bytes, at, err));
        TRY(store_file_write_at(to, piece, bytes, at, err));
        TRY(copy_add_progress(c, bytes, err));
        at += bytes;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status write_file(struct checkpoint_copy *c, const struct extra_file *file,
                                       struct sidestep_error *err)
{
    OWNED_DIR *owned = NULL;
    OWNED_FILE *from = NULL, *to = NULL;
    struct store_dir *parent;
    const char *last;

    TRY(store_file_open_to_read(c->reader->dir, extra_file_stored(file), 0, &from, err));
    TRY(extra_path_open(c->dir, extra_file_stored(file), true, &owned, &parent, &last, err));
    if (c->target->is_private) /* what an interrupted copy left */
        (void)store_unlink(parent, last, NULL);
    TRY(store_file_create(parent, last, 0, &to, err));
    TRY(write_pieces(c, file, from, to, err));
    TRY(store_file_sync(to, err));
    TRY(store_file_close(TAKE(to), err));
    return owned != NULL ? store_dir_sync(owned, err) : SIDESTEP_OK;
}

static enum sidestep_status copy_one(struct checkpoint_copy *c, const struct extra_file *file,
                                     struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    bool is_there;

    if (is_whole(c, file, &is_there, NULL))
        return copy_add_progress(c, file->bytes, err);
    /* Only a name with the save id cannot be somebody else's. */
    if (is_there && !c->target->is_private && file->stored == NULL)
        return FAIL(err, SIDESTEP_EEXISTS,
                    "the destination has another file of this name, which stays: copy to another "
                    "name");
    TRY(write_file(c, file, err));
    if (is_whole(c, file, &is_there, &why)) {
        c->copied_count++;
        c->copied_bytes += file->bytes;
        return SIDESTEP_OK;
    }
    return why.status != SIDESTEP_OK && why.status != SIDESTEP_ECORRUPT
               ? error_copy(err, &why)
               : FAIL(err, SIDESTEP_ECORRUPT, "its bytes do not match their hash");
}

enum sidestep_status copy_extras(struct checkpoint_copy *c, struct sidestep_error *err)
{
    const struct manifest *manifest = &c->reader->manifest;

    for (size_t i = 0; i < manifest->extra_count; i++)
        if (!manifest->extras[i].is_alias)
            TRY(WRAP(copy_one(c, &manifest->extras[i], err), err, "file '%s'",
                     manifest->extras[i].name));
    return c->target->is_private && manifest->extra_count != 0
               ? extra_path_sync_all(c->dir, manifest, err)
               : SIDESTEP_OK;
}
