/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * torch_write.h -- writes the pickle of a file of torch.save(): dicts and lists, nested by the
 * paths of the values.  It uses protocol 2, and only symbols that torch.load(weights_only=True)
 * accepts.
 */
#ifndef FORMAT_TORCH_WRITE_H
#define FORMAT_TORCH_WRITE_H

#include "base/base.h"
#include "model/model.h"

/* A value, and its path. */
struct torch_write_entry {
    const char *name;                      /* for messages, and the only key if there is no path */
    const struct sidestep_path_item *path; /* unused if ${path_length} is 0 */
    uint32_t path_length;
    size_t order;                       /* for the caller, to sort entries */
    const struct sidestep_value *value; /* NULL: it is a row-major tensor */
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    size_t storage; /* the tensor is all of data/<storage> */
};

/* Append the pickle.  Keys have the order of their first use.  EUNSUPPORTED: two values have one
 * path, a list has too many holes, or a value is not plain data. */
enum sidestep_status torch_write_pickle(const struct torch_write_entry *entries, size_t count,
                                        struct buffer *out, struct sidestep_error *err);

#endif
