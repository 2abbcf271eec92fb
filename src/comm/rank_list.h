/* SPDX-License-Identifier: BSD-3-Clause */
/* rank_list.h -- writes a set of ranks as people do: "0-3, 7, 9". */
#ifndef COMM_RANK_LIST_H
#define COMM_RANK_LIST_H

#include "base/base.h"

struct rank_list_text {
    char text[96];
};

/* The ranks below ${count} for which ${is_in} is true, as ranges; "" if there are none.  A long
 * list ends after a whole range, and says how many ranks it omits. */
struct rank_list_text rank_list_format(bool (*is_in)(const void *context, uint32_t rank),
                                       const void *context, uint32_t count);

#endif
