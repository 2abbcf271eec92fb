/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_neighbour.c -- how the writers of a pipeline give way to training; see neighbour.h. */
#include "engine/pipeline_inside.h"

uint64_t pipeline_give_way(struct pipeline *p, uint64_t bytes)
{
    if (p->neighbour == NULL)
        return 0;
    return neighbour_take(p->neighbour, bytes, p->bytes_per_second,
                          p->cow != NULL ? cow_is_full(p->cow) : NULL, &p->stop);
}

bool pipeline_may_write(struct pipeline *p, uint64_t bytes)
{
    return p->neighbour == NULL || neighbour_try(p->neighbour, bytes, p->bytes_per_second,
                                                 p->cow != NULL ? cow_is_full(p->cow) : NULL);
}

void pipeline_join(struct pipeline *p)
{
    if (p->neighbour != NULL)
        neighbour_join(p->neighbour);
    if (p->cow != NULL)
        cow_join(p->cow,
                 p->neighbour != NULL && p->neighbour->lower ? &p->neighbour->rights : NULL);
}

void pipeline_leave(struct pipeline *p)
{
    if (p->cow != NULL)
        cow_leave(p->cow);
    if (p->neighbour != NULL)
        neighbour_leave(p->neighbour);
}

void pipeline_calm(struct pipeline *p)
{
    if (p->cow != NULL && p->neighbour != NULL && cow_was_raised(p->cow))
        neighbour_calm(p->neighbour);
}
