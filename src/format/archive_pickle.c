/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_pickle.c -- see archive_pickle.h.  It writes protocol 2 as Python's pickler does: values
 * in their shortest form, and a memo number for everything that may be referred to later.
 */
#include "format/archive_pickle.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "format/archive_dtype.h"

struct pickle {
    uint8_t *bytes; /* of ARCHIVE_PICKLE_BUFFER_BYTES */
    size_t length;
    uint8_t memo; /* the next number */
};

static void pickle_op(struct pickle *p, char opcode)
{
    assert(p->length < ARCHIVE_PICKLE_BUFFER_BYTES);
    p->bytes[p->length++] = (uint8_t)opcode;
}

static void pickle_bytes(struct pickle *p, const void *bytes, size_t n)
{
    assert(n <= ARCHIVE_PICKLE_BUFFER_BYTES - p->length);
    memcpy(p->bytes + p->length, bytes, n);
    p->length += n;
}

static void pickle_memo(struct pickle *p)
{
    pickle_op(p, 'q'); /* BINPUT */
    pickle_op(p, (char)p->memo++);
}

static void pickle_global(struct pickle *p, const char *module, const char *name)
{
    pickle_op(p, 'c');
    pickle_bytes(p, module, strlen(module));
    pickle_op(p, '\n');
    pickle_bytes(p, name, strlen(name));
    pickle_op(p, '\n');
    pickle_memo(p);
}

static void pickle_text(struct pickle *p, const char *text)
{
    pickle_op(p, 'X'); /* BINUNICODE */
    pickle_bytes(p, &(uint32_t){(uint32_t)strlen(text)}, 4);
    pickle_bytes(p, text, strlen(text));
    pickle_memo(p);
}

static void pickle_integer(struct pickle *p, uint64_t value)
{
    unsigned bits = value != 0 ? 64 - (unsigned)__builtin_clzll(value) : 0;
    unsigned bytes = bits <= 8 ? 1 : bits <= 16 ? 2 : bits <= 31 ? 4 : bits / 8 + 1;

    pickle_op(p, bytes == 1 ? 'K' : bytes == 2 ? 'M' : bytes == 4 && bits <= 31 ? 'J' : '\x8a');
    if (bits > 31)
        pickle_op(p, (char)bytes); /* LONG1 */
    pickle_bytes(p, &value, bytes);
}

static void pickle_integers(struct pickle *p, const int64_t *values, uint32_t count)
{
    static const char tuples[4] = {')', '\x85', '\x86', '\x87'};

    if (count > 3)
        pickle_op(p, '(');
    for (uint32_t i = 0; i < count; i++)
        pickle_integer(p, (uint64_t)values[i]);
    pickle_op(p, count > 3 ? 't' : tuples[count]);
    if (count != 0)
        pickle_memo(p);
}

/* ('storage', class, '0', 'cpu', numel) as a persistent id. */
static void pickle_storage(struct pickle *p, const struct archive_dtype *dtype, uint64_t numel)
{
    const char *module_and_name = dtype->storage != NULL ? dtype->storage : ARCHIVE_UNTYPED_STORAGE;
    const char *name = strchr(module_and_name, ' ') + 1;
    char module[32];

    snprintf(module, sizeof(module), "%.*s", (int)(name - 1 - module_and_name), module_and_name);
    pickle_op(p, '(');
    pickle_text(p, "storage");
    pickle_global(p, module, name);
    pickle_text(p, "0");
    pickle_text(p, "cpu");
    pickle_integer(p, numel);
    pickle_op(p, 't');
    pickle_memo(p);
    pickle_op(p, 'Q');
}

/* _rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict()), or _v3(..., dtype). */
size_t archive_pickle_write_tensor(const struct archive_plain_tensor *tensor,
                                   uint8_t bytes[ARCHIVE_PICKLE_BUFFER_BYTES])
{
    struct pickle pickle = {.bytes = bytes};
    struct pickle *p = &pickle;
    const struct archive_dtype *dtype = archive_dtype_of(tensor->dtype);
    bool is_v3 = dtype->storage == NULL;

    pickle_bytes(p, "\x80\x02", 2);
    pickle_global(p, "torch._utils", is_v3 ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    pickle_op(p, '(');
    pickle_storage(p, dtype, is_v3 ? tensor->bytes : tensor->elements);
    pickle_integer(p, 0);
    pickle_integers(p, tensor->lengths, tensor->ndim);
    pickle_integers(p, tensor->strides, tensor->ndim);
    pickle_op(p, '\x89'); /* NEWFALSE */
    pickle_global(p, "collections", "OrderedDict");
    pickle_op(p, ')');
    pickle_op(p, 'R');
    pickle_memo(p);
    if (is_v3)
        pickle_global(p, "torch", sidestep_dtype_name(tensor->dtype));
    pickle_op(p, 't');
    pickle_memo(p);
    pickle_op(p, 'R');
    pickle_memo(p);
    pickle_op(p, '.');
    return p->length;
}
