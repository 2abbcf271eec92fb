/* SPDX-License-Identifier: BSD-3-Clause */
/* foreign.c -- opens safetensors and torch.save() files as a reader; see foreign.h. */
#include "checkpoint/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/weights.h"
#include "commit/commit.h"
#include "format/format.h"
#include "model/model.h"

#define SNIFF_BYTES 264u /* read from the start of a file; enough for the magic of a tar file */
#define SUFFIX ".safetensors"

void foreign_free(struct foreign **foreign)
{
    struct foreign *f = *foreign;

    if (f == NULL)
        return;
    *foreign = NULL;
    for (size_t i = 0; i < f->dir_count; i++)
        store_dir_close(f->dirs[i]);
    free(f->dirs);
    arena_release(&f->objects);
    free(f);
}

/* ---------------------------------------------------------------- files */

/* Open ${path} as the next file of the reader. ${shown} is its name in messages and entries. */
static enum sidestep_status open_file(struct reader *r, const char *path, const char *shown,
                                      uint32_t flags, struct reader_file **out,
                                      struct sidestep_error *err)
{
    struct reader_file *file = &r->files[r->file_count];
    struct store_dir *dir = NULL;
    size_t existing;

    TRY(store_parent_open(r->store, path, &r->arena, &dir, &file->name, err));
    r->foreign->dirs[r->foreign->dir_count++] = dir;
    size_t number = r->file_count++; /* from here on, reader_close() closes it */
    TRY(reader_file_open(file, dir, flags, err));
    /* Entries use the name that the user gave, also if it is a symbolic link. */
    TRY(hash_table_insert(&r->file_names, shown, number, &existing, err));
    *out = file;
    return SIDESTEP_OK;
}

static enum sidestep_status allocate_files(struct reader *r, const char *format, size_t files,
                                           struct sidestep_error *err)
{
    r->foreign = memory_new(1, sizeof(*r->foreign));
    if (r->foreign == NULL)
        return FAIL_NOMEM(err, sizeof(*r->foreign));
    r->foreign->format = format;
    r->foreign->dirs = memory_new(files, sizeof(*r->foreign->dirs));
    r->files = memory_new(files, sizeof(*r->files));
    if (r->foreign->dirs == NULL || r->files == NULL)
        return FAIL_NOMEM(err, files * sizeof(*r->files));
    return SIDESTEP_OK;
}

/* Reserve space for ${more} entries after the existing ones. */
static enum sidestep_status reserve(struct reader *r, size_t more, struct sidestep_error *err)
{
    struct metadata *m = &r->metadata;
    size_t count = m->count + more;
    struct metadata_entry *entries = arena_new(&m->arena, count, sizeof(*entries));
    struct foreign_entry *extra = arena_new(&m->arena, count, sizeof(*extra));

    if (entries == NULL || extra == NULL)
        return FAIL_NOMEM(err, count * sizeof(*entries));
    if (m->count != 0) {
        memcpy(entries, m->entries, m->count * sizeof(*entries));
        memcpy(extra, r->foreign->entries, m->count * sizeof(*extra));
    }
    m->entries = entries;
    r->foreign->entries = extra;
    return SIDESTEP_OK;
}

/* Fill a tensor with one chunk: the whole tensor, or a piece at ${shard_offsets}, which
 * foreign_merge_shards() merges later. */
