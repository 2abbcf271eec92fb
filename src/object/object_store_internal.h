/* SPDX-License-Identifier: BSD-3-Clause */
/* object_store_internal.h -- the members of an object store, its directories and files. */
#ifndef OBJECT_OBJECT_STORE_INTERNAL_H
#define OBJECT_OBJECT_STORE_INTERNAL_H

#include "object/object_store.h"
#include "object/object_tree.h"
#include "object/object_url.h"

struct object_store {
    struct store base;
    struct object_client *client;
    uint64_t part_bytes;
    char bucket[OBJECT_BUCKET_BYTES];
};

struct object_dir {
    struct store_dir base;
    const struct object_tree *tree; /* the remembered listing, or NULL */
    struct object_tree *own;        /* the same, if this directory owns it; or NULL */
    char prefix[OBJECT_KEY_BYTES];
};

struct object_file {
    struct store_file base;
    char key[OBJECT_KEY_BYTES];
    struct object_info info;      /* of a file for reading, when it was opened */
    struct object_writer *writer; /* of a file for writing; NULL for reading */
};

static inline uint64_t object_part_bytes_of(const struct store *store)
{
    return ((const struct object_store *)(const void *)store)->part_bytes;
}

static inline struct object_client *object_client_of(const struct store *store)
{
    return ((const struct object_store *)(const void *)store)->client;
}

void object_store_fill_stat(const struct store *store, const struct object_info *info,
                            const char *key, struct store_stat *out);

/* ---- object_writer.c: writes one object ---- */

struct object_writer;
/* ${part_bytes}: size of the parts; those of a large object are larger. */
enum sidestep_status object_writer_new(struct object_client *client, const char *key,
                                       uint64_t part_bytes, struct object_writer **out,
                                       struct sidestep_error *err);
/* See object_store_set_condition(). */
void object_writer_set_condition(struct object_writer *writer,
                                 const struct object_condition *condition);
/* Aborts the upload, unless it is complete. */
void object_writer_free(struct object_writer *writer);
/* Choose the size of parts for an object of about ${bytes}. Only before the first write. */
enum sidestep_status object_writer_expect(struct object_writer *writer, uint64_t bytes,
                                          struct sidestep_error *err);
enum sidestep_status object_writer_write(struct object_writer *writer, const void *from,
                                         size_t bytes, uint64_t offset, struct sidestep_error *err);
/* Set the length; bytes that nobody wrote are zero. */
enum sidestep_status object_writer_resize(struct object_writer *writer, uint64_t bytes,
                                          struct sidestep_error *err);
/* Send all parts. */
enum sidestep_status object_writer_flush(struct object_writer *writer, struct sidestep_error *err);
/* Make the object appear, unless it has. */
enum sidestep_status object_writer_complete(struct object_writer *writer, struct object_info *info,
                                            struct sidestep_error *err);
uint64_t object_writer_length(struct object_writer *writer);

#endif
