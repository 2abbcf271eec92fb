/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint_open.c -- opens one checkpoint without an engine: its entries, tensors and objects. */
#include "inspect/checkpoint_open.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "load/load.h"
#include "object/object.h"
#include "verify/verify.h"
#include "store/store.h"

#define CHECKPOINT_THREADS 8u
#define CHECKPOINT_MIN_THREADS 4u /* reads in flight, even if there are fewer cores */

static unsigned thread_count(void)
{
    return thread_choose_count(0, CHECKPOINT_MIN_THREADS, CHECKPOINT_THREADS);
}

static struct sidestep_chunk as_chunk(const struct metadata_storage *storage, const struct box *box)
{
    return (struct sidestep_chunk){.offsets = box != NULL ? box->offsets : NULL,
                                   .lengths = box != NULL ? box->lengths : NULL,
                                   .file = storage->file,
                                   .file_offset = storage->offset,
                                   .file_bytes = storage->length,
                                   .transform = storage->transform};
}

static enum sidestep_status fill_entry(struct sidestep_checkpoint *c,
                                       const struct metadata_entry *from, struct sidestep_entry *to,
                                       struct sidestep_error *err)
{
    size_t count = from->is_object ? 1 : from->chunk_count;
    struct sidestep_chunk *chunks = arena_new(&c->arena, count, sizeof(*chunks));
    if (chunks == NULL)
        return FAIL_NOMEM(err, count * sizeof(*chunks));
    if (from->is_object)
        chunks[0] = as_chunk(&from->storage, NULL);
    for (size_t i = 0; i < from->chunk_count; i++)
        chunks[i] = as_chunk(&from->chunks[i].storage, &from->chunks[i].box);
    *to = (struct sidestep_entry){
        .name = from->name,
        .is_object = from->is_object,
        .dtype = from->dtype,
        .dtype_name = from->is_object ? NULL : from->dtype_name,
        .ndim = from->ndim,
        .shape = from->shape,
        .bytes = from->is_object ? from->storage.length : metadata_tensor_bytes(from),
        .chunk_count = count,
        .chunks = chunks,
        .path_length = from->path_length,
        .path = from->path_length != 0 ? from->path : NULL,
    };
    return SIDESTEP_OK;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct sidestep_entry *)a)->name,
                  ((const struct sidestep_entry *)b)->name);
}

static enum sidestep_status fill_entries(struct sidestep_checkpoint *c, struct sidestep_error *err)
{
    const struct metadata *metadata = &c->reader->metadata;

    c->entries = arena_new(&c->arena, metadata->count, sizeof(*c->entries));
    if (c->entries == NULL)
        return FAIL_NOMEM(err, metadata->count * sizeof(*c->entries));
    for (size_t i = 0; i < metadata->count; i++)
        TRY(fill_entry(c, &metadata->entries[i], &c->entries[c->count++], err));
    qsort(c->entries, c->count, sizeof(*c->entries), compare_entries);
    return SIDESTEP_OK;
}

static enum sidestep_status fill_files(struct sidestep_checkpoint *c, struct sidestep_error *err)
{
    const struct manifest *manifest = &c->reader->manifest;

    c->files = arena_new(&c->arena, manifest->extra_count, sizeof(*c->files));
    if (c->files == NULL)
        return FAIL_NOMEM(err, manifest->extra_count * sizeof(*c->files));
    for (size_t i = 0; i < manifest->extra_count; i++) {
        const struct extra_file *file = &manifest->extras[i];
        c->files[i] = (struct sidestep_file){.name = file->name,
                                             .stored = extra_file_stored(file),
                                             .bytes = file->bytes,
                                             .rank = file->rank,
                                             .is_alias = file->is_alias};
        hash_to_hex(file->sha256, HASH_SHA256_BYTES, c->files[i].sha256);
    }
    return SIDESTEP_OK;
}

