/* SPDX-License-Identifier: BSD-3-Clause */
/* cow.c -- opens copy-on-write, begins a snapshot, stages windows and ends the snapshot; see cow.h.
 */
#include "snapshot/cow.h"

#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

/* Bytes that one thread protects at a time: a multiple of COW_GRANULE_BYTES. */
#define PROTECT_BYTES ((uint64_t)64 << 20)
_Static_assert(PROTECT_BYTES % COW_GRANULE_BYTES == 0, "no granule is in two parts");

void *cow_map_anonymous(size_t bytes)
{
    void *map = fault_hit("memory") ? MAP_FAILED
                                    : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return map != MAP_FAILED ? map : NULL;
}

size_t cow_round_up_to_page(size_t bytes)
{
    return round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
}

void cow_lock_idle(struct cow *cow)
{
    lock_acquire(&cow->shared.lock);
    while (cow->shared.busy_handlers != 0)
        lock_wait(&cow->shared.lock, &cow->shared.changed);
}

/* ---- opening */

/* Check that this process may read its own memory, which some sandboxes forbid. */
static enum sidestep_status check_reading(struct sidestep_error *err)
{
    if (fault_hit("cow.readv") || !memory_reader_works())
        return error_set(err, SIDESTEP_EUNSUPPORTED, errno, HERE,
                         "process_vm_readv(2) of this process itself is not allowed");
    return SIDESTEP_OK;
}

static enum sidestep_status open_parts(struct cow *cow, bool user_mode_only, unsigned handlers,
                                       struct sidestep_error *err)
{
    TRY(check_reading(err));
    TRY(uffd_open(&cow->uffd, user_mode_only, err));
    cow->stop_fd = fault_hit("cow.eventfd") ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cow->stop_fd < 0)
        return FAIL_SYS(err, "make an eventfd");
    cow->retry_fd = fault_hit("cow.eventfd") ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cow->retry_fd < 0)
        return FAIL_SYS(err, "make an eventfd");
    cow->pagemap_fd =
        fault_hit("cow.pagemap_open") ? -1 : open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (cow->pagemap_fd < 0)
        return FAIL_SYS(err, "open /proc/self/pagemap, to see whether memory stays protected");
    while (cow->handler_count < handlers) {
        TRY(thread_start(&cow->handlers[cow->handler_count], "sidestep-fault",
                         cow_fault_handler_main, cow, err));
        cow->handler_count++;
    }
    return SIDESTEP_OK;
}

enum sidestep_status cow_open(struct cow **out, bool user_mode_only, unsigned handlers,
                              struct sidestep_error *err)
{
    struct cow *cow = cow_map_anonymous(cow_round_up_to_page(sizeof(*cow)));

    *out = NULL;
    if (cow == NULL)
        return FAIL_NOMEM(err, sizeof(*cow));
    cow->uffd.fd = cow->stop_fd = cow->retry_fd = cow->pagemap_fd = -1;
    lock_init(&cow->shared.lock, LOCK_COW);
    lock_condition_init(&cow->shared.changed);
    enum sidestep_status status =
        open_parts(cow, user_mode_only, (unsigned)min_u64(handlers, COW_MAX_HANDLERS), err);
    if (status != SIDESTEP_OK)
        cow_close(&cow);
    *out = cow;
    return status;
}

void cow_close(struct cow **out)
{
    struct cow *cow = *out;
    uint64_t one = 1;

    if (cow == NULL)
        return;
    *out = NULL;
    /* Closing alone would not lift the protection: a forked child may still have the descriptor. */
    cow_unregister_ranges(cow);
    if (cow->stop_fd >= 0 && write(cow->stop_fd, &one, sizeof(one)) == sizeof(one))
        for (unsigned i = 0; i < cow->handler_count; i++)
            pthread_join(cow->handlers[i], NULL);
    uffd_close(&cow->uffd);
    if (cow->stop_fd >= 0)
        (void)close(cow->stop_fd);
    if (cow->retry_fd >= 0)
        (void)close(cow->retry_fd);
    if (cow->pagemap_fd >= 0)
        (void)close(cow->pagemap_fd);
    lock_alone(&cow->shared.lock);
    assert(cow->shared.granules_left == 0 && cow->shared.busy_handlers == 0);
    cow_plan_release(&cow->plan);
    for (unsigned i = 0; i < COW_READERS; i++)
        memory_reader_close(&cow->readers[i]);
    if (cow->shared.controls != NULL)
        (void)munmap(cow->shared.controls,
                     cow->shared.controls_capacity * sizeof(*cow->shared.controls));
    if (cow->shared.pieces != NULL)
        (void)munmap(cow->shared.pieces, cow->shared.pieces_capacity);
    lock_condition_destroy(&cow->shared.changed);
    lock_destroy(&cow->shared.lock);
    (void)munmap(cow, cow_round_up_to_page(sizeof(*cow)));
}

