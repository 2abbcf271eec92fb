/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify.c -- see verify.h.
 *
 * A file of ours is read in stretches of some MiB that are cut where items start and between hash
 * blocks, like the windows in which it was written.  Every byte is accounted for: data by block
 * hashes, heads and tails by the envelope hash, gaps must be zero, footers and small files were
 * checked when the checkpoint was opened.
 */
#include "verify/verify.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "checkpoint/checkpoint.h"
#include "verify/verify_stock.h"
#include "model/model.h"
#include "plan/plan.h"

struct stretch {
    size_t file;
    size_t item;  /* the first with a byte in it */
    bool decoded; /* that item, which is transformed: it is read and checked by itself */
    uint64_t begin;
    uint64_t end;
    /* Not 0: an item without hashes of ours, and these of v->pointers all lead to it. */
    size_t pointer_count;
    size_t pointer;
};

struct verify {
    struct reader *reader;
    const struct verify_options *options;
    struct verify_findings *findings;
    struct verify_reference *pointers; /* to items without hashes of ours */
    size_t pointer_count;
    bool *refused; /* per file: it was said that it may not be read */
    struct stretch *stretches;
    size_t count, room;
    struct budget *memory; /* for what must be held whole */
    uint64_t total_bytes;
    _Atomic bool stop;
    struct {
        pthread_mutex_t lock;
        uint64_t done_bytes;
        enum sidestep_status status; /* of adding findings */
        struct sidestep_error err;
    } shared;
};

/* ${message} without the words that say where, which the finding says in fields of its own. */
static const char *shorten(const char *message, const char *file, const char *name)
{
    char prefix[sizeof(((struct sidestep_error *)0)->message)];

    if (name == NULL || file == NULL)
        return message;
    int length =
        snprintf(prefix, sizeof(prefix), "'%s' in file '%s': ", display_name(name).text, file);
    return length > 0 && strncmp(message, prefix, (size_t)length) == 0 ? message + length : message;
}

static bool names_unread(const struct verify *v)
{
    return v->options != NULL && v->options->names_unread;
}

/* Who may not read a file may read none of it: that is said once.  Under the lock. */
static bool was_said(struct verify *v, const char *file, enum sidestep_status status)
{
    bool once = status == SIDESTEP_EPERM && file != NULL && !names_unread(v);
    size_t i = once ? hash_table_find(&v->reader->file_names, file) : SIZE_MAX;

    if (i == SIZE_MAX)
        return false;
    bool before = v->refused[i];
    v->refused[i] = true;
    return before;
}

static void report(struct verify *v, const char *file, const char *name,
                   enum sidestep_status status, const struct sidestep_error *why)
{
    const char *message = shorten(why->message, file, name);

    pthread_mutex_lock(&v->shared.lock);
    if (v->shared.status == SIDESTEP_OK && !was_said(v, file, status))
        v->shared.status = verify_findings_add(v->findings, file, name, verify_kind(status),
                                               message, &v->shared.err);
    pthread_mutex_unlock(&v->shared.lock);
}

static enum sidestep_status add_stretch(struct verify *v, const struct stretch *stretch,
                                        struct sidestep_error *err)
{
    if (v->count == v->room) {
        size_t room = v->room != 0 ? v->room * 2 : 64;
        struct stretch *stretches = memory_resize(v->stretches, room, sizeof(*stretches));
        if (stretches == NULL)
            return FAIL_NOMEM(err, room * sizeof(*stretches));
        v->stretches = stretches;
        v->room = room;
    }
    v->stretches[v->count++] = *stretch;
    v->total_bytes += stretch->end - stretch->begin;
    return SIDESTEP_OK;
}

/* End the stretch ${*s} at ${at}, where item ${i}, which is transformed, comes next: a stretch for
 * what lies before it, and one for itself. */
static enum sidestep_status cut_out(struct verify *v, struct stretch *s, uint64_t at,
                                    const struct footer_item *item, size_t i,
                                    struct sidestep_error *err)
{
    struct stretch gap = {.file = s->file, .item = i, .begin = at, .end = item->offset};
    struct stretch own = {.file = s->file,
                          .item = i,
                          .decoded = true,
                          .begin = item->offset,
                          .end = item->offset + item->bytes};

