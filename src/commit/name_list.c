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

struct list_reader {
    struct name_list *list;
    enum sidestep_status status;
    struct sidestep_error *err;
};

static bool add_name(void *context, const char *name)
{
    struct list_reader *reader = context;

    reader->status = name_list_add(reader->list, name, reader->err);
    return reader->status == SIDESTEP_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum sidestep_status name_list_read(struct store_dir *dir, struct name_list *list,
                                    struct sidestep_error *err)
{
    struct list_reader reader = {.list = list, .err = err};

    TRY(store_dir_list(dir, add_name, &reader, err));
    TRY(reader.status);
    if (list->count != 0)
        qsort(list->names, list->count, sizeof(*list->names), compare_names);
    return SIDESTEP_OK;
}
