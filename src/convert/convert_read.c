/* SPDX-License-Identifier: BSD-3-Clause */
/* convert_read.c -- reads tensors of the source and converts them to the destination's dtype. */
#include <string.h>

#include "base/base.h"
#include "convert/convert.h"
#include "model/model.h"

struct box convert_tensor_box(const struct convert_tensor *tensor)
{
    static const int64_t zeros[SIDESTEP_MAX_NDIM];

    return (struct box){
        .ndim = tensor->from->ndim, .offsets = zeros, .lengths = tensor->from->shape};
}

/* Read elements [first, last) of the box into ${stored}, and convert them into ${converted}. */
static enum sidestep_status read_elements(struct conversion *c, struct convert_tensor *t,
                                          const struct box *box, uint64_t first, uint64_t last,
                                          uint8_t *stored, uint8_t *converted,
                                          struct sidestep_error *err)
{
    size_t size = sidestep_dtype_size(t->from->dtype);

    TRY(tensor_reader_read(c->bytes, t->entry, box, first * size, (last - first) * size, stored,
                           err));
    uint64_t overflows = cast_elements(t->from->dtype, stored, t->dtype, converted, last - first);
    if (overflows != 0)
        atomic_fetch_add(&t->overflows, overflows);
    return SIDESTEP_OK;
}

static enum sidestep_status read_cast(struct conversion *c, struct convert_tensor *t,
                                      const struct box *box, uint64_t begin, uint64_t bytes,
                                      uint8_t *to, struct sidestep_error *err)
{
    size_t from_size = sidestep_dtype_size(t->from->dtype), size = sidestep_dtype_size(t->dtype);
    uint64_t most = CONVERT_SCRATCH_BYTES / (from_size > size ? from_size : size);
    uint64_t first = begin / size, last = (begin + bytes + size - 1) / size;
    OWNED uint8_t *stored = memory_new(min_u64(last - first, most), from_size);
    OWNED uint8_t *converted = memory_new(min_u64(last - first, most), size);

    if (stored == NULL || converted == NULL)
        return FAIL_NOMEM(err, CONVERT_SCRATCH_BYTES);
    for (uint64_t next; first < last; first = next) {
        next = min_u64(last, first + most);
        TRY(read_elements(c, t, box, first, next, stored, converted, err));
        /* Of the first and the last element, perhaps only a part is needed. */
        uint64_t from = max_u64(begin, first * size), until = min_u64(begin + bytes, next * size);
        memcpy(to + (from - begin), converted + (from - first * size), until - from);
    }
    return SIDESTEP_OK;
}

enum sidestep_status convert_read(struct conversion *c, size_t tensor, const struct box *box,
                                  uint64_t begin, uint64_t bytes, uint8_t *to,
                                  struct sidestep_error *err)
{
    struct convert_tensor *t = &c->tensors[tensor];

    if (bytes == 0)
        return SIDESTEP_OK;
    if (t->dtype != t->from->dtype)
        return read_cast(c, t, box, begin, bytes, to, err);
    return tensor_reader_read(c->bytes, t->entry, box, begin, bytes, to, err);
}

enum sidestep_status convert_add_progress(struct conversion *c, uint64_t bytes, bool *is_last,
                                          struct sidestep_error *err)
{
    if (c->options.cancel != NULL && *c->options.cancel)
        return FAIL(err, SIDESTEP_ECANCELLED, "the caller cancelled it");
    lock_acquire(&c->shared.lock);
    c->shared.done_bytes += bytes;
    *is_last = bytes != 0 && c->shared.done_bytes == c->total_bytes;
    if (c->options.on_progress != NULL)
        c->options.on_progress(c->options.context, c->shared.done_bytes, c->total_bytes);
    lock_release(&c->shared.lock);
    return SIDESTEP_OK;
}
