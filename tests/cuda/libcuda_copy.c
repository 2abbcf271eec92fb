/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcuda_copy.c -- the driver's calls that copy: see standin.h.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "standin_inside.h"

/* A driver keeps writing to the pages that were registered: does the program still have them? */
static bool has_pages(const uint8_t *begin, size_t bytes)
{
    uintptr_t first = (uintptr_t)begin / PAGE_BYTES * PAGE_BYTES;
    unsigned char there[64];

    for (uintptr_t at = first; at < (uintptr_t)begin + bytes; at += PAGE_BYTES * sizeof(there)) {
        size_t length = (uintptr_t)begin + bytes - at;
        if (length > PAGE_BYTES * sizeof(there))
            length = PAGE_BYTES * sizeof(there);
        if (mincore((void *)at, length, there) != 0)
            return false;
        for (size_t i = 0; i < (length + PAGE_BYTES - 1) / PAGE_BYTES; i++)
            if ((there[i] & 1) == 0)
                return false;
    }
    return true;
}

struct copy_2d {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    uint64_t src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    uint64_t dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
};

static bool are_pitches(const struct operation *o)
{
    return o->host_pitch >= o->bytes && o->device_pitch >= o->bytes && o->host_pitch <= INT32_MAX &&
           o->device_pitch <= INT32_MAX;
}

/* May the copy be submitted, and to which stream? *pinned: the call does not wait for it. */
static int check_copy(const struct operation *o, void *handle, struct stream **out, bool *pinned)
{
    int device = current();
    struct stream *stream = device >= 0 ? stream_of(device, handle) : NULL;
    size_t host_bytes = (o->rows - 1) * o->host_pitch + o->bytes;
    bool partly;

    if (device < 0)
        return INVALID_CONTEXT;
    if (stream == NULL || stream->device != device) {
        blame("a copy on a stream of another context");
        return INVALID_HANDLE;
    }
    const struct memory *m =
        memory_at(o->device_address, (o->rows - 1) * o->device_pitch + o->bytes);
    if (m == NULL || (o->rows > 1 && !are_pitches(o)))
        return INVALID_VALUE;
    if (m->device != device)
        blame("a copy of memory of another device than the stream's");
    *pinned = is_pinned(o->host, host_bytes, &partly);
    if (!*pinned && partly) {
        blame("a copy across the end of pinned memory");
        return INVALID_VALUE;
    }
    if (check_stream_capture(stream) != OK)
        return check_stream_capture(stream);
    if (*pinned && !has_pages(o->host, host_bytes))
        blame("pages of pinned memory were given back");
    *out = stream;
    return OK;
}

/* From pageable memory: the driver copies it, and returns before the device has the bytes. */
static void submit_staged(struct stream *stream, const struct operation *o)
{
    struct operation staged = *o;

    staged.host = malloc(o->rows * o->bytes);
    assert(staged.host != NULL);
    staged.host_pitch = o->bytes;
    staged.staged = true;
    for (size_t row = 0; row < o->rows; row++)
        memcpy(staged.host + row * o->bytes, o->host + row * o->host_pitch, o->bytes);
    submit(stream, &staged);
}

/* The host waits for all copies of managed memory. */
static void wait_if_managed(const uint8_t *address, struct stream *stream)
{
    const struct memory *m = memory_at(address, 1);

    if (m != NULL && m->managed)
        drain(stream);
}

static int copy(const struct operation *o, void *handle)
{
    struct stream *stream;
    bool pinned;
    int result = check_copy(o, handle, &stream, &pinned);

    if (result != OK)
        return result;
    the.copy_calls++;
    if (pinned) {
        submit(stream, o);
    } else if (o->to_device) {
        drain(stream);
        submit_staged(stream, o);
    } else {
        submit(stream, o);
        drain(stream);
    }
    wait_if_managed(o->device_address, stream);
    return OK;
}

static uint8_t *address_of(uint64_t pointer)
{
    return (uint8_t *)(uintptr_t)pointer;
}

CALL(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, void *stream), {
    result = copy(&(struct operation){.kind = COPY,
                                      .host = to,
                                      .device_address = address_of(from),
                                      .bytes = bytes,
                                      .rows = 1},
                  stream);
})

