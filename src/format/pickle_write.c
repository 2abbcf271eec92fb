/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle_write.c -- see pickle.h: writes values with protocol 2, with the same opcodes, batches and
 * memo numbers as Python's pickler.  The bytes are the same if no object comes twice.
 * torch.load() with weights_only=True accepts no newer protocol.
 */
#include <string.h>

#include "base/base.h"
#include "format/pickle.h"

#define BATCH 1000u
#define NOT_WRITTEN UINT32_MAX
#define TOO_LARGE "a text or bytes of %zu bytes; a pickle may have %zu: save a tensor instead"

struct writer {
    struct buffer *out;
    struct sidestep_error *err;
    uint32_t memo;      /* the next number */
    uint32_t encode_at; /* the memo number of _codecs.encode */
    uint32_t latin1_at; /* the memo number of its second argument */
    bool plain;         /* protocol 3, which has an opcode for bytes */
};

/* Recurses at most VALUE_MAX_DEPTH deep. */
static enum sidestep_status put_value(struct writer *w, const struct sidestep_value *value);

static uint32_t put_memo(struct writer *w)
{
    uint32_t index = w->memo++;

    buffer_put_u8(w->out, index < 256 ? 'q' : 'r'); /* BINPUT, LONG_BINPUT */
    if (index < 256)
        buffer_put_u8(w->out, (uint8_t)index);
    else
        buffer_put_u32le(w->out, index);
    return index;
}

static void put_get(struct writer *w, uint32_t index)
{
    buffer_put_u8(w->out, index < 256 ? 'h' : 'j'); /* BINGET, LONG_BINGET */
    if (index < 256)
        buffer_put_u8(w->out, (uint8_t)index);
    else
        buffer_put_u32le(w->out, index);
}

void pickle_write_int(struct buffer *out, int64_t value)
{
    if (value >= 0 && value < 1 << 8) {
        buffer_put_u8(out, 'K'); /* BININT1 */
        buffer_put_u8(out, (uint8_t)value);
    } else if (value >= 0 && value < 1 << 16) {
        buffer_put_u8(out, 'M'); /* BININT2 */
        buffer_put_u16le(out, (uint16_t)value);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        buffer_put_u8(out, 'J'); /* BININT */
        buffer_put_u32le(out, (uint32_t)value);
    } else {
        /* LONG1, with the fewest bytes for the number and its sign. */
        unsigned bits = 65 - (unsigned)__builtin_clzll((uint64_t)(value ^ value >> 63));
        unsigned bytes = (bits + 7) / 8;
        buffer_put_u8(out, 0x8a);
        buffer_put_u8(out, (uint8_t)bytes);
        for (unsigned i = 0; i < bytes; i++)
            buffer_put_u8(out, (uint8_t)((uint64_t)value >> (8 * i)));
    }
}

static void put_float(struct writer *w, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    buffer_put_u8(w->out, 'G'); /* BINFLOAT: big-endian */
    buffer_put_u64le(w->out, __builtin_bswap64(bits));
}

static enum sidestep_status put_str(struct writer *w, const struct sidestep_value *value)
{
    const char *text = value->as.text.bytes;
    size_t length = value->as.text.length;

    if (length > PICKLE_MAX_BYTES)
        return FAIL(w->err, SIDESTEP_EUNSUPPORTED, TOO_LARGE, length, PICKLE_MAX_BYTES);
    size_t valid = utf8_python_prefix(text, length);
    if (valid != length)
        return FAIL(w->err, SIDESTEP_EINVAL, "a str is not UTF-8 at byte %zu", valid);
    buffer_put_u8(w->out, 'X'); /* BINUNICODE */
    buffer_put_u32le(w->out, (uint32_t)length);
    buffer_put(w->out, text, length);
    put_memo(w);
    return SIDESTEP_OK;
}

