/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify_stock.h -- checks items that have no hashes of sidestep, as far as possible: those that
 * PyTorch wrote, and sidestep's own in a file that has lost its footer.
 */
#ifndef VERIFY_VERIFY_STOCK_H
#define VERIFY_VERIFY_STOCK_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"

/* A reference of the metadata to a stored item: a chunk of a tensor, or (${box} NULL) an object. */
struct verify_reference {
    const struct metadata_entry *entry;
    const struct metadata_storage *storage;
    const struct box *box;
};
/* Sort by file and offset, so that references to the same item are adjacent. */
void verify_references_sort(struct verify_reference *references, size_t count);
bool verify_references_same_item(const struct verify_reference *a,
                                 const struct verify_reference *b);

struct verify_stock {
    struct reader *reader;
    struct budget *memory;
    const bool volatile *cancel; /* may be NULL */
    void (*report)(void *context, const struct verify_reference *reference,
                   enum sidestep_status status, const struct sidestep_error *why);
    void *context;
};

/* Read and check the one item that all ${count} references share: its structure, every CRC32 that
 * was written, and that each reference agrees with it.  An item that only PyTorch can decode is
 * whole if its structure and CRCs are right.  Reorders the references. */
void verify_stock_item(const struct verify_stock *v, struct verify_reference *references,
                       size_t count);

#endif
