/* SPDX-License-Identifier: BSD-3-Clause */
/* safetensors.c -- see safetensors.h: reads and writes the header of one file. */
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/json_reader.h"
#include "format/json_write.h"
#include "model/model.h"

#define LENGTH_BYTES 8u
#define METADATA "__metadata__"

static const char *const names[SIDESTEP_DTYPE_END] = {
    [SIDESTEP_FLOAT64] = "F64",
    [SIDESTEP_FLOAT32] = "F32",
    [SIDESTEP_FLOAT16] = "F16",
    [SIDESTEP_BFLOAT16] = "BF16",
    [SIDESTEP_COMPLEX64] = "C64",
    [SIDESTEP_INT64] = "I64",
    [SIDESTEP_INT32] = "I32",
    [SIDESTEP_INT16] = "I16",
    [SIDESTEP_INT8] = "I8",
    [SIDESTEP_UINT64] = "U64",
    [SIDESTEP_UINT32] = "U32",
    [SIDESTEP_UINT16] = "U16",
    [SIDESTEP_UINT8] = "U8",
    [SIDESTEP_BOOL] = "BOOL",
    [SIDESTEP_FLOAT8_E4M3FN] = "F8_E4M3",
    [SIDESTEP_FLOAT8_E5M2] = "F8_E5M2",
    [SIDESTEP_FLOAT8_E4M3FNUZ] = "F8_E4M3FNUZ",
    [SIDESTEP_FLOAT8_E5M2FNUZ] = "F8_E5M2FNUZ",
    [SIDESTEP_FLOAT8_E8M0FNU] = "F8_E8M0",
    [SIDESTEP_FLOAT4_E2M1FN_X2] = "F4", /* shapes count values here, but pairs in torch */
};

static enum sidestep_dtype dtype_from_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (names[i] != NULL && strcmp(names[i], name) == 0)
            return (enum sidestep_dtype)i;
    return SIDESTEP_DTYPE_NONE;
}

bool safetensors_has_header(const uint8_t bytes[9], uint64_t file_bytes)
{
    struct cursor c = cursor_from_memory(bytes, LENGTH_BYTES);
    uint64_t length = cursor_u64le(&c);

    return bytes[LENGTH_BYTES] == '{' && file_bytes >= LENGTH_BYTES &&
           length <= file_bytes - LENGTH_BYTES;
}

bool safetensors_has_truncated_header(const uint8_t bytes[10], uint64_t file_bytes)
{
    struct cursor c = cursor_from_memory(bytes, LENGTH_BYTES);
    uint64_t length = cursor_u64le(&c);

    return file_bytes > LENGTH_BYTES + 1 && length <= SAFETENSORS_MAX_HEADER_BYTES &&
           length > file_bytes - LENGTH_BYTES && memcmp(bytes + LENGTH_BYTES, "{\"", 2) == 0;
}

/* ---------------------------------------------------------------- reading */

struct reading {
    struct json_reader json;
    struct arena *arena;
    struct safetensors_tensor *tensors;
    size_t count, capacity;
    const char *places; /* the text of SAFETENSORS_SHARDS_KEY; NULL: none */
    struct sidestep_error *err;
};

/* The members of a tensor that the file has. */
struct fields {
    const char *dtype;
    bool has_shape;
    uint32_t ndim;
    int64_t shape[SIDESTEP_MAX_NDIM];
    unsigned offset_count;
    int64_t offsets[2];
};

static enum sidestep_status read_shape(struct reading *r, const char *name, struct fields *f)
{
    f->ndim = 0;
    f->has_shape = true;
    json_reader_enter(&r->json, '[');
    for (bool first = true; json_reader_next(&r->json, ']', &first); f->ndim++) {
        int64_t length = json_reader_integer(&r->json);

        if (f->ndim == SIDESTEP_MAX_NDIM)
            return FAIL(r->err, SIDESTEP_EUNSUPPORTED, "'%s' has more than %d dimensions",
                        display_name(name).text, SIDESTEP_MAX_NDIM);
        f->shape[f->ndim] = length;
    }
    return SIDESTEP_OK;
}

