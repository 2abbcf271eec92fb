/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_file.c -- opens a data file and checks it against the manifest or .metadata; see
 * reader.h. */
#include <limits.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/reader.h"

/* Check the length of a file. A file of another length with an intact trailer was not truncated: it
 * is of another save or rank. */
static enum sidestep_status check_size(struct reader_file *file, const struct manifest_file *row,
                                       struct sidestep_error *err)
{
    struct footer_trailer trailer;
    char origin[SAVE_ID_HEX];

    if (file->source.length == row->bytes)
        return SIDESTEP_OK;
    if (footer_trailer_read(&file->source, &trailer, NULL) == SIDESTEP_OK) {
        hash_to_hex(trailer.save_id, SAVE_ID_BYTES, origin);
        file->problem = "id";
        if (strcmp(origin, row->origin) != 0)
            return FAIL(err, SIDESTEP_ECORRUPT, "it belongs to save %s, not %s", origin,
                        row->origin);
        return FAIL(
            err, SIDESTEP_ECORRUPT,
            "it is another file of that save: it has %llu bytes instead of %llu, and a trailer",
            (unsigned long long)file->source.length, (unsigned long long)row->bytes);
    }
    file->problem = "size";
    return FAIL(err, SIDESTEP_ECORRUPT, "it has %llu bytes instead of %llu",
                (unsigned long long)file->source.length, (unsigned long long)row->bytes);
}

/* Check that a file written by sidestep has the footer that the manifest lists. */
static enum sidestep_status check_footer(struct reader *r, struct reader_file *file,
                                         const struct manifest_file *row,
                                         struct sidestep_error *err)
{
    uint8_t sha256[HASH_SHA256_BYTES];
    char origin[SAVE_ID_HEX];

    TRY(check_size(file, row, err));
    file->problem = "format";
    enum sidestep_status status = footer_read(&file->source, &r->arena, &file->footer, sha256, err);
    if (status == SIDESTEP_ENOTFOUND)
        return FAIL(err, SIDESTEP_ECORRUPT, "its trailer is missing");
    TRY(status);
    file->problem = "id";
    hash_to_hex(file->footer.save_id, SAVE_ID_BYTES, origin);
    if (strcmp(origin, row->origin) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "it belongs to save %s, not %s", origin, row->origin);
    file->problem = "hash";
    if (memcmp(sha256, row->footer_sha256, HASH_SHA256_BYTES) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "it is not the file that the manifest lists");
    file->ours = true;
    file->problem = NULL;
    file->footer_offset = file->footer.begin;
    return SIDESTEP_OK;
}

/* Check that a file of a stock checkpoint has no trailer of sidestep, and all of its items. If it
 * has a trailer, .metadata was changed. */
static enum sidestep_status check_stock_file(struct reader_file *file, struct sidestep_error *err)
{
    struct footer_trailer trailer;
    struct sidestep_error why = {0};
    char origin[SAVE_ID_HEX];
    enum sidestep_status status = footer_trailer_read(&file->source, &trailer, &why);

    if (status == SIDESTEP_ENOTFOUND) {
        file->problem = "size";
        TRY(reader_file_check_end(file, file->source.length, err));
        file->problem = NULL;
        return SIDESTEP_OK;
    }
    file->problem = "id";
    if (status == SIDESTEP_OK) {
        hash_to_hex(trailer.save_id, SAVE_ID_BYTES, origin);
        return FAIL(err, SIDESTEP_ECORRUPT, "it belongs to save %s, which %s does not name", origin,
                    FILE_NAME_METADATA);
    }
    return error_copy(err, &why);
}

enum sidestep_status reader_file_check_end(const struct reader_file *file, uint64_t bytes,
                                           struct sidestep_error *err)
{
    if (bytes >= file->bytes)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "it has %llu bytes, but '%s' ends at byte %llu",
                (unsigned long long)bytes, display_name(file->last).text,
                (unsigned long long)file->bytes);
}

/* Check that ${now} is the file that was opened. Another one is not known to be damaged: somebody
 * may be moving it to another disk. The ctime of a file of sidestep may change, because the
 * checkpoints of a series share the file by hard links; hashes show its content. */
static enum sidestep_status check_same(const struct reader_file *file, const struct store_stat *now,
                                       struct sidestep_error *err)
{
    const struct store_stat *then = &file->stat;

