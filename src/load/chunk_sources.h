/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_sources.h -- internal header of tensor_reader.h: where the chunks to read are stored, and
 * which of them are views of one storage, as tensors of torch.save() may be.
 */
#ifndef LOAD_CHUNK_SOURCES_H
#define LOAD_CHUNK_SOURCES_H

#include "checkpoint/checkpoint.h"
#include "load/storage_crc.h"

/* Bytes without block hashes that several tensors of torch.save() may share. */
struct chunk_storage {
    struct reader_file *file;
    uint64_t offset;
    uint64_t bytes;
    bool has_crc;
    uint32_t crc;
    struct chunk_source **sources; /* the sources that are views of it */
    size_t count;
    /* Under the lock of tensor_reader.c. */
    struct storage_crc read_crcs;
    bool has_unrecorded_reads; /* bytes were read whose CRC ${read_crcs} does not have */
};

/* A chunk and where its bytes are stored. */
struct chunk_source {
    const struct metadata_entry *entry;
    const struct metadata_chunk *chunk;
    struct reader_file *file;
    uint64_t data_offset;
    uint64_t data_bytes;
    const uint64_t *blocks;
    struct reader_item *decode_item; /* set if the item must be decoded completely */
    struct chunk_storage *storage;   /* NULL: it has block hashes, or no checksum */
    bool decode_together;            /* decoded in one pass with all views of the storage */
    /* Under the lock of tensor_reader.c. */
    uint8_t *decoded; /* decoded bytes of ${decode_item} */
    bool decoding;
    unsigned pins;     /* threads that read ${decoded} */
    uint64_t last_use; /* number of the last use, to free the least recently used */
};

struct chunk_sources {
    struct reader *reader;
    struct chunk_source *sources;
    size_t count;
    size_t *first_source; /* per entry that is wanted: index of its first source */
    struct chunk_storage *storages;
    size_t storage_count;
    struct chunk_source **by_storage; /* the sources with a storage, sorted by storage */
};

/* Find the sources of the entries that are ${wanted}.  ECORRUPT: chunks do not cover a tensor. */
enum sidestep_status chunk_sources_find(struct reader *reader, const bool *wanted,
                                        struct chunk_sources *out, struct sidestep_error *err);
/* Must be called after an error, too. */
void chunk_sources_release(struct chunk_sources *sources);
uint64_t chunk_source_decoded_bytes(const struct chunk_source *source);

#endif