static void read_offsets(struct reading *r, struct fields *f)
{
    f->offset_count = 0;
    json_reader_enter(&r->json, '[');
    for (bool first = true; json_reader_next(&r->json, ']', &first);) {
        int64_t offset = json_reader_integer(&r->json);

        if (f->offset_count < 2)
            f->offsets[f->offset_count] = offset;
        f->offset_count++;
    }
}

static enum sidestep_status read_fields(struct reading *r, const char *name, struct fields *f)
{
    json_reader_enter(&r->json, '{');
    for (bool first = true; json_reader_next(&r->json, '}', &first);) {
        const char *key = json_reader_key(&r->json);

        if (strcmp(key, "dtype") == 0)
            f->dtype = json_reader_string(&r->json);
        else if (strcmp(key, "shape") == 0)
            TRY(read_shape(r, name, f));
        else if (strcmp(key, "data_offsets") == 0)
            read_offsets(r, f);
        else
            json_reader_skip(&r->json);
    }
    return SIDESTEP_OK;
}

/* Convert a shape that counts values to one that counts pairs, as torch does. */
static bool halve_last(struct fields *f)
{
    if (f->ndim == 0 || f->shape[f->ndim - 1] % 2 != 0)
        return false;
    f->shape[f->ndim - 1] /= 2;
    return true;
}

static enum sidestep_status make_tensor(struct reading *r, const char *name, struct fields *f,
                                        struct safetensors_tensor *out)
{
    static const int64_t zeros[SIDESTEP_MAX_NDIM];
    struct sidestep_error why = {0};

    if (f->dtype == NULL || !f->has_shape || f->offset_count != 2 || f->offsets[0] < 0 ||
        f->offsets[1] < f->offsets[0])
        return FAIL(r->err, SIDESTEP_ECORRUPT, "'%s' has no valid dtype, shape and data_offsets",
                    display_name(name).text);
    enum sidestep_dtype dtype = dtype_from_name(f->dtype);
    if (dtype == SIDESTEP_DTYPE_NONE)
        return FAIL(r->err, SIDESTEP_EUNSUPPORTED, "'%s' has dtype %s, which torch does not have",
                    display_name(name).text, display_name(f->dtype).text);
    if (dtype == SIDESTEP_FLOAT4_E2M1FN_X2 && !halve_last(f))
        return FAIL(r->err, SIDESTEP_EUNSUPPORTED,
                    "'%s' has an odd number of values of 4 bits in a row", display_name(name).text);
    struct box whole = {.ndim = f->ndim, .offsets = zeros, .lengths = f->shape};
    if (box_check(&whole, f->shape, sidestep_dtype_size(dtype), &why) != SIDESTEP_OK)
        return FAIL(r->err, SIDESTEP_ECORRUPT, "'%s': %s", display_name(name).text, why.message);
    uint64_t bytes = box_volume(&whole) * sidestep_dtype_size(dtype);
    if (bytes != (uint64_t)(f->offsets[1] - f->offsets[0]))
        return FAIL(r->err, SIDESTEP_ECORRUPT,
                    "'%s': shape and dtype make %" PRIu64 " bytes, data_offsets %" PRId64,
                    display_name(name).text, bytes, f->offsets[1] - f->offsets[0]);
    const int64_t *shape = arena_copy(r->arena, f->shape, f->ndim * sizeof(*f->shape));
    if (shape == NULL)
        return FAIL_NOMEM(r->err, f->ndim * sizeof(*f->shape));
    *out = (struct safetensors_tensor){.name = name,
                                       .dtype = dtype,
                                       .ndim = f->ndim,
                                       .shape = shape,
                                       .offset = (uint64_t)f->offsets[0],
                                       .bytes = bytes};
    return SIDESTEP_OK;
}

static enum sidestep_status check_name(const char *name, struct sidestep_error *err)
{
    if (name[0] == '\0' || strlen(name) > SIDESTEP_MAX_NAME)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "a tensor has a name of %zu bytes; 1 to %d can be read", strlen(name),
                    SIDESTEP_MAX_NAME);
    return SIDESTEP_OK;
}

static enum sidestep_status add_tensor(struct reading *r, const char *name)
{
    struct fields fields = {0};

