/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * convert_write.c -- several threads write files that are laid out beforehand.
 *
 * All files together are cut into windows, at multiples of the window size, so that whole windows
 * bypass the page cache.  Each thread takes the next window, fills it and writes it.  Some bytes
 * depend on the CRCs of the tensors before them.  So before a thread writes a window, it waits
 * until all earlier windows are filled.  This cannot deadlock: a thread waits only for earlier
 * windows.  The thread that writes the last window of a file seals it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "convert/convert.h"
#include "selection/selection.h"
#include "snapshot/snapshot.h"

struct window {
    size_t file;
    uint64_t offset;
    uint64_t length;
    size_t first; /* segment that contains its first byte */
};

struct write_job {
    struct conversion *c;
    struct export *export;
    struct convert_file *files;
    struct store_file **handles; /* per file; NULL when it is sealed */
    _Atomic size_t *left;        /* per file: windows that are not written; at 0 it is sealed */
    size_t count;
    struct window *windows;
    size_t window_count;
    struct pool buffers;
    _Atomic size_t next;
    _Atomic unsigned next_thread;
    atomic_bool stop;
    struct {
        struct lock lock LOCK_KIND(CONVERT_WRITE);
        struct lock_condition changed;
        size_t filled GUARDED_BY(&lock); /* all windows before it are filled */
        struct sidestep_error err GUARDED_BY(&lock);
    } shared;
};

enum sidestep_status convert_file_add_segment(struct convert_file *file,
                                              struct convert_segment segment,
                                              struct sidestep_error *err)
{
    TRY_GROW(file->segments, file->capacity, file->count, err);
    segment.offset = file->bytes;
    file->segments[file->count++] = segment;
    file->bytes += segment.length;
    return SIDESTEP_OK;
}

static enum sidestep_status report_file(struct conversion *c, const char *name,
                                        struct sidestep_error *err)
{
    TRY_GROW(c->files, c->file_capacity, c->file_count, err);
    c->files[c->file_count] = arena_strndup(&c->arena, name, strlen(name));
    if (c->files[c->file_count] == NULL)
        return FAIL_NOMEM(err, strlen(name));
    c->file_count++;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- filling */

static void record_failure(struct write_job *w, const struct sidestep_error *why)
{
    lock_acquire(&w->shared.lock);
    if (!atomic_exchange(&w->stop, true))
        w->shared.err = *why;
    lock_wake_all(&w->shared.changed);
    lock_release(&w->shared.lock);
}

/* The part of a segment in a window: [begin, end) of the segment, ${at} in the window. */
struct part {
    uint64_t begin;
    uint64_t end;
    uint64_t at;
};

static struct part part_of(const struct convert_segment *s, const struct window *window)
{
    uint64_t first = max_u64(s->offset, window->offset);
    uint64_t last = min_u64(s->offset + s->length, window->offset + window->length);

    if (first >= last)
        return (struct part){0};
    return (struct part){first - s->offset, last - s->offset, first - window->offset};
}

static bool reaches(const struct convert_file *file, const struct window *window, size_t i)
{
    return i < file->count && file->segments[i].offset < window->offset + window->length;
}

static enum sidestep_status fill(struct write_job *w, const struct window *window, uint8_t *buffer,
                                 struct sidestep_error *err)
{
    struct convert_file *file = &w->files[window->file];

    for (size_t i = window->first; reaches(file, window, i); i++) {
        const struct convert_segment *s = &file->segments[i];
        struct part part = part_of(s, window);

        if (part.begin == part.end)
            continue;
        if (s->kind == CONVERT_SEGMENT_BYTES)
            memcpy(buffer + part.at, s->bytes + part.begin, part.end - part.begin);
        if (s->kind != CONVERT_SEGMENT_TENSOR)
            continue;
        struct box box = convert_tensor_box(&w->c->tensors[s->tensor]);
        TRY(convert_read(w->c, s->tensor, &box, part.begin, part.end - part.begin, buffer + part.at,
                         err));
    }
    return SIDESTEP_OK;
}

/* Compute the CRCs of the tensors in a window, in the order of its segments. */
static void compute_crcs(const struct write_job *w, const struct window *window,
                         const uint8_t *buffer, uint32_t *crcs)
{
    struct convert_file *file = &w->files[window->file];

    for (size_t i = window->first; reaches(file, window, i); i++) {
        struct part part = part_of(&file->segments[i], window);
        if (file->segments[i].kind == CONVERT_SEGMENT_TENSOR)
            crcs[i - window->first] = hash_crc32(0, buffer + part.at, part.end - part.begin);
    }
}

/* Finish a window's segments in order.  Call it locked, when all earlier windows are filled. */
static enum sidestep_status finish_locked(struct write_job *w, const struct window *window,
                                          uint8_t *buffer, const uint32_t *crcs,
                                          struct sidestep_error *err)
{
    struct convert_file *file = &w->files[window->file];

