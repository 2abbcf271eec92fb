/* SPDX-License-Identifier: BSD-3-Clause */
/* convert_objects.c -- objects that a format cannot hold: refuses, skips or sets them aside. */
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

/* Put an object into the dict that is written aside: its value, or all its stored bytes. */
static enum sidestep_status keep_aside(struct conversion *c, const struct convert_object *o,
                                       struct sidestep_value *dict, struct sidestep_error *err)
{
    struct sidestep_value *value = NULL;
    struct sidestep_error why = {0};
    OWNED void *bytes = NULL;
    size_t length = 0;
    enum sidestep_status status = read_value(c, o, &value, &why);

    if (status == SIDESTEP_EUNSUPPORTED) {
        TRY(convert_object_bytes(c, o, &bytes, &length, err));
        value = sidestep_value_bytes(bytes, length);
        status = SIDESTEP_OK;
    }
    if (status == SIDESTEP_OK)
        return sidestep_value_set(dict, sidestep_value_str(o->name), value, err);
    error_copy(err, &why);
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
                                          struct sidestep_value *aside, struct sidestep_error *err)
{
    struct convert_object *o = &c->objects[i];
    struct sidestep_error why = {0};
    enum sidestep_status status =
        holds_plain || o->from->unreadable != NULL
            ? read_value(c, o, &o->value, &why)
            : FAIL(&why, SIDESTEP_EUNSUPPORTED, "object '%s': the format holds only tensors",
                   display_name(o->name).text);

    if (status == SIDESTEP_EUNSUPPORTED && c->options.objects != SIDESTEP_OBJECTS_REFUSE) {
        TRY(convert_skip_object(c, o, err));
        return aside != NULL ? keep_aside(c, o, aside, err) : SIDESTEP_OK;
    }
    if (status != SIDESTEP_OK)
        error_copy(err, &why);
    if (status == SIDESTEP_EUNSUPPORTED)
        error_wrap(
            err,
            "of %zu object%s at least one does not fit (objects=skip leaves out what does not, "
            "objects=aside writes it to a second file, model_only takes the weights alone, and "
            "to=dcp keeps everything)",
            c->object_count, c->object_count != 1 ? "s" : "");
    return status;
}

enum sidestep_status convert_filter_objects(struct conversion *c, bool holds_plain,
                                            struct sidestep_value *aside,
                                            struct sidestep_error *err)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->object_count; i++)
        TRY(filter_object(c, i, holds_plain, aside, err));
    for (size_t i = 0; i < c->object_count; i++)
        if (c->objects[i].value != NULL)
            c->objects[kept++] = c->objects[i];
    for (size_t i = kept; i < c->object_count; i++)
        c->objects[i].value = NULL;
    c->object_count = kept;
    return SIDESTEP_OK;
}

enum sidestep_status convert_write_aside(struct conversion *c, struct export *export,
                                         const struct sidestep_value *dict,
                                         struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};
    OWNED_FILE *file = NULL;
    const char *name = export->is_file
                           ? arena_printf(&c->arena, "%s.objects.pt", export->commit.name)
                           : arena_printf(&c->arena, "objects%s.pt", export->infix);

    if (name == NULL)
        return FAIL_NOMEM(err, FILE_NAME_BYTES);
    TRY(archive_object_write(dict, &bytes, err));
    TRY(export_create_file(export, name, 0, &file, err));
    TRY(store_file_write_at(file, bytes.bytes, bytes.length, 0, err));
    TRY(export_seal_file(export, name, TAKE(file), err));
    if (export->is_file)
        export->side = name;
    c->aside = export->is_file ? arena_printf(&c->arena, "%s.objects.pt", c->destination)
                               : arena_printf(&c->arena, "%s/%s", c->destination, name);
    return c->aside != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(c->destination));
}
