/* SPDX-License-Identifier: BSD-3-Clause */
/* weights.c -- see weights.h. */
#include "checkpoint/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/model.h"

#define OF "-of-"
#define MIN_DIGITS 4u /* "epoch-3-of-10" is no file of a set */
#define MAX_DIGITS 6u
#define MAX_NAMED 3u /* in a message */

/* The parts of "model-00001-of-00002.safetensors". */
struct member {
    const char *name;
    size_t stem; /* bytes of "model-" */
    size_t digits;
    unsigned long number, total;
};

static bool parse(const char *name, const char *suffix, struct member *member)
{
    const char *of = NULL;

    for (const char *next = name; (next = strstr(next, OF)) != NULL; next++)
        of = next;
    if (of == NULL || !file_name_has_suffix(name, suffix))
        return false;
    const char *number = of, *total = of + strlen(OF);
    while (number > name && number[-1] >= '0' && number[-1] <= '9')
        number--;
    size_t digits = strspn(total, "0123456789");
    if (digits < MIN_DIGITS || digits > MAX_DIGITS || (size_t)(of - number) != digits ||
        number == name || total[digits] != '.')
        return false;
    *member = (struct member){.name = name,
                              .stem = (size_t)(number - name),
                              .digits = digits,
                              .number = strtoul(number, NULL, 10),
                              .total = strtoul(total, NULL, 10)};
    return true;
}

/* The name of another file of the same set. */
static const char *name_of(const struct member *member, unsigned long number,
                           char name[FILE_NAME_BYTES])
{
    snprintf(name, FILE_NAME_BYTES, "%.*s%0*lu%s", (int)member->stem, member->name,
             (int)member->digits, number, member->name + member->stem + member->digits);
    return name;
}

static bool has(const struct name_list *names, const struct member *member, unsigned long number)
{
    char name[FILE_NAME_BYTES];

    return name_list_contains(names, name_of(member, number, name));
}

void weights_add_missing(struct weights_missing *missing, const char *name)
{
    size_t used = strlen(missing->text);

    if (missing->count++ < MAX_NAMED)
        snprintf(missing->text + used, sizeof(missing->text) - used, "%s%s", used != 0 ? ", " : "",
                 display_name(name).text);
}

void weights_say_missing(const struct weights_missing *missing, char text[WEIGHTS_TEXT_BYTES])
{
    char more[32] = "";

    if (missing->count > MAX_NAMED)
        snprintf(more, sizeof(more), " and %zu more", missing->count - MAX_NAMED);
    snprintf(text, WEIGHTS_TEXT_BYTES, "%s%s %s missing", missing->text, more,
             missing->count == 1 ? "is" : "are");
}

enum sidestep_status weights_check_missing(const struct weights_missing *missing,
                                           struct sidestep_error *err)
{
    char text[WEIGHTS_TEXT_BYTES];

    if (missing->count == 0)
        return SIDESTEP_OK;
    weights_say_missing(missing, text);
    return FAIL(err, SIDESTEP_EUNCOMMITTED, "the weights are incomplete: %s", text);
}

/* Numbers begin with 1, or, with some programs, with 0. A set is looked at by its first file; if
 * that is missing, by each file, of which one is enough. */
void weights_find_missing(const struct name_list *names, const char *suffix,
                          struct weights_missing *missing)
{
    struct member member;
    char name[FILE_NAME_BYTES];

    for (size_t i = 0; i < names->count && missing->count == 0; i++) {
        if (!parse(names->names[i], suffix, &member) || strlen(member.name) >= sizeof(name))
            continue;
        unsigned long first = has(names, &member, 0) ? 0 : 1;
        if (member.number != first && has(names, &member, first))
            continue;
        for (unsigned long n = first; n < first + member.total; n++)
            if (!has(names, &member, n))
                weights_add_missing(missing, name_of(&member, n, name));
    }
}