/* Count a file in ${*count}, and keep the message of the first. */
static enum sidestep_status count_file(struct sidestep_checkpoint *c,
                                       const struct reader_file *file, size_t *count,
                                       const char **first, struct sidestep_error *err)
{
    if ((*count)++ != 0)
        return SIDESTEP_OK;
    *first = arena_printf(&c->arena, "file '%s': %s", file->name, file->message);
    return *first != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(file->name));
}

/* EUNCOMMITTED: the file has not arrived (format/pointer_file.h). */
static bool is_damage(enum sidestep_status status)
{
    return status != SIDESTEP_EUNCOMMITTED && reader_status_is_damage(status);
}

/* The same for the extra files, by their sizes. */
static enum sidestep_status find_extra_problem(struct sidestep_checkpoint *c,
                                               struct sidestep_error *err)
{
    const struct reader *r = c->reader;

    for (size_t i = 0; i < r->manifest.extra_count; i++) {
        struct sidestep_error why = {.rank = -1};
        const char *kind;
        enum sidestep_status status =
            reader_check_extra(r, &r->manifest.extras[i], false, &kind, &why);
        const struct reader_file file = {.name = r->manifest.extras[i].name,
                                         .message = why.message};
        if (status == SIDESTEP_ENOMEM)
            return error_copy(err, &why);
        if (status == SIDESTEP_OK)
            continue;
        if (is_damage(status)) {
            TRY(count_file(c, &file, &c->damaged_count, &c->damage, err));
            continue;
        }
        TRY(count_file(c, &file, &c->unread_count, &c->unread, err));
        if (c->unread_count == 1)
            c->unread_status = status;
    }
    return SIDESTEP_OK;
}

/* List the files that are damaged, and those that could not be read. */
static enum sidestep_status fill_problems(struct sidestep_checkpoint *c, struct sidestep_error *err)
{
    const struct reader *r = c->reader;

    for (size_t i = 0; i < r->file_count; i++) {
        const struct reader_file *file = &r->files[i];
        if (file->problem == NULL)
            continue;
        if (is_damage(file->status)) {
            TRY(count_file(c, file, &c->damaged_count, &c->damage, err));
            continue;
        }
        TRY(count_file(c, file, &c->unread_count, &c->unread, err));
        if (c->unread_count == 1)
            c->unread_status = file->status;
        if (r->has_manifest)
            c->unread_bytes += r->manifest.files[i].bytes;
    }
    return find_extra_problem(c, err);
}

/* Open the checkpoint, also if files are damaged. */
static enum sidestep_status open_reader(struct store *store, const char *path, struct reader **out,
                                        struct sidestep_error *err)
{
    const uint32_t flags = READER_SHARED_LOCK | READER_FOREIGN;
    enum sidestep_status status = reader_open(store, path, flags, out, err);

    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    if (status != SIDESTEP_ENOMEM &&
        reader_open(store, path, flags | READER_TOLERANT, out, NULL) == SIDESTEP_OK)
        return SIDESTEP_OK;
    error_wrap(err, "open '%s'", path);
    return status;
}

enum sidestep_status sidestep_checkpoint_open(const char *path, struct sidestep_checkpoint **out,
                                              struct sidestep_error *err)
{
    if (path == NULL || out == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "path or checkpoint is NULL");
    struct sidestep_checkpoint *c = memory_new(1, sizeof(*c));
    *out = NULL;
    if (c == NULL)
        return FAIL_NOMEM(err, sizeof(*c));
    enum sidestep_status status = object_path_open(path, &c->store, err);
    if (status == SIDESTEP_OK)
        status = open_reader(c->store, path, &c->reader, err);
    if (status == SIDESTEP_OK)
        status = fill_problems(c, err);
    if (status == SIDESTEP_OK)
        status = fill_entries(c, err);
    if (status == SIDESTEP_OK)
        status = fill_files(c, err);
    if (status == SIDESTEP_OK)
        *out = c;
    else
        sidestep_checkpoint_close(&c);
    return status;
}

