/* SPDX-License-Identifier: BSD-3-Clause */
/* edit_distance.h -- how many typing mistakes lead from one word to another, for "did you mean".
 * The command line includes this file, too. */
#ifndef BASE_EDIT_DISTANCE_H
#define BASE_EDIT_DISTANCE_H

#include <assert.h>
#include <string.h>

#define EDIT_DISTANCE_MAX 96u /* bytes of a word; the cost is the length squared */

static inline size_t edit_distance_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The number of insertions, deletions, replacements and swaps of neighbours that turn ${a} into
 * ${b}; both have at most EDIT_DISTANCE_MAX bytes.  Computes the optimal string alignment row by
 * row; a swap uses the row before the last one. */
static inline size_t edit_distance(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    size_t rows[3][EDIT_DISTANCE_MAX + 1];
    size_t *two_back = rows[0], *back = rows[1], *row = rows[2];

    assert(a_length <= EDIT_DISTANCE_MAX && b_length <= EDIT_DISTANCE_MAX);
    for (size_t j = 0; j <= b_length; j++)
        back[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = edit_distance_min(back[j] + 1, row[j - 1] + 1);
            row[j] = edit_distance_min(row[j], back[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = edit_distance_min(row[j], two_back[j - 2] + 1);
        }
        size_t *oldest = two_back;
        two_back = back;
        back = row;
        row = oldest;
    }
    return back[b_length];
}

#endif
