/* SPDX-License-Identifier: BSD-3-Clause */
/* writable_targets.c -- see writable_targets.h. */
#include "load/writable_targets.h"

#include <stdlib.h>

#include "base/base.h"
#include "snapshot/snapshot.h"

struct stretch {
    uint64_t begin;
    uint64_t end;
};

/* What may not be written, by address. */
struct closed {
    struct stretch *stretches; /* malloc'ed */
    size_t count;
    size_t room;
    bool no_memory;
};

static void take_mapping(void *context, uint64_t begin, uint64_t end, bool writable)
{
    struct closed *closed = context;

    if (writable || closed->no_memory)
        return;
    if (closed->count == closed->room) {
        size_t room = closed->room != 0 ? 2 * closed->room : 256;
        struct stretch *grown = memory_resize(closed->stretches, room, sizeof(*grown));
        closed->no_memory = grown == NULL;
        if (closed->no_memory)
            return;
        closed->stretches = grown;
        closed->room = room;
    }
    closed->stretches[closed->count++] = (struct stretch){begin, end};
}

/* The first byte of [begin, end) that may not be written; 0: all may. */
static uint64_t find_closed(const struct closed *closed, uint64_t begin, uint64_t end)
{
    size_t low = 0, high = closed->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (closed->stretches[middle].end <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == closed->count || closed->stretches[low].begin >= end)
        return 0;
    return closed->stretches[low].begin > begin ? closed->stretches[low].begin : begin;
}

static enum sidestep_status check_target(const struct closed *closed,
                                         const struct state_entry *target,
                                         struct sidestep_error *err)
{
    uint64_t begin, bytes;

    if (target->is_object || target->on_device != 0)
        return SIDESTEP_OK;
    state_entry_extent(target, &begin, &bytes);
    uint64_t at = find_closed(closed, begin, begin + bytes);
    if (at == 0)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EINVAL,
                "the memory of tensor '%s', into which it is to be loaded, may not be written (at "
                "0x%llx): nothing was loaded",
                target->name, (unsigned long long)at);
}

enum sidestep_status targets_check_writable(const struct load_plan *plan,
                                            struct sidestep_error *err)
{
    struct closed closed = {.count = 0};
    struct sidestep_error unknown;
    enum sidestep_status status = SIDESTEP_OK;

    bool known =
        memory_map_read_access(take_mapping, &closed, &unknown) == SIDESTEP_OK && !closed.no_memory;
    for (size_t c = 0; known && status == SIDESTEP_OK && c < plan->count; c++)
        for (size_t t = 0; status == SIDESTEP_OK && t < plan->chunks[c].target_count; t++)
            status = check_target(&closed, plan->chunks[c].targets[t], err);
    free(closed.stretches);
    return status;
}
