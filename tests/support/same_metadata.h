/* SPDX-License-Identifier: BSD-3-Clause */
/* same_metadata.h -- asserts that two entries of checkpoint metadata are equal. */
#ifndef SUPPORT_SAME_METADATA_H
#define SUPPORT_SAME_METADATA_H

#include "model/model.h"
#include "support/unit.h"

static inline void assert_same_storage(const struct metadata_storage *a,
                                       const struct metadata_storage *b)
{
    assert_string_equal(a->file, b->file);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->length, b->length);
    assert_int_equal(a->transform != NULL, b->transform != NULL);
    if (a->transform != NULL)
        assert_string_equal(a->transform, b->transform);
}

static inline void assert_same_path(const struct metadata_entry *a, const struct metadata_entry *b)
{
    assert_int_equal(a->path_length, b->path_length);
    for (uint32_t i = 0; i < a->path_length; i++) {
        assert_int_equal(a->path[i].key != NULL, b->path[i].key != NULL);
        if (a->path[i].key != NULL)
            assert_string_equal(a->path[i].key, b->path[i].key);
        assert_int_equal(a->path[i].index, b->path[i].index);
        assert_int_equal(a->path[i].flags, b->path[i].flags);
    }
}

static inline void assert_same_entry(const struct metadata_entry *a, const struct metadata_entry *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->is_object, b->is_object);
    assert_same_path(a, b);
    if (a->is_object) {
        assert_same_storage(&a->storage, &b->storage);
        return;
    }
    assert_int_equal(a->dtype, b->dtype);
    assert_string_equal(a->dtype_name, b->dtype_name);
    assert_int_equal(a->requires_grad, b->requires_grad);
    assert_int_equal(a->ndim, b->ndim);
    assert_memory_equal(a->shape, b->shape, a->ndim * sizeof(*a->shape));
    assert_int_equal(a->chunk_count, b->chunk_count);
    for (size_t c = 0; c < a->chunk_count; c++) {
        assert_true(box_equal(&a->chunks[c].box, &b->chunks[c].box));
        assert_same_storage(&a->chunks[c].storage, &b->chunks[c].storage);
    }
}

#endif
