/* SPDX-License-Identifier: BSD-3-Clause */
/* writable_targets.c -- finds targets in read-only memory; see writable_targets.h. */
#include "load/writable_targets.h"

#include <stdlib.h>

#include "base/base.h"
#include "snapshot/snapshot.h"

struct byte_range {
    uint64_t begin;
    uint64_t end;
};

/* Memory that is not writable, by address. */
struct read_only {
    struct byte_range *ranges; /* malloc'ed */
    size_t count;
    size_t capacity;
    bool out_of_memory;
};

static void visit_mapping(void *context, uint64_t begin, uint64_t end, bool writable)
{
    struct read_only *read_only = context;

    if (writable || read_only->out_of_memory)
        return;
    struct byte_range *grown =
        memory_grow(read_only->ranges, &read_only->capacity, read_only->count, sizeof(*grown));
    read_only->out_of_memory = grown == NULL;
    if (grown == NULL)
        return;
    read_only->ranges = grown;
    read_only->ranges[read_only->count++] = (struct byte_range){begin, end};
}

/* The first byte of [begin, end) that is not writable; 0: all are. */
static uint64_t find_read_only(const struct read_only *read_only, uint64_t begin, uint64_t end)
{
    size_t low = 0, high = read_only->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (read_only->ranges[middle].end <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == read_only->count || read_only->ranges[low].begin >= end)
        return 0;
    return read_only->ranges[low].begin > begin ? read_only->ranges[low].begin : begin;
}

static enum sidestep_status check_target(const struct read_only *read_only,
                                         const struct state_entry *target,
                                         struct sidestep_error *err)
{
    uint64_t begin, bytes;

    if (target->is_object || target->on_device != 0)
        return SIDESTEP_OK;
    state_entry_extent(target, &begin, &bytes);
    uint64_t at = find_read_only(read_only, begin, begin + bytes);
    if (at == 0)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EINVAL,
                "the memory of tensor '%s' may not be written (at 0x%llx): nothing was loaded",
                target->name, (unsigned long long)at);
}

enum sidestep_status targets_check_writable(const struct load_plan *plan,
                                            struct sidestep_error *err)
{
    struct read_only read_only = {.count = 0};
    struct sidestep_error why;
    enum sidestep_status status = SIDESTEP_OK;

    bool known = memory_map_read_access(visit_mapping, &read_only, &why) == SIDESTEP_OK &&
                 !read_only.out_of_memory;
    for (size_t c = 0; known && status == SIDESTEP_OK && c < plan->count; c++)
        for (size_t t = 0; status == SIDESTEP_OK && t < plan->chunks[c].target_count; t++)
            status = check_target(&read_only, plan->chunks[c].targets[t], err);
    free(read_only.ranges);
    return status;
}