static void put_latin1(struct writer *w, const unsigned char *bytes, size_t length, size_t high)
{
    uint8_t *to;

    buffer_put_u8(w->out, 'X');
    buffer_put_u32le(w->out, (uint32_t)(length + high));
    to = buffer_extend(w->out, length + high);
    for (size_t i = 0; to != NULL && i < length; i++) {
        if (bytes[i] >= 0x80)
            *to++ = (uint8_t)(0xc0 | bytes[i] >> 6);
        *to++ = bytes[i] < 0x80 ? bytes[i] : (uint8_t)(0x80 | (bytes[i] & 0x3f));
    }
    put_memo(w);
}

/* Protocol 2 has no opcode for bytes, so this writes _codecs.encode('...', 'latin1').  For b'',
 * Python writes a call of `bytes`, but weights_only refuses that. */
static enum sidestep_status put_bytes(struct writer *w, const struct sidestep_value *value)
{
    const unsigned char *bytes = (const unsigned char *)value->as.text.bytes;
    size_t length = value->as.text.length, high = 0;

    for (size_t i = 0; i < length; i++)
        high += bytes[i] >> 7;
    if (length > PICKLE_MAX_BYTES || length + high > PICKLE_MAX_BYTES)
        return FAIL(w->err, SIDESTEP_EUNSUPPORTED, TOO_LARGE, length + high, PICKLE_MAX_BYTES);
    if (w->plain) {
        buffer_put_u8(w->out, length < 256 ? 'C' : 'B'); /* SHORT_BINBYTES, BINBYTES */
        if (length < 256)
            buffer_put_u8(w->out, (uint8_t)length);
        else
            buffer_put_u32le(w->out, (uint32_t)length);
        buffer_put(w->out, bytes, length);
        put_memo(w);
        return SIDESTEP_OK;
    }
    if (w->encode_at == NOT_WRITTEN) {
        buffer_put_text(w->out, "c_codecs\nencode\n");
        w->encode_at = put_memo(w);
    } else {
        put_get(w, w->encode_at);
    }
    put_latin1(w, bytes, length, high);
    if (w->latin1_at == NOT_WRITTEN) {
        buffer_put(w->out, "X\6\0\0\0latin1", 11);
        w->latin1_at = put_memo(w);
    } else {
        put_get(w, w->latin1_at);
    }
    buffer_put_u8(w->out, 0x86); /* TUPLE2 */
    put_memo(w);
    buffer_put_u8(w->out, 'R'); /* REDUCE */
    put_memo(w);
    return SIDESTEP_OK;
}

static enum sidestep_status put_tuple(struct writer *w, const struct sidestep_value *value)
{
    static const uint8_t closing[] = {')', 0x85, 0x86, 0x87}; /* EMPTY_TUPLE, TUPLE1 ... TUPLE3 */
    size_t count = value->as.seq.count;

    if (count >= ARRAY_LENGTH(closing))
        buffer_put_u8(w->out, '('); /* MARK */
    for (size_t i = 0; i < count; i++)
        TRY(put_value(w, value->as.seq.items[i]));
    buffer_put_u8(w->out, count < ARRAY_LENGTH(closing) ? closing[count] : 't');
    if (count != 0)
        put_memo(w);
    return SIDESTEP_OK;
}

static enum sidestep_status put_list(struct writer *w, const struct sidestep_value *value)
{
    size_t count = value->as.seq.count;

    buffer_put_u8(w->out, ']'); /* EMPTY_LIST */
    put_memo(w);
    if (count == 1) {
        TRY(put_value(w, value->as.seq.items[0]));
        buffer_put_u8(w->out, 'a'); /* APPEND */
        return SIDESTEP_OK;
    }
    for (size_t i = 0; i < count;) {
        size_t end = count - i > BATCH ? i + BATCH : count;
        buffer_put_u8(w->out, '(');
        for (; i < end; i++)
            TRY(put_value(w, value->as.seq.items[i]));
        buffer_put_u8(w->out, 'e'); /* APPENDS */
    }
    return SIDESTEP_OK;
}

