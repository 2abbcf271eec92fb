/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * convert_zip.c -- lays out a file in zip format: of torch.save(), with a pickle and the storages
 * of tensors, or NumPy's .npz, with one array per member.
 *
 * Everything except CRCs is known beforehand.  Headers are written at once.  Descriptors and the
 * directory contain CRCs; they are written when the data before them has been read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "convert/convert.h"
#include "format/format.h"
#include "model/model.h"

#define ID_DIGITS 40
#define OTHER_MEMBERS 6u /* of torch.save(), beside the storages */

/* The member that a segment belongs to. */
struct segment_info {
    size_t member;     /* of a tensor, or of a descriptor */
    uint32_t head_crc; /* of the member's bytes before the tensor: the header of an array */
    uint64_t head_bytes;
};

struct layout {
    struct conversion *c;
    struct convert_file file;
    struct zip_writer writer;
    struct buffer literal; /* bytes of the segment that is being laid out */
    struct arena arena;
    struct segment_info *infos; /* per segment of the file */
    size_t info_capacity;
    bool is_torch;
    uint64_t names_hash;
};

static enum sidestep_status add_segment(struct layout *l, struct convert_segment segment,
                                        const struct segment_info *info, struct sidestep_error *err)
{
    TRY_GROW(l->infos, l->info_capacity, l->file.count, err);
    l->infos[l->file.count] = *info;
    return convert_file_add_segment(&l->file, segment, err);
}

/* Make a segment of the bytes in l->literal. */
static enum sidestep_status flush(struct layout *l, struct sidestep_error *err)
{
    TRY(buffer_check(&l->literal, err));
    if (l->literal.length == 0)
        return SIDESTEP_OK;
    const uint8_t *bytes = arena_copy(&l->arena, l->literal.bytes, l->literal.length);
    if (bytes == NULL)
        return FAIL_NOMEM(err, l->literal.length);
    struct convert_segment segment = {
        .kind = CONVERT_SEGMENT_BYTES, .length = l->literal.length, .bytes = bytes};
    l->literal.length = 0;
    return add_segment(l, segment, &(struct segment_info){0}, err);
}

/* Add a member: ${head}, if any, then a tensor. */
static enum sidestep_status add_member(struct layout *l, const char *name, size_t tensor,
                                       const struct buffer *head, struct sidestep_error *err)
{
    uint64_t bytes = l->c->tensors[tensor].bytes, head_bytes = head != NULL ? head->length : 0;
    struct segment_info info = {.member = l->writer.count, .head_bytes = head_bytes};

    struct zip_writer_member *member =
        zip_writer_begin_member(&l->writer, name, head_bytes + bytes);
    if (head != NULL) {
        buffer_put(&l->literal, head->bytes, head->length);
        info.head_crc = hash_crc32(0, head->bytes, head->length);
        zip_writer_skip(&l->writer, head->length);
    }
    TRY(flush(l, err));
    zip_writer_skip(&l->writer, bytes);
    struct convert_segment data = {
        .kind = CONVERT_SEGMENT_TENSOR, .length = bytes, .tensor = tensor};
    TRY(add_segment(l, data, &info, err));
    unsigned length = zip_writer_descriptor_bytes(member);
    l->writer.out = NULL; /* count only */
    zip_writer_end_member(&l->writer, member, 0);
    l->writer.out = &l->literal;
    if (length == 0)
        return SIDESTEP_OK;
    return add_segment(l,
                       (struct convert_segment){.kind = CONVERT_SEGMENT_DEFERRED, .length = length},
                       &info, err);
}

/* ---------------------------------------------------------------- segments with CRCs */

static void put_tail(struct layout *l, struct zip_writer *w, char id[ID_DIGITS + 1])
{
    if (l->is_torch) {
        zip_writer_add_member(w, "version", "3\n", 2);
        snprintf(id, ID_DIGITS + 1, "%020llu%020llu", (unsigned long long)l->names_hash,
                 (unsigned long long)w->crc_hash);
        zip_writer_add_member(w, ".data/serialization_id", id, ID_DIGITS);
    }
    zip_writer_finish(w);
}

