/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * convert_safetensors.c -- lays out one file of safetensors, or a directory in the form of Hugging
 * Face's libraries: model.safetensors, or several files of limited size and an index.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "convert/convert.h"
#include "format/format.h"

#define DEFAULT_SHARD_BYTES ((uint64_t)5000000000u) /* Hugging Face's */

/* The file of a tensor, and its offset there. */
struct placed {
    size_t tensor;
    size_t file;
    size_t item_bytes;
};

struct layout {
    struct conversion *c;
    struct convert_file *files;
    size_t file_count; /* with tensors; the index, if there is one, follows them */
    struct placed *order;
    struct arena arena; /* names and headers */
    const char *infix;  /* of names */
};

/* Fill files in the order of storage, up to the size limit. */
static enum sidestep_status assign_files(struct layout *l, bool one_file,
                                         struct sidestep_error *err)
{
    const struct conversion *c = l->c;
    uint64_t most =
        c->options.max_shard_bytes != 0 ? c->options.max_shard_bytes : DEFAULT_SHARD_BYTES;
    uint64_t used = 0;

    l->order = memory_new(c->tensor_count, sizeof(*l->order));
    if (l->order == NULL)
        return FAIL_NOMEM(err, c->tensor_count * sizeof(*l->order));
    l->file_count = 1;
    for (size_t i = 0; i < c->tensor_count; i++) {
        uint64_t bytes = c->tensors[i].bytes;

        if (!one_file && used != 0 && used + bytes > most) {
            l->file_count++;
            used = 0;
        }
        used += bytes;
        l->order[i] = (struct placed){.tensor = i,
                                      .file = l->file_count - 1,
                                      .item_bytes = sidestep_dtype_size(c->tensors[i].dtype)};
    }
    return SIDESTEP_OK;
}

/* Larger elements come first in a file, so that each tensor is aligned for readers that map it. */
static int compare_placed(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->item_bytes != y->item_bytes)
        return x->item_bytes > y->item_bytes ? -1 : 1;
    return x->tensor < y->tensor ? -1 : 1;
}

static const char *name_file(struct layout *l, const char *only, size_t i)
{
    if (only != NULL)
        return only;
    return l->file_count == 1 ? "model.safetensors"
                              : arena_printf(&l->arena, "model-%05zu-of-%05zu%s.safetensors", i + 1,
                                             l->file_count, l->infix);
}

/* Lay out the file with tensors [first, last) of the order. */
static enum sidestep_status lay_out_file(struct layout *l, struct convert_file *file, size_t first,
                                         size_t last, struct sidestep_error *err)
{
    const struct conversion *c = l->c;
    OWNED struct safetensors_tensor *tensors = memory_new(last - first, sizeof(*tensors));
    OWNED_BUFFER header = {0};

    if (tensors == NULL)
        return FAIL_NOMEM(err, (last - first) * sizeof(*tensors));
    for (size_t i = first; i < last; i++) {
        const struct convert_tensor *t = &c->tensors[l->order[i].tensor];
        tensors[i - first] = (struct safetensors_tensor){
            .name = t->name, .dtype = t->dtype, .ndim = t->from->ndim, .shape = t->from->shape};
    }
    TRY(safetensors_write_header(tensors, last - first, &header, err));
    const uint8_t *bytes = arena_copy(&l->arena, header.bytes, header.length);
    if (bytes == NULL)
        return FAIL_NOMEM(err, header.length);
    TRY(convert_file_add_segment(file,
                                 (struct convert_segment){.kind = CONVERT_SEGMENT_BYTES,
                                                          .length = header.length,
                                                          .bytes = bytes},
                                 err));
    for (size_t i = first; i < last; i++) {
        size_t tensor = l->order[i].tensor;
        TRY(convert_file_add_segment(file,
                                     (struct convert_segment){.kind = CONVERT_SEGMENT_TENSOR,
                                                              .length = c->tensors[tensor].bytes,
                                                              .tensor = tensor},
                                     err));
    }
    return SIDESTEP_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct safetensors_index_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static enum sidestep_status lay_out_index(struct layout *l, struct sidestep_error *err)
{
    const struct conversion *c = l->c;
    struct convert_file *file = &l->files[l->file_count];
    OWNED struct safetensors_index_entry *places = memory_new(c->tensor_count, sizeof(*places));
    OWNED_BUFFER text = {0};

    if (places == NULL)
        return FAIL_NOMEM(err, c->tensor_count * sizeof(*places));
    for (size_t i = 0; i < c->tensor_count; i++)
        places[i] = (struct safetensors_index_entry){.name = c->tensors[l->order[i].tensor].name,
                                                     .file = l->files[l->order[i].file].name};
    qsort(places, c->tensor_count, sizeof(*places), compare_names);
    safetensors_index_write(places, c->tensor_count, c->total_bytes, &text);
    TRY(buffer_check(&text, err));
    const uint8_t *bytes = arena_copy(&l->arena, text.bytes, text.length);
    if (bytes == NULL)
        return FAIL_NOMEM(err, text.length);
    file->name = SAFETENSORS_INDEX_NAME;
    return convert_file_add_segment(file,
                                    (struct convert_segment){.kind = CONVERT_SEGMENT_BYTES,
                                                             .length = text.length,
                                                             .bytes = bytes},
                                    err);
}

static enum sidestep_status lay_out(struct layout *l, const char *only, struct sidestep_error *err)
{
    TRY(assign_files(l, only != NULL, err));
    qsort(l->order, l->c->tensor_count, sizeof(*l->order), compare_placed);
    l->files = memory_new(l->file_count + 1, sizeof(*l->files));
    if (l->files == NULL)
        return FAIL_NOMEM(err, (l->file_count + 1) * sizeof(*l->files));
    for (size_t f = 0, first = 0, last; f < l->file_count; f++, first = last) {
        for (last = first; last < l->c->tensor_count && l->order[last].file == f;)
            last++;
        l->files[f].name = name_file(l, only, f);
        if (l->files[f].name == NULL)
            return FAIL_NOMEM(err, SIDESTEP_MAX_NAME);
        TRY(lay_out_file(l, &l->files[f], first, last, err));
    }
    return l->file_count > 1 ? lay_out_index(l, err) : SIDESTEP_OK;
}

enum sidestep_status convert_to_safetensors(struct conversion *c, struct export *export,
                                            struct sidestep_error *err)
{
    struct layout l = {.c = c, .infix = export->infix};
    enum sidestep_status status = lay_out(&l, export->is_file ? export->commit.name : NULL, err);

    if (status == SIDESTEP_OK)
        export->head = l.files[l.file_count > 1 ? l.file_count : 0].name;
    if (status == SIDESTEP_OK)
        status = convert_write(c, export, l.files, l.file_count + (l.file_count > 1), err);
    for (size_t f = 0; l.files != NULL && f <= l.file_count; f++)
        free(l.files[f].segments);
    free(l.files);
    free(l.order);
    arena_release(&l.arena);
    return status;
}
