/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket_index.c -- see index.h: reads and writes the index of a root in a bucket. */
#include "root/bucket.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "format/format.h"
#include "object/object.h"

#define MAGIC "sidestep index 1\n"
#define HASH_BYTES 8u
#define INDEX_PATH FILE_NAME_SERIES_DIR "/" INDEX_NAME
/* If the index lacks more than one in this many names, it is written again. */
#define NAMES_PER_MISSING 1000u

/* A small object that the listing shows. */
struct entry {
    char *name; /* below the root */
    char tag[OBJECT_TAG_BYTES];
    uint64_t bytes;
    struct buffer contents; /* if this object was read by itself */
};

struct index {
    struct store_dir *root_dir;
    index_is_annotation *is_annotation;
    struct arena arena;
    struct entry *entries;
    size_t count, capacity;
    size_t names; /* keys below the root */
    enum sidestep_status status;
    struct sidestep_error err;
    _Atomic size_t next; /* the entry to read next */
};

/* Is ${name} the manifest of a checkpoint, "step-1/.sidestep.manifest.<id>", or an annotation,
 * ".sidestep/..."? */
static bool is_indexed(const char *name, index_is_annotation *is_annotation)
{
    const char *slash = strchr(name, '/');

    if (slash == NULL || strchr(slash + 1, '/') != NULL)
        return false;
    return file_name_parse(slash + 1).kind == FILE_NAME_MANIFEST ||
           (strncmp(name, FILE_NAME_SERIES_DIR "/", sizeof(FILE_NAME_SERIES_DIR)) == 0 &&
            is_annotation(slash + 1));
}

static enum sidestep_status add_entry(struct index *index, const char *name,
                                      const struct object_info *info, struct sidestep_error *err)
{
    TRY_GROW(index->entries, index->capacity, index->count, err);
    struct entry *entry = &index->entries[index->count];
    *entry = (struct entry){.name = arena_strndup(&index->arena, name, strlen(name)),
                            .bytes = info->bytes};
    if (entry->name == NULL)
        return FAIL_NOMEM(err, strlen(name));
    memcpy(entry->tag, info->tag, sizeof(entry->tag));
    index->count++;
    return SIDESTEP_OK;
}

static bool add_key(void *context, const struct object_info *info)
{
    struct index *index = context;
    const char *name = info->key + strlen(object_store_prefix(index->root_dir));

    index->names++;
    if (is_indexed(name, index->is_annotation) && info->bytes <= MANIFEST_MAX_BYTES)
        index->status = add_entry(index, name, info, &index->err);
    return index->status == SIDESTEP_OK;
}

/* ---- the object */

static const char *take_text(struct cursor *c, char *to, size_t size)
{
    size_t length = cursor_u16le(c);
    const uint8_t *bytes = length < size ? cursor_take(c, length) : NULL;

    if (bytes == NULL || memchr(bytes, '\0', length) != NULL)
        return NULL;
    memcpy(to, bytes, length);
    to[length] = '\0';
    return to;
}

/* Keep the copies of those objects that the listing shows with the same tag. */
static void take_copies(struct index *index, const struct buffer *bytes)
{
    char name[OBJECT_KEY_BYTES], tag[OBJECT_TAG_BYTES];

    if (bytes->length < sizeof(MAGIC) - 1 + HASH_BYTES)
        return;
    size_t hashed = bytes->length - HASH_BYTES;
    struct cursor end = cursor_from_memory(bytes->bytes + hashed, HASH_BYTES);
    struct cursor c = cursor_from_memory(bytes->bytes, hashed);
    const uint8_t *magic = cursor_take(&c, sizeof(MAGIC) - 1);
    if (memcmp(magic, MAGIC, sizeof(MAGIC) - 1) != 0 ||
        cursor_u64le(&end) != hash_block(bytes->bytes, hashed))
        return;
    while (cursor_remaining(&c) != 0) {
        const char *found = take_text(&c, name, sizeof(name));
        const char *found_tag = take_text(&c, tag, sizeof(tag));
        size_t length = cursor_u32le(&c);
        const uint8_t *contents = cursor_take(&c, length);
        if (found == NULL || found_tag == NULL || contents == NULL)
            return;
        if (is_indexed(name, index->is_annotation))
            (void)object_store_set_contents(index->root_dir, name, tag, contents, length);
    }
}

static void put_text(struct buffer *to, const char *text)
{
    buffer_put_u16le(to, (uint16_t)strlen(text));
    buffer_put_text(to, text);
}

