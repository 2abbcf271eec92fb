/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects.c -- converts values from and to Python's pickles, for bindings that keep an object as
 * its pickle; one call sets all objects that have changed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/format.h"
#include "model/model.h"

enum sidestep_status sidestep_value_from_pickle(const void *bytes, size_t length,
                                                struct sidestep_value **value,
                                                struct sidestep_error *err)
{
    OWNED_ARENA nodes = {0};
    struct pickle_node *root;

    if (value == NULL || (bytes == NULL && length != 0))
        return FAIL(err, SIDESTEP_EINVAL, "%s is NULL", value == NULL ? "value" : "bytes");
    *value = NULL;
    TRY(pickle_parse_with_status(SIDESTEP_EUNSUPPORTED, &nodes, bytes, length, NULL, &root, err));
    return pickle_to_plain_value(root, value, err);
}

enum sidestep_status sidestep_value_to_pickle(const struct sidestep_value *value, void **bytes,
                                              size_t *length, struct sidestep_error *err)
{
    OWNED_BUFFER pickle = {0};

    if (value == NULL || bytes == NULL || length == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "%s is NULL",
                    value == NULL ? "value" : "bytes or length");
    TRY(pickle_write_plain_value(&pickle, value, err));
    *length = pickle.length;
    *bytes = TAKE(pickle.bytes);
    return SIDESTEP_OK;
}

/* ---- many objects at once ---- */

/* The new contents of an entry. */
struct change {
    struct state_entry *entry;
    struct sidestep_value *value;
    void *bytes;
    size_t length;
};
struct changes {
    struct change *array;
    size_t count;
};

static void changes_release(struct changes *changes)
{
    for (size_t i = 0; i < changes->count; i++) {
        if (changes->array[i].value != NULL)
            sidestep_value_free(&changes->array[i].value);
        free(changes->array[i].bytes);
    }
    free(changes->array);
}

static enum sidestep_status read_object(const struct sidestep_object *object, struct change *change,
                                        struct sidestep_error *err)
{
    if (object->reserved != 0 ||
        (object->kind != SIDESTEP_OBJECT_PICKLE && object->kind != SIDESTEP_OBJECT_STORED))
        return FAIL(err, SIDESTEP_EINVAL, "unknown kind %u", object->kind);
    if (object->bytes == NULL && object->length != 0)
        return FAIL(err, SIDESTEP_EINVAL, "%zu bytes at NULL", object->length);
    if (object->kind == SIDESTEP_OBJECT_PICKLE)
        return sidestep_value_from_pickle(object->bytes, object->length, &change->value, err);
    change->bytes = memory_resize(NULL, object->length, 1);
    if (change->bytes == NULL)
        return FAIL_NOMEM(err, object->length);
    if (object->length != 0)
        memcpy(change->bytes, object->bytes, object->length);
    change->length = object->length;
    return SIDESTEP_OK;
}

/* Read all objects, so that nothing can fail while the state changes. */
static enum sidestep_status read_objects(struct sidestep_state_dict *state,
                                         const struct sidestep_object *objects, size_t count,
                                         struct changes *changes, struct sidestep_error *err)
{
    size_t object_count = state->count - state->box_count;
    OWNED struct state_entry **entries = memory_new(object_count, sizeof(struct state_entry *));

    changes->array = memory_new(count, sizeof(*changes->array));
    if (entries == NULL || changes->array == NULL)
        return FAIL_NOMEM(err, object_count * sizeof(*entries) + count * sizeof(*changes->array));
    for (size_t i = 0, object = 0; i < state->count; i++)
        if (state->entries[i].is_object)
            entries[object++] = &state->entries[i];
    for (; changes->count < count; changes->count++) {
        const struct sidestep_object *object = &objects[changes->count];
        struct change *change = &changes->array[changes->count];

        if (object->index >= object_count)
            return FAIL(err, SIDESTEP_ENOTFOUND, "object %llu of a state that has %zu objects",
                        (unsigned long long)object->index, object_count);
        change->entry = entries[object->index];
        enum sidestep_status status = read_object(object, change, err);
        if (status != SIDESTEP_OK) {
            error_wrap(err, "'%s'", display_name(change->entry->name).text);
            return status;
        }
    }
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_state_dict_set_objects(struct sidestep_state_dict *state,
                                                     const struct sidestep_object *objects,
                                                     size_t count, struct sidestep_error *err)
{
    OWNED_BY(changes_release) struct changes changes = {0};

    if (state == NULL || (objects == NULL && count != 0))
        return FAIL(err, SIDESTEP_EINVAL, "%s is NULL", state == NULL ? "state" : "objects");
    TRY(read_objects(state, objects, count, &changes, err));
    for (size_t i = 0; i < count; i++) {
        struct change *change = &changes.array[i];

        state_entry_set_object(change->entry, TAKE(change->value), TAKE(change->bytes),
                               change->length);
    }
    return SIDESTEP_OK;
}
