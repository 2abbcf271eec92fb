/* SPDX-License-Identifier: BSD-3-Clause */
/* writers.c -- see writers.h: keeps the list of ranks. */
#include "root/writers.h"

#include <stdlib.h>

#include "base/base.h"

void writers_release(struct writers *writers)
{
    free(writers->seen);
    *writers = (struct writers){0};
}

static enum sidestep_status find(struct writers *writers, uint32_t rank, struct writer **out,
                                 struct sidestep_error *err)
{
    for (size_t i = writers->count; i-- > 0;)
        if (writers->seen[i].rank == rank) {
            *out = &writers->seen[i];
            return SIDESTEP_OK;
        }
    TRY_GROW(writers->seen, writers->capacity, writers->count, err);
    *out = &writers->seen[writers->count++];
    **out = (struct writer){.rank = rank, .state = WRITER_WRITING};
    return SIDESTEP_OK;
}

enum sidestep_status writers_note(struct writers *writers, uint32_t rank, enum writer_state state,
                                  struct writer **out, struct sidestep_error *err)
{
    struct writer *writer = NULL;

    TRY(find(writers, rank, &writer, err));
    if (state > writer->state)
        writer->state = state;
    if (out != NULL)
        *out = writer;
    return SIDESTEP_OK;
}