    if (now->inode != then->inode || now->device != then->device)
        return FAIL(err, SIDESTEP_EIO, "file '%s' was replaced while it was being read",
                    file->name);
    if (now->size != then->size || now->modified_ns != then->modified_ns ||
        (!file->ours && now->changed_ns != then->changed_ns))
        return FAIL(err, SIDESTEP_ECORRUPT, "file '%s' was changed while it was being read",
                    file->name);
    return SIDESTEP_OK;
}

static const char *name_in_dir(const struct reader_file *file)
{
    return file->name_there != NULL ? file->name_there : file->name;
}

/* Open a file again that is not held open. Fails if it is not the file that was checked. */
static enum sidestep_status reopen(const struct reader_file *file, struct store_file **out,
                                   struct sidestep_error *err)
{
    struct store_stat now;

    TRY(store_file_open_to_read(file->dir, name_in_dir(file), 0, out, err));
    TRY(store_file_stat(*out, &now, err));
    return check_same(file, &now, err);
}

bool reader_file_has_wrong_size(const struct reader_file *file)
{
    return file->problem != NULL && strcmp(file->problem, "size") == 0;
}

enum sidestep_status reader_check_unchanged(struct reader *r, struct sidestep_error *err)
{
    for (size_t i = 0; i < r->file_count; i++) {
        const struct reader_file *file = &r->files[i];
        OWNED_FILE *opened = NULL;
        struct store_stat now;

        if (file->dir == NULL || (file->problem != NULL && !reader_file_has_wrong_size(file)))
            continue; /* no data of it was read */
        if (file->file == NULL) {
            TRY(reopen(file, &opened, err));
        } else {
            TRY(store_file_stat(file->file, &now, err));
            TRY(check_same(file, &now, err));
        }
    }
    return SIDESTEP_OK;
}

static enum sidestep_status read_file_at(const struct source *source, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    const struct reader_file *file = source->context;
    OWNED_FILE *opened = NULL;

    if (file->file == NULL)
        TRY(reopen(file, &opened, err));
    return store_file_read_at(opened != NULL ? opened : file->file, to, bytes, offset, err);
}

enum sidestep_status reader_file_open(struct reader_file *file, struct store_dir *dir,
                                      uint32_t flags, struct sidestep_error *err)
{
    TRY(store_file_open_to_read(dir, name_in_dir(file), flags & ~READER_FLAGS, &file->file, err));
    TRY(store_file_stat(file->file, &file->stat, err));
    file->dir = dir;
    file->source =
        (struct source){.length = file->stat.size, .read_at = read_file_at, .context = file};
    return SIDESTEP_OK;
}

/* No file has such a name, so the metadata that contains it is damaged. Storage may refuse shorter
 * names, too, which says nothing about the metadata. */
static bool has_impossible_name(const struct reader_file *file)
{
    for (const char *name = file->name; name != NULL; name = strchr(name, '/')) {
        name += *name == '/';
        if (strcspn(name, "/") > NAME_MAX)
            return true;
    }
    return false;
}

/* Is the file that the manifest lists in r->beside, too? Then it is opened there. */
static bool open_beside(struct reader *r, size_t i, const char *name, uint32_t flags)
{
    struct reader_file *file = &r->files[i];

    file->name_there = name;
    if (reader_file_open(file, r->beside, flags, NULL) == SIDESTEP_OK &&
        check_footer(r, file, &r->manifest.files[i], NULL) == SIDESTEP_OK)
        return true;
    store_file_discard(TAKE(file->file));
    file->dir = NULL;
    file->name_there = file->problem = NULL;
    return false;
}

/* The names of shards have the save id in them where nothing is renamed, as in a bucket. */
static bool is_beside(struct reader *r, size_t i, uint32_t flags)
{
    struct file_name parsed = file_name_parse(r->files[i].name);
    char plain[FILE_NAME_BYTES];

    if (r->beside == NULL || !r->has_manifest)
        return false;
    if (open_beside(r, i, NULL, flags))
        return true;
    if (parsed.kind != FILE_NAME_SHARD || parsed.save_id[0] == '\0')
        return false;
    file_name_format(FILE_NAME_SHARD, "", parsed.rank, parsed.shard, plain);
    const char *name = arena_strndup(&r->arena, plain, strlen(plain));
    return name != NULL && open_beside(r, i, name, flags);
}

static enum sidestep_status check_file(struct reader *r, size_t i, uint32_t flags,
                                       struct sidestep_error *err)
{
    struct reader_file *file = &r->files[i];
    struct sidestep_error why = {.rank = -1};

    if (is_beside(r, i, flags))
        return SIDESTEP_OK;
    enum sidestep_status status = reader_file_open(file, r->dir, flags, &why);

