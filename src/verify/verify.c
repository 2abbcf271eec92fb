/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify.c -- reads every byte of a checkpoint and checks it; see verify.h.
 *
 * A file that sidestep wrote is read in ranges of some MiB, split where items start and between
 * hash blocks, like the windows in which it was written.  Every byte is checked: data by block
 * hashes, heads and tails by the envelope hash; gaps must be zero.  Footers and small files were
 * checked when the checkpoint was opened.
 */
#include "verify/verify.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "verify/verify_stock.h"
#include "model/model.h"
#include "plan/plan.h"

struct range {
    size_t file;
    size_t item;  /* first item with a byte in the range */
    bool decoded; /* the range is this one item, which is compressed, and checked by decoding it */
    uint64_t begin;
    uint64_t end;
    /* Not 0: the range is one item without sidestep's hashes, and these of v->references refer to
     * it. */
    size_t reference_count;
    size_t reference;
};

struct verify {
    struct reader *reader;
    const struct verify_options *options;
    struct verify_findings *findings;
    struct verify_reference *references; /* references to items without sidestep's hashes */
    size_t reference_count;
    bool *refused; /* per file: a finding says that it may not be read */
    struct range *ranges;
    size_t count, capacity;
    struct budget *memory; /* for what must be in memory completely */
    uint64_t total_bytes;
    _Atomic bool stop;
    struct {
        struct lock lock LOCK_KIND(VERIFY);
        uint64_t done_bytes GUARDED_BY(&lock);
        enum sidestep_status status GUARDED_BY(&lock); /* of adding findings */
        struct sidestep_error err GUARDED_BY(&lock);
    } shared;
};

/* ${message} without the file and name, which the finding has in fields of its own. */
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
static bool is_skipped(const struct verify *v, size_t file)
{
    return v->options != NULL && v->options->skips != NULL && v->options->skips[file];
}
static bool passes_on(const struct verify *v)
{
    return v->options != NULL && v->options->take != NULL;
}
/* The offset of an item's data, as it is stored, in its file. */
static uint64_t data_begin(const struct footer_item *item)
{
    return item->offset + (item->transform == 0 ? item->data_offset : 0);
}

/* Was it reported before that this file may not be read?  Record that it is reported now: once per
 * file is enough. */
static bool was_reported(struct verify *v, const char *file, enum sidestep_status status)
    REQUIRES(&v->shared.lock)
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

    lock_acquire(&v->shared.lock);
    if (v->shared.status == SIDESTEP_OK && !was_reported(v, file, status))
        v->shared.status = verify_findings_add(v->findings, file, name, verify_kind(status),
                                               message, &v->shared.err);
    lock_release(&v->shared.lock);
}

static enum sidestep_status add_range(struct verify *v, const struct range *range,
                                      struct sidestep_error *err)
{
    TRY_GROW(v->ranges, v->capacity, v->count, err);
    v->ranges[v->count++] = *range;
    v->total_bytes += range->end - range->begin;
    return SIDESTEP_OK;
}

/* End range ${*s} at ${at}, before item ${i}, which is compressed.  Adds a range for the gap before
 * the item, and one for the item itself. */
static enum sidestep_status split_before_item(struct verify *v, struct range *s, uint64_t at,
                                              const struct footer_item *item, size_t i,
                                              struct sidestep_error *err)
{
    struct range gap = {.file = s->file, .item = i, .begin = at, .end = item->offset};
    struct range own = {.file = s->file,
                        .item = i,
                        .decoded = true,
                        .begin = item->offset,
                        .end = item->offset + item->bytes};

    s->end = at;
    if (s->end > s->begin)
        TRY(add_range(v, s, err));
    if (gap.end > gap.begin)
        TRY(add_range(v, &gap, err));
    *s = (struct range){.file = own.file, .item = i + 1, .begin = own.end};
    return own.end > own.begin ? add_range(v, &own, err) : SIDESTEP_OK;
}

/* Split a file into ranges: each ends at the first item or block that starts after the range has
 * its size. */
static enum sidestep_status split_file(struct verify *v, size_t file, struct sidestep_error *err)
{
    const struct reader_file *f = &v->reader->files[file];
    const bool is_far = store_reads(v->reader->store) != 0;
    const uint64_t want = is_far || passes_on(v) ? VERIFY_LARGE_READ_BYTES : VERIFY_READ_BYTES;
    struct range s = {.file = file};
    uint64_t at = 0;