    for (size_t i = window->first; reaches(file, window, i); i++) {
        struct convert_segment *s = &file->segments[i];
        struct part part = part_of(s, window);

        if (s->kind == CONVERT_SEGMENT_TENSOR && part.begin < part.end)
            s->crc = part.begin == 0 ? crcs[i - window->first]
                                     : hash_crc32_combine(s->crc, crcs[i - window->first],
                                                          part.end - part.begin);
        if (s->kind != CONVERT_SEGMENT_DEFERRED)
            continue;
        if (s->bytes == NULL)
            TRY(file->fill_deferred(file, i, err));
        memcpy(buffer + part.at, s->bytes + part.begin, part.end - part.begin);
    }
    return SIDESTEP_OK;
}

/* Wait until all earlier windows are filled, then finish this one. */
static enum sidestep_status finish(struct write_job *w, size_t i, uint8_t *buffer,
                                   struct sidestep_error *err)
{
    const struct window *window = &w->windows[i];
    const struct convert_file *file = &w->files[window->file];
    size_t count = 0;

    if (file->fill_deferred == NULL)
        return SIDESTEP_OK;
    while (reaches(file, window, window->first + count))
        count++;
    OWNED uint32_t *crcs = memory_new(count, sizeof(*crcs));
    if (crcs == NULL)
        return FAIL_NOMEM(err, count * sizeof(*crcs));
    compute_crcs(w, window, buffer, crcs);
    lock_acquire(&w->shared.lock);
    while (w->shared.filled != i && !atomic_load(&w->stop))
        lock_wait(&w->shared.lock, &w->shared.changed);
    enum sidestep_status status = SIDESTEP_OK;
    if (!atomic_load(&w->stop))
        status = finish_locked(w, window, buffer, crcs, err);
    w->shared.filled = i + 1;
    lock_wake_all(&w->shared.changed);
    lock_release(&w->shared.lock);
    return status;
}

static enum sidestep_status write_window(struct write_job *w, size_t i, uint8_t *buffer,
                                         struct sidestep_error *err)
{
    const struct window *window = &w->windows[i];
    struct store_file *file = w->handles[window->file];
    uint64_t whole = round_down(window->length, 4096); /* a file may end within a page */

    TRY(fill(w, window, buffer, err));
    TRY(finish(w, i, buffer, err));
    if (atomic_load(&w->stop))
        return SIDESTEP_OK;
    if (whole != 0)
        TRY(store_file_write_at(file, buffer, whole, window->offset, err));
    if (whole != window->length)
        TRY(store_file_write_at(file, buffer + whole, window->length - whole,
                                window->offset + whole, err));
    if (atomic_fetch_sub(&w->left[window->file], 1) != 1)
        return SIDESTEP_OK;
    return export_seal_file(w->export, w->files[window->file].name, TAKE(w->handles[window->file]),
                            err);
}

static uint64_t tensor_bytes_in(const struct write_job *w, const struct window *window)
{
    const struct convert_file *file = &w->files[window->file];
    uint64_t bytes = 0;

    for (size_t i = window->first; reaches(file, window, i); i++) {
        struct part part = part_of(&file->segments[i], window);
        if (file->segments[i].kind == CONVERT_SEGMENT_TENSOR)
            bytes += part.end - part.begin;
    }
    return bytes;
}

static void write_windows(void *context)
{
    struct write_job *w = context;
    uint8_t *buffer =
        w->buffers.bytes + atomic_fetch_add(&w->next_thread, 1u) * CONVERT_WINDOW_BYTES;

    for (size_t i;
         !atomic_load(&w->stop) && (i = atomic_fetch_add(&w->next, 1)) < w->window_count;) {
        struct sidestep_error why = {0};
        bool is_last;
        enum sidestep_status status = write_window(w, i, buffer, &why);

        if (status == SIDESTEP_OK)
            status = convert_add_progress(w->c, tensor_bytes_in(w, &w->windows[i]), &is_last, &why);
        if (status != SIDESTEP_OK)
            record_failure(w, &why);
    }
}

/* ---------------------------------------------------------------- all files */

static enum sidestep_status cut_windows(struct write_job *w, struct sidestep_error *err)
{
    size_t most = 0;