    s->end = at;
    if (s->end > s->begin)
        TRY(add_stretch(v, s, err));
    if (gap.end > gap.begin)
        TRY(add_stretch(v, &gap, err));
    *s = (struct stretch){.file = own.file, .item = i + 1, .begin = own.end};
    return own.end > own.begin ? add_stretch(v, &own, err) : SIDESTEP_OK;
}

/* Cut after the stretch has its size: at the first item or block that starts beyond it. */
static enum sidestep_status cut_file(struct verify *v, size_t file, struct sidestep_error *err)
{
    const struct reader_file *f = &v->reader->files[file];
    const uint64_t want = VERIFY_MAX_READ_BYTES - 2 * HASH_BLOCK_BYTES;
    struct stretch s = {.file = file};
    uint64_t at = 0;

    for (size_t i = 0; i < f->footer.count; i++) {
        const struct footer_item *item = &f->footer.items[i];
        uint64_t data = item->offset + item->data_offset;
        if (item->transform != 0) {
            TRY(cut_out(v, &s, at, item, i, err));
            at = s.begin;
            continue;
        }
        if (at - s.begin >= want) {
            s.end = at;
            TRY(add_stretch(v, &s, err));
            s = (struct stretch){.file = file, .item = i, .begin = at};
        }
        for (uint64_t b = 0; b < item->block_count; b++) {
            uint64_t block = data + b * HASH_BLOCK_BYTES;
            if (block - s.begin < want)
                continue;
            s.end = block;
            TRY(add_stretch(v, &s, err));
            s = (struct stretch){.file = file, .item = i, .begin = block};
        }
        at = item->offset + item->bytes;
    }
    if (at - s.begin >= want) {
        s.end = at;
        TRY(add_stretch(v, &s, err));
        s = (struct stretch){.file = file, .item = f->footer.count, .begin = at};
    }
    s.end = f->footer_offset;
    return s.end > s.begin ? add_stretch(v, &s, err) : SIDESTEP_OK;
}

/* Of an item without hashes of ours, each once.  What lies across another one is damage, and is not
 * read: the parts of a file could be read any number of times. */
static enum sidestep_status add_pointers(struct verify *v, struct sidestep_error *err)
{
    const char *file = "";
    uint64_t end = 0;

    verify_references_sort(v->pointers, v->pointer_count);
    for (size_t i = 0, next; i < v->pointer_count; i = next) {
        const struct verify_reference *p = &v->pointers[i];
        for (next = i + 1;
             next < v->pointer_count && verify_references_same_item(p, &v->pointers[next]);)
            next++;
        if (strcmp(p->storage->file, file) != 0)
            end = 0;
        file = p->storage->file;
        if (p->storage->offset < end) {
            for (size_t k = i; k < next; k++)
                TRY(verify_findings_add(v->findings, file, v->pointers[k].entry->name, "format",
                                        "it overlaps another item", err));
            continue;
        }
        end = p->storage->offset + p->storage->length;
        struct stretch s = {
            .begin = p->storage->offset, .end = end, .pointer = i, .pointer_count = next - i};
        TRY(add_stretch(v, &s, err));
    }
    return SIDESTEP_OK;
}

static bool is_within(const struct reader_file *file, const struct metadata_storage *storage)
{
    uint64_t end;

    return checked_add(storage->offset, storage->length, &end) && end <= file->source.length;
}

/* What the metadata points at in ${file}: to be checked by hashes of ours, or without, or lost. */
static enum sidestep_status add_pointer(struct verify *v, const struct reader_file *file,
                                        const struct verify_reference *pointer,
                                        struct sidestep_error *err)
{
    if (file->problem == NULL && file->ours)
        return SIDESTEP_OK;
    if (file->problem == NULL ||
        (reader_file_has_wrong_size(file) && is_within(file, pointer->storage))) {
        v->pointers[v->pointer_count++] = *pointer;
        return SIDESTEP_OK;
    }
    if (!reader_status_is_damage(file->status) && !names_unread(v))
        return SIDESTEP_OK; /* nothing is known to be lost */
    return verify_findings_add(v->findings, file->name, pointer->entry->name, file->problem,
                               reader_file_has_wrong_size(file)
                                   ? "it ends behind the end of its file"
                                   : "it is, wholly or in part, in a file that is lost",
                               err);
}

static enum sidestep_status make_pointers(struct verify *v, struct sidestep_error *err)
{
    struct reader *r = v->reader;
    size_t most = 0;