    for (size_t i = 0; i < f->footer.count; i++) {
        const struct footer_item *item = &f->footer.items[i];
        uint64_t data = data_begin(item);
        if (item->transform != 0 && !passes_on(v)) {
            TRY(split_before_item(v, &s, at, item, i, err));
            at = s.begin;
            continue;
        }
        if (at - s.begin >= want) {
            s.end = at;
            TRY(add_range(v, &s, err));
            s = (struct range){.file = file, .item = i, .begin = at};
        }
        for (uint64_t b = 0; b < item->block_count; b++) {
            uint64_t block = data + b * HASH_BLOCK_BYTES;
            if (block - s.begin < want)
                continue;
            s.end = block;
            TRY(add_range(v, &s, err));
            s = (struct range){.file = file, .item = i, .begin = block};
        }
        at = item->offset + item->bytes;
    }
    if (at - s.begin >= want) {
        s.end = at;
        TRY(add_range(v, &s, err));
        s = (struct range){.file = file, .item = f->footer.count, .begin = at};
    }
    s.end = f->footer_offset;
    return s.end > s.begin ? add_range(v, &s, err) : SIDESTEP_OK;
}

/* Add each item without sidestep's hashes once.  An item that overlaps another one is damage and is
 * not read: otherwise a crafted checkpoint could make us read the same bytes any number of
 * times. */
static enum sidestep_status add_references(struct verify *v, struct sidestep_error *err)
{
    const char *file = "";
    uint64_t end = 0;

    verify_references_sort(v->references, v->reference_count);
    for (size_t i = 0, next; i < v->reference_count; i = next) {
        const struct verify_reference *p = &v->references[i];
        for (next = i + 1;
             next < v->reference_count && verify_references_same_item(p, &v->references[next]);)
            next++;
        if (strcmp(p->storage->file, file) != 0)
            end = 0;
        file = p->storage->file;
        if (p->storage->offset < end) {
            for (size_t k = i; k < next; k++)
                TRY(verify_findings_add(v->findings, file, v->references[k].entry->name, "format",
                                        "it overlaps another item", err));
            continue;
        }
        end = p->storage->offset + p->storage->length;
        struct range s = {
            .begin = p->storage->offset, .end = end, .reference = i, .reference_count = next - i};
        TRY(add_range(v, &s, err));
    }
    return SIDESTEP_OK;
}

static bool is_within(const struct reader_file *file, const struct metadata_storage *storage)
{
    uint64_t end;

    return checked_add(storage->offset, storage->length, &end) && end <= file->source.length;
}

/* Handle one reference of the metadata to ${file}: its item is checked by sidestep's hashes, or
 * without them, or is reported as lost. */
static enum sidestep_status add_reference(struct verify *v, const struct reader_file *file,
                                          const struct verify_reference *reference,
                                          struct sidestep_error *err)
{
    if (is_skipped(v, (size_t)(file - v->reader->files)) || (file->problem == NULL && file->ours))
        return SIDESTEP_OK;
    if (file->problem == NULL ||
        (reader_file_has_wrong_size(file) && is_within(file, reference->storage))) {
        v->references[v->reference_count++] = *reference;
        return SIDESTEP_OK;
    }
    if (!reader_status_is_damage(file->status) && !names_unread(v))
        return SIDESTEP_OK; /* not known to be lost */
    return verify_findings_add(v->findings, file->name, reference->entry->name, file->problem,
                               reader_file_has_wrong_size(file)
                                   ? "it ends beyond the end of its file"
                                   : "it is, wholly or in part, in a file that is lost",
                               err);
}

static enum sidestep_status make_references(struct verify *v, struct sidestep_error *err)
{
    struct reader *r = v->reader;
    size_t most = 0;

    for (size_t e = 0; e < r->metadata.count; e++)
        most += r->metadata.entries[e].is_object ? 1 : r->metadata.entries[e].chunk_count;
    v->references = memory_new(most, sizeof(*v->references));
    if (v->references == NULL)
        return FAIL_NOMEM(err, most * sizeof(*v->references));
    for (size_t e = 0; e < r->metadata.count; e++) {
        const struct metadata_entry *entry = &r->metadata.entries[e];
        for (size_t c = 0; c < (entry->is_object ? 1 : entry->chunk_count); c++) {
            const struct metadata_chunk *chunk = entry->is_object ? NULL : &entry->chunks[c];
            struct verify_reference p = {.entry = entry,
                                         .storage =
                                             chunk != NULL ? &chunk->storage : &entry->storage,
                                         .box = chunk != NULL ? &chunk->box : NULL};
            TRY(add_reference(v, &r->files[hash_table_find(&r->file_names, p.storage->file)], &p,
                              err));
        }
    }
    return SIDESTEP_OK;
}

static enum sidestep_status make_ranges(struct verify *v, struct sidestep_error *err)
{
    struct reader *r = v->reader;

    for (size_t i = 0; i < r->file_count; i++)
        if (r->files[i].ours && r->files[i].problem == NULL && !is_skipped(v, i))
            TRY(split_file(v, i, err));
    TRY(make_references(v, err));
    return add_references(v, err);
}

