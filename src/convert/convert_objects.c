/* SPDX-License-Identifier: BSD-3-Clause */
/* convert_objects.c -- objects that a format cannot hold: refuses or skips them. */
#include <string.h>

#include "base/base.h"
#include "convert/convert.h"
#include "format/format.h"
#include "model/model.h"

enum sidestep_status convert_object_bytes(struct conversion *c, const struct convert_object *o,
                                          void **bytes, size_t *length, struct sidestep_error *err)
{
    struct reader_item item;

    TRY(reader_locate_item(c->reader, o->from, &o->from->storage, NULL, NULL, &item, err));
    enum sidestep_status status = reader_item_read(&item, bytes, length, err);
    if (status != SIDESTEP_OK)
        reader_blame(err, o->from->name, item.file);
    return status;
}

/* Decode an object of plain data.  EUNSUPPORTED: it is another object. */
static enum sidestep_status read_value(struct conversion *c, const struct convert_object *o,
                                       struct sidestep_value **value, struct sidestep_error *err)
{
    OWNED void *bytes = NULL;
    size_t length = 0;

    TRY(convert_object_bytes(c, o, &bytes, &length, err));
    enum sidestep_status status = archive_object_read_plain(bytes, length, value, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "object '%s'", display_name(o->from->name).text);
    return status;
}

enum sidestep_status convert_skip_object(struct conversion *c, const struct convert_object *o,
                                         struct sidestep_error *err)
{
    if (c->left_out == NULL)
        c->left_out = arena_new(&c->arena, c->object_count, sizeof(*c->left_out));
    if (c->left_out == NULL)
        return FAIL_NOMEM(err, c->object_count * sizeof(*c->left_out));
    c->left_out[c->left_out_count] = arena_strndup(&c->arena, o->name, strlen(o->name));
    if (c->left_out[c->left_out_count] == NULL)
        return FAIL_NOMEM(err, strlen(o->name));
    c->left_out_count++;
    return SIDESTEP_OK;
}

/* Decode object ${i}; if the format cannot hold it, do what the options say. */
static enum sidestep_status filter_object(struct conversion *c, size_t i, bool holds_plain,
                                          struct sidestep_error *err)
{
    struct convert_object *o = &c->objects[i];
    struct sidestep_error why = {0};
    enum sidestep_status status =
        holds_plain || o->from->unreadable != NULL
            ? read_value(c, o, &o->value, &why)
            : FAIL(&why, SIDESTEP_EUNSUPPORTED, "object '%s': the format holds only tensors",
                   display_name(o->name).text);

    if (status == SIDESTEP_EUNSUPPORTED && c->options.objects != SIDESTEP_OBJECTS_REFUSE)
        return convert_skip_object(c, o, err);
    if (status != SIDESTEP_OK)
        error_copy(err, &why);
    if (status == SIDESTEP_EUNSUPPORTED)
        error_wrap(err,
                   "of %zu object%s at least one does not fit (objects=skip leaves out what does "
                   "not, model_only takes the weights alone, and to=dcp keeps everything)",
                   c->object_count, c->object_count != 1 ? "s" : "");
    return status;
}

enum sidestep_status convert_filter_objects(struct conversion *c, bool holds_plain,
                                            struct sidestep_error *err)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->object_count; i++)
        TRY(filter_object(c, i, holds_plain, err));
    for (size_t i = 0; i < c->object_count; i++)
        if (c->objects[i].value != NULL)
            c->objects[kept++] = c->objects[i];
    for (size_t i = kept; i < c->object_count; i++)
        c->objects[i].value = NULL;
    c->object_count = kept;
    return SIDESTEP_OK;
}