/* ---- beginning a snapshot */

struct begin_job {
    struct cow *cow;
    const struct image *image;
    atomic_size_t next_part; /* in units of PROTECT_BYTES, over all ranges */
    atomic_size_t next_window;
};

/* Copy what is not yet copied of granule ${g}.  Returns the number of bytes. */
static uint64_t copy_granule_now(struct cow *cow, size_t g)
{
    uint64_t bytes = 0;

    lock_acquire(&cow->shared.lock);
    struct cow_granule_control *control = &cow->shared.controls[g];
    while (control->state == COW_GRANULE_CLAIMED)
        lock_wait(&cow->shared.lock, &cow->shared.changed);
    if (control->state == COW_GRANULE_PROTECTED)
        bytes = cow_claim_granule(cow, g, true);
    lock_release(&cow->shared.lock);
    if (bytes != 0)
        cow_copy_claimed(cow, g);
    lock_acquire(&cow->shared.lock);
    cow->shared.pool_exhausted =
        cow->shared.pool_exhausted || control->state == COW_GRANULE_PROTECTED;
    lock_release(&cow->shared.lock);
    return bytes;
}

static void protect_part(struct cow *cow, const struct cow_range *range, uint64_t begin,
                         uint64_t end)
{
    assert(range->begin <= begin && begin < end && end <= range->end);
    int failed = cow_protect(cow, begin, end);
    if (failed == 0)
        return;
    /* Protection failed, for example because memory for page tables is short.  The trainer is still
     * in the call, so copy now. */
    size_t first =
        range->first_granule + (begin / COW_GRANULE_BYTES - range->begin / COW_GRANULE_BYTES);
    uint64_t copied = 0;
    for (size_t g = first; g < cow->plan.granule_count && cow->plan.granules[g].begin < end; g++) {
        if (cow->plan.granules[g].begin >= begin)
            copied += copy_granule_now(cow, g);
    }
    lock_acquire(&cow->shared.lock);
    if (copied != 0 && cow->shared.protect_errno == 0) {
        cow->shared.protect_errno = failed;
        cow->shared.unprotected_item = cow_find_piece(cow, first, begin, end)->item;
    }
    cow->shared.stats.held_bytes -= min_u64(copied, cow->shared.stats.held_bytes);
    cow->shared.stats.copied_bytes += copied;
    lock_release(&cow->shared.lock);
}

/* Protect the parts, which are numbered across all ranges.  Each thread claims the next number. */
static void protect_parts(struct begin_job *job)
{
    const struct cow_plan *plan = &job->cow->plan;
    size_t part = atomic_fetch_add(&job->next_part, 1), before = 0;

    for (size_t i = 0; i < plan->range_count; i++) {
        const struct cow_range *range = &plan->ranges[i];
        uint64_t base = round_down(range->begin, PROTECT_BYTES);
        size_t parts = (range->end - base + PROTECT_BYTES - 1) / PROTECT_BYTES;
        while (part < before + parts) {
            uint64_t at = base + (part - before) * PROTECT_BYTES;
            protect_part(job->cow, range, max_u64(at, range->begin),
                         min_u64(at + PROTECT_BYTES, range->end));
            part = atomic_fetch_add(&job->next_part, 1);
        }
        before += parts;
    }
}

static void begin_on_thread(void *context)
{
    struct begin_job *job = context;
    const struct cow_plan *plan = &job->cow->plan;

    protect_parts(job);
    for (size_t i; (i = atomic_fetch_add(&job->next_window, 1)) < job->image->window_count;) {
        struct sidestep_error why = {0};
        enum sidestep_status status =
            plan->shares_pool ? image_copy_eager(job->image, i, plan->protected,
                                                 plan->eager_offsets, job->cow->eager_copy, &why)
                              : image_stage_tensor_data(job->image, i, plan->protected,
                                                        pool_slots_get(job->cow->slots, i), &why);
        if (status == SIDESTEP_OK)
            continue;
        lock_acquire(&job->cow->shared.lock);
        cow_record_failure(job->cow, &why); /* cow_stage() reports it */
        lock_release(&job->cow->shared.lock);
    }
}

uint64_t cow_host_tensor_bytes(const struct image *image)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < image->tensor_count; i++)
        bytes += image->items[i].on_device ? 0 : image->items[i].footer.data_bytes;
    return bytes;
}

