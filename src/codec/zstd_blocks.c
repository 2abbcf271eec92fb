/* SPDX-License-Identifier: BSD-3-Clause */
/* zstd_blocks.c -- see zstd_blocks.h. */
#include "codec/zstd_blocks.h"

#define LITERALS_TREELESS 3u
#define TABLE_REPEATED 3u

struct block {
    uint8_t *header;
    unsigned type;
    size_t bytes; /* after the header */
};

/* The tables that blocks of this part have defined so far. */
struct tables {
    bool literals;
    bool symbols[3]; /* of literal lengths, offsets, match lengths */
};

/* The bytes of the literals section (RFC 8878, 3.1.1.3.1) at ${b}.  0: it is cut off. */
static size_t literals_bytes(const uint8_t *b, size_t length)
{
    unsigned type = length != 0 ? b[0] & 3 : 0, format = length != 0 ? b[0] >> 2 & 3 : 0;
    static const size_t plain_headers[4] = {1, 2, 1, 3}, coded_headers[4] = {3, 3, 4, 5};
    size_t header = type < 2 ? plain_headers[format] : coded_headers[format];

    if (length < header)
        return 0;
    if (type < 2) {
        size_t size = header == 1   ? b[0] >> 3u
                      : header == 2 ? (size_t)b[0] >> 4 | (size_t)b[1] << 4
                                    : (size_t)b[0] >> 4 | (size_t)b[1] << 4 | (size_t)b[2] << 12;
        return header + (type == 1 ? 1 : size);
    }
    size_t size = header == 3   ? (size_t)b[1] >> 6 | (size_t)b[2] << 2
                  : header == 4 ? (size_t)b[2] >> 2 | (size_t)b[3] << 6
                                : (size_t)b[2] >> 6 | (size_t)b[3] << 2 | (size_t)b[4] << 10;
    return header + size;
}

/* The bytes of a count of sequences (3.1.1.3.2.1) that begins with ${first}. */
static size_t count_bytes(uint8_t first)
{
    return first < 128 ? 1 : first < 255 ? 2 : 3;
}

static enum zstd_dependency inspect_sequences(const uint8_t *b, size_t length,
                                              struct tables *tables)
{
    size_t modes = length != 0 ? count_bytes(b[0]) : 0;

    if (length == 1 && b[0] == 0)
        return ZSTD_DEPENDENCY_NONE;
    if (length <= modes || b[0] == 0)
        return ZSTD_DEPENDENCY_FULL;
    for (unsigned i = 0; i < 3; i++) {
        unsigned mode = b[modes] >> (6 - 2 * i) & 3;
        if (mode == TABLE_REPEATED && !tables->symbols[i])
            return ZSTD_DEPENDENCY_FULL;
        tables->symbols[i] = true;
    }
    return ZSTD_DEPENDENCY_OFFSETS;
}

static enum zstd_dependency inspect_block(const struct block *block, struct tables *tables)
{
    const uint8_t *body = block->header + ZSTD_BLOCK_HEADER_BYTES;

    if (block->type != ZSTD_BLOCK_COMPRESSED)
        return block->type < ZSTD_BLOCK_COMPRESSED ? ZSTD_DEPENDENCY_NONE : ZSTD_DEPENDENCY_FULL;
    size_t literals = literals_bytes(body, block->bytes);
    if (literals == 0 || literals >= block->bytes)
        return ZSTD_DEPENDENCY_FULL;
    if ((body[0] & 3) == LITERALS_TREELESS && !tables->literals)
        return ZSTD_DEPENDENCY_FULL;
    tables->literals = tables->literals || (body[0] & 3) >= 2;
    return inspect_sequences(body + literals, block->bytes - literals, tables);
}

static void set_last(uint8_t *header, bool last)
{
    header[0] = (uint8_t)((header[0] & ~1u) | last);
}

enum zstd_dependency zstd_blocks_find_dependency(uint8_t *bytes, size_t length, bool last)
{
    enum zstd_dependency max = ZSTD_DEPENDENCY_NONE;
    struct tables tables = {0};
    uint8_t *header = NULL;

    for (size_t at = 0; at < length;) {
        struct block block = {.header = bytes + at};
        if (length - at < ZSTD_BLOCK_HEADER_BYTES)
            return ZSTD_DEPENDENCY_FULL;
        uint32_t word =
            (uint32_t)bytes[at] | (uint32_t)bytes[at + 1] << 8 | (uint32_t)bytes[at + 2] << 16;
        block.type = word >> 1 & 3;
        block.bytes = block.type == ZSTD_BLOCK_RLE ? 1 : word >> 3;
        if (block.bytes > length - at - ZSTD_BLOCK_HEADER_BYTES)
            return ZSTD_DEPENDENCY_FULL;
        enum zstd_dependency need = inspect_block(&block, &tables);
        max = need > max ? need : max;
        header = block.header;
        set_last(header, false);
        at += ZSTD_BLOCK_HEADER_BYTES + block.bytes;
    }
    if (header == NULL)
        return ZSTD_DEPENDENCY_FULL;
    set_last(header, last);
    return max;
}

void zstd_block_write_header(uint8_t to[ZSTD_BLOCK_HEADER_BYTES], enum zstd_block_type type,
                             size_t size, bool last)
{
    uint32_t word = (uint32_t)size << 3 | (uint32_t)type << 1 | last;

    for (unsigned k = 0; k < ZSTD_BLOCK_HEADER_BYTES; k++)
        to[k] = (uint8_t)(word >> (8 * k));
}