    if (status == SIDESTEP_ENOTFOUND || has_impossible_name(file)) {
        file->problem = "missing";
        return FAIL(err, SIDESTEP_ECORRUPT, "%s",
                    status == SIDESTEP_ENOTFOUND ? "it is missing" : why.message);
    }
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    return r->has_manifest ? check_footer(r, file, &r->manifest.files[i], err)
                           : check_stock_file(file, err);
}

/* The kind of the problem. A failed read is "io": the file may be whole. */
static const char *problem_of(const struct reader_file *file, enum sidestep_status status)
{
    if (status == SIDESTEP_EPERM)
        return "permission";
    if (status == SIDESTEP_EUNCOMMITTED)
        return "incomplete";
    if (status == SIDESTEP_EUNSAFE && file->problem == NULL)
        return "unsafe";
    bool is_damage = status == SIDESTEP_ECORRUPT || status == SIDESTEP_EUNSUPPORTED ||
                     status == SIDESTEP_EUNSAFE;
    return is_damage && file->problem != NULL ? file->problem : "io";
}

enum sidestep_status reader_file_check(struct reader *r, size_t i, uint32_t flags,
                                       struct sidestep_error *err)
{
    struct reader_file *file = &r->files[i];
    struct sidestep_error why = {0};
    enum sidestep_status status = check_file(r, i, flags, &why);

    if (status == SIDESTEP_ECORRUPT && file->file != NULL &&
        pointer_file_check(&file->source, &why) != SIDESTEP_OK)
        status = SIDESTEP_EUNCOMMITTED;
    if (file->file != NULL && r->open_files++ >= READER_MAX_OPEN_FILES) {
        store_file_discard(TAKE(file->file));
        r->open_files--;
    }
    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    file->problem = problem_of(file, status);
    file->status = status;
    file->message = arena_strndup(&r->arena, why.message, strlen(why.message));
    if ((flags & READER_TOLERANT) != 0 && file->message != NULL && status != SIDESTEP_ENOMEM)
        return SIDESTEP_OK;
    error_copy(err, &why);
    error_wrap(err, "file '%s'", file->name);
    return status;
}

/* ---- files that are opened late */

static enum sidestep_status check_stored_size(struct reader *r, struct reader_file *file,
                                              struct sidestep_error *err)
{
    struct store_stat stat;
    enum sidestep_status status = store_stat_to_read(r->dir, file->name, &stat, err);

    if (status == SIDESTEP_ENOTFOUND)
        return FAIL(err, SIDESTEP_ECORRUPT, "it is missing");
    TRY(status);
    if (stat.kind != STORE_FILE)
        return FAIL(err, SIDESTEP_EIO, "it is not a regular file");
    if (!r->has_manifest) {
        TRY(reader_file_check_end(file, stat.size, err));
        file->bytes = stat.size;
    }
    if (stat.size != file->bytes)
        return FAIL(err, SIDESTEP_ECORRUPT, "it has %llu bytes instead of %llu",
                    (unsigned long long)stat.size, (unsigned long long)file->bytes);
    return SIDESTEP_OK;
}

enum sidestep_status reader_check_sizes(struct reader *r, size_t begin, size_t end,
                                        struct sidestep_error *err)
{
    while (begin < end && r->files[begin].dir != NULL)
        begin++;
    if (begin != end) /* an object store lists a thousand sizes with one request */
        TRY(store_dir_remember(r->dir, err));
    for (size_t i = begin; i < end; i++)
        if (r->files[i].dir == NULL)
            TRY(WRAP(check_stored_size(r, &r->files[i], err), err, "file '%s'", r->files[i].name));
    return SIDESTEP_OK;
}

enum sidestep_status reader_admit_file(struct reader *r, const struct reader_file *file,
                                       struct sidestep_error *err)
{
    if (!r->opens_late || file->dir != NULL)
        return SIDESTEP_OK;
    return reader_file_check(r, (size_t)(file - r->files), r->flags, err);
}

enum sidestep_status reader_admit(struct reader *r, const struct metadata_storage *storage,
                                  struct sidestep_error *err)
{
    size_t i = storage->file != NULL ? hash_table_find(&r->file_names, storage->file) : SIZE_MAX;

    return i != SIZE_MAX ? reader_admit_file(r, &r->files[i], err) : SIDESTEP_OK;
}

uint64_t reader_data_bytes(const struct reader *r)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < r->file_count; i++)
        if (r->files[i].dir != NULL)
            bytes += r->files[i].source.length;
        else if (r->files[i].problem == NULL)
            bytes += r->files[i].bytes;
    return bytes;
}
