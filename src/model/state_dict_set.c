/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * state_dict_set.c -- changes the contents of a state dict between two saves: objects and
 * addresses.  They are not part of the layout, so the next save need not plan again.
 */
#include <string.h>

#include "base/base.h"
#include "model/display.h"
#include "model/state_dict.h"
#include "model/value.h"

static enum sidestep_status find_object(struct sidestep_state_dict *state, const char *name,
                                        struct state_entry **entry, struct sidestep_error *err)
{
    *entry = state != NULL && name != NULL ? state_dict_find(state, name) : NULL;
    if (*entry == NULL || !(*entry)->is_object)
        return FAIL(err, SIDESTEP_ENOTFOUND, "the state has no object '%s'",
                    name != NULL ? display_name(name).text : "");
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_state_dict_set_value(struct sidestep_state_dict *state,
                                                   const char *name, struct sidestep_value *value,
                                                   struct sidestep_error *err)
{
    struct state_entry *entry;

    TRY(find_object(state, name, &entry, err));
    if (value == NULL)
        return FAIL_NOMEM(err, sizeof(*value));
    state_entry_set_object(entry, value, NULL, 0);
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_state_dict_set_bytes(struct sidestep_state_dict *state,
                                                   const char *name, const void *bytes,
                                                   size_t length, struct sidestep_error *err)
{
    struct state_entry *entry;

    TRY(find_object(state, name, &entry, err));
    if (bytes == NULL && length != 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': %zu bytes at NULL", display_name(name).text,
                    length);
    void *copy = memory_resize(NULL, length, 1);
    if (copy == NULL)
        return FAIL_NOMEM(err, length);
    if (length != 0)
        memcpy(copy, bytes, length);
    state_entry_set_object(entry, NULL, copy, length);
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_state_dict_set_data(struct sidestep_state_dict *state,
                                                  void *const *data, size_t count,
                                                  struct sidestep_error *err)
{
    if (state == NULL || (data == NULL && count != 0))
        return FAIL(err, SIDESTEP_EINVAL, "the %s is NULL",
                    state == NULL ? "state dict" : "list of addresses");
    if (count != state->box_count)
        return FAIL(err, SIDESTEP_EINVAL, "%zu addresses for the %zu tensor shards of the state",
                    count, state->box_count);
    for (size_t i = 0, tensor = 0; i < state->count; i++)
        if (!state->entries[i].is_object)
            TRY(state_entry_check_memory(&state->entries[i], data[tensor++], err));
    for (size_t i = 0, tensor = 0; i < state->count; i++)
        if (!state->entries[i].is_object)
            state->entries[i].data = data[tensor++];
    return SIDESTEP_OK;
}
