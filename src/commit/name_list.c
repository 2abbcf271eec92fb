/* SPDX-License-Identifier: BSD-3-Clause */
/* name_list.c -- reads and sorts the names in a directory; see name_list.h. */
#include "commit/name_list.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void name_list_release(struct name_list *list)
{
    arena_release(&list->arena);
    free(list->names);
    *list = (struct name_list){0};
}

enum sidestep_status name_list_add(struct name_list *list, const char *name,
                                   struct sidestep_error *err)
{
    assert(list->count <= list->capacity);
    TRY_GROW(list->names, list->capacity, list->count, err);
    char *copy = arena_strndup(&list->arena, name, strlen(name));
    if (copy == NULL)
        return FAIL_NOMEM(err, strlen(name));
    list->names[list->count++] = copy;
    return SIDESTEP_OK;
}

bool name_list_contains(const struct name_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->names[i], name) == 0)
            return true;
    return false;
}

struct reading {
    struct name_list *list;
    enum sidestep_status status;
    struct sidestep_error *err;
};

static bool add_name(void *context, const char *name)
{
    struct reading *reading = context;

    reading->status = name_list_add(reading->list, name, reading->err);
    return reading->status == SIDESTEP_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum sidestep_status name_list_read(struct store_dir *dir, struct name_list *list,
                                    struct sidestep_error *err)
{
    struct reading reading = {.list = list, .err = err};

    TRY(store_dir_list(dir, add_name, &reading, err));
    TRY(reading.status);
    if (list->count != 0)
        qsort(list->names, list->count, sizeof(*list->names), compare_names);
    return SIDESTEP_OK;
}