    TRY(read_fields(r, name, &fields));
    if (r->json.problem != NULL)
        return SIDESTEP_OK; /* read_header() reports it */
    TRY(check_name(name, r->err));
    TRY_GROW(r->tensors, r->capacity, r->count, r->err);
    TRY(make_tensor(r, name, &fields, &r->tensors[r->count]));
    r->count++;
    return SIDESTEP_OK;
}

static void read_metadata(struct reading *r)
{
    json_reader_enter(&r->json, '{');
    for (bool first = true; json_reader_next(&r->json, '}', &first);) {
        if (strcmp(json_reader_key(&r->json), SAFETENSORS_SHARDS_KEY) == 0)
            r->places = json_reader_string(&r->json);
        else
            json_reader_skip(&r->json);
    }
}

static enum sidestep_status read_header(struct reading *r)
{
    json_reader_enter(&r->json, '{');
    for (bool first = true; json_reader_next(&r->json, '}', &first);) {
        const char *name = json_reader_key(&r->json);

        if (strcmp(name, METADATA) == 0)
            read_metadata(r);
        else
            TRY(add_tensor(r, name));
    }
    json_reader_end(&r->json);
    if (r->json.problem != NULL)
        return FAIL(r->err, SIDESTEP_ECORRUPT, "byte %zu of its header: %s",
                    r->json.position + LENGTH_BYTES, r->json.problem);
    return SIDESTEP_OK;
}

static enum sidestep_status check_names(struct reading *r, struct safetensors *all,
                                        struct sidestep_error *err)
{
    OWNED_HASH_TABLE table = {0};
    size_t existing;

    for (size_t i = 0; i < all->count; i++) {
        TRY(hash_table_insert(&table, all->tensors[i].name, i, &existing, err));
        if (existing != SIZE_MAX)
            return FAIL(err, SIDESTEP_ECORRUPT, "it has '%s' twice",
                        display_name(all->tensors[i].name).text);
    }
    return r->places != NULL ? safetensors_read_shard_offsets(r->places, all, &table, r->arena, err)
                             : SIDESTEP_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *x = *(const struct safetensors_tensor *const *)a;
    const struct safetensors_tensor *y = *(const struct safetensors_tensor *const *)b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Check that the data of the tensors lie without gap or overlap from the header to the end of the
 * file. */
static enum sidestep_status check_places(struct safetensors *all, uint64_t data_offset,
                                         uint64_t data_bytes, struct sidestep_error *err)
{
    OWNED struct safetensors_tensor **sorted = memory_new(all->count, sizeof(*sorted));
    uint64_t next = 0;

    if (sorted == NULL)
        return FAIL_NOMEM(err, all->count * sizeof(*sorted));
    for (size_t i = 0; i < all->count; i++)
        sorted[i] = &all->tensors[i];
    qsort(sorted, all->count, sizeof(*sorted), compare_places);
    for (size_t i = 0; i < all->count; i++) {
        if (sorted[i]->offset != next)
            return FAIL(err, SIDESTEP_ECORRUPT,
                        "'%s' starts at byte %" PRIu64 " of the data, but others end at %" PRIu64,
                        display_name(sorted[i]->name).text, sorted[i]->offset, next);
        next += sorted[i]->bytes; /* cannot overflow: each has at most 62 bits */
        if (next > data_bytes)
            return FAIL(err, SIDESTEP_ECORRUPT,
                        "'%s' ends at byte %" PRIu64 " of the data, which has %" PRIu64,
                        display_name(sorted[i]->name).text, next, data_bytes);
        sorted[i]->offset += data_offset;
    }
    if (next != data_bytes)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "its tensors have %" PRIu64 " bytes, but %" PRIu64 " follow the header", next,
                    data_bytes);
    return SIDESTEP_OK;
}

