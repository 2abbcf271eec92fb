/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify_stock.h -- checking items without hashes of ours, as far as they can be checked: those
 * that torch wrote, and ours in a file that has lost its footer.
 */
#ifndef VERIFY_VERIFY_STOCK_H
#define VERIFY_VERIFY_STOCK_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"

/* A chunk of a tensor, or (${box} NULL) an object, and where the metadata says that it is stored.
 */
struct verify_reference {
    const struct metadata_entry *entry;
    const struct metadata_storage *storage;
    const struct box *box;
};
/* By file and place, so that those that point at the same item stand together. */
void verify_references_sort(struct verify_reference *pointers, size_t count);
bool verify_references_same_item(const struct verify_reference *a,
                                 const struct verify_reference *b);

struct verify_stock {
    struct reader *reader;
    struct budget *memory;
    const bool volatile *cancel; /* may be NULL */
    void (*report)(void *context, const struct verify_reference *pointer,
                   enum sidestep_status status, const struct sidestep_error *why);
    void *context;
};

/* The one item that all ${count} pointers share, read once: structure, every CRC32 that was
 * written, and that each of them agrees with it.  Leaves the pointers in disorder. */
void verify_stock_item(const struct verify_stock *v, struct verify_reference *pointers,
                       size_t count);

#endif