/* Put the eager copy at the beginning of the pool, and the windows after it. */
static void set_shared_slots(struct cow *cow, struct pool_slots *slots, const struct pool *pool,
                             uint64_t largest)
{
    uint64_t eager_bytes = round_up(cow->plan.eager_bytes, image_align());
    uint64_t left = round_down(pool->length - eager_bytes, image_align());
    uint64_t reserve = min_u64(round_down(left / 2, image_align()), COW_RESERVE_BYTES);

    assert(eager_bytes + 2 * largest <= pool->length);
    cow->eager_copy = pool->bytes;
    pool_slots_set_shared(slots, pool->bytes + eager_bytes, left,
                          max_u64(reserve, min_u64(left, 2 * largest)));
}

static void set_controls(struct cow *cow) REQUIRES(&cow->shared.lock)
{
    const struct cow_plan *plan = &cow->plan;

    assert(cow->shared.granules_left == 0); /* the previous snapshot has ended */
    assert(plan->granule_count <= cow->shared.controls_capacity);
    assert(plan->piece_count <= cow->shared.pieces_capacity);
    memset(cow->shared.pieces, COW_PIECE_PENDING, plan->piece_count);
    for (size_t g = 0; g < plan->granule_count; g++)
        cow->shared.controls[g] = (struct cow_granule_control){
            .state = COW_GRANULE_PROTECTED,
            .pieces_left =
                (uint32_t)(plan->granules[g + 1].first_piece - plan->granules[g].first_piece),
        };
    cow->shared.granules_left = plan->granule_count;
    cow->shared.granules_awaited = 0;
    atomic_store(&cow->pool_full, false);
}

/* Has a device or KSM become able to change memory since the plan was made?  The trainer is still
 * in the call. */
static bool is_bypassed(struct cow *cow) ON_THREAD(CALLER)
{
    struct sidestep_error why = {0};
    struct bypass now;

    if (bypass_read(&now, &why) != SIDESTEP_OK) {
        snprintf(cow->refusal, sizeof(cow->refusal), "%.*s", (int)sizeof(cow->refusal) - 1,
                 why.message);
        return true;
    }
    bool pinned = now.pinned_bytes != 0 && cow->plan.bypass.pinned_bytes == 0;
    bool merges = now.merges && !cow->plan.bypass.merges;
    if (pinned)
        snprintf(cow->refusal, sizeof(cow->refusal),
                 "%llu MiB were pinned for devices during the call",
                 (unsigned long long)(now.pinned_bytes >> 20));
    else if (merges)
        snprintf(cow->refusal, sizeof(cow->refusal),
                 "memory was given to be merged (KSM) during the call");
    return pinned || merges;
}

bool cow_begin_snapshot(struct cow *cow, const struct image *image, struct pool_slots *slots,
                        const struct pool *pool, struct workers *workers)
{
    struct begin_job job = {.cow = cow, .image = image};

    assert(cow_plan_matches_windows(&cow->plan, image)); /* it was prepared for ${image} */
    assert(cow->plan.shares_pool || image->body_bytes <= pool->length);
    cow_lock_idle(cow);
    cow->slots = slots;
    cow->image = image;
    atomic_store(&cow->all_protected, false);
    cow->eager_copy = NULL;
    if (cow->plan.shares_pool)
        set_shared_slots(cow, slots, pool, image_largest_window(image));
    else
        pool_slots_set_dedicated(slots, pool->bytes);
    set_controls(cow);
    assert(cow->plan.held_bytes <= cow_host_tensor_bytes(image));
    cow->shared.failed = cow->shared.pool_exhausted = cow->shared.wait_cancelled = false;
    cow->shared.protect_errno = 0;
    cow->shared.stats = (struct cow_stats){
        .held_bytes = cow->plan.held_bytes,
        .copied_bytes = cow_host_tensor_bytes(image) - cow->plan.held_bytes,
    };
    lock_release(&cow->shared.lock);
    workers_run(workers, begin_on_thread, &job);
    atomic_store(&cow->all_protected, true);
    lock_acquire(&cow->shared.lock);
    bool copied = !cow->shared.pool_exhausted;
    lock_release(&cow->shared.lock);
    if (!copied)
        snprintf(cow->refusal, sizeof(cow->refusal),
                 "its memory could not be protected, nor copied into what pool_bytes allows");
    bool is_protected = copied && !is_bypassed(cow);
    if (!is_protected)
        cow_end_snapshot(cow);
    return is_protected;
}

/* ---- staging */

/* Copy the pieces of granule ${g} whose windows have a slot to the pool.  Also returns if the save
 * has failed. */
static void stage_granule(struct cow *cow, size_t g)
{
    assert(atomic_load(&cow->all_protected)); /* so the granule is protected or copied */
    lock_acquire(&cow->shared.lock);
    while (cow->shared.controls[g].state == COW_GRANULE_CLAIMED)
        lock_wait(&cow->shared.lock, &cow->shared.changed);
    bool claimed = cow->shared.controls[g].state == COW_GRANULE_PROTECTED &&
                   cow_claim_granule(cow, g, false) != 0;
    lock_release(&cow->shared.lock);
    if (claimed)
        cow_copy_claimed(cow, g);
}