static enum sidestep_status fill_tensor(struct reader *r, struct metadata_entry *entry,
                                        const struct metadata_storage *storage,
                                        const int64_t *shard_offsets, struct sidestep_error *err)
{
    struct arena *arena = &r->metadata.arena;
    struct metadata_chunk *chunk = arena_new(arena, 1, sizeof(*chunk));
    int64_t *zeros = arena_new(arena, entry->ndim, sizeof(*zeros));

    if (chunk == NULL || zeros == NULL)
        return FAIL_NOMEM(err, sizeof(*chunk));
    *chunk =
        (struct metadata_chunk){.box = {.ndim = entry->ndim,
                                        .offsets = shard_offsets != NULL ? shard_offsets : zeros,
                                        .lengths = entry->shape},
                                .storage = *storage};
    entry->dtype_name = sidestep_dtype_name(entry->dtype);
    entry->chunks = chunk;
    entry->chunk_count = 1;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- safetensors */

static enum sidestep_status add_tensors(struct reader *r, const struct safetensors *tensors,
                                        const char *shown, struct sidestep_error *err)
{
    TRY(reserve(r, tensors->count, err));
    for (size_t i = 0; i < tensors->count; i++) {
        const struct safetensors_tensor *t = &tensors->tensors[i];
        struct metadata_entry *entry = &r->metadata.entries[r->metadata.count];

        *entry = (struct metadata_entry){
            .name = t->name, .dtype = t->dtype, .ndim = t->ndim, .shape = t->shape};
        TRY(fill_tensor(
            r, entry,
            &(struct metadata_storage){.file = shown, .offset = t->offset, .length = t->bytes},
            t->place, err));
        r->foreign->has_pieces = r->foreign->has_pieces || t->place != NULL;
        r->metadata.count++;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status add_safetensors(struct reader *r, const char *path, const char *shown,
                                            uint32_t flags, struct sidestep_error *err)
{
    struct safetensors tensors = {0};
    struct reader_file *file = NULL;
    enum sidestep_status status = open_file(r, path, shown, flags, &file, err);

    if (status == SIDESTEP_OK)
        status = safetensors_read_header(&file->source, &r->metadata.arena, &tensors, err);
    if (status == SIDESTEP_ECORRUPT && file != NULL &&
        pointer_file_check(&file->source, err) != SIDESTEP_OK)
        status = SIDESTEP_EUNCOMMITTED;
    if (status == SIDESTEP_OK)
        status = add_tensors(r, &tensors, shown, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "file '%s'", shown);
    else if (r->file_count > READER_MAX_OPEN_FILES)
        store_file_discard(TAKE(file->file));
    return status;
}

static enum sidestep_status index_tensors(struct reader *r, struct sidestep_error *err)
{
    if (r->foreign->has_pieces)
        TRY(foreign_merge_shards(&r->metadata, err));
    return metadata_index_names(&r->metadata, err);
}

/* List the files that the index references, each once, in the order of first mention. */
static enum sidestep_status list_index_files(const struct safetensors_index_entry *index_entries,
                                             size_t count, struct name_list *files,
                                             struct sidestep_error *err)
{
    OWNED_HASH_TABLE seen = {0};
    size_t existing;

    for (size_t i = 0; i < count; i++) {
        TRY(hash_table_insert(&seen, index_entries[i].file, i, &existing, err));
        if (existing == SIZE_MAX)
            TRY(name_list_add(files, index_entries[i].file, err));
    }
    return SIDESTEP_OK;
}

/* Check that index and files agree. Otherwise the directory mixes two exports. */
static enum sidestep_status check_index(const struct reader *r,
                                        const struct safetensors_index_entry *index_entries,
                                        size_t count, struct sidestep_error *err)
{
    OWNED_HASH_TABLE listed = {0};
    size_t existing;

    for (size_t i = 0; i < count; i++) {
        const struct metadata_entry *entry = metadata_find(&r->metadata, index_entries[i].name);

        TRY(hash_table_insert(&listed, index_entries[i].name, i, &existing, err));
        if (existing != SIZE_MAX)
            return FAIL(err, SIDESTEP_ECORRUPT, "%s: '%s' occurs twice", SAFETENSORS_INDEX_NAME,
                        display_name(index_entries[i].name).text);
        if (entry == NULL || strcmp(entry->chunks[0].storage.file, index_entries[i].file) != 0)
            return FAIL(err, SIDESTEP_ECORRUPT, "%s: '%s' is not in '%s', where it should be",
                        SAFETENSORS_INDEX_NAME, display_name(index_entries[i].name).text,
                        index_entries[i].file);
    }
    for (size_t i = 0; i < r->metadata.count; i++)
        if (hash_table_find(&listed, r->metadata.entries[i].name) == SIZE_MAX)
            return FAIL(err, SIDESTEP_ECORRUPT, "%s does not list '%s', which is in '%s'",
                        SAFETENSORS_INDEX_NAME, display_name(r->metadata.entries[i].name).text,
                        r->metadata.entries[i].chunks[0].storage.file);
    return SIDESTEP_OK;
}

/* Add the safetensors files ${names} of the directory of ${r}. */
static enum sidestep_status add_files(struct reader *r, const struct name_list *names,
                                      uint32_t flags, struct sidestep_error *err)
{
    TRY(allocate_files(r, "safetensors", names->count, err));
    for (size_t i = 0; i < names->count; i++) {
        const char *shown = arena_strndup(&r->arena, names->names[i], strlen(names->names[i]));
        const char *path = arena_printf(&r->arena, "%s/%s", r->path, names->names[i]);

        if (shown == NULL || path == NULL)
            return FAIL_NOMEM(err, strlen(r->path));
        TRY(add_safetensors(r, path, shown, flags, err));
    }
    return index_tensors(r, err);
}

static enum sidestep_status read_index(struct reader *r, char **text, struct sidestep_error *err)
{
    const char *path = arena_printf(&r->arena, "%s/%s", r->path, SAFETENSORS_INDEX_NAME);
    OWNED_BUFFER bytes = {0};
    OWNED_DIR *dir = NULL;
    const char *name;

    if (path == NULL)
        return FAIL_NOMEM(err, strlen(r->path));
    TRY(store_parent_open(r->store, path, &r->arena, &dir, &name, err));
    TRY(small_file_read(dir, name, 0, SAFETENSORS_MAX_INDEX_BYTES, &bytes, err));
    r->record_bytes = bytes.length;
    TRY(WRAP(pointer_file_check_bytes(bytes.bytes, bytes.length, err), err,
             SAFETENSORS_INDEX_NAME));
    *text = arena_strndup(&r->arena, (const char *)bytes.bytes, bytes.length);
    if (*text == NULL)
        return FAIL_NOMEM(err, bytes.length);
    if (strlen(*text) != bytes.length)
        return FAIL(err, SIDESTEP_ECORRUPT, "%s: it contains a NUL byte", SAFETENSORS_INDEX_NAME);
    return SIDESTEP_OK;
}

/* ${there}: the names in the directory. */
static enum sidestep_status open_indexed(struct reader *r, char *text,
                                         const struct name_list *there, uint32_t flags,
                                         struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    struct weights_missing missing = {0};
    struct safetensors_index_entry *index_entries = NULL;
    size_t count = 0;
    TRY(WRAP(safetensors_index_read(text, &r->arena, &index_entries, &count, err), err,
             SAFETENSORS_INDEX_NAME));
    TRY(list_index_files(index_entries, count, &names, err));
    for (size_t i = 0; i < names.count; i++)
        if (!name_list_contains(there, names.names[i]))
            weights_add_missing(&missing, names.names[i]);
    TRY(weights_check_missing(&missing, err));
    TRY(add_files(r, &names, flags, err));
    return check_index(r, index_entries, count, err);
}

static enum sidestep_status open_directory(struct reader *r, uint32_t flags, bool *is_foreign,
                                           struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0}, files = {0};
    struct weights_missing missing = {0};
    char *text = NULL;

    TRY(name_list_read(r->dir, &names, err));
    if (name_list_contains(&names, "__0.metadata"))
        return SIDESTEP_OK;
    for (size_t i = 0; i < names.count; i++)
        if (file_name_has_suffix(names.names[i], SUFFIX))
            TRY(name_list_add(&files, names.names[i], err));
    if (name_list_contains(&names, SAFETENSORS_INDEX_NAME))
        TRY(read_index(r, &text, err));
    *is_foreign = text != NULL || files.count != 0;
    if (!*is_foreign)
        return SIDESTEP_OK;
    if (text != NULL)
        return open_indexed(r, text, &names, flags, err);
    weights_find_missing(&files, SUFFIX, &missing);
    TRY(weights_check_missing(&missing, err));
    return add_files(r, &files, flags, err);
}

/* ---------------------------------------------------------------- torch.save() */

static enum sidestep_status add_torch_entry(struct reader *r, const struct torch_file_entry *from,
                                            const char *shown, struct sidestep_error *err)
{
    struct metadata_entry *entry = &r->metadata.entries[r->metadata.count];
    struct foreign_entry *foreign = &r->foreign->entries[r->metadata.count];
    const struct archive_tensor *tensor = from->tensor;
    struct metadata_storage storage = {.file = shown};

    *entry = (struct metadata_entry){.name = from->name,
                                     .is_object = tensor == NULL,
                                     .unreadable = from->unreadable,
                                     .path = from->path,
                                     .path_length = from->path_length,
                                     .storage = storage};
    *foreign = (struct foreign_entry){.tensor = tensor, .object = from->object};
    r->metadata.count++;
    if (tensor == NULL)
        return SIDESTEP_OK;
    entry->dtype = tensor->dtype;
    entry->ndim = tensor->ndim;
    entry->shape = tensor->shape;
    entry->requires_grad = from->requires_grad;
    storage.offset = tensor->data_offset;
    storage.length = tensor->data_bytes;
    return fill_tensor(r, entry, &storage, NULL, err);
}

static enum sidestep_status open_torch(struct reader *r, const char *shown, uint32_t flags,
                                       struct sidestep_error *err)
{
    struct reader_file *file = NULL;
    struct torch_file content = {0};

    TRY(allocate_files(r, "torch", 1, err));
    TRY(open_file(r, r->path, shown, flags, &file, err));
    TRY(torch_file_read(&file->source, &r->foreign->objects, &content, err));
    TRY(reserve(r, content.count, err));
    for (size_t i = 0; i < content.count; i++)
        TRY(add_torch_entry(r, &content.entries[i], shown, err));
    return metadata_index_names(&r->metadata, err);
}

enum sidestep_status foreign_object_encode(const void *object, void **bytes, size_t *length,
                                           struct sidestep_error *err)
{
    OWNED_BUFFER out = {0};

    TRY(torch_file_write_object(object, &out, err));
    *length = out.length;
    *bytes = TAKE(out.bytes);
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- any path */

static enum sidestep_status unsupported_file_error(const uint8_t *bytes, uint64_t file_bytes,
                                                   struct sidestep_error *err)
{
    static const char advice[] = "load it with torch.load() of a torch that can read it, and save "
                                 "it again with torch.save()";

    if (file_bytes == 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "it is empty");
    if (safetensors_has_truncated_header(bytes, file_bytes))
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "it is a truncated safetensors file: its header goes on after byte %llu, where "
                    "the file ends",
                    (unsigned long long)file_bytes);
    if (file_bytes >= SNIFF_BYTES - 2 && memcmp(bytes + 257, "ustar", 5) == 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "it is a tar file, as torch before 0.1.10 wrote: %s", advice);
    if (bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "it is a pickle. If torch before 1.6 wrote it with torch.save(), %s", advice);
    if (memcmp(bytes, "\x93NUMPY", 6) == 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "it is a NumPy array, which has no name");
    return FAIL(err, SIDESTEP_EUNSUPPORTED, "it is neither safetensors nor a file of torch.save()");
}

static enum sidestep_status open_regular(struct reader *r, uint32_t flags,
                                         struct sidestep_error *err)
{
    const char *slash = strrchr(r->path, '/');
    const char *shown = slash != NULL ? slash + 1 : r->path;
    uint8_t bytes[SNIFF_BYTES] = {0};
    struct store_stat stat;
    OWNED_DIR *dir = NULL;
    OWNED_FILE *file = NULL;
    const char *name;

    TRY(store_parent_open(r->store, r->path, &r->arena, &dir, &name, err));
    TRY(store_file_open(dir, name, 0, &file, err));
    TRY(store_file_stat(file, &stat, err));
    if (stat.size != 0)
        TRY(store_file_read_at(file, bytes, stat.size < SNIFF_BYTES ? stat.size : SNIFF_BYTES, 0,
                               err));
    if (safetensors_has_header(bytes, stat.size)) {
        TRY(allocate_files(r, "safetensors", 1, err));
        TRY(add_safetensors(r, r->path, shown, flags, err));
        return index_tensors(r, err);
    }
    if (memcmp(bytes, "PK\3\4", 4) == 0)
        return open_torch(r, shown, flags, err);
    if (stat.size <= POINTER_FILE_MAX_BYTES)
        TRY(pointer_file_check_bytes(bytes, min_u64(stat.size, SNIFF_BYTES), err));
    return unsupported_file_error(bytes, stat.size, err);
}

/* Set the digest that ranks compare: names, offsets and sizes of all tensors. */
static enum sidestep_status set_digest(struct reader *r, struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};

    buffer_printf(&text, "%s %llu\n", r->foreign->format, (unsigned long long)reader_data_bytes(r));
    for (size_t i = 0; i < r->metadata.count; i++) {
        const struct metadata_entry *entry = &r->metadata.entries[i];
        const struct metadata_storage *storage =
            entry->is_object ? &entry->storage : &entry->chunks[0].storage;

        buffer_printf(&text, "%s %d %llu %llu\n", entry->name, (int)entry->dtype,
                      (unsigned long long)storage->offset, (unsigned long long)storage->length);
    }
    TRY(buffer_check(&text, err));
    hash_sha256(text.bytes, text.length, r->manifest_sha256);
    return SIDESTEP_OK;
}

enum sidestep_status foreign_open(struct reader *r, uint32_t flags, bool *is_foreign,
                                  struct sidestep_error *err)
{
    *is_foreign = r->dir == NULL || store_parent_has_object(r->store, r->path, &r->arena);
    if (*is_foreign)
        TRY(open_regular(r, flags, err));
    else
        TRY(open_directory(r, flags, is_foreign, err));
    return *is_foreign ? set_digest(r, err) : SIDESTEP_OK;
}
