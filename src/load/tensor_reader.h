/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tensor_reader.h -- reads row-major byte ranges of tensors of a checkpoint, on many threads, from
 * chunks of any shape.  It is for callers that pass the bytes on and never have a whole tensor.
 *
 * Each byte is checked.  If there are block hashes, they are checked immediately.  If there is only
 * the CRC32 of a whole chunk, tensor_reader_finish() checks it, from the CRCs of the ranges that
 * were read.  So bytes that were passed on must not be used before that function succeeds.  Chunks
 * that are compressed or not contiguous are decoded completely, and cached for later reads.
 */
#ifndef LOAD_TENSOR_READER_H
#define LOAD_TENSOR_READER_H

#include "checkpoint/checkpoint.h"

#define TENSOR_READER_REQUEST_BYTES ((uint64_t)4 << 20) /* bytes per request */
/* Limit for cached decoded chunks, or one that is larger. */
#define TENSOR_READER_CACHE_BYTES ((uint64_t)64 << 20)

struct tensor_reader;

/* ${wanted}: for each entry of the metadata, whether its bytes will be read.  ${threads}: how many
 * threads read at the same time; each has a buffer of 5 MiB.  ECORRUPT: the chunks do not
 * cover a tensor. */
enum sidestep_status tensor_reader_open(struct reader *reader, const bool *wanted, unsigned threads,
                                        struct tensor_reader **out, struct sidestep_error *err);
void tensor_reader_free(struct tensor_reader **t);

/* Read bytes [begin, begin + bytes) of ${box} of entry ${entry}, row-major, to ${to}.  Any
 * thread. */
enum sidestep_status tensor_reader_read(struct tensor_reader *t, size_t entry,
                                        const struct box *box, uint64_t begin, uint64_t bytes,
                                        uint8_t *to, struct sidestep_error *err);

/* Check the CRC32s; bytes that were not read are read for that.  Then check that no file has
 * changed. */
enum sidestep_status tensor_reader_finish(struct tensor_reader *t, struct sidestep_error *err);

/* Bytes read from storage so far. */
uint64_t tensor_reader_bytes_read(const struct tensor_reader *t);

#endif
