/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diff.c -- sidestep_diff(): compares two checkpoints by name.  Tensors whose stored hashes are
 * equal are not read.
 */
#include "inspect/diff.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/format.h"
#include "model/model.h"
#include "object/object.h"
#include "store/store.h"

#define DIFF_MIN_THREADS 4u /* reads in flight, even if there are fewer cores */
#define DIFF_MAX_THREADS 8u

_Static_assert(sizeof(struct sidestep_diff_options) == 40, "a field was added: apply it below");

static const char *const kind_names[] = {
    [DIFF_SAME] = "same",   [DIFF_ONLY_A] = "only_a", [DIFF_ONLY_B] = "only_b",
    [DIFF_KIND] = "kind",   [DIFF_DTYPE] = "dtype",   [DIFF_SHAPE] = "shape",
    [DIFF_VALUE] = "value", [DIFF_DATA] = "data",     [DIFF_FILE] = "file",
};

/* ---- names */

static int compare_entries(const void *x, const void *y)
{
    const struct metadata_entry *const *a = x, *const *b = y;

    return strcmp((*a)->name, (*b)->name);
}

static enum sidestep_status sort_entries(const struct metadata *metadata,
                                         const struct metadata_entry ***sorted,
                                         struct sidestep_error *err)
{
    *sorted = memory_new(metadata->count, sizeof(**sorted));
    if (*sorted == NULL)
        return FAIL_NOMEM(err, metadata->count * sizeof(**sorted));
    for (size_t i = 0; i < metadata->count; i++)
        (*sorted)[i] = &metadata->entries[i];
    if (metadata->count != 0)
        qsort(*sorted, metadata->count, sizeof(**sorted), compare_entries);
    return SIDESTEP_OK;
}

static enum diff_kind compare_headers(const struct metadata_entry *a,
                                      const struct metadata_entry *b)
{
    if (a == NULL || b == NULL)
        return a == NULL ? DIFF_ONLY_B : DIFF_ONLY_A;
    if (a->is_object != b->is_object)
        return DIFF_KIND;
    if (a->is_object)
        return DIFF_SAME;
    if (a->dtype != b->dtype ||
        (a->dtype == SIDESTEP_DTYPE_NONE && strcmp(a->dtype_name, b->dtype_name) != 0))
        return DIFF_DTYPE;
    if (a->ndim != b->ndim ||
        (a->ndim != 0 && memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) != 0))
        return DIFF_SHAPE;
    return DIFF_SAME;
}

/* Pair the names of both checkpoints, in order. */
static enum sidestep_status make_pairs(struct diff *diff, struct sidestep_error *err)
{
    OWNED const struct metadata_entry **a = NULL, **b = NULL;
    size_t a_count = diff->readers[0]->metadata.count, b_count = diff->readers[1]->metadata.count;
    size_t most = a_count + b_count + diff->readers[0]->manifest.extra_count +
                  diff->readers[1]->manifest.extra_count;

    TRY(sort_entries(&diff->readers[0]->metadata, &a, err));
    TRY(sort_entries(&diff->readers[1]->metadata, &b, err));
    diff->pairs = memory_new(most, sizeof(*diff->pairs));
    if (diff->pairs == NULL)
        return FAIL_NOMEM(err, most * sizeof(*diff->pairs));
    for (size_t i = 0, k = 0; i < a_count || k < b_count;) {
        int order = i == a_count ? 1 : k == b_count ? -1 : strcmp(a[i]->name, b[k]->name);
        struct diff_pair *pair = &diff->pairs[diff->count++];
        *pair = (struct diff_pair){.sum = TENSOR_DIFFERENCE_INIT};
        if (order <= 0)
            pair->a = a[i++];
        if (order >= 0)
            pair->b = b[k++];
        pair->kind = compare_headers(pair->a, pair->b);
    }
    return SIDESTEP_OK;
}

/* ---- objects */

static enum sidestep_status read_object(struct reader *reader, const struct metadata_entry *entry,
                                        void **bytes, size_t *length, struct sidestep_error *err)
{
    struct reader_item item;

    TRY(reader_locate_item(reader, entry, &entry->storage, NULL, NULL, &item, err));
    enum sidestep_status status = reader_item_read(&item, bytes, length, err);
    if (status != SIDESTEP_OK) {
        reader_blame(err, entry->name, item.file);
        error_wrap(err, "checkpoint '%s'", reader->path);
    }
    return status;
}

static void free_value(struct sidestep_value **value)
{
    sidestep_value_free(value);
}

