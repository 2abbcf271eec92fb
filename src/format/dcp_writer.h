/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dcp_writer.h -- writes the opcodes of a `.metadata` into a buffer.
 *
 * It is fast because it reserves memory for a group of opcodes at a time.
 *
 * The pickle starts with all symbols and words that it uses.  Each is pushed, memoised and popped.
 * So these have the first memo numbers, and two bytes refer to each of them later.
 */
#ifndef FORMAT_DCP_WRITER_H
#define FORMAT_DCP_WRITER_H

#include "base/base.h"

#define DCP_MODULE "torch.distributed.checkpoint.metadata"
#define DCP_WRITER_MAX_INT_BYTES 11u /* LONG1 of 9 bytes */
/* More than any group of opcodes without texts and sizes takes. */
#define DCP_WRITER_RESERVED_BYTES 256u

enum dcp_opcode {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_POP = '0',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_REDUCE = 'R',
    OP_BINUNICODE = 'X',
    OP_EMPTY_LIST = ']',
    OP_APPENDS = 'e',
    OP_BUILD = 'b',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_TUPLE = ')',
    OP_PROTO = 0x80,
    OP_NEWOBJ = 0x81,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE8 = 0x8d,
    OP_STACK_GLOBAL = 0x93,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95,
};

/* The symbols and words, in the order of their memo numbers: X(name, module or NULL, text). */
#define DCP_CONSTANTS(X)                                                                           \
    X(METADATA, DCP_MODULE, "Metadata")                                                            \
    X(TENSOR, DCP_MODULE, "TensorStorageMetadata")                                                 \
    X(OBJECT, DCP_MODULE, "BytesStorageMetadata")                                                  \
    X(CHUNK, DCP_MODULE, "ChunkStorageMetadata")                                                   \
    X(PROPERTIES_CLASS, DCP_MODULE, "TensorProperties")                                            \
    X(MEM_FORMAT, DCP_MODULE, "_MEM_FORMAT_ENCODING")                                              \
    X(STORAGE_META_CLASS, DCP_MODULE, "StorageMeta")                                               \
    X(INDEX_CLASS, DCP_MODULE, "MetadataIndex")                                                    \
    X(STORAGE_INFO, "torch.distributed.checkpoint.filesystem", "_StorageInfo")                     \
    X(SIZE_CLASS, "torch", "Size")                                                                 \
    X(GET_LAYOUT, "torch.serialization", "_get_layout")                                            \
    X(STATE_DICT_METADATA, NULL, "state_dict_metadata")                                            \
    X(PLANNER_DATA, NULL, "planner_data")                                                          \
    X(STORAGE_DATA, NULL, "storage_data")                                                          \
    X(STORAGE_META, NULL, "storage_meta")                                                          \
    X(PROPERTIES, NULL, "properties")                                                              \
    X(SIZE, NULL, "size")                                                                          \
    X(CHUNKS, NULL, "chunks")                                                                      \
    X(OFFSETS, NULL, "offsets")                                                                    \
    X(SIZES, NULL, "sizes")                                                                        \
    X(FQN, NULL, "fqn")                                                                            \
    X(INDEX, NULL, "index")                                                                        \
    X(OFFSET, NULL, "offset")                                                                      \
    X(LENGTH, NULL, "length")                                                                      \
    X(RELATIVE_PATH, NULL, "relative_path")                                                        \
    X(TRANSFORMS, NULL, "transform_descriptors")                                                   \
    X(TORCH, NULL, "torch")

enum dcp_constant {
#define CONSTANT_ENUM(name, module, text) DCP_MEMO_##name,
    DCP_CONSTANTS(CONSTANT_ENUM)
#undef CONSTANT_ENUM
    /* A layout and a memory format, which calls make. */
    DCP_MEMO_STRIDED,
    DCP_MEMO_CONTIGUOUS,
    DCP_MEMO_END
};
_Static_assert(DCP_MEMO_END <= 256, "BINGET has one byte");

/* A direct-mapped cache of texts that may come again. */
#define DCP_WRITER_CACHE_SLOTS 4096u
struct dcp_cached_text {
    const char *text;
    size_t length;
    uint32_t memo;
};

struct dcp_writer {
    struct buffer *out;
    uint8_t *at; /* where to write next, in the memory of ${out} */
    struct sidestep_error *err;
    uint32_t memo;                          /* the next number */
    uint32_t states[SIDESTEP_DTYPE_END][2]; /* memo numbers of TensorProperties, by requires_grad */
    uint32_t *names;                        /* memo numbers, by entry */
    uint32_t *offsets;                      /* memo numbers, by chunk, of all entries */
    struct dcp_cached_text *words;          /* DCP_WRITER_CACHE_SLOTS of them, zeroed */
};

