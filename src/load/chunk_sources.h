/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_sources.h -- tensor_reader.h from the inside: where the chunks lie that are read from, and
 * which of them are views of one storage, as tensors of torch.save() may be.
 */
#ifndef LOAD_CHUNK_SOURCES_H
#define LOAD_CHUNK_SOURCES_H

#include "checkpoint/checkpoint.h"
#include "load/storage_crc.h"

/* Bytes without block hashes, which tensors of torch.save() may share. */
struct chunk_storage {
    struct reader_file *file;
    uint64_t offset;
    uint64_t bytes;
    bool has_crc;
    uint32_t crc;
    struct chunk_source **places; /* that have views of it */
    size_t count;
    /* Under the lock of tensor_reader.c. */
    struct storage_crc parts;
    bool unchecked; /* something was read of it that the parts do not know */
};

/* A chunk and where its bytes are. */
struct chunk_source {
    const struct metadata_entry *entry;
    const struct metadata_chunk *chunk;
    struct reader_file *file;
    uint64_t data_offset;
    uint64_t data_bytes;
    const uint64_t *blocks;
    struct reader_item *whole;     /* not NULL: to be decoded whole */
    struct chunk_storage *storage; /* NULL: it has block hashes, or nothing to be checked by */
    bool together;                 /* with all that are views of the storage */
    /* Under the lock of tensor_reader.c. */
    uint8_t *decoded; /* of ${whole} */
    bool decoding;
    unsigned users;
    uint64_t used_at; /* counts uses, to give back what was not used for longest */
};

struct chunk_sources {
    struct reader *reader;
    struct chunk_source *places;
    size_t count;
    size_t *first_place; /* per entry; SIZE_MAX: not wanted */
    struct chunk_storage *storages;
    size_t storage_count;
    struct chunk_source **by_storage; /* the places that have one */
};

/* Those of the entries that are ${wanted}.  ECORRUPT: chunks do not cover a tensor. */
enum sidestep_status chunk_sources_find(struct reader *reader, const bool *wanted,
                                        struct chunk_sources *out, struct sidestep_error *err);
/* Also after an error. */
void chunk_sources_release(struct chunk_sources *places);
uint64_t chunk_source_decoded_bytes(const struct chunk_source *place);

#endif
