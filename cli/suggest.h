/* SPDX-License-Identifier: BSD-3-Clause */
/* suggest.h -- "did you mean": the nearest of some words, if any is near enough. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

#include <stddef.h>

/** Longer words than this are neither corrected nor offered: distances cost length squared. */
#define CLI_SUGGEST_MAX 96

struct cli_suggest {
    const char *typed;
    const char *best; /* NULL: nothing is near */
    size_t best_distance;
};

void cli_suggest_init(struct cli_suggest *suggest, const char *typed);
/** cli_suggest_offer(suggest, word): ${word} is kept as ${best} if it is nearer than the rest. */
void cli_suggest_offer(struct cli_suggest *suggest, const char *word);

/** cli_suggest_command(typed): the command that was probably meant; NULL if none is near. */
const char *cli_suggest_command(const char *typed);

/** cli_suggest_distance(a, b): insertions, deletions, replacements and swaps of neighbours that
 * turn ${a} into ${b}; both at most CLI_SUGGEST_MAX bytes. */
size_t cli_suggest_distance(const char *a, const char *b);

#endif
