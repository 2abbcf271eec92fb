/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_files.c -- reads, checks and writes the data files of a copy.
 *
 * A file of sidestep is read by verify_reader(), which passes on what it has checked. The footer
 * follows when everything before it is written. A file of another program is read in pieces.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "copy/copy.h"

#define PLAIN_BYTES ((uint64_t)4 << 20)

static enum sidestep_status check_cancelled(const struct checkpoint_copy *c,
                                            struct sidestep_error *err)
{
    if (c->options.cancel != NULL && *c->options.cancel)
        return FAIL(err, SIDESTEP_ECANCELLED, "the copy was cancelled");
    return SIDESTEP_OK;
}

enum sidestep_status copy_add_progress(struct checkpoint_copy *c, uint64_t bytes,
                                       struct sidestep_error *err)
{
    lock_acquire(&c->shared.lock);
    c->shared.done_bytes += bytes;
    if (c->options.on_progress != NULL)
        c->options.on_progress(c->options.context, c->shared.done_bytes, c->total_bytes);
    lock_release(&c->shared.lock);
    return check_cancelled(c, err);
}

/* Wait until ${bytes} may be written. */
static enum sidestep_status await_turn(struct checkpoint_copy *c, uint64_t bytes,
                                       struct sidestep_error *err)
{
    struct backoff backoff = {.max_ms = 20};

    while (c->throttle != NULL && !throttle_try_acquire(c->throttle, bytes, 0, NULL)) {
        TRY(check_cancelled(c, err));
        backoff_sleep(&backoff, c->clock);
    }
    return SIDESTEP_OK;
}

/* ---- one file of the destination */

static enum sidestep_status remove_damaged(struct checkpoint_copy *c, const char *name,
                                           struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status = store_unlink(c->dir, name, &why);

    return status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND ? SIDESTEP_OK
                                                                 : error_copy(err, &why);
}

static enum sidestep_status create(struct checkpoint_copy *c, size_t i, struct store_file **out,
                                   struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;

    if (c->target->is_private) /* elsewhere, the new file replaces the old one when it is whole */
        TRY(remove_damaged(c, c->written[i], err));
    TRY(store_file_create(c->dir, c->written[i], STORE_DIRECT, &file, err));
    TRY(store_file_allocate(file, c->sizes[i], err));
    *out = TAKE(file);
    return SIDESTEP_OK;
}

/* Get the file to write to. The first thread creates it. */
static enum sidestep_status open_file(struct checkpoint_copy *c, size_t i, struct store_file **out,
                                      struct sidestep_error *err)
{
    struct copied_file *file = &c->files[i];
    enum sidestep_status status = SIDESTEP_OK;
    struct store_file *created = NULL;

    lock_acquire(&c->shared.lock);
    while (file->is_opening)
        lock_wait(&c->shared.lock, &c->shared.changed);
    if (file->to == NULL) {
        file->is_opening = true;
        lock_release(&c->shared.lock);
        status = create(c, i, &created, err);
        lock_acquire(&c->shared.lock);
        file->to = created;
        file->is_opening = false;
        lock_wake_all(&c->shared.changed);
    }
    *out = file->to;
    lock_release(&c->shared.lock);
    return status;
}

/* Copy the footer and the trailer, if they are those that the manifest lists. */
static enum sidestep_status copy_footer(struct checkpoint_copy *c, size_t i, struct store_file *to,
                                        struct sidestep_error *err)
{
    const struct reader_file *from = &c->reader->files[i];
    uint64_t length = c->sizes[i] - from->footer_offset;
    OWNED uint8_t *bytes = memory_new(length, 1);
    uint8_t sha256[HASH_SHA256_BYTES];

    if (bytes == NULL)
        return FAIL_NOMEM(err, length);
    TRY(source_read(&from->source, bytes, length, from->footer_offset, err));
    hash_sha256(bytes, length, sha256);
    if (memcmp(sha256, c->reader->manifest.files[i].footer_sha256, sizeof(sha256)) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "its footer is no longer the one that the manifest lists");
    TRY(store_file_write_at(to, bytes, length, from->footer_offset, err));
    return copy_add_progress(c, length, err);
}

