/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * torch_write.h -- the pickle of a file of torch.save(): dicts and lists, nested as the paths of
 * their values say, in protocol 2 and with the symbols that torch.load(weights_only=True) accepts.
 */
#ifndef FORMAT_TORCH_WRITE_H
#define FORMAT_TORCH_WRITE_H

#include "base/base.h"
#include "model/model.h"

/* A value, and where it belongs. */
struct torch_write_entry {
    const char *name;                      /* for messages, and the only key if there is no path */
    const struct sidestep_path_item *path; /* of ${path_length} > 0 */
    uint32_t path_length;
    size_t order;                       /* for the caller, to sort them */
    const struct sidestep_value *value; /* NULL: a row-major tensor ... */
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    size_t storage; /* ... that is the whole of data/<storage> */
};

/* Append the pickle.  Keys stand in the order in which they come first.  EUNSUPPORTED: two values
 * are at one place, a list has holes too large, or a value is no plain data. */
enum sidestep_status torch_write_pickle(const struct torch_write_entry *entries, size_t count,
                                        struct buffer *out, struct sidestep_error *err);

#endif