    for (size_t f = 0; f < w->count; f++)
        most += (size_t)(w->files[f].bytes / CONVERT_WINDOW_BYTES) + 1;
    w->windows = memory_new(most, sizeof(*w->windows));
    if (w->windows == NULL)
        return FAIL_NOMEM(err, most * sizeof(*w->windows));
    w->left = memory_new(w->count, sizeof(*w->left));
    if (w->left == NULL)
        return FAIL_NOMEM(err, w->count * sizeof(*w->left));
    for (size_t f = 0; f < w->count; f++) {
        const struct convert_file *file = &w->files[f];
        size_t first = 0;

        for (uint64_t at = 0; at < file->bytes; at += CONVERT_WINDOW_BYTES) {
            while (file->segments[first].offset + file->segments[first].length <= at)
                first++;
            w->left[f]++;
            w->windows[w->window_count++] =
                (struct window){.file = f,
                                .offset = at,
                                .length = min_u64(CONVERT_WINDOW_BYTES, file->bytes - at),
                                .first = first};
        }
    }
    return SIDESTEP_OK;
}

static enum sidestep_status create_files(struct write_job *w, struct sidestep_error *err)
{
    w->handles = memory_new(w->count, sizeof(*w->handles));
    if (w->handles == NULL)
        return FAIL_NOMEM(err, w->count * sizeof(*w->handles));
    for (size_t f = 0; f < w->count; f++) {
        TRY(export_create_file(w->export, w->files[f].name, STORE_DIRECT, &w->handles[f], err));
        TRY(store_file_allocate(w->handles[f], w->files[f].bytes, err));
        /* Set the size now, because writes that extend a file wait for each other. */
        TRY(store_file_truncate(w->handles[f], w->files[f].bytes, err));
        TRY(report_file(w->c, w->files[f].name, err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status write_all(struct write_job *w, struct sidestep_error *err)
{
    struct workers *workers = NULL;
    unsigned threads = (unsigned)min_u64(w->c->threads, w->window_count + 1);

    TRY(pool_reserve(&w->buffers, threads * CONVERT_WINDOW_BYTES, NULL, err));
    TRY(workers_new(threads - 1, "sidestep-conv", &workers, err));
    workers_run(workers, write_windows, w);
    workers_free(&workers);
    lock_alone(&w->shared.lock);
    if (!atomic_load(&w->stop))
        return SIDESTEP_OK;
    error_copy(err, &w->shared.err);
    return (enum sidestep_status)w->shared.err.status;
}

static enum sidestep_status write_with(struct write_job *w, struct sidestep_error *err)
{
    TRY(cut_windows(w, err));
    TRY(create_files(w, err));
    TRY(write_all(w, err));
    return tensor_reader_finish(w->c->bytes, err);
}

static void explain_full(const struct write_job *w, struct sidestep_error *err)
{
    uint64_t needed = 0, stored = 0;

    for (size_t f = 0; f < w->count; f++) {
        struct store_stat stat;
        needed += w->files[f].bytes;
        if (store_stat(w->export->commit.dir, w->files[f].name, &stat, NULL) == SIDESTEP_OK)
            stored += stat.stored;
    }
    space_report(err, w->export->commit.dir, "the files take", needed, stored, "");
}

enum sidestep_status convert_write(struct conversion *c, struct export *export,
                                   struct convert_file *files, size_t count,
                                   struct sidestep_error *err)
{
    struct write_job w = {.c = c, .export = export, .files = files, .count = count};

    lock_init(&w.shared.lock, LOCK_CONVERT_WRITE);
    lock_condition_init(&w.shared.changed);
    enum sidestep_status status = write_with(&w, err);
    if (status == SIDESTEP_ENOSPC)
        explain_full(&w, err);
    for (size_t f = 0; w.handles != NULL && f < count; f++)
        store_file_discard(w.handles[f]);
    pool_release(&w.buffers);
    free(w.windows);
    free(w.left);
    free(w.handles);
    lock_condition_destroy(&w.shared.changed);
    lock_destroy(&w.shared.lock);
    return status;
}