/* Make the bytes of segment ${i}: the descriptor of a member, or the end of the file. */
static enum sidestep_status fill_deferred(struct convert_file *file, size_t i,
                                          struct sidestep_error *err)
{
    struct layout *l = file->context;
    const struct segment_info *info = &l->infos[i];
    char id[ID_DIGITS + 1];
    OWNED_BUFFER bytes = {0};

    l->writer.out = &bytes;
    l->writer.position = file->segments[i].offset;
    if (i + 1 < file->count) {
        const struct convert_segment *data = &file->segments[i - 1];
        uint32_t crc = info->head_bytes == 0
                           ? data->crc
                           : hash_crc32_combine(info->head_crc, data->crc, data->length);
        zip_writer_end_member(&l->writer, &l->writer.members[info->member], crc);
    } else {
        put_tail(l, &l->writer, id);
    }
    TRY(buffer_check(&bytes, err));
    file->segments[i].bytes = arena_copy(&l->arena, bytes.bytes, bytes.length);
    return file->segments[i].bytes != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, bytes.length);
}

/* Add a segment for the end of the file. */
static enum sidestep_status add_tail(struct layout *l, struct sidestep_error *err)
{
    struct zip_writer w = l->writer;
    char id[ID_DIGITS + 1];

    w.out = NULL;
    put_tail(l, &w, id);
    struct convert_segment tail = {.kind = CONVERT_SEGMENT_DEFERRED,
                                   .length = w.position - l->writer.position};
    TRY(add_segment(l, tail, &(struct segment_info){0}, err));
    /* The CRCs of members without a descriptor are known already; fill_deferred() adds the others.
     */
    l->writer.crc_hash = 0;
    for (size_t i = 0; i < l->writer.count; i++)
        if (l->writer.members[i].crc != 0)
            zip_writer_fold_crc(&l->writer, l->writer.members[i].crc);
    l->file.fill_deferred = fill_deferred;
    l->file.context = l;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- torch.save() */

/* Tensors that are the same bytes of the source file share a storage, as in the source. */
static enum sidestep_status find_shared_storages(const struct conversion *c, size_t *storages,
                                                 struct sidestep_error *err)
{
    OWNED_HASH_TABLE seen = {0};
    OWNED_ARENA keys = {0};
    size_t next = 0;

    for (size_t i = 0; i < c->tensor_count; i++) {
        const struct convert_tensor *t = &c->tensors[i];
        const struct foreign_entry *foreign =
            c->reader->foreign != NULL ? &c->reader->foreign->entries[t->entry] : NULL;
        size_t existing = SIZE_MAX;

        storages[i] = next;
        if (foreign != NULL && foreign->tensor != NULL && t->bytes != 0) {
            const char *key = arena_printf(
                &keys, "%llu %llu %d %s", (unsigned long long)foreign->tensor->data_offset,
                (unsigned long long)foreign->tensor->storage_offset, (int)t->from->dtype,
                display_shape(t->from->ndim, t->from->shape).text);
            if (key == NULL)
                return FAIL_NOMEM(err, SIDESTEP_MAX_NDIM);
            if (foreign->tensor->row_major)
                TRY(hash_table_insert(&seen, key, i, &existing, err));
        }
        if (existing != SIZE_MAX)
            storages[i] = storages[existing];
        else
            next++;
    }
    return SIDESTEP_OK;
}

/* Tensors are sorted by storage; restore the order of the source. */
static int compare_entries(const void *a, const void *b)
{
    const struct torch_write_entry *x = a, *y = b;

    return x->order < y->order ? -1 : x->order > y->order;
}

static enum sidestep_status make_pickle(struct layout *l, const size_t *storages,
                                        struct buffer *out, struct sidestep_error *err)
{
    const struct conversion *c = l->c;
    size_t count = c->tensor_count + c->object_count;
    OWNED struct torch_write_entry *entries = memory_new(count, sizeof(*entries));