void sidestep_checkpoint_close(struct sidestep_checkpoint **checkpoint)
{
    struct sidestep_checkpoint *c = checkpoint != NULL ? *checkpoint : NULL;

    if (c == NULL)
        return;
    *checkpoint = NULL;
    workers_free(&c->workers);
    reader_close(&c->reader);
    object_path_close(&c->store);
    arena_release(&c->arena);
    free(c);
}

enum sidestep_status sidestep_checkpoint_info(const struct sidestep_checkpoint *c,
                                              struct sidestep_checkpoint_info *info)
{
    if (c == NULL || info == NULL || info->struct_size != sizeof(*info))
        return SIDESTEP_EINVAL;
    const struct reader *r = c->reader;
    *info = (struct sidestep_checkpoint_info){
        .struct_size = sizeof(*info),
        .path = r->path,
        .format = r->foreign != NULL ? r->foreign->format
                  : r->has_manifest  ? "sidestep"
                                     : "dcp",
        .save_id = r->metadata.save_id != NULL ? r->metadata.save_id : "",
        .step = r->has_manifest ? r->manifest.step : -1,
        .world_size = r->has_manifest ? r->manifest.world_size : 0,
        .bytes = reader_data_bytes(r) + r->record_bytes + c->unread_bytes,
    };
    for (size_t i = 0; i < r->manifest.file_count; i++)
        if (strcmp(r->manifest.files[i].origin, r->manifest.save_id) != 0)
            info->shared_bytes += r->manifest.files[i].bytes;
    for (size_t i = 0; i < r->manifest.extra_count; i++)
        info->bytes += r->manifest.extras[i].bytes;
    info->damaged_count = c->damaged_count;
    info->damage = c->damage;
    info->unread_count = c->unread_count;
    info->unread = c->unread;
    info->unread_status = c->unread_status;
    for (size_t i = 0; i < c->count; i++) {
        info->object_count += c->entries[i].is_object;
        info->tensor_count += !c->entries[i].is_object;
    }
    return SIDESTEP_OK;
}

size_t sidestep_checkpoint_count(const struct sidestep_checkpoint *checkpoint)
{
    return checkpoint != NULL ? checkpoint->count : 0;
}

const struct sidestep_entry *sidestep_checkpoint_entry(const struct sidestep_checkpoint *checkpoint,
                                                       size_t i)
{
    return checkpoint != NULL && i < checkpoint->count ? &checkpoint->entries[i] : NULL;
}

const struct sidestep_entry *sidestep_checkpoint_find(const struct sidestep_checkpoint *checkpoint,
                                                      const char *name)
{
    struct sidestep_entry key = {.name = name};

    if (checkpoint == NULL || name == NULL || checkpoint->count == 0)
        return NULL;
    return bsearch(&key, checkpoint->entries, checkpoint->count, sizeof(key), compare_entries);
}

/* Load one name, as a load of a state with one entry. */
static enum sidestep_status fetch_one(struct sidestep_checkpoint *c,
                                      struct sidestep_state_dict *state, struct sidestep_error *err)
{
    OWNED_BY(load_plan_release) struct load_plan plan = {0};
    uint64_t bytes_read;

    if (c->workers == NULL)
        TRY(workers_new(thread_count() - 1, "sidestep-read", &c->workers, err));
    TRY(load_plan_build(&c->reader->metadata, state, false, &plan, err));
    if (plan.mismatched_count != 0)
        return FAIL(err, SIDESTEP_EMISMATCH, "%s", plan.mismatched[0]);
    TRY(fetch_run(c->reader, &plan, FETCH_ALL, c->workers, NULL, &bytes_read, err));
    return c->reader->has_manifest ? SIDESTEP_OK : reader_check_unchanged(c->reader, err);
}

