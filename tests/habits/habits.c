/* SPDX-License-Identifier: BSD-3-Clause */
/* habits.c -- the names of habits; see habits.h. */
#include "habits/habits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum { IS_SWITCH, IS_NUMBER, IS_SECONDS } kind;
    size_t at;
} all[] = {
    {"remember", IS_SECONDS, offsetof(struct habits, remember)},
    {"remember-stubbornly", IS_SWITCH, offsetof(struct habits, remember_stubbornly)},
    {"no-flags", IS_SWITCH, offsetof(struct habits, no_flags)},
    {"no-rename", IS_SWITCH, offsetof(struct habits, no_rename)},
    {"no-dir-rename", IS_SWITCH, offsetof(struct habits, no_dir_rename)},
    {"no-link", IS_SWITCH, offsetof(struct habits, no_link)},
    {"no-locks", IS_SWITCH, offsetof(struct habits, no_locks)},
    {"local-locks", IS_SWITCH, offsetof(struct habits, local_locks)},
    {"no-dir-sync", IS_SWITCH, offsetof(struct habits, no_dir_sync)},
    {"append-only", IS_SWITCH, offsetof(struct habits, append_only)},
    {"silly", IS_SWITCH, offsetof(struct habits, silly)},
    {"stale", IS_SWITCH, offsetof(struct habits, stale)},
    {"lost", IS_NUMBER, offsetof(struct habits, lost)},
    {"close-error", IS_NUMBER, offsetof(struct habits, close_error)},
};

bool habits_parse(struct habits *habits, const char *word)
{
    size_t length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strlen(all[i].name) != length || strncmp(all[i].name, word, length) != 0)
            continue;
        void *to = (char *)habits + all[i].at;
        if ((value != NULL) != (all[i].kind != IS_SWITCH))
            return false;
        if (all[i].kind == IS_SWITCH)
            *(bool *)to = true;
        else if (all[i].kind == IS_NUMBER)
            *(unsigned *)to = (unsigned)strtoul(value, NULL, 10);
        else
            *(double *)to = strtod(value, NULL);
        return true;
    }
    return false;
}

void habits_list(void)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        fprintf(stderr, "    %s%s\n", all[i].name, all[i].kind == IS_SWITCH ? "" : "=N");
}
