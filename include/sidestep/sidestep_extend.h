/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sidestep_extend.h -- codecs of your own, without a change to the library.
 *
 * A codec decides how an item is stored.  It is a table of functions that the library calls.
 * examples/codec_skeleton.c is the smallest that works; docs/EXTENDING.md is the guide.
 *
 * Every function that can fail returns SIDESTEP_OK, or another status and fills in err->message
 * (and err->sys_errno, if a system call failed).  ${err} is never NULL.  If the message is empty,
 * the library writes one that names the function and the codec.  Unless a comment says
 * otherwise, several threads call the functions at once, and all of them block all signals.
 */
#ifndef SIDESTEP_EXTEND_H
#define SIDESTEP_EXTEND_H

#include "sidestep.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An item is a chunk of a tensor (an archive: a head, the elements row-major and little-endian, a
 * tail) or an object.  Several threads encode its parts, in any order, each without the others.
 * The encoded parts in order are the stored item.  It is decoded as a whole, from front to back.
 */
struct sidestep_codec_item {
    uint64_t bytes;       /* of the item */
    uint64_t data_offset; /* the elements are in [data_offset, data_offset + data_bytes) */
    uint64_t data_bytes;
    enum sidestep_dtype dtype; /* NONE: an object */
    uint32_t reserved;
};

/** Input and output of one call; only its thread may use them. */
struct sidestep_codec_input;
struct sidestep_codec_output;

/** sidestep_codec_left(input): the number of stored bytes that have not been taken yet. */
SIDESTEP_API uint64_t sidestep_codec_left(const struct sidestep_codec_input *input);
/**
 * sidestep_codec_take(input, most, &bytes, &length, err):
 * Take the next ${length} stored bytes, at least 1 and at most ${most}.  They stay valid until the
 * next call.  SIDESTEP_ECORRUPT if none are left.  Their hash was checked, so they are what was
 * written.  Do not trust their contents.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_codec_take(struct sidestep_codec_input *input, size_t most, const void **bytes,
                    size_t *length, struct sidestep_error *err);
/**
 * sidestep_codec_put(output, bytes, length, err): append a copy of ${length} bytes.
 * SIDESTEP_ECORRUPT if decode() puts more bytes than the item has.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_codec_put(struct sidestep_codec_output *output, const void *bytes, size_t length,
                   struct sidestep_error *err);

struct sidestep_codec {
    size_t struct_size;
    /** The name in checkpoints: "NAME/VERSION", of letters, digits, '.', '_' and '-', at most 63
        characters.  If decoding changes, the version must change. */
    const char *descriptor;
    void *context;
    /** What one thread needs to encode any number of items.  Both NULL: nothing. */
    enum sidestep_status (*encoder_new)(void *context, void **encoder, struct sidestep_error *err);
    void (*encoder_free)(void *context, void *encoder);
    /** Encode ${length} bytes at ${begin} of the item to ${output}.  Append to ${index} what must
        follow the last part of the item: the indices of all parts are concatenated (1 MiB at most).
        If ${begin} is in the data, it is a multiple of 1 MiB from the start of the data.  The
        output may exceed the input by at most 64 KiB and 1/256. */
    enum sidestep_status (*encode)(void *context, void *encoder,
                                   const struct sidestep_codec_item *item, const void *bytes,
                                   uint64_t begin, size_t length,
                                   struct sidestep_codec_output *output,
                                   struct sidestep_codec_output *index, struct sidestep_error *err);
    /** Decode one item of at most ${most} bytes.  Take all its stored bytes.  SIDESTEP_ECORRUPT:
        encode() never makes such an item.  The library compares the decoded bytes with the hash of
        the original ones. */
    enum sidestep_status (*decode)(void *context, struct sidestep_codec_input *input, uint64_t most,
                                   struct sidestep_codec_output *output,
                                   struct sidestep_error *err);
};
#define SIDESTEP_CODEC_INIT SIDESTEP_INIT(struct sidestep_codec)

/**
 * sidestep_codec_register(codec, err):
 * Register a codec in this process, for its whole life.  Everything that reads (loads, verify,
 * conversions) then decodes items with its descriptor, and saves may use it (struct
 * sidestep_save_options, ${codec}).  ${codec} is copied; its context must stay.  It belongs to the
 * process, not to an engine, because many readers have no engine.  Any thread, any time; a save
 * that is under way does not use it.
 *
 * If a checkpoint's codec is not registered, reading its tensors fails with SIDESTEP_EUNSUPPORTED
 * and the descriptor.  Items that are stored uncompressed can still be read.
 *
 * Errors: SIDESTEP_EEXISTS: this descriptor is registered already.  SIDESTEP_EINVAL: not a valid
 * descriptor, or a function is missing.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_codec_register(const struct sidestep_codec *codec, struct sidestep_error *err);

#ifdef __cplusplus
}
#endif
#endif
