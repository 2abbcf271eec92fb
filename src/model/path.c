/* SPDX-License-Identifier: BSD-3-Clause */
/* path.c -- see path.h. */
#include "model/path.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *path_item_text(const struct sidestep_path_item *item,
                           char decimal[PATH_ITEM_DECIMAL_BYTES])
{
    if (item->key != NULL)
        return item->key;
    snprintf(decimal, PATH_ITEM_DECIMAL_BYTES, "%" PRId64, item->index);
    return decimal;
}

bool path_matches_name(const char *name, const struct sidestep_path_item *path,
                       uint32_t path_length)
{
    char decimal[PATH_ITEM_DECIMAL_BYTES];

    for (uint32_t i = 0; i < path_length; i++) {
        const char *text = path_item_text(&path[i], decimal);
        size_t length = strlen(text);

        if ((i != 0 && *name++ != '.') || strncmp(name, text, length) != 0)
            return false;
        name += length;
    }
    return *name == '\0';
}

enum sidestep_status path_copy(struct arena *arena, const struct sidestep_path_item *path,
                               uint32_t path_length, const struct sidestep_path_item **copy,
                               struct sidestep_error *err)
{
    struct sidestep_path_item *items = arena_copy(arena, path, path_length * sizeof(*items));

    if (items == NULL)
        return FAIL_NOMEM(err, path_length * sizeof(*items));
    for (uint32_t i = 0; i < path_length; i++) {
        if (path[i].key == NULL)
            continue;
        items[i].index = 0;
        items[i].key = arena_strndup(arena, path[i].key, strlen(path[i].key));
        if (items[i].key == NULL)
            return FAIL_NOMEM(err, strlen(path[i].key) + 1);
    }
    *copy = items;
    return SIDESTEP_OK;
}

uint64_t path_int_keys(const struct sidestep_path_item *path, uint32_t path_length)
{
    uint64_t integers = 0;

    for (uint32_t i = 0; i < path_length; i++)
        if (path_item_is_int_key(&path[i]))
            integers |= (uint64_t)1 << i;
    return integers;
}

/* Parse "-" and digits, without leading zeroes, that fit into 64 bits. */
static bool parse_decimal(const char *text, int64_t *number)
{
    bool negative = text[0] == '-';
    const char *digits = text + negative;
    uint64_t limit = (uint64_t)INT64_MAX + negative, value = 0;

    if (digits[0] == '\0' || (digits[0] == '0' && (digits[1] != '\0' || negative)))
        return false;
    for (; *digits != '\0'; digits++) {
        uint64_t digit = (uint64_t)(*digits - '0');

        if (*digits < '0' || *digits > '9' || value > (limit - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *number = negative ? (int64_t)-value : (int64_t)value;
    return true;
}

bool path_set_int_keys(struct sidestep_path_item *path, uint32_t path_length, uint64_t integers)
{
    int64_t number;

    if (path_length < 64 && integers >> path_length != 0)
        return false;
    for (uint32_t i = 0; i < path_length; i++)
        if ((integers >> i & 1) != 0 &&
            (path[i].key == NULL || !parse_decimal(path[i].key, &number)))
            return false;
    for (uint32_t i = 0; i < path_length; i++)
        if ((integers >> i & 1) != 0) {
            (void)parse_decimal(path[i].key, &number);
            path[i] = (struct sidestep_path_item){.index = number, .flags = SIDESTEP_PATH_INT_KEY};
        }
    return true;
}