/* Finish a file of which everything before the footer is written. */
static enum sidestep_status finish_file(struct checkpoint_copy *c, size_t i,
                                        struct sidestep_error *err)
{
    struct copied_file *file = &c->files[i];
    struct store_file *to = NULL;

    TRY(open_file(c, i, &to, err));
    if (c->reader->files[i].ours)
        TRY(copy_footer(c, i, to, err));
    if (c->save == NULL)
        TRY(store_file_sync(to, err));
    lock_acquire(&c->shared.lock);
    file->to = NULL;
    file->is_done = true;
    c->copied_count++;
    c->copied_bytes += c->sizes[i];
    lock_release(&c->shared.lock);
    return c->save != NULL ? copy_seal_in_save(c, c->written[i], c->finals[i], to, err)
                           : store_file_close(to, err);
}

static enum sidestep_status write_piece(struct checkpoint_copy *c, size_t i, uint64_t begin,
                                        const uint8_t *bytes, uint64_t length,
                                        struct sidestep_error *err)
{
    struct copied_file *file = &c->files[i];
    struct store_file *to = NULL;

    TRY(open_file(c, i, &to, err));
    TRY(await_turn(c, length, err));
    TRY(store_file_write_at(to, bytes, length, begin, err));
    TRY(copy_add_progress(c, length, err));
    return atomic_fetch_sub(&file->left, length) == length ? finish_file(c, i, err) : SIDESTEP_OK;
}

static enum sidestep_status write_checked(void *context, size_t i, uint64_t begin,
                                          const uint8_t *bytes, uint64_t length,
                                          struct sidestep_error *err)
{
    struct checkpoint_copy *c = context;

    return WRAP(write_piece(c, i, begin, bytes, length, err), err, "file '%s'", c->names[i]);
}

/* ---- files of sidestep */

static enum sidestep_status report_damage(const struct verify_findings *findings,
                                          struct sidestep_error *err)
{
    const struct sidestep_problem *p = verify_findings_worst(findings);

    return FAIL(err, verify_findings_judge(findings), "file '%s'%s%s%s: %s",
                p->file != NULL ? p->file : "?", p->name != NULL ? ", tensor '" : "",
                p->name != NULL ? p->name : "", p->name != NULL ? "'" : "", p->message);
}

static enum sidestep_status copy_checked(struct checkpoint_copy *c, const bool *skips,
                                         struct sidestep_error *err)
{
    const struct verify_options options = {
        .context = c, .cancel = c->options.cancel, .skips = skips, .take = write_checked};
    struct verify_findings findings = {0};
    enum sidestep_status status = verify_reader(c->reader, c->workers, &options, &findings, err);

    if (findings.count != 0)
        status = report_damage(&findings, err);
    verify_findings_release(&findings);
    return status;
}

/* ---- files of other programs */

struct piece {
    size_t file;
    uint64_t begin, end;
};

struct plain_copy {
    struct checkpoint_copy *c;
    struct piece *pieces;
    size_t count, capacity;
    _Atomic bool stop;
    struct {
        struct lock lock LOCK_KIND(COPY);
        struct sidestep_error err GUARDED_BY(&lock);
    } shared;
};

static enum sidestep_status cut_into_pieces(struct plain_copy *plain_copy, const bool *skips,
                                            struct sidestep_error *err)
{
    for (size_t i = 0; i < plain_copy->c->reader->file_count; i++)
        for (uint64_t at = 0; !skips[i] && at < plain_copy->c->sizes[i]; at += PLAIN_BYTES) {
            TRY_GROW(plain_copy->pieces, plain_copy->capacity, plain_copy->count, err);
            plain_copy->pieces[plain_copy->count++] =
                (struct piece){i, at, min_u64(at + PLAIN_BYTES, plain_copy->c->sizes[i])};
        }
    return SIDESTEP_OK;
}