static void stage_item(struct cow *cow, const struct image *image, size_t i, size_t k)
{
    const struct cow_plan *plan = &cow->plan;
    uint64_t begin, end;

    image_data_in_window(image, i, k, &begin, &end);
    begin = max_u64(begin, plan->protected[k].begin) + plan->items[k].address;
    end = min_u64(end, plan->protected[k].end) + plan->items[k].address;
    if (plan->protected[k].begin == plan->protected[k].end || begin >= end)
        return;
    for (size_t g = cow_plan_find_granule(plan, begin);
         g < plan->granule_count && plan->granules[g].begin < end; g++)
        stage_granule(cow, g);
}

enum sidestep_status cow_stage(struct cow *cow, const struct image *image, size_t i,
                               struct sidestep_error *err)
{
    uint8_t *place = pool_slots_get(cow->slots, i);

    assert(place != NULL);
    (void)fault_hit("cow.stage");
    image_stage_non_tensor_data(image, i, place);
    if (cow->plan.shares_pool)
        image_stage_eager(image, i, cow->plan.protected, cow->plan.eager_offsets, cow->eager_copy,
                          place);
    for (size_t k = image->windows[i].first_item; image_window_reaches_item(image, i, k); k++)
        stage_item(cow, image, i, k);
    lock_acquire(&cow->shared.lock);
    enum sidestep_status status = cow_first_failure(cow, err);
    lock_release(&cow->shared.lock);
    return status;
}

/* Locked: abandon all granules that no thread is copying. */
static void abandon_protected(struct cow *cow) REQUIRES(&cow->shared.lock)
{
    for (size_t g = 0; g < cow->plan.granule_count; g++)
        if (cow->shared.controls[g].state == COW_GRANULE_PROTECTED) {
            assert(cow->shared.granules_left != 0);
            cow->shared.controls[g].state = COW_GRANULE_UNPROTECTED;
            cow->shared.granules_left--;
            cow_end_granule_wait(cow, g);
        }
}

void cow_add_protect_failure(struct cow *cow, char *reason, size_t size)
{
    lock_acquire(&cow->shared.lock);
    int failed = cow->shared.protect_errno;
    size_t item = cow->shared.unprotected_item;
    lock_release(&cow->shared.lock);
    if (failed == 0 || reason[0] != '\0')
        return;
    assert(item < cow->image->tensor_count);
    snprintf(reason, size, "tensor '%.60s': write protection failed: %s",
             cow->image->items[item].footer.name, ERRNO_TEXT(failed));
}

void cow_end_snapshot(struct cow *cow)
{
    lock_acquire(&cow->shared.lock);
    bool lift = cow->shared.granules_left != 0;
    abandon_protected(cow);
    while (cow->shared.granules_left != 0) {
        lock_wait(&cow->shared.lock, &cow->shared.changed);
        abandon_protected(cow); /* granules that were claimed, and have pieces without a slot */
    }
    assert(cow->shared.granules_awaited == 0); /* no writer waits */
    lock_release(&cow->shared.lock);
    for (size_t i = 0; lift && i < cow->plan.range_count; i++)
        cow_unprotect(cow, cow->plan.ranges[i].begin, cow->plan.ranges[i].end);
}

/* ---- queries */

bool cow_get_range(const struct cow *cow, size_t i, uint64_t *begin, uint64_t *end)
{
    if (i >= cow->plan.range_count)
        return false;
    *begin = cow->plan.ranges[i].begin;
    *end = cow->plan.ranges[i].end;
    return true;
}

const char *cow_failure_reason(const struct cow *cow)
{
    return cow->refusal;
}

const atomic_bool *cow_pool_full_flag(const struct cow *cow)
{
    return &cow->pool_full;
}

bool cow_wait_for_faults(struct cow *cow, uint64_t faults)
{
    lock_acquire(&cow->shared.lock);
    while (cow->shared.stats.faults < faults && !cow->shared.wait_cancelled && !cow->shared.failed)
        lock_wait(&cow->shared.lock, &cow->shared.changed);
    bool ended = cow->shared.wait_cancelled;
    lock_release(&cow->shared.lock);
    return !ended;
}

void cow_cancel_fault_wait(struct cow *cow)
{
    lock_acquire(&cow->shared.lock);
    cow->shared.wait_cancelled = true;
    lock_wake_all(&cow->shared.changed);
    lock_release(&cow->shared.lock);
}

void cow_get_stats(struct cow *cow, struct cow_stats *stats)
{
    lock_acquire(&cow->shared.lock);
    *stats = cow->shared.stats;
    lock_release(&cow->shared.lock);
}
