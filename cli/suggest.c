/* SPDX-License-Identifier: BSD-3-Clause */
/* suggest.c -- see suggest.h. */
#include "suggest.h"

#include <string.h>

#include "commands.h"
#include "src/base/edit_distance.h"

void cli_suggest_init(struct cli_suggest *suggest, const char *typed)
{
    /* Allow one mistake, and more in longer words. */
    size_t allowed = 1 + strlen(typed) / 4;

    *suggest = (struct cli_suggest){.typed = typed, .best_distance = allowed + 1};
}

void cli_suggest_offer(struct cli_suggest *suggest, const char *word)
{
    size_t distance;

    if (strlen(suggest->typed) > EDIT_DISTANCE_MAX || strlen(word) > EDIT_DISTANCE_MAX)
        return;
    distance = edit_distance(suggest->typed, word);
    /* If every letter is wrong, it is not a typing mistake. */
    if (distance < suggest->best_distance && distance < strlen(word)) {
        suggest->best = word;
        suggest->best_distance = distance;
    }
}

const char *cli_suggest_command(const char *typed)
{
    struct cli_suggest suggest;

    cli_suggest_init(&suggest, typed);
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++)
        cli_suggest_offer(&suggest, command->name);
    return suggest.best;
}
