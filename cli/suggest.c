/* SPDX-License-Identifier: BSD-3-Clause */
/* suggest.c -- finds the nearest word by edit distance. */
#include "suggest.h"

#include "commands.h"

#include <assert.h>
#include <string.h>

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The number of insertions, deletions, replacements and swaps of neighbours that turn ${a} into
 * ${b}; both have at most CLI_SUGGEST_MAX bytes.  Computes the optimal string alignment row by row;
 * a swap uses the row before the last one. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    size_t rows[3][CLI_SUGGEST_MAX + 1];
    size_t *two_back = rows[0], *back = rows[1], *row = rows[2];

    assert(a_length <= CLI_SUGGEST_MAX && b_length <= CLI_SUGGEST_MAX);
    for (size_t j = 0; j <= b_length; j++)
        back[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = min_size(back[j] + 1, row[j - 1] + 1);
            row[j] = min_size(row[j], back[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min_size(row[j], two_back[j - 2] + 1);
        }
        size_t *oldest = two_back;
        two_back = back;
        back = row;
        row = oldest;
    }
    return back[b_length];
}

void cli_suggest_init(struct cli_suggest *suggest, const char *typed)
{
    /* Allow one mistake, and more in longer words. */
    size_t allowed = 1 + strlen(typed) / 4;

    *suggest = (struct cli_suggest){.typed = typed, .best_distance = allowed + 1};
}

void cli_suggest_offer(struct cli_suggest *suggest, const char *word)
{
    size_t distance;

    if (strlen(suggest->typed) > CLI_SUGGEST_MAX || strlen(word) > CLI_SUGGEST_MAX)
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
