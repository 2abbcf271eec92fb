/* SPDX-License-Identifier: BSD-3-Clause */
/* small_file.h -- files that are read or written as a whole: metadata, manifests, marks. */
#ifndef COMMIT_SMALL_FILE_H
#define COMMIT_SMALL_FILE_H

#include "base/base.h"
#include "codec/codec.h"
#include "store/store.h"

/* A whole small file, into ${out}; ECORRUPT if it is longer than ${max}. */
enum sidestep_status small_file_read(struct store_dir *dir, const char *name, uint32_t flags,
                                     uint64_t max, struct buffer *out, struct sidestep_error *err);
/* Its length and its SHA-256, without the memory for it. */
enum sidestep_status small_file_hash(struct store_dir *dir, const char *name, uint32_t flags,
                                     uint64_t max, uint64_t *length,
                                     uint8_t sha256[HASH_SHA256_BYTES], struct sidestep_error *err);
/* Create, write, sync, close.  The name is not durable yet. */
enum sidestep_status small_file_write(struct store_dir *dir, const char *name, const void *bytes,
                                      size_t length, struct sidestep_error *err);
/* A source over an open file. */
struct source small_file_source(struct store_file *file, uint64_t length);

#endif