static enum sidestep_status put_pairs(struct writer *w, struct sidestep_value **items, size_t pairs)
{
    for (size_t i = 0; i < 2 * pairs; i++)
        TRY(put_value(w, items[i]));
    return SIDESTEP_OK;
}

static enum sidestep_status put_dict(struct writer *w, const struct sidestep_value *value)
{
    struct sidestep_value **items = value->as.seq.items;
    size_t pairs = value->as.seq.count / 2, batch;

    buffer_put_u8(w->out, '}'); /* EMPTY_DICT */
    put_memo(w);
    if (pairs == 0)
        return SIDESTEP_OK;
    if (pairs == 1) {
        TRY(put_pairs(w, items, 1));
        buffer_put_u8(w->out, 's'); /* SETITEM */
        return SIDESTEP_OK;
    }
    /* As in Python, a batch follows each full batch, even if it is empty. */
    do {
        batch = pairs > BATCH ? BATCH : pairs;
        buffer_put_u8(w->out, '(');
        TRY(put_pairs(w, items, batch));
        buffer_put_u8(w->out, 'u'); /* SETITEMS */
        items += 2 * batch;
        pairs -= batch;
    } while (batch == BATCH);
    return SIDESTEP_OK;
}

static enum sidestep_status put_value(struct writer *w, const struct sidestep_value *value)
{
    switch (value->kind) {
    case SIDESTEP_VALUE_NONE:
        buffer_put_u8(w->out, 'N');
        return SIDESTEP_OK;
    case SIDESTEP_VALUE_BOOL:
        buffer_put_u8(w->out, value->as.boolean ? 0x88 : 0x89); /* NEWTRUE, NEWFALSE */
        return SIDESTEP_OK;
    case SIDESTEP_VALUE_INT:
        pickle_write_int(w->out, value->as.integer);
        return SIDESTEP_OK;
    case SIDESTEP_VALUE_FLOAT:
        put_float(w, value->as.real);
        return SIDESTEP_OK;
    case SIDESTEP_VALUE_STR:
        return put_str(w, value);
    case SIDESTEP_VALUE_BYTES:
        return put_bytes(w, value);
    case SIDESTEP_VALUE_LIST:
        return put_list(w, value);
    case SIDESTEP_VALUE_TUPLE:
        return put_tuple(w, value);
    case SIDESTEP_VALUE_DICT:
        return put_dict(w, value);
    case SIDESTEP_VALUE_OPAQUE:
        break;
    }
    return FAIL(w->err, SIDESTEP_EUNSUPPORTED, "an opaque object (%.200s) cannot be written",
                value->as.text.bytes);
}

static enum sidestep_status write_value(struct buffer *out, const struct sidestep_value *value,
                                        bool plain, struct sidestep_error *err)
{
    struct writer w = {
        .out = out, .err = err, .encode_at = NOT_WRITTEN, .latin1_at = NOT_WRITTEN, .plain = plain};
    size_t before = out->length;

    buffer_put_u8(out, 0x80); /* PROTO */
    buffer_put_u8(out, plain ? 3 : 2);
    enum sidestep_status status = put_value(&w, value);
    buffer_put_u8(out, '.'); /* STOP */
    if (status == SIDESTEP_OK)
        status = buffer_check(out, err);
    if (status != SIDESTEP_OK)
        out->length = before;
    return status;
}

enum sidestep_status pickle_write_fragment(struct buffer *out, const struct sidestep_value *value,
                                           struct sidestep_error *err)
{
    struct writer w = {.out = out, .err = err, .encode_at = NOT_WRITTEN, .latin1_at = NOT_WRITTEN};

    return put_value(&w, value);
}

enum sidestep_status pickle_write_value(struct buffer *out, const struct sidestep_value *value,
                                        struct sidestep_error *err)
{
    return write_value(out, value, false, err);
}

enum sidestep_status pickle_write_plain_value(struct buffer *out,
                                              const struct sidestep_value *value,
                                              struct sidestep_error *err)
{
    return write_value(out, value, true, err);
}