    for (size_t e = 0; e < r->metadata.count; e++)
        most += r->metadata.entries[e].is_object ? 1 : r->metadata.entries[e].chunk_count;
    v->pointers = memory_new(most, sizeof(*v->pointers));
    if (v->pointers == NULL)
        return FAIL_NOMEM(err, most * sizeof(*v->pointers));
    for (size_t e = 0; e < r->metadata.count; e++) {
        const struct metadata_entry *entry = &r->metadata.entries[e];
        for (size_t c = 0; c < (entry->is_object ? 1 : entry->chunk_count); c++) {
            const struct metadata_chunk *chunk = entry->is_object ? NULL : &entry->chunks[c];
            struct verify_reference p = {.entry = entry,
                                         .storage =
                                             chunk != NULL ? &chunk->storage : &entry->storage,
                                         .box = chunk != NULL ? &chunk->box : NULL};
            TRY(add_pointer(v, &r->files[hash_table_find(&r->file_names, p.storage->file)], &p,
                            err));
        }
    }
    return SIDESTEP_OK;
}

static enum sidestep_status make_stretches(struct verify *v, struct sidestep_error *err)
{
    struct reader *r = v->reader;

    for (size_t i = 0; i < r->file_count; i++)
        if (r->files[i].ours && r->files[i].problem == NULL)
            TRY(cut_file(v, i, err));
    TRY(make_pointers(v, err));
    return add_pointers(v, err);
}

