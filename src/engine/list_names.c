/* SPDX-License-Identifier: BSD-3-Clause */
/* list_names.c -- see list.h: the step in a checkpoint's name. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/owned.h"
#include "engine/list.h"
#include "format/names.h"

/* The number in [begin, end); -1: it has no digit, or is too large. */
static int64_t parse_number(const char *begin, const char *end)
{
    int64_t number = 0;

    if (begin == end)
        return -1;
    for (; begin < end; begin++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *begin - '0', &number))
            return -1;
    return number;
}

/* The first of the digits that [name, end) ends with. */
static const char *last_digits(const char *name, const char *end)
{
    while (end > name && isdigit((unsigned char)end[-1]))
        end--;
    return end;
}

int64_t list_number_of(const char *name)
{
    const char *end = name + strlen(name);

    return parse_number(last_digits(name, end), end);
}

bool list_is_member(const char *prefix, const char *name, uint64_t *step)
{
    char again[NAMES_MAX];
    int64_t number = list_number_of(name);

    if (strncmp(name, prefix, strlen(prefix)) != 0 || number < 0)
        return false;
    snprintf(again, sizeof(again), "%s%lld", prefix, (long long)number);
    *step = (uint64_t)number;
    return strcmp(again, name) == 0;
}

static bool ends_with(const char *name, const char *end, const char *text)
{
    size_t length = strlen(text);

    return (size_t)(end - name) >= length && memcmp(end - length, text, length) == 0;
}

/* What may stand before the number of a step. */
static bool is_step_prefix(const char *name, const char *end)
{
    static const char *const whole[] = {
        "",      "step-", "step_",  "checkpoint-", "checkpoint_", "global_step", "global_step_",
        "iter_", "epoch", "epoch-", "epoch_",      "epoch=",
    };
    static const struct {
        const char *before, *between; /* a number lies between the two */
    } two[] = {{"epoch_", "_step_"} /* NeMo */, {"epoch=", "-step="} /* Lightning */};

    for (size_t i = 0; i < ARRAY_LENGTH(whole); i++)
        if (strlen(whole[i]) == (size_t)(end - name) && ends_with(name, end, whole[i]))
            return true;
    for (size_t i = 0; i < ARRAY_LENGTH(two); i++) {
        if (!ends_with(name, end, two[i].between))
            continue;
        const char *digits_end = end - strlen(two[i].between);
        const char *digits = last_digits(name, digits_end);
        if (digits != digits_end && (size_t)(digits - name) == strlen(two[i].before) &&
            ends_with(name, digits, two[i].before))
            return true;
    }
    return false;
}

int64_t list_step_of(const char *name)
{
    const char *end = name + strlen(name);

    if (ends_with(name, end, ".ckpt")) /* Lightning */
        end -= strlen(".ckpt");
    const char *digits = last_digits(name, end);
    return is_step_prefix(name, digits) ? parse_number(digits, end) : -1;
}
