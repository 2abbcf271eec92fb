/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy.c -- sidestep_copy(): copies a checkpoint between any two places.
 *
 * In order: open the source, as a load does; check the destination; begin there; find what an
 * interrupted copy left; copy the other files; publish.
 */
#include "copy/copy.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "object/object.h"
#include "selection/selection.h"

#define MIN_THREADS 4u
#define MAX_THREADS 8u
#define OBJECT_THREADS 16u /* requests to an object store wait for each other's answers */
#define LIMIT_THREADS 64u

_Static_assert(sizeof(struct sidestep_copy_options) == 40, "a field was added: check it below");

/* ---- the source */

static enum sidestep_status check_content(const struct buffer *bytes,
                                          const uint8_t expected[HASH_SHA256_BYTES],
                                          const char *name, struct sidestep_error *err)
{
    uint8_t sha256[HASH_SHA256_BYTES];

    hash_sha256(bytes->bytes, bytes->length, sha256);
    if (memcmp(sha256, expected, sizeof(sha256)) == 0)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "'%s' changed while it was read", name);
}

static enum sidestep_status read_records(struct checkpoint_copy *c, struct sidestep_error *err)
{
    const struct reader *r = c->reader;
    struct sidestep_error why = {.rank = -1};
    char name[FILE_NAME_BYTES];

    if (c->save != NULL) /* which makes its own */
        return SIDESTEP_OK;
    enum sidestep_status status =
        small_file_read(r->dir, FILE_NAME_METADATA, 0, DCP_METADATA_MAX_BYTES, &c->metadata, &why);

    if (status == SIDESTEP_ENOTFOUND)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "each of its ranks wrote a %s of its own, which cannot be copied as one "
                    "checkpoint: convert it instead",
                    FILE_NAME_METADATA);
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    if (!r->has_manifest)
        return check_content(&c->metadata, r->manifest_sha256, FILE_NAME_METADATA, err);
    TRY(check_content(&c->metadata, r->manifest.metadata_sha256, FILE_NAME_METADATA, err));
    file_name_format(FILE_NAME_MANIFEST, r->manifest.save_id, 0, 0, name);
    TRY(small_file_read(r->dir, name, 0, MANIFEST_MAX_BYTES, &c->manifest, err));
    TRY(check_content(&c->manifest, r->manifest_sha256, name, err));
    return reader_read_index(r, &c->index, err);
}

static enum sidestep_status list_files(struct checkpoint_copy *c, struct sidestep_error *err)
{
    const struct reader *r = c->reader;

    size_t extras = r->manifest.extra_count, most = r->file_count + extras;

    c->extra_written = arena_new(&c->arena, extras, sizeof(*c->extra_written));
    c->names = arena_new(&c->arena, most, sizeof(*c->names));
    c->sizes = arena_new(&c->arena, most, sizeof(*c->sizes));
    c->files = arena_new(&c->arena, r->file_count, sizeof(*c->files));
    if (c->extra_written == NULL || c->names == NULL || c->sizes == NULL || c->files == NULL)
        return FAIL_NOMEM(err, r->file_count * sizeof(*c->files));
    for (size_t i = 0; i < r->file_count; i++) {
        c->names[i] = r->files[i].name;
        c->sizes[i] = r->files[i].source.length;
        c->total_bytes += c->sizes[i];
        if (strchr(c->names[i], '/') != NULL)
            return FAIL(err, SIDESTEP_EUNSUPPORTED,
                        "its file '%s' is in a subdirectory, which a copy does not make",
                        c->names[i]);
    }
    c->written = c->finals = c->names;
    c->extra_finals = c->extra_written;
    c->name_count = r->file_count;
    for (size_t i = 0; i < extras; i++) {
        const struct extra_file *file = &r->manifest.extras[i];
        c->extra_written[i] = extra_file_stored(file);
        if (file->is_alias)
            continue;
        c->names[c->name_count] = extra_file_stored(file);
        c->sizes[c->name_count++] = file->bytes;
        c->total_bytes += file->bytes;
    }
    return c->save != NULL ? copy_name_in_save(c, err) : SIDESTEP_OK;
}

/* The id of a checkpoint of another program is a hash of its .metadata and of the attributes of its
 * files. */
static enum sidestep_status make_id(struct checkpoint_copy *c, struct sidestep_error *err)
{
    const struct reader *r = c->reader;
    uint8_t sha256[HASH_SHA256_BYTES];
    OWNED_BUFFER text = {0};

