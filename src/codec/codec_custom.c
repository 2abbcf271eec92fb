/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * codec_custom.c -- see codec_custom.h: keeps the list of registered codecs, and calls their
 * functions.
 *
 * All engines of a process share the list, which only grows.  Decoders are needed wherever items
 * are read, and verify, conversions and loads of files have no engine.
 */
#include "codec/codec_custom.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "sidestep/sidestep_extend.h"

_Static_assert(sizeof(struct sidestep_codec) == 56, "a field was added: handle it below");

#define DESCRIPTOR_BYTES 64u

struct custom {
    struct codec codec;
    struct sidestep_codec theirs;
    char descriptor[DESCRIPTOR_BYTES];
    struct custom *next; /* constant once it is in the list */
};

static _Atomic(struct custom *) customs;

/* ---- inputs and outputs */

struct sidestep_codec_input {
    struct codec_input *input;
};

/* Writes to ${buffer} or to ${sink}; the other one is NULL. */
struct sidestep_codec_output {
    struct buffer *buffer;
    struct codec_sink *sink;
    uint64_t left; /* bytes that ${sink} may still take */
};

uint64_t sidestep_codec_left(const struct sidestep_codec_input *input)
{
    return input->input->left;
}

enum sidestep_status sidestep_codec_take(struct sidestep_codec_input *input, size_t most,
                                         const void **bytes, size_t *length,
                                         struct sidestep_error *err)
{
    const uint8_t *piece = NULL;

    if (most == 0)
        return FAIL(err, SIDESTEP_EINVAL, "it asks for 0 bytes");
    if (input->input->left == 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "the stored bytes end early");
    TRY(input->input->take(input->input, most, &piece, length, err));
    *bytes = piece;
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_codec_put(struct sidestep_codec_output *output, const void *bytes,
                                        size_t length, struct sidestep_error *err)
{
    if (output->buffer != NULL) {
        buffer_put(output->buffer, bytes, length);
        return buffer_check(output->buffer, err);
    }
    if (length > output->left)
        return FAIL(err, SIDESTEP_ECORRUPT, "it decodes to more bytes than the item has");
    output->left -= length;
    return length != 0 ? output->sink->put(output->sink, bytes, length, err) : SIDESTEP_OK;
}

/* ---- calls to the program's functions */

#define CALL_THEIRS(custom, function, why, err, ...)                                               \
    error_from_callback("the codec", (custom)->descriptor, #function,                              \
                        (custom)->theirs.function(__VA_ARGS__), why, err)

struct codec_encoder {
    const struct custom *custom;
    void *theirs;
};

static enum sidestep_status encoder_new(const struct codec *self, struct codec_encoder **out,
                                        struct sidestep_error *err)
{
    const struct custom *custom = (const struct custom *)self;
    struct sidestep_error why = {.rank = -1};
    OWNED struct codec_encoder *encoder = memory_new(1, sizeof(*encoder));

    if (encoder == NULL)
        return FAIL_NOMEM(err, sizeof(*encoder));
    encoder->custom = custom;
    if (custom->theirs.encoder_new != NULL)
        TRY(CALL_THEIRS(custom, encoder_new, &why, err, custom->theirs.context, &encoder->theirs,
                        &why));
    *out = TAKE(encoder);
    return SIDESTEP_OK;
}

static void encoder_free(struct codec_encoder *encoder)
{
    if (encoder == NULL)
        return;
    if (encoder->custom->theirs.encoder_free != NULL)
        encoder->custom->theirs.encoder_free(encoder->custom->theirs.context, encoder->theirs);
    free(encoder);
}

static enum sidestep_status encode(struct codec_encoder *encoder, const struct codec_item *item,
                                   const struct codec_part *part, struct buffer *out,
                                   struct buffer *index, struct sidestep_error *err)
{
    const struct custom *custom = encoder->custom;
    const struct sidestep_codec_item theirs = {.bytes = item->bytes,
                                               .data_offset = item->data_offset,
                                               .data_bytes = item->data_bytes,
                                               .dtype = item->dtype};
    struct sidestep_codec_output to = {.buffer = out}, index_to = {.buffer = index};
    struct sidestep_error why = {.rank = -1};

    return CALL_THEIRS(custom, encode, &why, err, custom->theirs.context, encoder->theirs, &theirs,
                       part->bytes, part->begin, (size_t)part->length, &to, &index_to, &why);
}

static enum sidestep_status decode(const struct codec *self, struct codec_input *input,
                                   uint64_t max, struct codec_sink *sink,
                                   struct sidestep_error *err)
{
    const struct custom *custom = (const struct custom *)self;
    struct sidestep_codec_input in = {.input = input};
    struct sidestep_codec_output out = {.sink = sink, .left = max};
    struct sidestep_error why = {.rank = -1};

    TRY(CALL_THEIRS(custom, decode, &why, err, custom->theirs.context, &in, max, &out, &why));
    if (input->left != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "the codec '%s' leaves %llu stored bytes unread",
                    custom->descriptor, (unsigned long long)input->left);
    return SIDESTEP_OK;
}

/* ---- the list */

const struct codec *codec_custom_find(const char *descriptor)
{
    for (const struct custom *c = atomic_load(&customs); c != NULL; c = c->next)
        if (strcmp(c->descriptor, descriptor) == 0)
            return &c->codec;
    return NULL;
}

static bool is_descriptor(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t name = text != NULL ? strspn(text, allowed) : 0;
    size_t version = name != 0 && text[name] == '/' ? strspn(text + name + 1, allowed) : 0;

    return version != 0 && text[name + 1 + version] == '\0' &&
           name + version + 2 <= DESCRIPTOR_BYTES;
}

/* Add to the list.  False: there is a codec with this descriptor already. */
static bool add(struct custom *custom)
{
    custom->next = atomic_load(&customs);
    do {
        if (codec_find(custom->descriptor) != NULL)
            return false;
    } while (!atomic_compare_exchange_weak(&customs, &custom->next, custom));
    return true;
}

enum sidestep_status sidestep_codec_register(const struct sidestep_codec *codec,
                                             struct sidestep_error *err)
{
    OWNED struct custom *custom = memory_new(1, sizeof(*custom));

    if (codec == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "codec is NULL");
    if (custom == NULL)
        return FAIL_NOMEM(err, sizeof(*custom));
    TRY(options_copy(&custom->theirs, sizeof(custom->theirs), codec, "codec", err));
    if (!is_descriptor(custom->theirs.descriptor))
        return FAIL(err, SIDESTEP_EINVAL, "'%.100s' is not of the form NAME/VERSION",
                    custom->theirs.descriptor != NULL ? custom->theirs.descriptor : "");
    if (custom->theirs.encode == NULL || custom->theirs.decode == NULL ||
        (custom->theirs.encoder_new == NULL) != (custom->theirs.encoder_free == NULL))
        return FAIL(err, SIDESTEP_EINVAL, "the codec '%s' lacks a function",
                    custom->theirs.descriptor);
    memcpy(custom->descriptor, custom->theirs.descriptor, strlen(custom->theirs.descriptor) + 1);
    custom->codec = (struct codec){.descriptor = custom->descriptor,
                                   .encoder_new = encoder_new,
                                   .encoder_free = encoder_free,
                                   .encode = encode,
                                   .decode = decode};
    if (!add(custom))
        return FAIL(err, SIDESTEP_EEXISTS, "there is a codec '%s' already", custom->descriptor);
    (void)TAKE(custom); /* the list owns it, and never frees it */
    return SIDESTEP_OK;
}