    if (entries == NULL)
        return FAIL_NOMEM(err, count * sizeof(*entries));
    for (size_t i = 0; i < c->tensor_count; i++) {
        const struct convert_tensor *t = &c->tensors[i];
        entries[i] = (struct torch_write_entry){.name = t->name,
                                                .order = t->entry,
                                                .path = t->path,
                                                .path_length = t->path_length,
                                                .dtype = t->dtype,
                                                .ndim = t->from->ndim,
                                                .shape = t->from->shape,
                                                .storage = storages[i]};
    }
    for (size_t i = 0; i < c->object_count; i++) {
        const struct convert_object *o = &c->objects[i];
        entries[c->tensor_count + i] =
            (struct torch_write_entry){.name = o->name,
                                       .order = (size_t)(o->from - c->reader->metadata.entries),
                                       .path = o->path,
                                       .path_length = o->path_length,
                                       .value = o->value};
    }
    qsort(entries, count, sizeof(*entries), compare_entries);
    return torch_write_pickle(entries, count, out, err);
}

static enum sidestep_status lay_out_torch(struct layout *l, struct sidestep_error *err)
{
    OWNED size_t *storages = memory_new(l->c->tensor_count, sizeof(*storages));
    OWNED_BUFFER pickle = {0};
    size_t next = 0;

    if (storages == NULL)
        return FAIL_NOMEM(err, l->c->tensor_count * sizeof(*storages));
    TRY(find_shared_storages(l->c, storages, err));
    TRY(make_pickle(l, storages, &pickle, err));
    zip_writer_add_member(&l->writer, "data.pkl", pickle.bytes, pickle.length);
    zip_writer_add_member(&l->writer, ".format_version", "1", 1);
    zip_writer_add_member(&l->writer, ".storage_alignment", "64", 2);
    zip_writer_add_member(&l->writer, "byteorder", "little", 6);
    l->names_hash = XXH3_64bits(pickle.bytes, pickle.length);
    for (size_t i = 0; i < l->c->tensor_count; i++) {
        if (storages[i] != next) /* shared, and there already */
            continue;
        const char *name = arena_printf(&l->arena, "data/%zu", next++);
        if (name == NULL)
            return FAIL_NOMEM(err, ID_DIGITS);
        TRY(add_member(l, name, i, NULL, err));
    }
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- npz */

static enum sidestep_status lay_out_npz(struct layout *l, struct sidestep_error *err)
{
    for (size_t i = 0; i < l->c->tensor_count; i++) {
        const struct convert_tensor *t = &l->c->tensors[i];
        OWNED_BUFFER head = {0};
        char header[NPY_MAX_BYTES];

        if (npy_descr(t->dtype) == NULL)
            return FAIL(err, SIDESTEP_EUNSUPPORTED,
                        "'%s' is %s, which NumPy lacks; convert it to another dtype",
                        display_name(t->name).text, sidestep_dtype_name(t->dtype));
        if (strlen(t->name) > UINT16_MAX - 8)
            return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s': the name is too long for a zip",
                        display_name(t->name).text);
        const char *name = arena_printf(&l->arena, "%s.npy", t->name);
        if (name == NULL)
            return FAIL_NOMEM(err, strlen(t->name));
        buffer_put(&head, header, npy_header(header, t->dtype, t->from->ndim, t->from->shape));
        TRY(buffer_check(&head, err));
        TRY(add_member(l, name, i, &head, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status convert_to_zip(struct conversion *c, struct export *export,
                                    struct sidestep_error *err)
{
    struct layout l = {.c = c, .is_torch = c->to == SIDESTEP_FORMAT_TORCH};

    l.file.name = export->head = export->commit.name;
    l.writer = (struct zip_writer){.prefix = l.is_torch ? "archive/" : "",
                                   .capacity = c->tensor_count + OTHER_MEMBERS,
                                   .out = &l.literal};
    l.writer.members = memory_new(l.writer.capacity, sizeof(*l.writer.members));
    enum sidestep_status status = l.writer.members != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, 1);
    if (status == SIDESTEP_OK)
        status = l.is_torch ? lay_out_torch(&l, err) : lay_out_npz(&l, err);
    if (status == SIDESTEP_OK)
        status = flush(&l, err);
    if (status == SIDESTEP_OK)
        status = add_tail(&l, err);
    if (status == SIDESTEP_OK)
        status = convert_write(c, export, &l.file, 1, err);
    free(l.writer.members);
    free(l.infos);
    free(l.file.segments);
    buffer_release(&l.literal);
    arena_release(&l.arena);
    return status;
}
