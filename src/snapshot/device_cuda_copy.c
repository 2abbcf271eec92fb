/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_cuda_copy.c -- copies with NVIDIA's driver: one call for each copy of rows, and one call
 * for many contiguous copies if the driver supports CUDA 12.8 or later.
 */
#include <assert.h>

#include "snapshot/device_cuda_internal.h"

enum { CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1 };
enum { CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE = 1 };
enum { BATCH_MIN = 4 }; /* fewer copies are submitted one by one */

struct cuda_memcpy_2d { /* CUDA_MEMCPY2D_v2 */
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    cu_device_pointer src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    cu_device_pointer dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
};
_Static_assert(sizeof(struct cuda_memcpy_2d) == 128, "the size that the driver reads");

struct cuda_location { /* CUmemLocation */
    int type;
    int id;
};

struct cuda_memcpy_attributes { /* CUmemcpyAttributes */
    int src_access_order;
    struct cuda_location src_hint, dst_hint;
    unsigned flags;
};
_Static_assert(sizeof(struct cuda_memcpy_attributes) == 24, "the size that the driver reads");

static enum sidestep_status copy_one(struct cuda *cuda, const struct device_copy *copy,
                                     void *stream, struct sidestep_error *err)
{
    if (copy->rows == 1 && copy->to_device) {
        CUDA_TRY(cuda, "cuMemcpyHtoDAsync", copy_in, copy->address, copy->host, copy->bytes,
                 stream);
        return SIDESTEP_OK;
    }
    if (copy->rows == 1) {
        CUDA_TRY(cuda, "cuMemcpyDtoHAsync", copy_out, copy->host, copy->address, copy->bytes,
                 stream);
        return SIDESTEP_OK;
    }
    struct cuda_memcpy_2d rows = {.width = copy->bytes, .height = copy->rows};
    if (copy->to_device) {
        rows.src_type = CU_MEMORYTYPE_HOST;
        rows.src_host = copy->host;
        rows.src_pitch = copy->host_pitch;
        rows.dst_type = CU_MEMORYTYPE_DEVICE;
        rows.dst_device = copy->address;
        rows.dst_pitch = copy->device_pitch;
    } else {
        rows.src_type = CU_MEMORYTYPE_DEVICE;
        rows.src_device = copy->address;
        rows.src_pitch = copy->device_pitch;
        rows.dst_type = CU_MEMORYTYPE_HOST;
        rows.dst_host = copy->host;
        rows.dst_pitch = copy->host_pitch;
    }
    CUDA_TRY(cuda, "cuMemcpy2DAsync", copy_2d, &rows, stream);
    return SIDESTEP_OK;
}

/* Can this copy be part of a batch?  A batch has no copies of rows, and its behaviour with pageable
 * memory is not documented. */
static bool is_for_batch(const struct device_copy *copy)
{
    return copy->rows == 1 && copy->pinned;
}

/* Submit all copies that can be batched with one call.  False: the driver refused the call. */
static bool copy_batch(struct cuda *cuda, const struct device_copy *copies, size_t count,
                       void *stream)
{
    struct cuda_memcpy_attributes attributes = {
        .src_access_order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE};
    cu_device_pointer to[DEVICE_MAX_COPIES], from[DEVICE_MAX_COPIES];
    size_t bytes[DEVICE_MAX_COPIES], n = 0, first_with = 0, failed;

    for (size_t i = 0; i < count; i++) {
        cu_device_pointer host = (uintptr_t)copies[i].host;
        if (!is_for_batch(&copies[i]))
            continue;
        to[n] = copies[i].to_device ? copies[i].address : host;
        from[n] = copies[i].to_device ? host : copies[i].address;
        bytes[n++] = copies[i].bytes;
    }
    return cuda->copy_batch(to, from, bytes, n, &attributes, &first_with, 1, &failed, stream) ==
           CUDA_SUCCESS;
}

/* If a batch fails, all of its copies are submitted again one by one, and may succeed. */
enum sidestep_status device_cuda_copy(struct device_driver *driver,
                                      const struct device_copy *copies, size_t count, void *stream,
                                      size_t *failed, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);
    size_t contiguous = 0;

    assert(count <= DEVICE_MAX_COPIES);
    for (size_t i = 0; i < count; i++)
        contiguous += is_for_batch(&copies[i]);
    bool tries_batch =
        contiguous >= BATCH_MIN && cuda->copy_batch != NULL && !atomic_load(&cuda->batches_refused);
    bool batched = tries_batch && copy_batch(cuda, copies, count, stream);
    for (*failed = 0; *failed < count; ++*failed)
        if (!batched || !is_for_batch(&copies[*failed]))
            TRY(copy_one(cuda, &copies[*failed], stream, err));
    if (tries_batch && !batched)
        atomic_store(&cuda->batches_refused, true);
    return SIDESTEP_OK;
}