static enum sidestep_status find_kind(struct sidestep_checkpoint *c, const char *name,
                                      bool is_object, const struct sidestep_entry **entry,
                                      struct sidestep_error *err)
{
    if (c == NULL || name == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "checkpoint or name is NULL");
    *entry = sidestep_checkpoint_find(c, name);
    if (*entry == NULL)
        return FAIL(err, SIDESTEP_ENOTFOUND, "'%s' is not in checkpoint '%s'", name,
                    c->reader->path);
    const char *unreadable = metadata_find(&c->reader->metadata, name)->unreadable;
    if (unreadable != NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s': %s", name, unreadable);
    if ((*entry)->is_object != is_object)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is %s", name, is_object ? "a tensor" : "an object");
    if (!is_object && (*entry)->dtype == SIDESTEP_DTYPE_NONE)
        return reader_refuse_dtype(metadata_find(&c->reader->metadata, name), err);
    return SIDESTEP_OK;
}

/* ---- extra files */

size_t sidestep_checkpoint_file_count(const struct sidestep_checkpoint *checkpoint)
{
    return checkpoint != NULL ? checkpoint->reader->manifest.extra_count : 0;
}

const struct sidestep_file *sidestep_checkpoint_file(const struct sidestep_checkpoint *checkpoint,
                                                     size_t i)
{
    return i < sidestep_checkpoint_file_count(checkpoint) ? &checkpoint->files[i] : NULL;
}

enum sidestep_status sidestep_checkpoint_read_file(struct sidestep_checkpoint *c, const char *name,
                                                   void **bytes, size_t *length,
                                                   struct sidestep_error *err)
{
    if (c == NULL || name == NULL || bytes == NULL || length == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "checkpoint, name, bytes or length is NULL");
    const struct extra_file *file = reader_find_extra(c->reader, name);
    if (file == NULL)
        return FAIL(err, SIDESTEP_ENOTFOUND, "file '%s' is not in checkpoint '%s'", name,
                    c->reader->path);
    if (file->is_alias)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is a link to checkpoint '%s', not a file", name,
                    c->reader->path);
    TRY(WRAP(reader_read_extra(c->reader, file, bytes, err), err, "file '%s' of '%s'", name,
             c->reader->path));
    *length = file->bytes;
    return SIDESTEP_OK;
}

static void free_state(struct sidestep_state_dict **state)
{
    sidestep_state_dict_free(state);
}

enum sidestep_status sidestep_checkpoint_read_tensor(struct sidestep_checkpoint *c,
                                                     const char *name, const int64_t *offsets,
                                                     const int64_t *lengths, void *data,
                                                     size_t bytes, struct sidestep_error *err)
{
    OWNED_BY(free_state) struct sidestep_state_dict *state = NULL;
    const struct sidestep_entry *entry;

    TRY(find_kind(c, name, false, &entry, err));
    struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                     .name = name,
                                     .dtype = entry->dtype,
                                     .ndim = entry->ndim,
                                     .shape = entry->shape,
                                     .offsets = offsets,
                                     .lengths = lengths,
                                     .data = data};
    TRY(sidestep_state_dict_new(&state, err));
    TRY(sidestep_state_dict_add_tensor(state, &tensor, err));
    uint64_t wanted = box_volume(&state->entries[0].box) * sidestep_dtype_size(entry->dtype);
    if (wanted != bytes)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': the box has %llu bytes, the buffer %zu", name,
                    (unsigned long long)wanted, bytes);
    return fetch_one(c, state, err);
}

static enum sidestep_status read_object(struct sidestep_checkpoint *c, const char *name,
                                        struct sidestep_state_dict **state,
                                        struct sidestep_error *err)
{
    const struct sidestep_entry *entry;

    TRY(find_kind(c, name, true, &entry, err));
    TRY(sidestep_state_dict_new(state, err));
    TRY(sidestep_state_dict_add_value(*state, name, NULL, 0, NULL, err));
    return fetch_one(c, *state, err);
}

/* Locate the first chunk of a tensor that only PyTorch can decode; read and decode it if it is
 * compressed.  EINVAL: it can be read. */
