/* SPDX-License-Identifier: BSD-3-Clause */
/* small_file.h -- reads and writes small files as a whole: metadata, manifests, markers.  Reads
 * follow symbolic links (store_file_open_to_read()), writes replace them. */
#ifndef COMMIT_SMALL_FILE_H
#define COMMIT_SMALL_FILE_H

#include "base/base.h"
#include "codec/codec.h"
#include "format/format.h"
#include "store/store.h"

/* Read a whole file into ${out}. ECORRUPT: it is longer than ${max} bytes. */
enum sidestep_status small_file_read(struct store_dir *dir, const char *name, uint32_t flags,
                                     uint64_t max, struct buffer *out, struct sidestep_error *err);
#define SMALL_FILE_SHORT_BYTES ((uint64_t)1 << 20)
/* Get the length in bytes and the SHA-256 of a file. It is not read into memory as a whole, unless
 * the storage has file_get(). ${text}: NULL, or empty: it gets a file of SMALL_FILE_SHORT_BYTES or
 * less, or one that was read as a whole. */
enum sidestep_status small_file_hash(struct store_dir *dir, const char *name, uint32_t flags,
                                     uint64_t max, uint64_t *length,
                                     uint8_t sha256[HASH_SHA256_BYTES], struct buffer *text,
                                     struct sidestep_error *err);
/* Create a file, write and sync its content, and close it. The name is not durable yet. */
enum sidestep_status small_file_write(struct store_dir *dir, const char *name, const void *bytes,
                                      size_t length, struct sidestep_error *err);
/* The same for a record of checkpoint ${save_id}: its index of chunks, its manifest or
 * .metadata.<id>; nothing if it is empty. */
enum sidestep_status small_file_write_record(struct store_dir *dir, enum file_name_kind kind,
                                             const char *save_id, const struct buffer *bytes,
                                             struct sidestep_error *err);
/* Make or replace a file as a whole: readers see the old content or the new. It is durable on
 * return with OK. After an error either may be there. ${tmp} is a name in ${dir} that nobody else
 * uses meanwhile; object stores need none. */
enum sidestep_status small_file_replace(struct store_dir *dir, const char *name, const char *tmp,
                                        const void *bytes, size_t length,
                                        struct sidestep_error *err);
/* Make a source that reads an open file of ${length} bytes. ${file} must outlive it. */
struct source small_file_source(struct store_file *file, uint64_t length);

#endif
