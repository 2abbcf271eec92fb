/* SPDX-License-Identifier: BSD-3-Clause */
/* rank_list.c -- see rank_list.h. */
#include "comm/rank_list.h"

#include <stdio.h>
#include <string.h>

#define ROOM_FOR_REST 24u /* " and 4294967295 more" */

/* The first rank, from ${rank} on, for which ${is_in} is not ${is_member}; or ${count}. */
static uint32_t end_of_run(bool (*is_in)(const void *context, uint32_t rank), const void *context,
                           uint32_t rank, uint32_t count, bool is_member)
{
    while (rank < count && is_in(context, rank) == is_member)
        rank++;
    return rank;
}

struct rank_list_text rank_list_format(bool (*is_in)(const void *context, uint32_t rank),
                                       const void *context, uint32_t count)
{
    struct rank_list_text out = {""};
    size_t used = 0;
    uint32_t rest = 0;

    for (uint32_t rank = end_of_run(is_in, context, 0, count, false); rank < count;) {
        char range[32];
        uint32_t end = end_of_run(is_in, context, rank, count, true);
        int length = end - rank == 1 ? snprintf(range, sizeof(range), "%u", rank)
                                     : snprintf(range, sizeof(range), "%u-%u", rank, end - 1);
        if (rest != 0 || used + (size_t)length + 2 + ROOM_FOR_REST > sizeof(out.text))
            rest += end - rank;
        else
            used += (size_t)snprintf(out.text + used, sizeof(out.text) - used, "%s%s",
                                     used != 0 ? ", " : "", range);
        rank = end_of_run(is_in, context, end, count, false);
    }
    if (rest != 0)
        snprintf(out.text + used, sizeof(out.text) - used, " and %u more", rest);
    return out;
}
