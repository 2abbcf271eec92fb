/* SPDX-License-Identifier: BSD-3-Clause */
/* suggest.h -- finds the word that was probably meant, for "did you mean". Long words are
 * neither corrected nor suggested. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

#include <stddef.h>

struct cli_suggest {
    const char *typed;
    const char *best; /* NULL: nothing is near */
    size_t best_distance;
};

void cli_suggest_init(struct cli_suggest *suggest, const char *typed);
/** cli_suggest_offer(suggest, word): make ${word} ${best} if it is nearer. */
void cli_suggest_offer(struct cli_suggest *suggest, const char *word);

/** cli_suggest_command(typed): the command that was probably meant; NULL if none is near. */
const char *cli_suggest_command(const char *typed);

#endif
