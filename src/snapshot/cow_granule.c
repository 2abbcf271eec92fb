/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_granule.c -- see cow.h: a granule is taken, copied and given back.  Everything here obeys
 * rule 2: it may run while any page of the process is protected. */
#include <assert.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fault.h"
#include "base/nontemporal_copy.h"
#include "snapshot/cow_internal.h"

/* Bytes [begin, end) of the process's memory are at ${from}: to the places of what is claimed. */
static void place_bytes(struct cow *cow, size_t g, const uint8_t *from, uint64_t begin,
                        uint64_t end)
{
    const struct cow_plan *plan = &cow->plan;
    uint8_t *place = NULL;
    size_t window = SIZE_MAX;

    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        uint64_t first = max_u64(begin, piece->address);
        uint64_t last = min_u64(end, piece->address + piece->bytes);
        if (first >= last || cow->shared.pieces[i] != COW_COPYING)
            continue;
        if (piece->window != window) {
            window = piece->window;
            place = places_of(cow->places, window) - plan->cuts[window];
        }
        stream_copy(place + piece->file_offset + (first - piece->address), from + (first - begin),
                    last - first);
    }
}

int cow_read(void *to, uint64_t from, size_t bytes)
{
    struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)from, bytes};

    if (fault_hit("cow.read"))
        return errno;
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (n < 0)
        return errno;
    return (size_t)n == bytes ? 0 : EFAULT;
}

const struct cow_piece *cow_piece_in(const struct cow *cow, size_t g, uint64_t begin, uint64_t end)
{
    const struct cow_plan *plan = &cow->plan;
    const struct cow_piece *first = &plan->pieces[plan->granules[g].first_piece];

    for (const struct cow_piece *piece = first;
         piece < &plan->pieces[plan->granules[g + 1].first_piece]; piece++)
        if (piece->address < end && begin < piece->address + piece->bytes)
            return piece;
    return first;
}

const char *cow_name(const struct cow *cow, const struct cow_piece *piece)
{
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
                     cow_name(cow, piece), (unsigned long long)address, how);
}

enum sidestep_status cow_fail_read(const struct cow *cow, const struct cow_piece *piece,
                                   uint64_t address, int sys_errno, struct sidestep_error *err)
{
    if (sys_errno == EFAULT)
        return cow_fail_lost(cow, piece, address, sys_errno, "unmapped, or made unreadable,", err);
    return error_set(err, SIDESTEP_EIO, sys_errno, HERE, "read memory of tensor '%s' at 0x%llx",
                     cow_name(cow, piece), (unsigned long long)address);
}

/* What of granule ${g} is claimed lies in [*begin, *end). */
static void span_claimed(const struct cow *cow, size_t g, uint64_t *begin, uint64_t *end)
{
    const struct cow_plan *plan = &cow->plan;

    *begin = plan->granules[g].end;
    *end = plan->granules[g].begin;
    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        if (cow->shared.pieces[i] != COW_COPYING)
            continue;
        *begin = min_u64(*begin, piece->address);
        *end = max_u64(*end, piece->address + piece->bytes);
    }
}

static enum sidestep_status copy_claimed(struct cow *cow, size_t g, uint8_t *bounce,
                                         struct sidestep_error *err)
{
    uint64_t begin, end;

    span_claimed(cow, g, &begin, &end);
    for (uint64_t at = begin; at < end; at += COW_COPY_BYTES) {
        uint64_t next = min_u64(at + COW_COPY_BYTES, end);
        int failed = cow_read(bounce, at, next - at);
        if (failed != 0)
            return cow_fail_read(cow, cow_piece_in(cow, g, at, next), at, failed, err);
        place_bytes(cow, g, bounce, at, next);
    }
    return SIDESTEP_OK;
}

unsigned cow_claim_bounce(struct cow *cow)
{
    unsigned bounce = 0;

    pthread_mutex_lock(&cow->shared.lock);
    while (cow->shared.free_bounces[bounce / 64] == 0)
        bounce += 64;
    assert(bounce < COW_BOUNCES);
    bounce += (unsigned)__builtin_ctzll(cow->shared.free_bounces[bounce / 64]);
    cow->shared.free_bounces[bounce / 64] &= ~((uint64_t)1 << bounce % 64);
    pthread_mutex_unlock(&cow->shared.lock);
    return bounce;
}