static bool is_zero(const uint8_t *bytes, uint64_t length)
{
    return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* Head and tail of an item that ends in this stretch; a head before it is read again. */
static enum sidestep_status check_envelope(const struct reader_file *file,
                                           const struct footer_item *item, const struct stretch *s,
                                           const uint8_t *bytes, struct sidestep_error *err)
{
    uint64_t tail = item->data_offset + item->data_bytes;
    uint64_t length = item->bytes - item->data_bytes;
    OWNED uint8_t *envelope = memory_new(length, 1);

    if (item->is_object)
        return SIDESTEP_OK;
    if (envelope == NULL)
        return FAIL_NOMEM(err, length);
    if (item->offset >= s->begin)
        memcpy(envelope, bytes + (item->offset - s->begin), item->data_offset);
    else
        TRY(source_read(&file->source, envelope, item->data_offset, item->offset, err));
    memcpy(envelope + item->data_offset, bytes + (item->offset + tail - s->begin),
           item->bytes - tail);
    if (hash_block(envelope, length) != item->envelope_hash)
        return FAIL(err, SIDESTEP_ECORRUPT, "the archive around the data does not match its hash");
    return SIDESTEP_OK;
}

static enum sidestep_status check_item(struct reader_file *file, const struct footer_item *item,
                                       const struct stretch *s, const uint8_t *bytes,
                                       struct sidestep_error *err)
{
    uint64_t data = item->offset + item->data_offset;
    uint64_t first = max_u64(s->begin, data), last = min_u64(s->end, data + item->data_bytes);
    struct reader_item whole = {.file = file,
                                .footer = item,
                                .data_offset = data,
                                .data_bytes = item->data_bytes,
                                .blocks = item->blocks};

    if (first < last)
        TRY(reader_check_blocks(&whole, (first - data) / HASH_BLOCK_BYTES,
                                bytes + (first - s->begin), last - first, err));
    if (item->offset + item->bytes > s->end)
        return SIDESTEP_OK; /* it ends in a later stretch */
    if (hash_block_list(item->blocks, item->block_count).low != item->raw_hash.low ||
        hash_block_list(item->blocks, item->block_count).high != item->raw_hash.high)
        return FAIL(err, SIDESTEP_ECORRUPT, "its block hashes do not match its hash");
    return check_envelope(file, item, s, bytes, err);
}

static void check_gap(struct verify *v, const struct reader_file *file, const struct stretch *s,
                      const uint8_t *bytes, uint64_t from, uint64_t to)
{
    struct sidestep_error why;
    uint64_t first = max_u64(from, s->begin), last = min_u64(to, s->end);

    if (first >= last || is_zero(bytes + (first - s->begin), last - first))
        return;
    (void)FAIL(&why, SIDESTEP_ECORRUPT, "bytes %llu to %llu lie between items and are not zero",
               (unsigned long long)first, (unsigned long long)last);
    report(v, file->name, NULL, SIDESTEP_ECORRUPT, &why);
}

static void check_stretch(struct verify *v, const struct stretch *s, const uint8_t *bytes,
                          enum sidestep_status status, const struct sidestep_error *read_error)
{
    struct reader_file *file = &v->reader->files[s->file];
    struct sidestep_error why = {0};
    uint64_t at = s->begin;

    bool unreadable = status != SIDESTEP_OK;
    for (size_t i = s->item; i < file->footer.count; i++) {
        const struct footer_item *item = &file->footer.items[i];
        if (item->offset >= s->end)
            break;
        if (unreadable) { /* say which tensors are lost */
            report(v, file->name, item->name, status, read_error);
            continue;
        }
        check_gap(v, file, s, bytes, at, item->offset);
        status = check_item(file, item, s, bytes, &why);
        if (status != SIDESTEP_OK)
            report(v, file->name, item->name, status, &why);
        at = item->offset + item->bytes;
    }
    if (!unreadable)
        check_gap(v, file, s, bytes, at, s->end);
}

static void report_stock(void *context, const struct verify_reference *pointer,
                         enum sidestep_status status, const struct sidestep_error *why)
{
    struct verify *v = context;
    const struct reader_file *file =
        &v->reader->files[hash_table_find(&v->reader->file_names, pointer->storage->file)];
    struct sidestep_error other;

    /* Objects of ours may be any bytes, which only the footer could tell from damaged ones. */
    if (reader_file_has_wrong_size(file) && v->reader->has_manifest && pointer->box == NULL) {
        (void)FAIL(&other, status, "it cannot be checked without the end of its file (%.600s)",
                   why->message);
        why = &other;
    }
    report(v, pointer->storage->file, pointer->entry->name, status, why);
}

static void check_stock(struct verify *v, const struct stretch *s)
{
    struct verify_stock stock = {.reader = v->reader,
                                 .memory = v->memory,
                                 .cancel = v->options != NULL ? v->options->cancel : NULL,
                                 .report = report_stock,
                                 .context = v};

    verify_stock_item(&stock, &v->pointers[s->pointer], s->pointer_count);
}

static void check_by_decoding(struct verify *v, const struct stretch *s)
{
    struct reader_file *file = &v->reader->files[s->file];
    const struct footer_item *footer = &file->footer.items[s->item];
    struct reader_item item = reader_item_from_footer(file, footer);
    struct sidestep_error why = {0};
    enum sidestep_status status = reader_item_decode(&item, NULL, &why);

    if (status != SIDESTEP_OK)
        report(v, file->name, footer->name, status, &why);
}

/* ---- what parallel_read.h asks for */

static struct parallel_read_range describe_stretch(void *context, size_t i)
{
    const struct verify *v = context;
    const struct stretch *s = &v->stretches[i];

    if (s->pointer_count != 0 || s->decoded)
        return (struct parallel_read_range){0};
    return (struct parallel_read_range){
        .file = &v->reader->files[s->file], .begin = s->begin, .end = s->end};
}

static void use_stretch(void *context, size_t i, uint8_t *bytes, enum sidestep_status status,
                        const struct sidestep_error *why)
{
    struct verify *v = context;
    const struct stretch *s = &v->stretches[i];

    if (atomic_load(&v->stop))
        return;
    if (s->pointer_count != 0)
        check_stock(v, s);
    else if (s->decoded)
        check_by_decoding(v, s);
    else
        check_stretch(v, s, bytes, status, why);
    pthread_mutex_lock(&v->shared.lock);
    v->shared.done_bytes += s->end - s->begin;
    if (v->options != NULL && v->options->on_progress != NULL)
        v->options->on_progress(v->options->context, v->shared.done_bytes, v->total_bytes);
    pthread_mutex_unlock(&v->shared.lock);
    if (v->options != NULL && v->options->cancel != NULL && *v->options->cancel)
        atomic_store(&v->stop, true);
}

static bool has_stopped(void *context)
{
    return atomic_load(&((struct verify *)context)->stop);
}

/* Do the chunks of a tensor cover it? */
static enum sidestep_status check_coverage(struct reader *reader, struct verify_findings *findings,
                                           struct sidestep_error *err)
{
    for (size_t e = 0; e < reader->metadata.count; e++) {
        const struct metadata_entry *entry = &reader->metadata.entries[e];
        OWNED struct box *boxes = memory_new(entry->chunk_count, sizeof(*boxes));
        enum tiling_result result;

        if (entry->is_object)
            continue;
        if (boxes == NULL)
            return FAIL_NOMEM(err, entry->chunk_count * sizeof(*boxes));
        for (size_t c = 0; c < entry->chunk_count; c++)
            boxes[c] = entry->chunks[c].box;
        TRY(tiling_check(entry->ndim, entry->shape, boxes, entry->chunk_count, &result, NULL, err));
        if (result != TILING_EXACT)
            TRY(verify_findings_add(
                findings, NULL, entry->name, "coverage",
                result == TILING_GAP ? "its chunks do not cover it" : "its chunks overlap", err));
    }
    return SIDESTEP_OK;
}

/* Files that could not be opened as what they should be. */
static enum sidestep_status report_files(struct reader *r, struct verify_findings *findings,
                                         struct sidestep_error *err)
{
    for (size_t i = 0; i < r->file_count; i++)
        if (r->files[i].problem != NULL)
            TRY(verify_findings_add(findings, r->files[i].name, NULL, r->files[i].problem,
                                    r->files[i].message, err));
    return SIDESTEP_OK;
}

/* What was read when the checkpoint was opened. */
static uint64_t opened_bytes(const struct reader *r)
{
    uint64_t bytes = r->record_bytes;

    for (size_t i = 0; i < r->file_count; i++)
        if (r->files[i].ours && r->files[i].problem == NULL)
            bytes += r->files[i].source.length - r->files[i].footer_offset;
    return bytes;
}

static enum sidestep_status verify_with(struct verify *v, struct workers *workers,
                                        struct sidestep_error *err)
{
    TRY(report_files(v->reader, v->findings, err));
    TRY(check_coverage(v->reader, v->findings, err));
    TRY(make_stretches(v, err));
    const struct parallel_read many = {.kind = &v->reader->queue,
                                       .direct = true,
                                       .count = v->count,
                                       .context = v,
                                       .describe = describe_stretch,
                                       .use = use_stretch,
                                       .stopped = has_stopped};
    TRY(parallel_read_run(&many, workers, err));
    v->findings->checked_bytes += v->shared.done_bytes + opened_bytes(v->reader);
    if (atomic_load(&v->stop))
        return FAIL(err, SIDESTEP_ECANCELLED, "verify '%s'", v->reader->path);
    if (v->shared.status != SIDESTEP_OK)
        error_copy(err, &v->shared.err);
    return v->shared.status;
}

enum sidestep_status verify_reader(struct reader *reader, struct workers *workers,
                                   const struct verify_options *options,
                                   struct verify_findings *findings, struct sidestep_error *err)
{
    struct budget own;
    struct verify v = {.reader = reader, .options = options, .findings = findings};

    budget_init(&own, VERIFY_MEMORY_BYTES);
    v.memory = options != NULL && options->memory != NULL ? options->memory : &own;
    v.refused = memory_new(reader->file_count, sizeof(*v.refused));
    if (v.refused == NULL)
        return FAIL_NOMEM(err, reader->file_count);
    pthread_mutex_init(&v.shared.lock, NULL);
    enum sidestep_status status = verify_with(&v, workers, err);
    pthread_mutex_destroy(&v.shared.lock);
    budget_destroy(&own);
    free(v.refused);
    free(v.pointers);
    free(v.stretches);
    return status;
}

enum sidestep_status verify_path(struct store *store, const char *path,
                                 enum sidestep_verify_mode mode, uint32_t flags,
                                 struct workers *workers, const struct verify_options *options,
                                 struct sidestep_error *err)
{
    struct verify_findings findings = {0};
    struct reader *reader = NULL;

    TRY(reader_open(store, path, flags | READER_PARSE_METADATA, &reader, err));
    enum sidestep_status status = SIDESTEP_OK;
    if (mode != SIDESTEP_VERIFY_STRUCTURE)
        status = verify_reader(reader, workers, options, &findings, err);
    if (status == SIDESTEP_OK && findings.count != 0) {
        const struct sidestep_problem *p = verify_findings_worst(&findings);
        status = FAIL(err, verify_findings_judge(&findings), "%s%s%s%s%s",
                      p->file != NULL ? p->file : "", p->file != NULL ? ": " : "",
                      p->name != NULL ? p->name : "", p->name != NULL ? ": " : "", p->message);
    }
    verify_findings_release(&findings);
    reader_close(&reader);
    return status;
}