static enum sidestep_status locate_other_kind(struct sidestep_checkpoint *c, const char *name,
                                              struct reader_item *item, void **bytes,
                                              size_t *length, struct sidestep_error *err)
{
    const struct metadata_entry *entry = metadata_find(&c->reader->metadata, name);
    struct sidestep_error why = {0};
    struct archive_tensor tensor;

    if (entry->chunk_count == 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s' is stored nowhere", name);
    enum sidestep_status status = reader_locate_item(c->reader, entry, &entry->chunks[0].storage,
                                                     &entry->chunks[0].box, NULL, item, &why);
    if (status != SIDESTEP_OK && !item->is_other_kind)
        return error_copy(err, &why);
    if (item->transform != NULL && item->footer == NULL) {
        TRY(reader_item_read(item, bytes, length, err));
        struct source source = source_from_memory(*bytes, *length);
        if (status == SIDESTEP_OK)
            status = archive_tensor_read(&source, 0, *length, &tensor, NULL);
    }
    if (status == SIDESTEP_OK)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is a tensor", name);
    return SIDESTEP_OK;
}

/* Its value: what its class is. */
static enum sidestep_status describe_tensor(struct sidestep_checkpoint *c, const char *name,
                                            struct sidestep_value **value,
                                            struct sidestep_error *err)
{
    OWNED void *bytes = NULL;
    struct reader_item item;
    size_t length = 0;

    TRY(locate_other_kind(c, name, &item, &bytes, &length, err));
    return bytes != NULL
               ? archive_object_read(bytes, length, value, err)
               : archive_object_read_at(&item.file->source, item.offset, item.bytes, value, err);
}

/* Its stored bytes, which are checked as far as they have CRCs. */
static enum sidestep_status read_other_kind(struct sidestep_checkpoint *c, const char *name,
                                            void **bytes, size_t *length,
                                            struct sidestep_error *err)
{
    OWNED void *stored = NULL;
    struct reader_item item;

    TRY(locate_other_kind(c, name, &item, &stored, length, err));
    if (metadata_find(&c->reader->metadata, name)->chunk_count != 1)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "'%s' is stored in several parts, and only PyTorch can decode them", name);
    if (stored == NULL)
        TRY(reader_item_read(&item, &stored, length, err));
    struct source source = source_from_memory(stored, *length);
    TRY(archive_check(&source, 0, *length, err));
    if (!c->reader->has_manifest)
        TRY(reader_check_unchanged(c->reader, err));
    *bytes = TAKE(stored);
    return SIDESTEP_OK;
}

static bool is_tensor(const struct sidestep_checkpoint *c, const char *name)
{
    const struct sidestep_entry *entry = sidestep_checkpoint_find(c, name);

    return entry != NULL && !entry->is_object;
}

enum sidestep_status sidestep_checkpoint_read_bytes(struct sidestep_checkpoint *c, const char *name,
                                                    void **bytes, size_t *length,
                                                    struct sidestep_error *err)
{
    OWNED_BY(free_state) struct sidestep_state_dict *state = NULL;

    if (is_tensor(c, name))
        return read_other_kind(c, name, bytes, length, err);
    TRY(read_object(c, name, &state, err));
    *bytes = TAKE(state->entries[0].bytes);
    *length = state->entries[0].length;
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_checkpoint_read_value(struct sidestep_checkpoint *c, const char *name,
                                                    struct sidestep_value **value,
                                                    struct sidestep_error *err)
{
    OWNED_BY(free_state) struct sidestep_state_dict *state = NULL;

    if (is_tensor(c, name))
        return describe_tensor(c, name, value, err);
    TRY(read_object(c, name, &state, err));
    if (state->entries[0].value == NULL)
        return archive_object_read(state->entries[0].bytes, state->entries[0].length, value, err);
    *value = TAKE(state->entries[0].value);
    return SIDESTEP_OK;
}

void sidestep_bytes_free(void **bytes)
{
    free(*bytes);
    *bytes = NULL;
}
