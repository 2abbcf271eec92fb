/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_store.h -- a struct store that uses one bucket, so that code that reads files also reads
 * objects.
 *
 * A directory is a prefix that ends with '/'. It is opened without a request, and exists as long
 * as a key begins with it: dir_make(), dir_remove() and dir_sync() do nothing. Its names are the
 * keys, cut at the next '/'.
 *
 * Reads of a file are from the version that existed when it was opened (If-Match). A file that is
 * written appears as a whole when file_sync() is called: by a put if it has one part, otherwise by
 * a multipart upload, whose parts are sent while the caller writes. It replaces an object with the
 * same key, unless object_store_set_condition() prevents it; keys of shards are unique.
 * file_discard() aborts the upload.
 *
 * SIDESTEP_OBJECT_PART_BYTES, from OBJECT_MIN_PART_BYTES to OBJECT_MAX_PART_BYTES, is the size of
 * parts; default 8 MiB. Objects that would need too many parts have larger ones. Up to 7 parts of a
 * file that is written are in memory.
 *
 * Object stores have no rename, link or lock: these fail with EUNSUPPORTED. The third form of the
 * commit protocol (commit/commit.h) does not need them, and sends its own requests with
 * object_store_client().
 */
#ifndef OBJECT_OBJECT_STORE_H
#define OBJECT_OBJECT_STORE_H

#include "object/client.h"
#include "store/store.h"

#define OBJECT_MAX_PART_BYTES ((uint64_t)1 << 30)

/* Owns ${client}, and frees it on failure, too. ${bucket} is copied. EINVAL:
 * SIDESTEP_OBJECT_PART_BYTES is out of range. */
enum sidestep_status object_store_new(const char *bucket, struct object_client *client,
                                      struct store **out, struct sidestep_error *err);
/* All handles must be closed. */
void object_store_free(struct store **store);

/* A prefix with more keys than this is not remembered (dir_remember()). */
#define OBJECT_REMEMBERED_KEYS 200000u

/* Cache the contents of ${name}, a path below ${dir}, for file_get(), until ${dir} is closed or
 * remembered again. False: the remembered listing does not have ${name} with this tag and length.
 * Only before other threads use ${dir}. */
bool object_store_set_contents(struct store_dir *dir, const char *name, const char *tag,
                               const void *bytes, size_t length);
/* The cached contents of ${name}; NULL: there are none. */
const void *object_store_contents(const struct store_dir *dir, const char *name, size_t *length);
/* Call ${each} for every key below ${dir}, a remembered directory, until it returns false. */
void object_store_each(const struct store_dir *dir, object_each *each, void *context);
/* The key of ${name}, a relative path, in ${dir}. EUNSAFE: not one. EINVAL: the key is too long. */
enum sidestep_status object_store_key(const struct store_dir *dir, const char *name,
                                      char key[OBJECT_KEY_BYTES], struct sidestep_error *err);

/* Make file_sync() fail unless ${condition} holds (EEXISTS; ENOTFOUND: the object to replace does
 * not exist). Only before the first write to a new ${file}; copied. A store without conditions
 * (501) is sent the request again without one. EIO, ETIMEDOUT, EABORTED, ECORRUPT: the caller
 * checks whether the object exists, by its maker. */
void object_store_set_condition(struct store_file *file, const struct object_condition *condition);

/* Send all that can be sent before file_sync(). All of ${file} must be written. */
enum sidestep_status object_store_flush(struct store_file *file, struct sidestep_error *err);

/* ${store} must be an object store. */
struct object_client *object_store_client(const struct store *store);
const char *object_store_bucket(const struct store *store);
/* The prefix that ${dir} stands for: "" or ending with '/'. */
const char *object_store_prefix(const struct store_dir *dir);

#endif
