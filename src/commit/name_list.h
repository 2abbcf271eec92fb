/* SPDX-License-Identifier: BSD-3-Clause */
/* name_list.h -- a sorted list of the names in a directory, read before anything is changed in
 * it. */
#ifndef COMMIT_NAME_LIST_H
#define COMMIT_NAME_LIST_H

#include "base/base.h"
#include "store/store.h"

struct name_list {
    struct arena arena;
    char **names;
    size_t count;
    size_t capacity;
};

void name_list_release(struct name_list *list);
#define OWNED_NAMES __attribute__((cleanup(name_list_release)))

enum sidestep_status name_list_add(struct name_list *list, const char *name,
                                   struct sidestep_error *err);
bool name_list_contains(const struct name_list *list, const char *name);
enum sidestep_status name_list_read(struct store_dir *dir, struct name_list *list,
                                    struct sidestep_error *err);

#endif
