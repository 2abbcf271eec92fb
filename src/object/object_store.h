/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_store.h -- a struct store over one bucket, with which all code that reads files reads
 * objects.
 *
 * A directory is a prefix that ends with '/'. It needs no request to open, and exists as long as a
 * key begins with it: dir_make(), dir_remove() and dir_sync() do nothing. Names in it are the keys
 * up to the next '/'.
 *
 * A file that is read is the version that was there when it was opened (If-Match). A file that is
 * written appears, whole, with file_sync(): up to one part by a put, else by a multipart upload,
 * whose parts are sent while the caller writes on. It replaces what its key has, so shards have
 * keys that nobody else uses; or it has a condition (object_store_set_condition()). file_discard()
 * aborts the upload.
 *
 * SIDESTEP_OBJECT_PART_BYTES, from OBJECT_MIN_PART_BYTES to OBJECT_MOST_PART_BYTES, is the size of
 * parts; 8 MiB. Objects that would need too many parts get larger ones. A file that is written
 * keeps up to 7 parts in memory.
 *
 * What object stores cannot do is refused with EUNSUPPORTED: rename, link, lock. The third form of
 * the commit protocol (commit/commit.h) does without them, and sends its own requests through
 * object_store_client().
 */
#ifndef OBJECT_OBJECT_STORE_H
#define OBJECT_OBJECT_STORE_H

#include "object/client.h"
#include "store/store.h"

#define OBJECT_MOST_PART_BYTES ((uint64_t)1 << 30)

/* Takes ${client} over, also on failure. ${bucket} is copied. EINVAL: SIDESTEP_OBJECT_PART_BYTES is
 * not in its limits. */
enum sidestep_status object_store_new(const char *bucket, struct object_client *client,
                                      struct store **out, struct sidestep_error *err);
/* After all handles are closed. */
void object_store_free(struct store **store);

/* A prefix with more keys than this is not remembered (dir_remember()). */
#define OBJECT_REMEMBERED_KEYS 200000u

/* What a remembered ${dir} knows, until it is closed or remembered again. ${name} is a path below
 * it. give: remember the contents of ${name}, for file_get(), if the listing showed it with this
 * tag and length; only before other threads use ${dir}. given: NULL: they are not known. */
bool object_store_give(struct store_dir *dir, const char *name, const char *tag, const void *bytes,
                       size_t length);
const void *object_store_given(const struct store_dir *dir, const char *name, size_t *length);
/* Call ${each} for every key below ${dir}, until it returns false. None, if it is not
 * remembered. */
void object_store_each(const struct store_dir *dir, object_each *each, void *context);
/* The key of ${name}, a relative path, in ${dir}. EUNSAFE: it is none. EINVAL: it is too long. */
enum sidestep_status object_store_key(const struct store_dir *dir, const char *name,
                                      char key[OBJECT_KEY_BYTES], struct sidestep_error *err);

/* Before the first write to ${file}, a new one: file_sync() makes it appear on this condition,
 * which it keeps a copy of, or fails (EEXISTS; ENOTFOUND: there is nothing any more to replace). A
 * store that knows no conditions (501) is asked again without one. EIO, ETIMEDOUT, EABORTED,
 * ECORRUPT: the caller looks whether it is there, by its maker. */
void object_store_set_condition(struct store_file *file, const struct object_condition *condition);

/* Send all of ${file} that file_sync() can send before the object appears. All is written. */
enum sidestep_status object_store_flush(struct store_file *file, struct sidestep_error *err);

/* The client of ${store}, which is an object store. */
struct object_client *object_store_client(const struct store *store);
/* The bucket of ${store}, which is an object store. */
const char *object_store_bucket(const struct store *store);
/* The prefix that ${dir} stands for: "" or ending with '/'. */
const char *object_store_prefix(const struct store_dir *dir);

#endif
