/* SPDX-License-Identifier: BSD-3-Clause */
/* mirror_plan.c -- decides what is sent to the mirror next, and on how many threads; see mirror.h.
 */
#include "mirror/mirror.h"

#define FILE_THREADS 2u /* a disk gains nothing by more, and the trainer loses time */
#define OBJECT_THREADS 4u

/* The newest item that is there or could be sent; ${count}: there is none. */
static size_t find_newest(const struct mirror_item *items, size_t count)
{
    for (size_t i = count; i-- > 0;)
        if (!items[i].is_left_behind && (items[i].is_there || items[i].objection == NULL))
            return i;
    return count;
}

static bool is_due(int64_t step, int64_t newest_there, uint64_t every)
{
    return newest_there < 0 || (step > newest_there && (uint64_t)(step - newest_there) >= every);
}

size_t mirror_choose(const struct mirror_item *items, size_t count, int64_t newest_there,
                     uint64_t every)
{
    size_t newest = find_newest(items, count);

    if (newest < count && !items[newest].is_there &&
        is_due(items[newest].step, newest_there, every))
        return newest;
    for (size_t i = count; i-- > 0;)
        if (items[i].is_asked && !items[i].is_there && items[i].objection == NULL)
            return i;
    return count;
}

uint32_t mirror_threads(const struct mirror_look *m)
{
    if (m->options.threads != 0)
        return m->options.threads;
    return m->far.store->ops->layout == STORE_OF_KEYS ? OBJECT_THREADS : FILE_THREADS;
}
