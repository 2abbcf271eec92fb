/* SPDX-License-Identifier: BSD-3-Clause */
/* absent.c -- see absent.h. */
#include "commit/absent.h"

#include "commit/name_list.h"
#include "commit/named.h"
#include "format/names.h"
#include "model/shown.h"

#define LOOKS 1000u /* into what lies in it; what a series keeps is fewer */

/* What lies in ${dir} and has a .metadata: the last of them by name; NULL: nothing has. */
static const char *find_one(struct store_dir *dir, const struct name_list *names)
{
    size_t first = names->count > LOOKS ? names->count - LOOKS : 0;

    for (size_t i = names->count; i > first; i--)
        if (names->names[i - 1][0] != '.' &&
            named_has_metadata(dir->store, dir, names->names[i - 1]))
            return names->names[i - 1];
    return NULL;
}

enum sidestep_status absent_metadata(struct store_dir *dir, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    const char *one = NULL;

    if (name_list_read(dir, &names, NULL) == SIDESTEP_OK)
        one = find_one(dir, &names);
    if (one == NULL)
        return FAIL(err, SIDESTEP_EUNCOMMITTED, "there is no %s", NAMES_METADATA);
    return FAIL(err, SIDESTEP_EUNCOMMITTED,
                "there is no %s; but checkpoints lie in it, as '%s': name the one that is meant",
                NAMES_METADATA, shown_name(one).text);
}