/* A failure is ignored: the next listing reads more then. */
static void write_index(const struct index *index)
{
    struct object_client *client = object_store_client(index->root_dir->store);
    OWNED_BUFFER bytes = {0};
    char key[OBJECT_KEY_BYTES];
    size_t length;

    buffer_put_text(&bytes, MAGIC);
    for (size_t i = 0; i < index->count; i++) {
        const struct entry *entry = &index->entries[i];
        const void *contents = object_store_contents(index->root_dir, entry->name, &length);
        if (contents == NULL || bytes.length + length > INDEX_MAX_BYTES - OBJECT_KEY_BYTES)
            continue;
        put_text(&bytes, entry->name);
        put_text(&bytes, entry->tag);
        buffer_put_u32le(&bytes, (uint32_t)length);
        buffer_put(&bytes, contents, length);
    }
    if (!bytes.failed)
        buffer_put_u64le(&bytes, hash_block(bytes.bytes, bytes.length));
    if (bytes.failed || object_store_key(index->root_dir, INDEX_PATH, key, NULL) != SIDESTEP_OK)
        return;
    (void)client->ops->put(client, key, bytes.bytes, bytes.length, NULL, NULL, NULL);
}

/* ---- objects that the index lacks */

/* Is the answer undamaged? Every later listing would use the copy of a damaged one. */
static bool is_sound(const struct entry *entry)
{
    const char *name = strchr(entry->name, '/') + 1; /* is_indexed() has seen it */
    OWNED_ARENA arena = {0};
    struct manifest manifest;

    return file_name_parse(name).kind != FILE_NAME_MANIFEST ||
           manifest_decode(entry->contents.bytes, entry->contents.length, &arena, &manifest,
                           NULL) == SIDESTEP_OK;
}

static void read_entry(struct object_client *client, const char *key, struct entry *entry)
{
    struct object_info info = {0};

    if (entry->bytes == 0 ||
        client->ops->get_all(client, key, entry->bytes, &entry->contents, &info, NULL) !=
            SIDESTEP_OK ||
        strcmp(info.tag, entry->tag) != 0 || !is_sound(entry))
        buffer_release(&entry->contents);
}

static void read_entries(void *context)
{
    struct index *index = context;
    struct object_client *client = object_store_client(index->root_dir->store);
    char key[OBJECT_KEY_BYTES];

    for (size_t i; (i = atomic_fetch_add(&index->next, 1)) < index->count;) {
        struct entry *entry = &index->entries[i];
        size_t length;
        if (object_store_contents(index->root_dir, entry->name, &length) != NULL ||
            object_store_key(index->root_dir, entry->name, key, NULL) != SIDESTEP_OK)
            continue;
        read_entry(client, key, entry);
    }
}

/* Read the objects that the index lacks, several at once. Returns their number. */
static size_t read_missing(struct index *index)
{
    OWNED_BY(workers_free) struct workers *workers = NULL;
    size_t missing = 0, length;

    for (size_t i = 0; i < index->count; i++)
        missing += object_store_contents(index->root_dir, index->entries[i].name, &length) == NULL;
    unsigned threads = (unsigned)min_u64(store_reads(index->root_dir->store), missing);
    if (workers_new(threads > 1 ? threads - 1 : 0, "sidestep-list", &workers, NULL) != SIDESTEP_OK)
        return missing; /* each is read when it is needed */
    workers_run(workers, read_entries, index);
    for (size_t i = 0; i < index->count; i++) {
        struct entry *entry = &index->entries[i];
        if (entry->contents.length == entry->bytes && entry->bytes != 0)
            (void)object_store_set_contents(index->root_dir, entry->name, entry->tag,
                                            entry->contents.bytes, entry->contents.length);
        buffer_release(&entry->contents);
    }
    return missing;
}

static enum sidestep_status read_all(struct index *index, bool keeps, struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};

    object_store_each(index->root_dir, add_key, index);
    if (index->status != SIDESTEP_OK) {
        error_copy(err, &index->err);
        return index->status;
    }
    struct store_stat stat;
    char key[OBJECT_KEY_BYTES];
    struct object_client *client = object_store_client(index->root_dir->store);
    if (index->count != 0 && store_stat(index->root_dir, INDEX_PATH, &stat, NULL) == SIDESTEP_OK &&
        object_store_key(index->root_dir, INDEX_PATH, key, NULL) == SIDESTEP_OK &&
        client->ops->get_all(client, key, INDEX_MAX_BYTES, &bytes, NULL, NULL) == SIDESTEP_OK)
        take_copies(index, &bytes);
    size_t missing = read_missing(index);
    if (keeps && missing * NAMES_PER_MISSING >= index->names && missing != 0)
        write_index(index);
    return SIDESTEP_OK;
}

enum sidestep_status bucket_read_index(struct store_dir *root_dir,
                                       index_is_annotation *is_annotation, bool keeps,
                                       struct sidestep_error *err)
{
    struct index index = {.root_dir = root_dir, .is_annotation = is_annotation};
    enum sidestep_status status = read_all(&index, keeps, err);

    free(index.entries);
    arena_release(&index.arena);
    return status;
}