void cow_free_bounce(struct cow *cow, unsigned bounce)
{
    cow->shared.free_bounces[bounce / 64] |= (uint64_t)1 << bounce % 64;
}

/* Locked: somebody has waited since ${since_ns}. */
static void account_wait(struct cow *cow, uint64_t since_ns)
{
    uint64_t waited = cow_now() - since_ns;

    cow->shared.stats.fault_ns += waited;
    cow->shared.stats.fault_max_ns = max_u64(cow->shared.stats.fault_max_ns, waited);
}

void cow_end_waiting(struct cow *cow, size_t g)
{
    struct cow_cell *cell = &cow->shared.cells[g];

    if (cell->waited_ns == 0)
        return;
    account_wait(cow, cell->waited_ns);
    cell->waited_ns = 0;
    if (--cow->shared.waiting == 0)
        atomic_store(&cow->full, false);
}

uint64_t cow_claim(struct cow *cow, size_t g, bool open)
{
    const struct cow_plan *plan = &cow->plan;
    size_t window = SIZE_MAX;
    bool has_place = false;
    uint64_t bytes = 0;

    assert(cow->shared.cells[g].state == COW_PROTECTED);
    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        if (cow->shared.pieces[i] != COW_UNTOUCHED)
            continue;
        if (piece->window != window) {
            window = piece->window;
            has_place = (open ? places_take(cow->places, window, PLACES_ANY)
                              : places_of(cow->places, window)) != NULL;
        }
        if (!has_place)
            continue;
        cow->shared.pieces[i] = COW_COPYING;
        bytes += piece->bytes;
    }
    if (bytes != 0)
        cow->shared.cells[g].state = COW_TAKEN;
    return bytes;
}

/* Locked: what was claimed of granule ${g} is copied, or the save has failed; true: it was the last
 * of it. */
static bool end_copy(struct cow *cow, size_t g)
{
    const struct cow_plan *plan = &cow->plan;

    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++)
        if (cow->shared.pieces[i] == COW_COPYING) {
            cow->shared.pieces[i] = COW_DONE;
            cow->shared.cells[g].missing--;
        }
    return cow->shared.cells[g].missing == 0;
}

/* Copy what was claimed of granule ${g}, and see that it is what was there in the call. */
static void copy_checked(struct cow *cow, size_t g, uint8_t *bounce)
{
    struct sidestep_error why = {0};
    enum sidestep_status status = copy_claimed(cow, g, bounce, &why);

    (void)fault_hit("cow.copied");
    if (status != SIDESTEP_OK) {
        pthread_mutex_lock(&cow->shared.lock);
        cow_fail(cow, &why);
        pthread_mutex_unlock(&cow->shared.lock);
    } else {
        cow_check_pages(cow, g, COW_COPYING, SIZE_MAX);
    }
}

static void poke(struct cow *cow)
{
    uint64_t one = 1;

    /* Should the counter be full, it is readable. */
    if (write(cow->poke_fd, &one, sizeof(one)) < 0)
        return;
}

void cow_give_back(struct cow *cow, size_t g)
{
    const struct cow_granule *granule = &cow->plan.granules[g];

    pthread_mutex_unlock(&cow->shared.lock);
    cow_lift(cow, granule->begin, granule->end);
    (void)fault_hit("cow.lifted");
    pthread_mutex_lock(&cow->shared.lock);
    cow_end_waiting(cow, g);
    cow->shared.cells[g].state = COW_GIVEN_BACK;
    cow->shared.left--;
}

void cow_take(struct cow *cow, size_t g)
{
    struct cow_cell *cell = &cow->shared.cells[g];
    unsigned bounce = cow_claim_bounce(cow);

    copy_checked(cow, g, cow->bounces + bounce * COW_BOUNCE_BYTES);
    pthread_mutex_lock(&cow->shared.lock);
    cow_free_bounce(cow, bounce);
    if (end_copy(cow, g)) {
        cow_give_back(cow, g);
    } else {
        cell->state = COW_PROTECTED;
        if (cell->waited_ns != 0) /* since it was taken: a handler may have places for the rest */
            poke(cow);
    }
    pthread_cond_broadcast(&cow->shared.changed);
    pthread_mutex_unlock(&cow->shared.lock);
}

void cow_poke(struct cow *cow)
{
    pthread_mutex_lock(&cow->shared.lock);
    if (cow->shared.waiting != 0)
        poke(cow);
    pthread_mutex_unlock(&cow->shared.lock);
}