    if (r->has_manifest) {
        bool is_hex = hash_from_hex(r->manifest.save_id, SAVE_ID_BYTES, c->id);
        return is_hex ? SIDESTEP_OK : FAIL(err, SIDESTEP_ECORRUPT, "its save id is malformed");
    }
    buffer_put(&text, r->manifest_sha256, HASH_SHA256_BYTES);
    for (size_t i = 0; i < r->file_count; i++) {
        const struct store_stat *stat = &r->files[i].stat;
        buffer_printf(&text, "%s %llu %llu %llu %llu\n", c->names[i],
                      (unsigned long long)stat->size, (unsigned long long)stat->modified_ns,
                      (unsigned long long)stat->device, (unsigned long long)stat->inode);
    }
    TRY(buffer_check(&text, err));
    hash_sha256(text.bytes, text.length, sha256);
    memcpy(c->id, sha256, SAVE_ID_BYTES);
    return SIDESTEP_OK;
}

uint32_t copy_source_flags(const struct checkpoint_copy *c)
{
    return STORE_DIRECT | READER_ALL | (c->save != NULL ? READER_PARTS : 0);
}

static enum sidestep_status open_source(struct checkpoint_copy *c, struct sidestep_error *err)
{
    uint32_t ring = store_ring_probe() == 0 ? READER_IO_URING : 0;

    TRY(reader_open(c->from, c->source, copy_source_flags(c) | READER_SHARED_LOCK | ring,
                    &c->reader, err));
    TRY(read_records(c, err));
    TRY(list_files(c, err));
    return make_id(c, err);
}

/* ---- the destination */

/* Does ${dir} hold a checkpoint with the .metadata of the source? */
static enum sidestep_status compare(struct checkpoint_copy *c, struct store_dir *dir,
                                    bool *is_there, bool *is_same)
{
    uint8_t theirs[HASH_SHA256_BYTES], ours[HASH_SHA256_BYTES];
    uint64_t length;
    enum sidestep_status status = small_file_hash(
        dir, FILE_NAME_METADATA, 0, DCP_METADATA_MAX_BYTES, &length, theirs, NULL, NULL);

    *is_there = status == SIDESTEP_OK;
    hash_sha256(c->metadata.bytes, c->metadata.length, ours);
    *is_same = *is_there && memcmp(theirs, ours, sizeof(ours)) == 0;
    return status;
}

static enum sidestep_status check_is_elsewhere(struct checkpoint_copy *c, struct store_dir *dir,
                                               struct sidestep_error *err)
{
    struct store_stat from, to;

    TRY(store_dir_stat(c->reader->dir, &from, err));
    TRY(store_dir_stat(dir, &to, err));
    if (c->from->ops->layout == c->to->ops->layout && from.inode == to.inode &&
        from.device == to.device)
        return FAIL(err, SIDESTEP_EINVAL, "source and destination are one place");
    return SIDESTEP_OK;
}

/* Set ${*is_whole} if the copy is already there and whole. EEXISTS: something else is there, and
 * must not be replaced. If the destination cannot be read, the target's begin() reports it. */
static enum sidestep_status check_destination(struct checkpoint_copy *c, bool *is_whole,
                                              struct sidestep_error *err)
{
    const struct verify_options options = {.cancel = c->options.cancel};
    bool replace = (c->options.flags & SIDESTEP_COPY_REPLACE) != 0, is_there, is_same;
    struct sidestep_error why = {.rank = -1};
    OWNED_DIR *dir = NULL;