/* Reserve ${bytes} at w->at, which the caller moves as it writes. */
enum sidestep_status dcp_writer_reserve(struct dcp_writer *w, size_t bytes);
/* Write a str of ${length} bytes, and reserve DCP_WRITER_RESERVED_BYTES.  EINVAL: not UTF-8. */
enum sidestep_status dcp_writer_text(struct dcp_writer *w, const char *text, size_t length);
/* The same for a str that may come again, such as a file name or a key of a path. */
enum sidestep_status dcp_writer_cached_text(struct dcp_writer *w, const char *text);
enum sidestep_status dcp_writer_text_or_none(struct dcp_writer *w, const char *text);
/* Write a short str into reserved memory. */
void dcp_writer_short_text(struct dcp_writer *w, const char *text);
/* Write the symbols and words with which the pickle starts. */
enum sidestep_status dcp_writer_prologue(struct dcp_writer *w);

/* ---------------------------------------------------------------- into reserved memory */

static inline void dcp_writer_op(struct dcp_writer *w, uint8_t opcode)
{
    *w->at++ = opcode;
}

static inline void dcp_writer_le(struct dcp_writer *w, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        *w->at++ = (uint8_t)(value >> (8 * i));
}

static inline void dcp_writer_get_constant(struct dcp_writer *w, enum dcp_constant k)
{
    dcp_writer_op(w, OP_BINGET);
    dcp_writer_op(w, (uint8_t)k);
}

static inline void dcp_writer_get_memo(struct dcp_writer *w, uint32_t memo)
{
    dcp_writer_op(w, memo < 256 ? OP_BINGET : OP_LONG_BINGET);
    dcp_writer_le(w, memo, memo < 256 ? 1 : 4);
}

static inline uint32_t dcp_writer_memoize(struct dcp_writer *w)
{
    dcp_writer_op(w, OP_MEMOIZE);
    return w->memo++;
}

static inline void dcp_writer_int(struct dcp_writer *w, uint64_t value)
{
    if (value < 1u << 8) {
        dcp_writer_op(w, OP_BININT1);
        dcp_writer_le(w, value, 1);
    } else if (value < 1u << 16) {
        dcp_writer_op(w, OP_BININT2);
        dcp_writer_le(w, value, 2);
    } else if (value < 1u << 31) {
        dcp_writer_op(w, OP_BININT);
        dcp_writer_le(w, value, 4);
    } else {
        /* LONG1 has a bit for the sign. */
        unsigned bytes = (64 - (unsigned)__builtin_clzll(value)) / 8 + 1;
        dcp_writer_op(w, OP_LONG1);
        dcp_writer_op(w, (uint8_t)bytes);
        dcp_writer_le(w, value, bytes < 8 ? bytes : 8);
        dcp_writer_le(w, 0, bytes - (bytes < 8 ? bytes : 8));
    }
}

/* torch.Size */
static inline void dcp_writer_size(struct dcp_writer *w, uint32_t ndim, const int64_t *lengths)
{
    static const uint8_t closing[] = {OP_EMPTY_TUPLE, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3};

    dcp_writer_get_constant(w, DCP_MEMO_SIZE_CLASS);
    if (ndim > 3)
        dcp_writer_op(w, OP_MARK);
    for (uint32_t d = 0; d < ndim; d++)
        dcp_writer_int(w, (uint64_t)lengths[d]);
    dcp_writer_op(w, ndim > 3 ? OP_TUPLE : closing[ndim]);
    dcp_writer_op(w, OP_TUPLE1);
    dcp_writer_op(w, OP_REDUCE);
}

/* Begin an object of class ${k}, and its fields. */
static inline void dcp_writer_begin_object(struct dcp_writer *w, enum dcp_constant k)
{
    dcp_writer_get_constant(w, k);
    dcp_writer_op(w, OP_EMPTY_TUPLE);
    dcp_writer_op(w, OP_NEWOBJ);
    dcp_writer_op(w, OP_EMPTY_DICT);
    dcp_writer_op(w, OP_MARK);
}

static inline void dcp_writer_end_object(struct dcp_writer *w)
{
    dcp_writer_op(w, OP_SETITEMS);
    dcp_writer_op(w, OP_BUILD);
}

static inline size_t dcp_writer_max_size_bytes(uint32_t ndim)
{
    return 8 + ndim * DCP_WRITER_MAX_INT_BYTES;
}

#endif