/* Load the text of the header, and a NUL after it. */
static enum sidestep_status load_header(const struct source *source, struct arena *arena,
                                        char **text, uint64_t *length, struct sidestep_error *err)
{
    uint8_t bytes[LENGTH_BYTES + 1] = {0};

    if (source->length < sizeof(bytes))
        return FAIL(err, SIDESTEP_ECORRUPT, "%" PRIu64 " bytes are too few for safetensors",
                    source->length);
    TRY(source_read(source, bytes, sizeof(bytes), 0, err));
    struct cursor c = cursor_from_memory(bytes, LENGTH_BYTES);
    *length = cursor_u64le(&c);
    if (*length > SAFETENSORS_MAX_HEADER_BYTES)
        return FAIL(err, SIDESTEP_ECORRUPT, "its header has %" PRIu64 " bytes, more than %" PRIu64,
                    *length, SAFETENSORS_MAX_HEADER_BYTES);
    if (!safetensors_has_header(bytes, source->length))
        return FAIL(err, SIDESTEP_ECORRUPT, "it does not begin with a header of %" PRIu64 " bytes",
                    *length);
    *text = arena_new(arena, *length + 1, 1);
    if (*text == NULL)
        return FAIL_NOMEM(err, *length);
    TRY(source_read(source, *text, *length, LENGTH_BYTES, err));
    if (strlen(*text) != *length)
        return FAIL(err, SIDESTEP_ECORRUPT, "its header has a NUL");
    return SIDESTEP_OK;
}

enum sidestep_status safetensors_read_header(const struct source *source, struct arena *arena,
                                             struct safetensors *out, struct sidestep_error *err)
{
    struct reading r = {.arena = arena, .err = err};
    char *text = NULL;
    uint64_t length = 0;

    *out = (struct safetensors){0};
    TRY(load_header(source, arena, &text, &length, err));
    r.json = json_reader_init(text);
    enum sidestep_status status = read_header(&r);
    OWNED struct safetensors_tensor *tensors = r.tensors;
    TRY(status);
    struct safetensors all = {.count = r.count};
    all.tensors = arena_copy(arena, tensors, r.count * sizeof(*tensors));
    if (all.tensors == NULL)
        return FAIL_NOMEM(err, r.count * sizeof(*tensors));
    TRY(check_names(&r, &all, err));
    TRY(check_places(&all, LENGTH_BYTES + length, source->length - LENGTH_BYTES - length, err));
    *out = all;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- writing */

static void put_tensor(const struct safetensors_tensor *t, uint64_t *at, struct buffer *out)
{
    struct box whole = {.ndim = t->ndim, .lengths = t->shape};
    uint64_t bytes = box_volume(&whole) * sidestep_dtype_size(t->dtype);
    int64_t pairs = t->dtype == SIDESTEP_FLOAT4_E2M1FN_X2 ? 2 : 1;

    buffer_put_text(out, ",");
    json_write_string(out, t->name);
    buffer_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", names[t->dtype]);
    for (uint32_t d = 0; d < t->ndim; d++)
        buffer_printf(out, "%s%" PRId64, d != 0 ? "," : "",
                      d + 1 == t->ndim ? t->shape[d] * pairs : t->shape[d]);
    buffer_printf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, *at + bytes);
    *at += bytes;
}

enum sidestep_status safetensors_write_header(const struct safetensors_tensor *tensors,
                                              size_t count, struct buffer *out,
                                              struct sidestep_error *err)
{
    size_t start = out->length;
    uint64_t at = 0;

    buffer_put_u64le(out, 0);
    buffer_put_text(out, "{\"" METADATA "\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < count; i++) {
        if (names[tensors[i].dtype] == NULL ||
            (tensors[i].dtype == SIDESTEP_FLOAT4_E2M1FN_X2 && tensors[i].ndim == 0))
            return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s': safetensors has no %s",
                        display_name(tensors[i].name).text, sidestep_dtype_name(tensors[i].dtype));
        if (strcmp(tensors[i].name, METADATA) == 0)
            return FAIL(err, SIDESTEP_EUNSUPPORTED, "safetensors reserves the name '%s'", METADATA);
        put_tensor(&tensors[i], &at, out);
    }
    buffer_put_text(out, "}");
    while (!out->failed && (out->length - start) % 8 != 0)
        buffer_put_u8(out, ' ');
    TRY(buffer_check(out, err));
    uint64_t length = out->length - start - LENGTH_BYTES;
    if (length > SAFETENSORS_MAX_HEADER_BYTES)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "%zu tensors need a header of %" PRIu64 " bytes, more than safetensors allow",
                    count, length);
    for (unsigned i = 0; i < LENGTH_BYTES; i++)
        out->bytes[start + i] = (uint8_t)(length >> (8 * i));
    return SIDESTEP_OK;
}
