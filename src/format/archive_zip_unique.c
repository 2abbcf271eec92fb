/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_zip_unique.c -- refuses a zip with two members of one name.  torch ignores case when it
 * finds members, so names that differ only in case are the same.
 */
#include <strings.h>

#include "base/base.h"
#include "format/archive_zip.h"

static enum sidestep_status refuse(const struct archive_member *m, struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_ECORRUPT, "zip: it has '%.*s' twice",
                (int)min_u64(m->name_length, 96), m->name);
}

/* For an item, which has few members.  Allocates nothing. */
static enum sidestep_status check_pairs(const struct archive_zip *zip, struct sidestep_error *err)
{
    for (size_t i = 1; i < zip->count; i++)
        for (size_t j = 0; j < i; j++) {
            const struct archive_member *a = &zip->members[i];
            const struct archive_member *b = &zip->members[j];

            if (a->name_length == b->name_length &&
                strncasecmp(a->name, b->name, a->name_length) == 0)
                return refuse(a, err);
        }
    return SIDESTEP_OK;
}

static enum sidestep_status check_table(const struct archive_zip *zip, struct sidestep_error *err)
{
    OWNED_HASH_TABLE seen = {0};
    OWNED_ARENA lower_names = {0};
    size_t existing;

    for (size_t i = 0; i < zip->count; i++) {
        const struct archive_member *m = &zip->members[i];
        char *lower = arena_strndup(&lower_names, m->name, m->name_length);

        if (lower == NULL)
            return FAIL_NOMEM(err, m->name_length);
        for (char *c = lower; *c != '\0'; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c + ('a' - 'A'));
        TRY(hash_table_insert(&seen, lower, i, &existing, err));
        if (existing != SIZE_MAX)
            return refuse(m, err);
    }
    return SIDESTEP_OK;
}

enum sidestep_status archive_zip_check_unique(const struct archive_zip *zip,
                                              struct sidestep_error *err)
{
    return zip->is_large ? check_table(zip, err) : check_pairs(zip, err);
}
