/* SPDX-License-Identifier: BSD-3-Clause */
/* convert_select.c -- decides which tensors and objects of the source are converted, and their
 * names, paths and dtypes in the destination. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "convert/convert.h"
#include "model/model.h"

struct selector {
    struct conversion *c;
    struct convert_renames *renames;
    struct convert_model model; /* if only the model is converted */
    struct sidestep_error *err;
};

static bool matches_any(const char *name, const char *const *patterns, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(patterns[i], name) == 0 || fnmatch(patterns[i], name, 0) == 0)
            return true;
    return false;
}

static bool is_wanted(const struct selector *s, const struct metadata_entry *entry)
{
    const struct sidestep_convert_options *o = &s->c->options;

    if ((o->flags & SIDESTEP_CONVERT_MODEL_ONLY) != 0) {
        if (entry->is_object && entry->unreadable == NULL)
            return false;
        if (!convert_model_contains(&s->model, entry))
            return false;
    }
    if (o->include_count != 0 && !matches_any(entry->name, o->include, o->include_count))
        return false;
    return !matches_any(entry->name, o->exclude, o->exclude_count);
}

/* Set the name and path in the destination. */
static enum sidestep_status set_name(const struct selector *s, const struct metadata_entry *entry,
                                     const char **name, const struct sidestep_path_item **path,
                                     uint32_t *path_length)
{
    const char *old = entry->name;

    if (s->model.name != NULL)
        old += strlen(s->model.name) + 1;
    TRY(convert_renames_apply(s->renames, &s->c->arena, old, name, s->err));
    *path = NULL;
    *path_length = 0;
    if (*name == old || strcmp(*name, old) == 0) {
        uint32_t skip = s->model.name != NULL ? convert_model_prefix_length(&s->model, entry) : 0;

        *path = entry->path_length > skip ? entry->path + skip : NULL;
        *path_length = entry->path_length > skip ? entry->path_length - skip : 0;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status add_tensor(const struct selector *s, size_t i)
{
    struct conversion *c = s->c;
    const struct metadata_entry *entry = &c->reader->metadata.entries[i];
    struct convert_tensor *t = &c->tensors[c->tensor_count];
    struct box whole = {.ndim = entry->ndim, .lengths = entry->shape};

    *t = (struct convert_tensor){.from = entry, .entry = i, .dtype = entry->dtype};
    if (entry->dtype == SIDESTEP_DTYPE_NONE)
        return reader_refuse_dtype(entry, s->err);
    if (c->options.dtype != SIDESTEP_DTYPE_NONE && cast_is_supported(entry->dtype))
        t->dtype = c->options.dtype;
    t->bytes = box_volume(&whole) * sidestep_dtype_size(t->dtype);
    TRY(set_name(s, entry, &t->name, &t->path, &t->path_length));
    c->total_bytes += t->bytes;
    c->tensor_count++;
    return SIDESTEP_OK;
}

static enum sidestep_status add_object(const struct selector *s, size_t i)
{
    struct conversion *c = s->c;
    struct convert_object *o = &c->objects[c->object_count++];

    o->from = &c->reader->metadata.entries[i];
    return set_name(s, o->from, &o->name, &o->path, &o->path_length);
}

static enum sidestep_status select_entries(const struct selector *s)
{
    const struct metadata *m = &s->c->reader->metadata;

    s->c->tensors = arena_new(&s->c->arena, m->count, sizeof(*s->c->tensors));
    s->c->objects = arena_new(&s->c->arena, m->count, sizeof(*s->c->objects));
    if (s->c->tensors == NULL || s->c->objects == NULL)
        return FAIL_NOMEM(s->err, m->count * sizeof(*s->c->tensors));
    for (size_t i = 0; i < m->count; i++) {
        bool is_lost = false;
        if (!is_wanted(s, &m->entries[i]))
            continue;
        TRY(convert_is_damaged(s->c, &m->entries[i], &is_lost, s->err));
        if (is_lost)
            continue;
        TRY(m->entries[i].is_object ? add_object(s, i) : add_tensor(s, i));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status check_names(const struct conversion *c, struct sidestep_error *err)
{
    OWNED_HASH_TABLE names = {0};
    size_t existing = SIZE_MAX;

    for (size_t i = 0; i < c->tensor_count + c->object_count; i++) {
        const char *name =
            i < c->tensor_count ? c->tensors[i].name : c->objects[i - c->tensor_count].name;
        TRY(hash_table_insert(&names, name, i, &existing, err));
        if (existing != SIZE_MAX)
            return FAIL(err, SIDESTEP_EMISMATCH, "two names become '%s'", display_name(name).text);
    }
    return SIDESTEP_OK;
}

static int compare_stored(const void *a, const void *b)
{
    const struct convert_tensor *x = a, *y = b;
    const struct metadata_storage *p = &x->from->chunks[0].storage,
                                  *q = &y->from->chunks[0].storage;
    int order =
        x->from->chunk_count == 0 || y->from->chunk_count == 0 ? 0 : strcmp(p->file, q->file);

    if (order != 0)
        return order;
    if (p->offset != q->offset)
        return p->offset < q->offset ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static enum sidestep_status fail_without_tensors(const struct conversion *c,
                                                 struct sidestep_error *err)
{
    for (size_t i = 0; i < c->object_count; i++)
        if (c->objects[i].from->unreadable != NULL)
            return FAIL(
                err, SIDESTEP_EUNSUPPORTED, "no tensor that is selected can be read: '%s': %s",
                display_name(c->objects[i].from->name).text, c->objects[i].from->unreadable);
    const struct metadata *metadata = &c->reader->metadata;
    bool has_pattern = c->options.include_count != 0;

    return FAIL(err, SIDESTEP_EMISMATCH,
                "of its %zu tensors and objects, no tensor is selected%s%s%s%s%s%s",
                metadata->count, has_pattern ? " by '" : "",
                has_pattern ? display_name(c->options.include[0]).text : "", has_pattern ? "'" : "",
                metadata->count != 0 ? "; it has '" : "",
                metadata->count != 0 ? display_name(metadata->entries[0].name).text : "",
                metadata->count != 0 ? "'" : "");
}

enum sidestep_status convert_select(struct conversion *c, struct sidestep_error *err)
{
    struct selector s = {.c = c, .err = err};

    if ((c->options.flags & SIDESTEP_CONVERT_MODEL_ONLY) != 0)
        TRY(convert_model_find(c, &s.model, err));
    TRY(convert_renames_new(c, &s.renames, err));
    enum sidestep_status status = select_entries(&s);
    convert_renames_free(&s.renames);
    TRY(status);
    if (c->tensor_count == 0 && c->lost_count != 0)
        return FAIL(err, c->lost_status, "no tensor that is wanted can be read (%.500s)",
                    c->lost[0]);
    if (c->tensor_count == 0)
        return fail_without_tensors(c, err);
    TRY(check_names(c, err));
    for (size_t i = 0; i < c->tensor_count; i++)
        if (c->tensors[i].from->chunk_count == 0 ||
            c->tensors[i].from->chunks[0].storage.file == NULL)
            return FAIL(err, SIDESTEP_ECORRUPT, "'%s' is stored nowhere",
                        display_name(c->tensors[i].from->name).text);
    qsort(c->tensors, c->tensor_count, sizeof(*c->tensors), compare_stored);
    return SIDESTEP_OK;
}