    *is_whole = false;
    if (c->save != NULL) /* it was begun there */
        return SIDESTEP_OK;
    if (store_dir_open(c->to, NULL, c->destination, &dir, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    TRY(check_is_elsewhere(c, dir, err));
    if (compare(c, dir, &is_there, &is_same) != SIDESTEP_OK)
        return SIDESTEP_OK;
    /* The .metadata of another program can be the same although the data differs. */
    if (is_there && is_same && c->reader->has_manifest) {
        enum sidestep_status status = verify_path(c->to, c->destination, SIDESTEP_VERIFY_BEFORE,
                                                  STORE_DIRECT, c->workers, &options, &why);
        *is_whole = status == SIDESTEP_OK;
        if (*is_whole || replace)
            return SIDESTEP_OK;
        if (!reader_status_is_damage(status))
            return error_copy(err, &why);
        return FAIL(err, SIDESTEP_EEXISTS,
                    "it holds a damaged copy of this save (%s): allow the copy to replace it "
                    "(option replace)",
                    why.message);
    }
    if (is_there && !replace)
        return FAIL(err, SIDESTEP_EEXISTS,
                    "it holds another checkpoint, which stays: allow the copy to "
                    "replace it (option replace), or choose another name");
    return SIDESTEP_OK;
}

/* ---- the copy */

static enum sidestep_status transfer(struct checkpoint_copy *c, struct sidestep_error *err)
{
    bool has_manifest = c->reader->has_manifest;

    TRY(c->target->begin(c, err));
    /* Without hashes, only files in a directory of this copy alone can be recognized. */
    if (has_manifest || c->target->is_private)
        TRY(copy_check_present(c, err));
    TRY(copy_files(c, err));
    TRY(copy_extras(c, err));
    if (!has_manifest)
        TRY(copy_check_written(c, err));
    return c->target->publish(c, err);
}

bool copy_can_resume(enum sidestep_status status)
{
    switch (status) {
    case SIDESTEP_OK:
    case SIDESTEP_ENOSPC:
    case SIDESTEP_ECORRUPT:
    case SIDESTEP_EEXISTS:
    case SIDESTEP_EUNSAFE:
    case SIDESTEP_EUNSUPPORTED:
    case SIDESTEP_EINVAL:
    case SIDESTEP_EPEER: /* another process that puts files of the same save has failed */
    case SIDESTEP_EDISAGREE:
        return false;
    default:
        return true;
    }
}

static enum sidestep_status transfer_and_end(struct checkpoint_copy *c, struct sidestep_error *err)
{
    enum sidestep_status status = transfer(c, err);

    if (status == SIDESTEP_ENOSPC && c->dir != NULL)
        space_report(err, c->dir, "the copy takes", c->total_bytes, c->copied_bytes, "");
    copy_files_discard(c);
    c->target->end(c, copy_can_resume(status));
    return status;
}

static void fill_report(const struct checkpoint_copy *c, struct sidestep_copy_report *report)
{
    const struct reader *r = c->reader;

    *report = (struct sidestep_copy_report){.step = r->has_manifest ? r->manifest.step : -1,
                                            .file_count = c->name_count,
                                            .bytes = c->total_bytes,
                                            .copied_count = c->copied_count,
                                            .copied_bytes = c->copied_bytes};
    if (r->has_manifest)
        memcpy(report->save_id, r->manifest.save_id, SAVE_ID_HEX);
}

static unsigned choose_threads(const struct checkpoint_copy *c)
{
    bool has_objects = c->from->ops->layout == STORE_OF_KEYS || c->to->ops->layout == STORE_OF_KEYS;

    return has_objects ? thread_choose_count(c->options.threads, OBJECT_THREADS, OBJECT_THREADS)
                       : thread_choose_count(c->options.threads, MIN_THREADS, MAX_THREADS);
}

static const struct copy_target *const targets[STORE_LAYOUTS] = {
    [STORE_OF_DIRECTORIES] = &copy_to_files, [STORE_OF_KEYS] = &copy_to_objects};

enum sidestep_status copy_run(struct checkpoint_copy *c, struct sidestep_copy_report *report,
                              struct sidestep_error *err)
{
    bool is_whole = false;

    lock_init(&c->shared.lock, LOCK_COPY);
    lock_condition_init(&c->shared.changed);
    c->target = c->save != NULL ? &copy_to_save[c->to->ops->layout] : targets[c->to->ops->layout];
    TRY(workers_new(choose_threads(c) - 1, "sidestep-copy", &c->workers, err));
    TRY(WRAP(open_source(c, err), err, "open '%s'", c->source));
    TRY(check_destination(c, &is_whole, err));
    if (!is_whole)
        TRY(transfer_and_end(c, err));
    if (report != NULL)
        fill_report(c, report);
    return SIDESTEP_OK;
}

void copy_release(struct checkpoint_copy *c)
{
    workers_free(&c->workers);
    reader_close(&c->reader);
    buffer_release(&c->metadata);
    buffer_release(&c->manifest);
    buffer_release(&c->index);
    arena_release(&c->arena);
    lock_condition_destroy(&c->shared.changed);
    lock_destroy(&c->shared.lock);
}

static enum sidestep_status check_options(const struct sidestep_copy_options *o,
                                          struct sidestep_error *err)
{
    if ((o->flags & ~SIDESTEP_COPY_REPLACE) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "copy options: unknown flags 0x%x",
                    o->flags & ~SIDESTEP_COPY_REPLACE);
    if (o->threads > LIMIT_THREADS)
        return FAIL(err, SIDESTEP_EINVAL, "copy options: at most %u threads", LIMIT_THREADS);
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_copy(const char *source, const char *destination,
                                   const struct sidestep_copy_options *theirs,
                                   struct sidestep_copy_report *report, struct sidestep_error *err)
{
    OWNED_STORE *from = NULL, *to = NULL;
    struct checkpoint_copy c = {
        .source = source, .destination = destination, .clock = clock_system()};

    if (report != NULL)
        *report = (struct sidestep_copy_report){.step = -1};
    if (source == NULL || destination == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "source or destination is NULL");
    TRY(options_copy(&c.options, sizeof(c.options), theirs, "copy options", err));
    TRY(check_options(&c.options, err));
    TRY(WRAP(object_path_open(source, &from, err), err, "copy '%s'", source));
    TRY(WRAP(object_path_open(destination, &to, err), err, "copy to '%s'", destination));
    c.from = from;
    c.to = to;
    enum sidestep_status status = copy_run(&c, report, err);
    copy_release(&c);
    return WRAP(status, err, "copy '%s' to '%s'", source, destination);
}
