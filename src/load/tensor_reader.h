/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tensor_reader.h -- the row-major bytes of tensors of a checkpoint, in stretches, by many threads,
 * from chunks of any shape: for those who pass them on and never hold a whole tensor.
 *
 * Each byte is checked: by block hashes where there are any, at once; by the CRC32 of a whole chunk
 * where that is all there is, in tensor_reader_finish(), from the CRCs of the stretches that were
 * read.  So what was passed on before must not be used before that has said yes.  Chunks that are
 * compressed or not plain are decoded whole, and kept as long as somebody is likely to need them.
 */
#ifndef LOAD_TENSOR_READER_H
#define LOAD_TENSOR_READER_H

#include "checkpoint/checkpoint.h"

#define TENSOR_READER_REQUEST_BYTES ((uint64_t)4 << 20) /* one request */
#define TENSOR_READER_CACHE_BYTES                                                                  \
    ((uint64_t)64 << 20) /* of decoded chunks, or one that is larger */

struct tensor_reader;

/* ${wanted}: for each entry of the metadata, whether its bytes will be asked for.  ${hands}:
 * threads that read at once; each has buffers of 5 MiB.  ECORRUPT: the chunks do not cover a
 * tensor. */
enum sidestep_status tensor_reader_open(struct reader *reader, const bool *wanted, unsigned hands,
                                        struct tensor_reader **out, struct sidestep_error *err);
void tensor_reader_free(struct tensor_reader **t);

/* Bytes [begin, begin + bytes) of ${box} of entry ${entry}, row-major, to ${to}.  Any thread. */
enum sidestep_status tensor_reader_read(struct tensor_reader *t, size_t entry,
                                        const struct box *box, uint64_t begin, uint64_t bytes,
                                        uint8_t *to, struct sidestep_error *err);

/* Compare CRC32s, reading what was not read, or several times; and see that no file has changed. */
enum sidestep_status tensor_reader_finish(struct tensor_reader *t, struct sidestep_error *err);

/* From storage so far. */
uint64_t tensor_reader_bytes_read(const struct tensor_reader *t);

#endif