/* A value can have several pickles, so decode both.  If that fails, compare the bytes. */
static enum sidestep_status compare_values(const void *a, size_t a_length, const void *b,
                                           size_t b_length, bool *same, struct sidestep_error *err)
{
    OWNED_BY(free_value) struct sidestep_value *x = NULL;
    OWNED_BY(free_value) struct sidestep_value *y = NULL;

    enum sidestep_status status = archive_object_read(a, a_length, &x, NULL);
    if (status == SIDESTEP_OK)
        status = archive_object_read(b, b_length, &y, NULL);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, a_length + b_length);
    *same = status == SIDESTEP_OK && value_equal(x, y);
    return SIDESTEP_OK;
}

static enum sidestep_status compare_objects(struct diff *diff, struct diff_pair *pair,
                                            struct sidestep_error *err)
{
    OWNED void *a = NULL, *b = NULL;
    size_t a_length, b_length;
    bool same = true;

    TRY(read_object(diff->readers[0], pair->a, &a, &a_length, err));
    TRY(read_object(diff->readers[1], pair->b, &b, &b_length, err));
    if (a_length != b_length || memcmp(a, b, a_length) != 0)
        TRY(compare_values(a, a_length, b, b_length, &same, err));
    pair->kind = same ? DIFF_SAME : DIFF_VALUE;
    return SIDESTEP_OK;
}

/* ---- the report */

struct report_owner {
    struct arena arena;
    struct sidestep_difference *differences;
};

const struct sidestep_difference *
sidestep_diff_report_difference(const struct sidestep_diff_report *report, size_t i)
{
    const struct sidestep_difference *entries = report->differences;

    return i < report->difference_count ? &entries[i] : NULL;
}

void sidestep_diff_report_release(struct sidestep_diff_report *report)
{
    struct report_owner *owner = report->owner;

    if (owner != NULL) {
        free(owner->differences);
        arena_release(&owner->arena);
        free(owner);
    }
    *report = (struct sidestep_diff_report){0};
}

static const char *describe_entry(struct arena *arena, const struct metadata_entry *entry,
                                  bool other_kind)
{
    if (entry->is_object)
        return arena_printf(arena, "an object");
    return arena_printf(arena, "%s %s%s", entry->dtype_name,
                        display_shape(entry->ndim, entry->shape).text,
                        other_kind ? " of a kind that only PyTorch can decode" : "");
}

static const char *describe_pair(struct arena *arena, const struct diff_pair *pair)
{
    const char *a = pair->a != NULL ? describe_entry(arena, pair->a, pair->other_kind[0]) : "";
    const char *b = pair->b != NULL ? describe_entry(arena, pair->b, pair->other_kind[1]) : "";

    if (a == NULL || b == NULL)
        return NULL;
    switch (pair->kind) {
    case DIFF_ONLY_A:
        return arena_printf(arena, "%s, in the first only", a);
    case DIFF_ONLY_B:
        return arena_printf(arena, "%s, in the second only", b);
    case DIFF_FILE:
        return diff_describe_files(arena, pair);
    case DIFF_VALUE:
        return arena_printf(arena,
                            pair->other_kind[0] ? "the stored bytes differ" : "the values differ");
    case DIFF_DATA:
        return arena_printf(arena, "%s: %llu elements differ", a,
                            (unsigned long long)pair->sum.count);
    default:
        return arena_printf(arena, "%s, and %s", a, b);
    }
}

/* The index of element ${number} in a tensor of this shape. */
static const int64_t *index_of(struct arena *arena, const struct metadata_entry *entry,
                               uint64_t number)
{
    int64_t *index = arena_new(arena, entry->ndim, sizeof(*index));

    if (index == NULL)
        return NULL;
    for (uint32_t d = entry->ndim; d-- > 0;) {
        index[d] = (int64_t)(number % (uint64_t)entry->shape[d]);
        number /= (uint64_t)entry->shape[d];
    }
    return index;
}

static enum sidestep_status report_pair(struct report_owner *owner, const struct diff_pair *pair,
                                        struct sidestep_difference *out, struct sidestep_error *err)
{
    const struct metadata_entry *entry = pair->a != NULL ? pair->a : pair->b;
    const struct extra_file *file = pair->files[0] != NULL ? pair->files[0] : pair->files[1];
    const char *name = file != NULL ? file->name : entry->name;

    *out = (struct sidestep_difference){.name = arena_strndup(&owner->arena, name, strlen(name)),
                                        .kind = kind_names[pair->kind],
                                        .message = describe_pair(&owner->arena, pair)};
    if (out->name == NULL || out->message == NULL)
        return FAIL_NOMEM(err, strlen(name));
    if (pair->kind != DIFF_DATA)
        return SIDESTEP_OK;
    out->element_count = pair->sum.count;
    out->max_abs = pair->sum.max_abs;
    out->max_rel = pair->sum.max_rel;
    out->ndim = entry->ndim;
    out->first = index_of(&owner->arena, entry, pair->sum.first);
    return out->first != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, entry->ndim * sizeof(int64_t));
}

