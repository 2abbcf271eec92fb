/* SPDX-License-Identifier: BSD-3-Clause */
/* huge_pages.c -- puts tensors on huge pages, which make write protection cheap. */
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "model/model.h"
#include "snapshot/snapshot.h"

_Static_assert(sizeof(struct sidestep_huge_pages) == 40, "a field was added: fill it below");

static void collapse(uint64_t begin, uint64_t end, struct sidestep_huge_pages *report)
{
    void *memory = (void *)(uintptr_t)begin;

    /* For pages that cannot be moved now, and for those that are touched later. */
    (void)madvise(memory, end - begin, MADV_HUGEPAGE);
    for (uint64_t at = begin; at < end; at += huge_page_bytes()) {
        bool made = huge_page_collapse(at);
        report->bytes += huge_page_bytes();
        if (made)
            report->huge_bytes += huge_page_bytes();
        else if (report->sys_errno == 0)
            report->sys_errno = errno;
    }
}

static size_t tensor_ranges(const struct sidestep_state_dict *state, struct cow_range *ranges)
{
    size_t count = 0;

    for (size_t i = 0; i < state->count; i++) {
        const struct state_entry *entry = &state->entries[i];
        if (entry->is_object || entry->data == NULL ||
            !box_is_row_major(entry->ndim, entry->box.lengths, entry->strides))
            continue;
        uint64_t begin = (uint64_t)(uintptr_t)entry->data;
        uint64_t bytes = box_volume(&entry->box) * sidestep_dtype_size(entry->dtype);
        ranges[count++] = (struct cow_range){.begin = begin, .end = begin + bytes};
    }
    return cow_plan_merge_ranges(ranges, count);
}

enum sidestep_status sidestep_state_dict_huge_pages(const struct sidestep_state_dict *state,
                                                    struct sidestep_huge_pages *report,
                                                    struct sidestep_error *err)
{
    struct sidestep_huge_pages found = {0};
    struct clock *clock = clock_system();
    uint64_t began = clock_now(clock);

    if (state == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "state is NULL");
    if (report != NULL && report->struct_size < sizeof(size_t))
        return FAIL(err, SIDESTEP_EINVAL, "report.struct_size is not set");
    OWNED struct cow_range *ranges = memory_new(state->count, sizeof(*ranges));
    if (ranges == NULL)
        return FAIL_NOMEM(err, state->count * sizeof(*ranges));
    size_t count = tensor_ranges(state, ranges);
    for (size_t i = 0; i < count; i++) {
        uint64_t begin = round_up(ranges[i].begin, huge_page_bytes());
        uint64_t end = round_down(ranges[i].end, huge_page_bytes());
        if (begin < end)
            collapse(begin, end, &found);
    }
    found.took_ns = clock_now(clock) - began;
    if (report == NULL)
        return SIDESTEP_OK;
    found.struct_size = report->struct_size;
    memcpy(report, &found, min_u64(found.struct_size, sizeof(found)));
    return SIDESTEP_OK;
}
