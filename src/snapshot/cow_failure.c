/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_failure.c -- records why a save of protected memory failed, and names the tensor; see cow.h.
 * Everything here obeys rule 2: it may run while any page of the process is protected. */
#include <assert.h>

#include "snapshot/cow_internal.h"

void cow_record_failure(struct cow *cow, const struct sidestep_error *why)
{
    assert(why->status != SIDESTEP_OK);
    if (!cow->shared.failed)
        cow->shared.err = *why;
    cow->shared.failed = true;
    lock_wake_all(&cow->shared.changed);
}

enum sidestep_status cow_first_failure(const struct cow *cow, struct sidestep_error *err)
{
    if (!cow->shared.failed)
        return SIDESTEP_OK;
    error_copy(err, &cow->shared.err);
    return (enum sidestep_status)cow->shared.err.status;
}

void cow_mark_unreliable(struct cow *cow, const struct sidestep_error *why)
{
    lock_acquire(&cow->shared.lock);
    if (!cow->shared.failed) {
        cow->shared.unreliable = true;
        cow_record_failure(cow, why);
    }
    lock_release(&cow->shared.lock);
}

const struct cow_piece *cow_find_piece(const struct cow *cow, size_t g, uint64_t begin,
                                       uint64_t end)
{
    const struct cow_plan *plan = &cow->plan;
    assert(g < plan->granule_count);
    const struct cow_piece *first = &plan->pieces[plan->granules[g].first_piece];

    for (const struct cow_piece *piece = first;
         piece < &plan->pieces[plan->granules[g + 1].first_piece]; piece++)
        if (piece->address < end && begin < piece->address + piece->bytes)
            return piece;
    return first;
}

const char *cow_tensor_name(const struct cow *cow, const struct cow_piece *piece)
{
    assert(piece->item < cow->image->tensor_count);
    return cow->image->items[piece->item].footer.name;
}

enum sidestep_status cow_fail_lost(const struct cow *cow, const struct cow_piece *piece,
                                   uint64_t address, int sys_errno, const char *how,
                                   struct sidestep_error *err)
{
    return error_set(err, SIDESTEP_EINVAL, sys_errno, HERE,
                     "memory of tensor '%s' at 0x%llx was %s before the save had RELEASED it. Wait "
                     "for RELEASED before memory of the state is freed, resized or moved (in torch "
                     "also by share_memory_() and by put() of a queue), or save by copy",
                     cow_tensor_name(cow, piece), (unsigned long long)address, how);
}

enum sidestep_status cow_report_unreadable(const struct cow *cow, const struct cow_piece *piece,
                                           uint64_t address, int sys_errno,
                                           struct sidestep_error *err)
{
    if (sys_errno == EFAULT)
        return cow_fail_lost(cow, piece, address, sys_errno, "unmapped, or made unreadable,", err);
    return error_set(err, SIDESTEP_EIO, sys_errno, HERE, "read memory of tensor '%s' at 0x%llx",
                     cow_tensor_name(cow, piece), (unsigned long long)address);
}