static enum sidestep_status make_report(const struct diff *diff,
                                        struct sidestep_diff_report *report,
                                        struct sidestep_error *err)
{
    struct report_owner *owner = memory_new(1, sizeof(*owner));
    size_t count = 0;

    if (owner == NULL)
        return FAIL_NOMEM(err, sizeof(*owner));
    report->owner = owner;
    for (size_t i = 0; i < diff->count; i++)
        count += diff->pairs[i].kind != DIFF_SAME;
    owner->differences = memory_new(count, sizeof(*owner->differences));
    if (owner->differences == NULL)
        return FAIL_NOMEM(err, count * sizeof(*owner->differences));
    report->differences = owner->differences;
    for (size_t i = 0; i < diff->count; i++) {
        const struct diff_pair *pair = &diff->pairs[i];
        report->same_count += pair->kind == DIFF_SAME;
        report->same_by_hash += pair->kind == DIFF_SAME && pair->by_hash;
        if (pair->kind != DIFF_SAME)
            TRY(report_pair(owner, pair, &owner->differences[report->difference_count++], err));
    }
    report->is_same = report->difference_count == 0;
    report->read_bytes = diff->done_bytes;
    return SIDESTEP_OK;
}

/* ---- the comparison */

static enum sidestep_status compare_all(struct diff *diff, struct sidestep_error *err)
{
    TRY(make_pairs(diff, err));
    for (size_t i = 0; i < diff->count; i++) {
        struct diff_pair *pair = &diff->pairs[i];
        if (pair->kind != DIFF_SAME)
            continue;
        if (diff->options->cancel != NULL && *diff->options->cancel)
            return FAIL(err, SIDESTEP_ECANCELLED, "interrupted");
        if (pair->a->is_object) {
            TRY(compare_objects(diff, pair, err));
            continue;
        }
        TRY(diff_compare_stored(diff, pair, err));
        if (pair->kind == DIFF_SAME && !pair->other_kind[0])
            TRY(diff_compare_hashes(diff, pair, err));
    }
    TRY(diff_compare_tensors(diff, err));
    TRY(diff_add_files(diff, err));
    for (int side = 0; side < 2; side++)
        if (!diff->readers[side]->has_manifest)
            TRY(reader_check_unchanged(diff->readers[side], err));
    return SIDESTEP_OK;
}

static enum sidestep_status open_both(struct diff *diff, struct sidestep_error *err)
{
    uint32_t flags = READER_SHARED_LOCK | READER_FOREIGN | STORE_DIRECT |
                     (store_ring_probe() == 0 ? READER_IO_URING : 0);

    for (int side = 0; side < 2; side++) {
        enum sidestep_status status = object_path_open(diff->paths[side], &diff->stores[side], err);
        if (status == SIDESTEP_OK)
            status = reader_open(diff->stores[side], diff->paths[side], flags, &diff->readers[side],
                                 err);
        if (status != SIDESTEP_OK) {
            error_wrap(err, "open '%s'", diff->paths[side]);
            return status;
        }
    }
    diff->threads = thread_choose_count(diff->options->threads, DIFF_MIN_THREADS, DIFF_MAX_THREADS);
    return workers_new(diff->threads - 1, "sidestep-diff", &diff->workers, err);
}

enum sidestep_status sidestep_diff(const char *a, const char *b,
                                   const struct sidestep_diff_options *theirs,
                                   struct sidestep_diff_report *report, struct sidestep_error *err)
{
    struct sidestep_diff_options options;
    struct diff diff = {.paths = {a, b}, .options = &options};

    if (a == NULL || b == NULL || report == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "a path or report is NULL");
    *report = (struct sidestep_diff_report){0};
    TRY(options_copy(&options, sizeof(options), theirs, "diff options", err));
    if (options.flags != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "diff options: unknown flags 0x%x", options.flags);
    enum sidestep_status status = open_both(&diff, err);
    if (status == SIDESTEP_OK)
        status = compare_all(&diff, err);
    if (status == SIDESTEP_OK)
        status = make_report(&diff, report, err);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "compare '%s' with '%s'", a, b);
        sidestep_diff_report_release(report);
    }
    free(diff.pairs);
    workers_free(&diff.workers);
    for (int side = 0; side < 2; side++) {
        reader_close(&diff.readers[side]);
        object_path_close(&diff.stores[side]);
    }
    return status;
}