static bool is_zero(const uint8_t *bytes, uint64_t length)
{
    return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* Check head and tail of an item that ends in this range.  A head in an earlier range is read
 * again. */
static enum sidestep_status check_envelope(const struct reader_file *file,
                                           const struct footer_item *item, const struct range *s,
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
                                       const struct range *s, const uint8_t *bytes,
                                       struct sidestep_error *err)
{
    uint64_t data = data_begin(item);
    uint64_t first = max_u64(s->begin, data), last = min_u64(s->end, data + item->data_bytes);
    struct reader_item whole = {.file = file,
                                .footer = item,
                                .data_offset = data,
                                .data_bytes = item->data_bytes,
                                .blocks = item->blocks};

    if (first < last)
        TRY(reader_check_blocks(&whole, (first - data) / HASH_BLOCK_BYTES,
                                bytes + (first - s->begin), last - first, err));
    if (item->offset + item->bytes > s->end || item->transform != 0)
        return SIDESTEP_OK; /* it ends in a later range, or its other hashes are of decoded bytes */
    if (!hash128_equal(hash_block_list(item->blocks, item->block_count), item->raw_hash))
        return FAIL(err, SIDESTEP_ECORRUPT, "its block hashes do not match its hash");
    return check_envelope(file, item, s, bytes, err);
}

static bool check_gap(struct verify *v, const struct reader_file *file, const struct range *s,
                      const uint8_t *bytes, uint64_t from, uint64_t to)
{
    struct sidestep_error why;
    uint64_t first = max_u64(from, s->begin), last = min_u64(to, s->end);

    if (first >= last || is_zero(bytes + (first - s->begin), last - first))
        return true;
    (void)FAIL(&why, SIDESTEP_ECORRUPT, "bytes %llu to %llu are between items and are not zero",
               (unsigned long long)first, (unsigned long long)last);
    report(v, file->name, NULL, SIDESTEP_ECORRUPT, &why);
    return false;
}

/* False: there is a problem, which was reported. */
static bool check_range(struct verify *v, const struct range *s, const uint8_t *bytes,
                        enum sidestep_status status, const struct sidestep_error *read_error)
{
    struct reader_file *file = &v->reader->files[s->file];
    struct sidestep_error why = {0};
    uint64_t at = s->begin;
    bool unreadable = status != SIDESTEP_OK, is_good = !unreadable;

    for (size_t i = s->item; i < file->footer.count; i++) {
        const struct footer_item *item = &file->footer.items[i];
        if (item->offset >= s->end)
            break;
        if (unreadable) { /* report each tensor that is lost */
            report(v, file->name, item->name, status, read_error);
            continue;
        }
        is_good &= check_gap(v, file, s, bytes, at, item->offset);
        status = check_item(file, item, s, bytes, &why);
        if (status != SIDESTEP_OK)
            report(v, file->name, item->name, status, &why);
        is_good &= status == SIDESTEP_OK;
        at = item->offset + item->bytes;
    }
    return is_good && check_gap(v, file, s, bytes, at, s->end);
}

/* Pass the bytes of a range to options->take(), if they were read and are good. */
static void pass_on(struct verify *v, const struct range *s, const uint8_t *bytes,
                    enum sidestep_status status, const struct sidestep_error *why, bool is_good)
{
    struct sidestep_error failure = {.rank = -1};

    if (status == SIDESTEP_OK && is_good) {
        status = v->options->take(v->options->context, s->file, s->begin, bytes, s->end - s->begin,
                                  &failure);
        why = &failure;
    }
    if (is_good && status == SIDESTEP_OK)
        return;
    atomic_store(&v->stop, true);
    lock_acquire(&v->shared.lock);
    if (status != SIDESTEP_OK && v->shared.status == SIDESTEP_OK) {
        v->shared.status = status;
        v->shared.err = *why;
    }
    lock_release(&v->shared.lock);
}

static void report_stock(void *context, const struct verify_reference *reference,
                         enum sidestep_status status, const struct sidestep_error *why)
{
    struct verify *v = context;
    const struct reader_file *file =
        &v->reader->files[hash_table_find(&v->reader->file_names, reference->storage->file)];
    struct sidestep_error other;

    /* Objects that sidestep wrote may be any bytes; only the footer could tell whether they are
     * damaged. */
    if (reader_file_has_wrong_size(file) && v->reader->has_manifest && reference->box == NULL) {
        (void)FAIL(&other, status, "it cannot be checked without the end of its file (%.600s)",
                   why->message);
        why = &other;
    }
    report(v, reference->storage->file, reference->entry->name, status, why);
}

static void check_stock(struct verify *v, const struct range *s)
{
    struct verify_stock stock = {.reader = v->reader,
                                 .memory = v->memory,
                                 .cancel = v->options != NULL ? v->options->cancel : NULL,
                                 .report = report_stock,
                                 .context = v};

    verify_stock_item(&stock, &v->references[s->reference], s->reference_count);
}

static void check_by_decoding(struct verify *v, const struct range *s)
{
    struct reader_file *file = &v->reader->files[s->file];
    const struct footer_item *footer = &file->footer.items[s->item];
    struct reader_item item = reader_item_from_footer(file, footer);
    struct sidestep_error why = {0};
    enum sidestep_status status = reader_item_decode(&item, NULL, &why);

    if (status != SIDESTEP_OK)
        report(v, file->name, footer->name, status, &why);
}

/* ---- callbacks of parallel_read.h */

static struct parallel_read_range get_range(void *context, size_t i)
{
    const struct verify *v = context;
    const struct range *s = &v->ranges[i];

    if (s->reference_count != 0 || s->decoded)
        return (struct parallel_read_range){0};
    return (struct parallel_read_range){
        .file = &v->reader->files[s->file], .begin = s->begin, .end = s->end};
}

static int32_t consume_range(void *context, size_t i, uint8_t *bytes, enum sidestep_status status,
                             const struct sidestep_error *why)
{
    struct verify *v = context;
    const struct range *s = &v->ranges[i];

    if (atomic_load(&v->stop))
        return -1;
    if (s->reference_count != 0)
        check_stock(v, s);
    else if (s->decoded)
        check_by_decoding(v, s);
    else if (passes_on(v))
        pass_on(v, s, bytes, status, why,
                status == SIDESTEP_OK && check_range(v, s, bytes, status, why));
    else
        (void)check_range(v, s, bytes, status, why);
    lock_acquire(&v->shared.lock);
    v->shared.done_bytes += s->end - s->begin;
    if (v->options != NULL && v->options->on_progress != NULL)
        v->options->on_progress(v->options->context, v->shared.done_bytes, v->total_bytes);
    lock_release(&v->shared.lock);
    if (v->options != NULL && v->options->cancel != NULL && *v->options->cancel)
        atomic_store(&v->stop, true);
    return -1;
}

static bool has_stopped(void *context)
{
    return atomic_load(&((struct verify *)context)->stop);
}

/* Check that the chunks of each tensor cover it. */
static enum sidestep_status check_coverage(struct reader *reader, struct verify_findings *findings,
                                           struct sidestep_error *err)
{
    for (size_t e = 0; e < reader->metadata.count; e++) {
        const struct metadata_entry *entry = &reader->metadata.entries[e];
        enum tiling_result result;

        if (entry->is_object)
            continue;
        TRY(tiling_check_chunks(entry, &result, err));
        if (result != TILING_EXACT)
            TRY(verify_findings_add(
                findings, NULL, entry->name, "coverage",
                result == TILING_GAP ? "its chunks do not cover it" : "its chunks overlap", err));
    }
    return SIDESTEP_OK;
}

/* Report files that could not be opened, or are damaged. */
static enum sidestep_status report_files(struct verify *v, struct sidestep_error *err)
{
    const struct reader *r = v->reader;

    for (size_t i = 0; i < r->file_count; i++)
        if (r->files[i].problem != NULL && !is_skipped(v, i))
            TRY(verify_findings_add(v->findings, r->files[i].name, NULL, r->files[i].problem,
                                    r->files[i].message, err));
    return SIDESTEP_OK;
}

/* Bytes that were read when the checkpoint was opened. */
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
    TRY(report_files(v, err));
    if (v->options == NULL || (v->options->skips == NULL && v->options->take == NULL))
        TRY(verify_extras(v->reader, v->findings, err));
    if (v->reader->manifest.part.rank_count == 0)
        TRY(check_coverage(v->reader, v->findings, err));
    TRY(make_ranges(v, err));
    const struct parallel_read many = {.kind = &v->reader->queue,
                                       .store = v->reader->store,
                                       .direct = true,
                                       .count = v->count,
                                       .context = v,
                                       .describe = get_range,
                                       .use = consume_range,
                                       .stopped = has_stopped};
    TRY(parallel_read_run(&many, workers, err));
    lock_alone(&v->shared.lock);
    v->findings->checked_bytes += v->shared.done_bytes + opened_bytes(v->reader);
    if (v->shared.status != SIDESTEP_OK) {
        error_copy(err, &v->shared.err);
        return v->shared.status;
    }
    if (atomic_load(&v->stop) && !(passes_on(v) && v->findings->count != 0))
        return FAIL(err, SIDESTEP_ECANCELLED, "verify '%s'", v->reader->path);
    return SIDESTEP_OK;
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
    lock_init(&v.shared.lock, LOCK_VERIFY);
    enum sidestep_status status = verify_with(&v, workers, err);
    lock_destroy(&v.shared.lock);
    budget_destroy(&own);
    free(v.refused);
    free(v.references);
    free(v.ranges);
    return status;
}