CALL(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, void *stream), {
    result = copy(&(struct operation){.kind = COPY,
                                      .host = (uint8_t *)(uintptr_t)from,
                                      .device_address = address_of(to),
                                      .bytes = bytes,
                                      .rows = 1,
                                      .to_device = true},
                  stream);
})

CALL(cuMemcpy2DAsync_v2, (const struct copy_2d *c, void *stream), {
    bool to_device = c->dst_type == MEMORY_DEVICE;
    struct operation o = {.kind = COPY, .to_device = to_device, .bytes = c->width};
    o.rows = c->height;
    o.host = to_device ? (uint8_t *)(uintptr_t)c->src_host : c->dst_host;
    o.host_pitch = to_device ? c->src_pitch : c->dst_pitch;
    o.device_address = address_of(to_device ? c->dst_device : c->src_device);
    o.device_pitch = to_device ? c->dst_pitch : c->src_pitch;
    if (c->src_x + c->src_y + c->dst_x + c->dst_y != 0 || c->src_type + c->dst_type != 3)
        result = INVALID_VALUE;
    else
        result = copy(&o, stream);
})

/* ---- batches */

struct attributes {
    int src_access_order;
    int src_type, src_id, dst_type, dst_id;
    unsigned flags;
};

enum { ORDER_STREAM = 1, OVERLAP = 1 };

static struct operation one_of_batch(uint64_t to, uint64_t from, size_t bytes)
{
    bool to_device = memory_at(address_of(to), bytes) != NULL;

    return (struct operation){.kind = COPY,
                              .host = address_of(to_device ? from : to),
                              .device_address = address_of(to_device ? to : from),
                              .bytes = bytes,
                              .rows = 1,
                              .to_device = to_device};
}

/* Submit all copies or none; in another order than requested. */
static int copy_batch(const uint64_t *to, const uint64_t *from, const size_t *bytes, size_t count,
                      size_t *failed, void *handle)
{
    struct stream *stream = NULL;

    for (size_t i = 0; i < count; i++) {
        struct operation o = one_of_batch(to[i], from[i], bytes[i]);
        bool pinned;
        int result = bytes[i] != 0 ? check_copy(&o, handle, &stream, &pinned) : INVALID_VALUE;
        if (result == OK && !pinned)
            blame("a batch with pageable memory");
        *failed = i;
        if (result != OK)
            return result;
    }
    the.copy_calls++;
    for (size_t i = count; i-- > 0;) {
        struct operation o = one_of_batch(to[i], from[i], bytes[i]);
        submit(stream, &o);
        wait_if_managed(o.device_address, stream);
    }
    return OK;
}

/* As of CUDA 12.8. */
CALL(cuMemcpyBatchAsync,
     (uint64_t * to, uint64_t *from, size_t *bytes, size_t count, struct attributes *attributes,
      size_t *first_with, size_t attribute_count, size_t *failed, void *stream),
     {
         *failed = SIZE_MAX;
         if (count == 0 || attribute_count != 1 || first_with[0] != 0 ||
             attributes->src_access_order != ORDER_STREAM || attributes->flags != OVERLAP ||
             (uintptr_t)stream <= 1)
             result = INVALID_VALUE;
         else
             result = copy_batch(to, from, bytes, count, failed, stream);
     })

/* As of CUDA 13, with another prototype, which the library does not use. */
static int batch_of_13(void)
{
    pthread_mutex_lock(&the.lock);
    blame("a function of CUDA 13 was called with the arguments of 12.8");
    pthread_mutex_unlock(&the.lock);
    return INVALID_VALUE;
}

/* Find what the linker does not: of several versions of a function, the newest that a program of
 * CUDA ${version} knows. */
EXPORT int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags,
                               int *status);
int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    int (*of_13)(void) = batch_of_13;
    __typeof__(&cuMemcpyBatchAsync) of_12 = cuMemcpyBatchAsync;

    *found = NULL;
    *status = strcmp(name, "cuMemcpyBatchAsync") != 0 || the.version < 12080 ? 1 : 2;
    if (flags != 0 || *status == 1 || version < 12080)
        return OK;
    *status = 0;
    if (version >= 13000)
        memcpy(found, &of_13, sizeof(*found));
    else
        memcpy(found, &of_12, sizeof(*found));
    return OK;
}
