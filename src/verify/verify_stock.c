/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_stock.c -- checks items that have no hashes of sidestep; see verify_stock.h. */
#include "verify/verify_stock.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_items(const struct verify_reference *a, const struct verify_reference *b)
{
    const struct metadata_storage *x = a->storage, *y = b->storage;
    int order = strcmp(x->file, y->file);

    if (order == 0)
        order = compare_numbers(x->offset, y->offset);
    if (order == 0)
        order = compare_numbers(x->length, y->length);
    if (order == 0)
        order = strcmp(x->transform != NULL ? x->transform : "",
                       y->transform != NULL ? y->transform : "");
    return order;
}

static int compare_references(const void *a, const void *b)
{
    const struct verify_reference *x = a, *y = b;
    int order = compare_items(x, y);

    return order != 0 ? order : strcmp(x->entry->name, y->entry->name);
}

void verify_references_sort(struct verify_reference *references, size_t count)
{
    if (count != 0)
        qsort(references, count, sizeof(*references), compare_references);
}

bool verify_references_same_item(const struct verify_reference *a, const struct verify_reference *b)
{
    return compare_items(a, b) == 0;
}

/* The file of an item; reads of it fail when the caller cancels. */
struct watched {
    const struct source *file;
    const bool volatile *cancel;
};

static enum sidestep_status read_watched(const struct source *source, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    const struct watched *watched = source->context;

    if (watched->cancel != NULL && *watched->cancel)
        return FAIL(err, SIDESTEP_ECANCELLED, "verify");
    return source_read(watched->file, to, bytes, offset, err);
}

/* Check that ${reference} agrees with the decoded item.  Of what only PyTorch can decode, the
 * metadata says nothing that could be compared. */
static enum sidestep_status check_agreement(const struct source *decoded,
                                            const struct verify_reference *reference,
                                            struct sidestep_error *err)
{
    struct archive_tensor tensor;

    if (reference->box == NULL || reference->entry->dtype == SIDESTEP_DTYPE_NONE)
        return SIDESTEP_OK;
    enum sidestep_status status = archive_tensor_read(decoded, 0, decoded->length, &tensor, err);
    if (status == SIDESTEP_EUNSUPPORTED || status == SIDESTEP_EUNSAFE)
        return SIDESTEP_OK;
    return status != SIDESTEP_OK
               ? status
               : reader_check_tensor(&tensor, reference->entry, reference->box, err);
}

static void report_all(const struct verify_stock *v, const struct verify_reference *references,
                       size_t count, enum sidestep_status status, const struct sidestep_error *why)
{
    for (size_t i = 0; i < count; i++)
        v->report(v->context, &references[i], status, why);
}

static void check_transformed(const struct verify_stock *v,
                              const struct verify_reference *references, size_t count,
                              const struct reader_item *item)
{
    OWNED void *bytes = NULL;
    struct sidestep_error why = {0};
    size_t length = 0;
    enum sidestep_status status = reader_item_read(item, &bytes, &length, &why);
    struct source source = source_from_memory(bytes, length);

    if (status == SIDESTEP_OK)
        status = archive_check(&source, 0, length, &why);
    if (status != SIDESTEP_OK) {
        report_all(v, references, count, status, &why);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        status = check_agreement(&source, &references[i], &why);
        if (status != SIDESTEP_OK)
            v->report(v->context, &references[i], status, &why);
    }
}

/* Move the references that agree with the item to the front.  Returns how many there are.
 * ${*item}: the item as located by the reference that expects the most bytes. */
static size_t find_item(const struct verify_stock *v, struct verify_reference *references,
                        size_t count, struct reader_item *item)
{
    size_t good = 0;

    for (size_t i = 0; i < count; i++) {
        struct verify_reference p = references[i];
        struct sidestep_error why = {0};
        struct reader_item found;
        enum sidestep_status status =
            reader_locate_item(v->reader, p.entry, p.storage, p.box, NULL, &found, &why);
        if (status != SIDESTEP_OK && !found.is_other_kind) {
            v->report(v->context, &p, status, &why);
            continue;
        }
        if (good == 0 || found.raw_limit > item->raw_limit)
            *item = found;
        references[good++] = p;
    }
    return good;
}

void verify_stock_item(const struct verify_stock *v, struct verify_reference *references,
                       size_t count)
{
    struct reader_item item;
    struct sidestep_error why = {0};

    count = find_item(v, references, count, &item);
    if (count == 0)
        return;
    if (item.transform != NULL) {
        uint64_t memory = reader_item_max_memory(&item);
        budget_acquire(v->memory, memory);
        check_transformed(v, references, count, &item);
        budget_return(v->memory, memory);
        return;
    }
    struct watched watched = {.file = &item.file->source, .cancel = v->cancel};
    struct source source = {
        .length = item.file->source.length, .read_at = read_watched, .context = &watched};
    enum sidestep_status status = archive_check(&source, item.offset, item.bytes, &why);
    if (status != SIDESTEP_OK && status != SIDESTEP_ECANCELLED)
        report_all(v, references, count, status, &why);
}
