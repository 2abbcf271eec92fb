/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_extras.c -- copies the extra files of a checkpoint; see copy.h.
 *
 * Each is checked as it is read, written, synced, and read back: only the hash of what is at the
 * destination counts. In a save it is sealed like a shard.
 */
#include <string.h>

#include "base/base.h"
#include "copy/copy.h"

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

/* Is extra file ${i} at the destination, with the listed hash? ${*is_there}: a file of this name
 * is. */
static bool is_whole(struct checkpoint_copy *c, size_t i, bool *is_there,
                     struct sidestep_error *err)
{
    const struct extra_file *file = &c->reader->manifest.extras[i];
    uint8_t sha256[HASH_SHA256_BYTES];
    OWNED_FILE *opened = NULL;
    struct store_stat stat;

    *is_there = store_file_open(c->dir, c->extra_finals[i], 0, &opened, err) == SIDESTEP_OK;
    if (!*is_there || store_file_stat(opened, &stat, err) != SIDESTEP_OK)
        return false;
    struct source source = small_file_source(opened, stat.size);
    return stat.size == file->bytes && hash_sha256_source(&source, sha256, err) == SIDESTEP_OK &&
           memcmp(sha256, file->sha256, sizeof(sha256)) == 0 &&
           (!c->target->is_private || store_file_sync(opened, err) == SIDESTEP_OK);
}

/* Reads a file, and writes what was read. */
struct transfer {
    struct checkpoint_copy *c;
    struct store_file *from, *to;
};

static enum sidestep_status read_and_write(const struct source *source, void *to, size_t bytes,
                                           uint64_t offset, struct sidestep_error *err)
{
    const struct transfer *transfer = source->context;

    TRY(store_file_read_at(transfer->from, to, bytes, offset, err));
    TRY(store_file_write_at(transfer->to, to, bytes, offset, err));
    return copy_add_progress(transfer->c, bytes, err);
}

static enum sidestep_status write_checked(struct checkpoint_copy *c, const struct extra_file *file,
                                          struct store_file *from, struct store_file *to,
                                          struct sidestep_error *err)
{
    const struct transfer transfer = {c, from, to};
    const struct source source = {
        .length = file->bytes, .read_at = read_and_write, .context = &transfer};
    uint8_t sha256[HASH_SHA256_BYTES];

    TRY(hash_sha256_source(&source, sha256, err));
    if (memcmp(sha256, file->sha256, sizeof(sha256)) == 0)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "its bytes do not match their hash");
}

static enum sidestep_status write_file(struct checkpoint_copy *c, size_t i,
                                       struct sidestep_error *err)
{
    const struct extra_file *file = &c->reader->manifest.extras[i];
    OWNED_DIR *owned = NULL;
    OWNED_FILE *from = NULL, *to = NULL;
    struct store_dir *parent;
    const char *last;

    TRY(store_file_open_to_read(c->reader->dir, extra_file_stored(file), 0, &from, err));
    TRY(extra_path_open(c->dir, c->extra_written[i], true, &owned, &parent, &last, err));
    if (c->target->is_private) /* what an interrupted copy left */
        (void)store_unlink(parent, last, NULL);
    TRY(store_file_create(parent, last, 0, &to, err));
    TRY(write_checked(c, file, from, to, err));
    if (c->save != NULL)
        return copy_seal_in_save(c, c->extra_written[i], c->extra_finals[i], TAKE(to), err);
    TRY(store_file_sync(to, err));
    TRY(store_file_close(TAKE(to), err));
    return owned != NULL ? store_dir_sync(owned, err) : SIDESTEP_OK;
}

/* May the file be written, of which ${why} was found at the destination? */
static enum sidestep_status check_writable(const struct checkpoint_copy *c,
                                           const struct extra_file *file, bool is_there,
                                           const struct sidestep_error *why,
                                           struct sidestep_error *err)
{
    if (c->save != NULL && c->target->is_private) { /* what is sealed is never removed */
        if (why->status != SIDESTEP_OK && !reader_status_is_damage(why->status))
            return error_copy(err, why);
        return is_there ? FAIL(err, SIDESTEP_EDISAGREE,
                               "it is damaged at the destination, so all is sent anew")
                        : SIDESTEP_OK;
    }
    /* Only a name with the save id cannot be somebody else's. */
    if (is_there && c->save == NULL && !c->target->is_private && file->stored == NULL)
        return FAIL(err, SIDESTEP_EEXISTS,
                    "the destination has another file of this name, which stays: copy to another "
                    "name");
    return SIDESTEP_OK;
}

static enum sidestep_status copy_one(struct checkpoint_copy *c, size_t i,
                                     struct sidestep_error *err)
{
    const struct extra_file *file = &c->reader->manifest.extras[i];
    struct sidestep_error why = {.rank = -1}, after = {.rank = -1};
    bool is_there;

    if (is_whole(c, i, &is_there, &why))
        return copy_add_progress(c, file->bytes, err);
    TRY(check_writable(c, file, is_there, &why, err));
    TRY(write_file(c, i, err));
    if (is_whole(c, i, &is_there, &after)) {
        c->copied_count++;
        c->copied_bytes += file->bytes;
        return SIDESTEP_OK;
    }
    return after.status != SIDESTEP_OK && after.status != SIDESTEP_ECORRUPT
               ? error_copy(err, &after)
               : FAIL(err, SIDESTEP_ECORRUPT, "its bytes do not match their hash");
}

enum sidestep_status copy_extras(struct checkpoint_copy *c, struct sidestep_error *err)
{
    const struct manifest *manifest = &c->reader->manifest;

    for (size_t i = 0; i < manifest->extra_count; i++)
        if (!manifest->extras[i].is_alias)
            TRY(WRAP(copy_one(c, i, err), err, "file '%s'", manifest->extras[i].name));
    return c->target->is_private && c->save == NULL && manifest->extra_count != 0
               ? extra_path_sync_all(c->dir, manifest, err)
               : SIDESTEP_OK;
}
