/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_tool.c -- writes and reads archives, for tests that compare them with torch's.
 *
 *   archive_tool tensor DTYPE DIMS <data >archive   DIMS: "2,3", or "" for a scalar
 *   archive_tool sparse DTYPE DIMS FILE             a tensor of zeroes; FILE has a hole for them
 *   archive_tool object <archive >archive           decode an object and write it again
 *   archive_tool check <archive                     check structure and CRCs
 *   archive_tool read <archive                      print the description, then the elements:
 *                                                   row-major, plain, in hexadecimal
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/owned.h"
#include "codec/hash.h"
#include "format/archive.h"
#include "model/box.h"

struct shape {
    enum sidestep_dtype dtype;
    uint32_t ndim;
    int64_t lengths[SIDESTEP_MAX_NDIM];
};

static enum sidestep_status parse_shape(const char *dtype, const char *dims, struct shape *shape,
                                        struct sidestep_error *err)
{
    shape->dtype = sidestep_dtype_from_name(dtype);
    if (shape->dtype == SIDESTEP_DTYPE_NONE)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is no dtype", dtype);
    while (*dims != '\0') {
        char *end;

        if (shape->ndim == SIDESTEP_MAX_NDIM)
            return FAIL(err, SIDESTEP_EINVAL, "too many dimensions");
        shape->lengths[shape->ndim++] = strtoll(dims, &end, 10);
        if (end == dims || (*end != ',' && *end != '\0'))
            return FAIL(err, SIDESTEP_EINVAL, "'%s' is no list of dimensions", dims);
        dims = *end == ',' ? end + 1 : end;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status read_stdin(struct buffer *in, struct sidestep_error *err)
{
    for (size_t got = 1; got != 0;) {
        size_t before = in->length;
        uint8_t *to = buffer_extend(in, 1 << 16);

        TRY(buffer_check(in, err));
        got = fread(to, 1, 1 << 16, stdin);
        in->length = before + got;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status write_stdout(const struct buffer *out, struct sidestep_error *err)
{
    if (fwrite(out->bytes, 1, out->length, stdout) != out->length || fflush(stdout) != 0)
        return FAIL_SYS(err, "write");
    return SIDESTEP_OK;
}

static enum sidestep_status run_tensor(char **args, struct sidestep_error *err)
{
    OWNED_BUFFER data = {0};
    OWNED_BUFFER out = {0};
    struct shape shape = {0};
    struct archive_tensor_layout layout;
    uint8_t first_bytes[8] = {0};

    TRY(parse_shape(args[0], args[1], &shape, err));
    TRY(read_stdin(&data, err));
    TRY(archive_tensor_write_head(shape.dtype, shape.ndim, shape.lengths, &out, &layout, err));
    if (data.length != layout.data_bytes)
        return FAIL(err, SIDESTEP_EINVAL, "%zu bytes of data, the shape wants %llu", data.length,
                    (unsigned long long)layout.data_bytes);
    buffer_put(&out, data.bytes, data.length);
    memcpy(first_bytes, data.bytes, data.length < 8 ? data.length : 8);
    uint32_t crc = hash_crc32(0, data.bytes, data.length);
    TRY(archive_tensor_write_tail(&layout, crc, first_bytes, &out, err));
    return write_stdout(&out, err);
}

/* CRC of ${length} zeroes. */
static uint32_t zero_crc(uint64_t length)
{
    uint32_t crc = 0;
    uint32_t power_crc = hash_crc32(0, "", 1);

    for (uint64_t power = 1; power <= length; power *= 2) {
        if (length & power)
            crc = hash_crc32_combine(crc, power_crc, power);
        power_crc = hash_crc32_combine(power_crc, power_crc, power);
    }
    return crc;
}

static enum sidestep_status run_sparse(char **args, struct sidestep_error *err)
{
    static const uint8_t zeroes[8];
    OWNED_BUFFER head = {0};
    OWNED_BUFFER tail = {0};
    struct shape shape = {0};
    struct archive_tensor_layout layout;

    TRY(parse_shape(args[0], args[1], &shape, err));
    TRY(archive_tensor_write_head(shape.dtype, shape.ndim, shape.lengths, &head, &layout, err));
    TRY(archive_tensor_write_tail(&layout, zero_crc(layout.data_bytes), zeroes, &tail, err));
    OWNED_FD fd = open(args[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    off_t tail_at = (off_t)(layout.head_bytes + layout.data_bytes);
    if (fd < 0 || pwrite(fd, head.bytes, head.length, 0) != (ssize_t)head.length ||
        pwrite(fd, tail.bytes, tail.length, tail_at) != (ssize_t)tail.length)
        return FAIL_SYS(err, "write '%s'", args[2]);
    return SIDESTEP_OK;
}

static enum sidestep_status run_object(char **args, struct sidestep_error *err)
{
    OWNED_BUFFER in = {0};
    OWNED_BUFFER out = {0};
    struct sidestep_value *value = NULL;

    (void)args;
    TRY(read_stdin(&in, err));
    TRY(archive_object_read(in.bytes, in.length, &value, err));
    enum sidestep_status status = archive_object_write(value, &out, err);
    sidestep_value_free(&value);
    TRY(status);
    return write_stdout(&out, err);
}

static enum sidestep_status run_check(char **args, struct sidestep_error *err)
{
    OWNED_BUFFER in = {0};

    (void)args;
    TRY(read_stdin(&in, err));
    struct source source = source_from_memory(in.bytes, in.length);
    return archive_check(&source, 0, in.length, err);
}

static void print_list(const char *name, const int64_t *numbers, uint32_t count)
{
    printf(" %s=[", name);
    for (uint32_t i = 0; i < count; i++)
        printf("%s%lld", i != 0 ? "," : "", (long long)numbers[i]);
    printf("]");
}

static void print_tensor(const struct archive_tensor *tensor)
{
    printf("dtype=%s", sidestep_dtype_name(tensor->dtype));
    print_list("shape", tensor->shape, tensor->ndim);
    print_list("strides", tensor->strides, tensor->ndim);
    printf(" offset=%llu%s%s%s%s%s\n", (unsigned long long)tensor->storage_offset,
           tensor->row_major ? " row_major" : "", tensor->swapped ? " swapped" : "",
           tensor->conjugate ? " conj" : "", tensor->negative ? " neg" : "",
           tensor->has_crc ? " crc" : "");
}

static enum sidestep_status run_read(char **args, struct sidestep_error *err)
{
    static const int64_t zeroes[SIDESTEP_MAX_NDIM];
    OWNED_BUFFER in = {0};
    struct archive_tensor tensor;

    (void)args;
    TRY(read_stdin(&in, err));
    struct source source = source_from_memory(in.bytes, in.length);
    TRY(archive_tensor_read(&source, 0, in.length, &tensor, err));
    print_tensor(&tensor);

    struct box box = {.ndim = tensor.ndim, .offsets = zeroes, .lengths = tensor.shape};
    size_t item = sidestep_dtype_size(tensor.dtype);
    uint64_t elements = box_volume(&box);
    OWNED uint8_t *plain = memory_new(elements, item);
    if (plain == NULL)
        return FAIL_NOMEM(err, elements * item);
    int64_t strides[SIDESTEP_MAX_NDIM];
    box_row_major_strides(tensor.ndim, tensor.shape, strides);
    struct box_memory from = {.box = box,
                              .strides = tensor.strides,
                              .data = in.bytes + tensor.data_offset + tensor.storage_offset * item,
                              .item_bytes = item};
    struct box_memory to = {.box = box, .strides = strides, .data = plain, .item_bytes = item};
    if (elements != 0)
        box_copy(&from, &to);
    archive_tensor_resolve(&tensor, plain, elements);
    for (uint64_t i = 0; i < elements * item; i++)
        printf("%02x", plain[i]);
    printf("\n");
    return SIDESTEP_OK;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int args;
        enum sidestep_status (*run)(char **args, struct sidestep_error *err);
    } commands[] = {
        {"tensor", 2, run_tensor}, {"sparse", 3, run_sparse}, {"object", 0, run_object},
        {"check", 0, run_check},   {"read", 0, run_read},
    };
    struct sidestep_error err = {0};

    for (size_t i = 0; argc > 1 && i < ARRAY_LENGTH(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0 && argc - 2 == commands[i].args) {
            enum sidestep_status status = commands[i].run(argv + 2, &err);
            if (status != SIDESTEP_OK)
                fprintf(stderr, "%s\n", err.message);
            return sidestep_status_exit(status);
        }
    fprintf(stderr, "usage: see tests/tools/archive_tool.c\n");
    return 2;
}