static struct parallel_read_range describe_piece(void *context, size_t i)
{
    const struct plain_copy *plain_copy = context;
    const struct piece *piece = &plain_copy->pieces[i];

    return (struct parallel_read_range){.file = &plain_copy->c->reader->files[piece->file],
                                        .begin = piece->begin,
                                        .end = piece->end};
}

static int32_t use_piece(void *context, size_t i, uint8_t *bytes, enum sidestep_status status,
                         const struct sidestep_error *why)
{
    struct plain_copy *plain_copy = context;
    const struct piece *piece = &plain_copy->pieces[i];
    struct sidestep_error failure = {.rank = -1};

    if (status != SIDESTEP_OK)
        failure = *why;
    else
        status = write_checked(plain_copy->c, piece->file, piece->begin, bytes,
                               piece->end - piece->begin, &failure);
    if (status == SIDESTEP_OK)
        return -1;
    lock_acquire(&plain_copy->shared.lock);
    if (!atomic_exchange(&plain_copy->stop, true))
        plain_copy->shared.err = failure;
    lock_release(&plain_copy->shared.lock);
    return -1;
}

static bool has_stopped(void *context)
{
    return atomic_load(&((struct plain_copy *)context)->stop);
}

static enum sidestep_status run_plain(struct plain_copy *plain_copy, struct sidestep_error *err)
{
    const struct parallel_read many = {.kind = &plain_copy->c->reader->queue,
                                       .store = plain_copy->c->reader->store,
                                       .direct = true,
                                       .count = plain_copy->count,
                                       .context = plain_copy,
                                       .describe = describe_piece,
                                       .use = use_piece,
                                       .stopped = has_stopped};

    TRY(parallel_read_run(&many, plain_copy->c->workers, err));
    lock_alone(&plain_copy->shared.lock);
    if (atomic_load(&plain_copy->stop))
        return error_copy(err, &plain_copy->shared.err);
    return reader_check_unchanged(plain_copy->c->reader, err);
}

static enum sidestep_status copy_plain(struct checkpoint_copy *c, const bool *skips,
                                       struct sidestep_error *err)
{
    struct plain_copy plain_copy = {.c = c};

    lock_init(&plain_copy.shared.lock, LOCK_COPY);
    enum sidestep_status status = cut_into_pieces(&plain_copy, skips, err);
    if (status == SIDESTEP_OK)
        status = run_plain(&plain_copy, err);
    lock_destroy(&plain_copy.shared.lock);
    free(plain_copy.pieces);
    return status;
}

/* ---- all files */

/* Finish files that have nothing before their footer. */
static enum sidestep_status finish_empty_files(struct checkpoint_copy *c,
                                               struct sidestep_error *err)
{
    for (size_t i = 0; i < c->reader->file_count; i++)
        if (!c->files[i].is_there && !c->files[i].is_done)
            TRY(WRAP(finish_file(c, i, err), err, "file '%s'", c->names[i]));
    return SIDESTEP_OK;
}

enum sidestep_status copy_files(struct checkpoint_copy *c, struct sidestep_error *err)
{
    const struct reader *r = c->reader;
    OWNED bool *skips = memory_new(r->file_count, sizeof(*skips));

    if (skips == NULL)
        return FAIL_NOMEM(err, r->file_count);
    for (size_t i = 0; i < r->file_count; i++) {
        skips[i] = c->files[i].is_there;
        atomic_init(&c->files[i].left, r->files[i].ours ? r->files[i].footer_offset : c->sizes[i]);
    }
    TRY(r->has_manifest ? copy_checked(c, skips, err) : copy_plain(c, skips, err));
    return finish_empty_files(c, err);
}

void copy_files_discard(struct checkpoint_copy *c)
{
    for (size_t i = 0; c->files != NULL && i < c->reader->file_count; i++) {
        if (c->files[i].to == NULL)
            continue;
        store_file_discard(TAKE(c->files[i].to));
        if (c->target->is_private) /* the next copy takes only whole ones, and it has its space */
            (void)store_unlink(c->dir, c->written[i], NULL);
    }
}
