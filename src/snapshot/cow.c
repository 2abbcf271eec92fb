/* SPDX-License-Identifier: BSD-3-Clause */
/* cow.c -- see cow.h: opening, planning, arming, staging, letting go. */
#include "snapshot/cow.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fault.h"
#include "base/owned.h"
#include "base/thread.h"
#include "snapshot/cow_inside.h"

#define ARM_BYTES                                                                                  \
    ((uint64_t)64 << 20) /* a thread's share of protecting: a multiple of granules                 \
                          */

void *cow_map(size_t bytes)
{
    void *map = fault_hit("memory") ? MAP_FAILED
                                    : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return map != MAP_FAILED ? map : NULL;
}

static size_t page_multiple(size_t bytes)
{
    return round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
}

/* ---- opening */

/* Some sandboxes forbid it. */
static enum sidestep_status check_reading(struct sidestep_error *err)
{
    char from = 1, to = 0;
    struct iovec local = {&to, 1}, remote = {&from, 1};

    if (fault_hit("cow.readv") || process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1)
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
    cow->bounces = cow_map(COW_BOUNCES * COW_BOUNCE_BYTES);
    if (cow->bounces == NULL)
        return FAIL_NOMEM(err, COW_BOUNCES * COW_BOUNCE_BYTES);
    while (cow->handler_count < handlers) {
        TRY(thread_start(&cow->handlers[cow->handler_count], "sidestep-fault", cow_handler_main,
                         cow, err));
        cow->handler_count++;
    }
    return SIDESTEP_OK;
}

enum sidestep_status cow_open(struct cow **out, bool user_mode_only, unsigned handlers,
                              struct sidestep_error *err)
{
    struct cow *cow = cow_map(page_multiple(sizeof(*cow)));

    *out = NULL;
    if (cow == NULL)
        return FAIL_NOMEM(err, sizeof(*cow));
    cow->uffd.fd = cow->stop_fd = -1;
    memset(cow->shared.free_bounces, 0xff, sizeof(cow->shared.free_bounces));
    pthread_mutex_init(&cow->shared.lock, NULL);
    pthread_cond_init(&cow->shared.changed, NULL);
    enum sidestep_status status =
        open_parts(cow, user_mode_only, (unsigned)min_u64(handlers, COW_MAX_HANDLERS), err);
    if (status != SIDESTEP_OK)
        cow_close(&cow);
    *out = cow;
    return status;
}

static void unregister_all(struct cow *cow)
{
    for (size_t i = 0; i < cow->plan.range_count; i++)
        (void)uffd_unregister(&cow->uffd, cow->plan.ranges[i].begin, cow->plan.ranges[i].end);
}

void cow_close(struct cow **out)
{
    struct cow *cow = *out;
    uint64_t one = 1;

    if (cow == NULL)
        return;
    *out = NULL;
    /* A forked child may still have the descriptor, so closing alone would not do. */
    unregister_all(cow);
    if (cow->stop_fd >= 0 && write(cow->stop_fd, &one, sizeof(one)) == sizeof(one))
        for (unsigned i = 0; i < cow->handler_count; i++)
            pthread_join(cow->handlers[i], NULL);
    uffd_close(&cow->uffd);
    if (cow->stop_fd >= 0)
        (void)close(cow->stop_fd);
    cow_plan_release(&cow->plan);
    if (cow->bounces != NULL)
        (void)munmap(cow->bounces, COW_BOUNCES * COW_BOUNCE_BYTES);
    if (cow->shared.cells != NULL)
        (void)munmap(cow->shared.cells, cow->shared.cells_room * sizeof(*cow->shared.cells));
    pthread_cond_destroy(&cow->shared.changed);
    pthread_mutex_destroy(&cow->shared.lock);
    (void)munmap(cow, page_multiple(sizeof(*cow)));
}

/* ---- planning */

static bool is_planned(struct cow *cow)
{
    pthread_mutex_lock(&cow->shared.lock);
    bool planned = cow->shared.planned;
    pthread_mutex_unlock(&cow->shared.lock);
    return planned;
}

static enum sidestep_status check_alive(struct cow *cow, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    pthread_mutex_lock(&cow->shared.lock);
    assert(cow->shared.left == 0);
    if (cow->shared.dead)
        status = FAIL(err, SIDESTEP_EUNSUPPORTED, "write protection failed in an earlier save");
    pthread_mutex_unlock(&cow->shared.lock);
    return status;
}

/* Is the plan made for just these places? */
static enum sidestep_status plan_fits(struct cow *cow, const struct image *image, bool *fits,
                                      struct sidestep_error *err)
{
    *fits = false;
    if (!is_planned(cow) || cow->plan.item_count != image->count)
        return SIDESTEP_OK;
    OWNED struct cow_place *places = memory_new(image->count, sizeof(*places));
    if (places == NULL)
        return FAIL_NOMEM(err, image->count * sizeof(*places));
    cow_plan_places(image, places);
    *fits = true;
    for (size_t i = 0; i < image->count && *fits; i++) {
        const struct cow_place *now = &places[i], *then = &cow->plan.places[i];
        *fits = now->address == then->address && now->bytes == then->bytes &&
                now->file_offset == then->file_offset && now->flags == then->flags;
    }
    return SIDESTEP_OK;
}

/* What cannot be registered is no part of the plan. */
static void register_ranges(struct cow *cow, struct cow_plan *plan)
{
    size_t kept = 0;

    for (size_t i = 0; i < plan->range_count; i++) {
        struct cow_range *range = &plan->ranges[i];
        int failed = uffd_register(&cow->uffd, range->begin, range->end);
        if (failed == 0)
            plan->ranges[kept++] = *range;
        else if (plan->reason[0] == '\0')
            cow_plan_say(plan, "",
                         failed == EBUSY ? "its memory has another userfaultfd"
                                         : "its memory cannot be registered");
    }
    plan->range_count = kept;
}

static enum sidestep_status make_cells(struct cow *cow, size_t count, struct sidestep_error *err)
{
    if (count <= cow->shared.cells_room)
        return SIDESTEP_OK;
    size_t bytes = page_multiple(count * sizeof(*cow->shared.cells));
    struct cow_cell *cells = cow_map(bytes);
    if (cells == NULL)
        return FAIL_NOMEM(err, bytes);
    if (cow->shared.cells != NULL)
        (void)munmap(cow->shared.cells, cow->shared.cells_room * sizeof(*cells));
    cow->shared.cells = cells;
    cow->shared.cells_room = bytes / sizeof(*cells);
    return SIDESTEP_OK;
}

/* With the lock held, and no handler at work on the plan. */
static void lock_idle(struct cow *cow)
{
    pthread_mutex_lock(&cow->shared.lock);
    while (cow->shared.busy != 0)
        pthread_cond_wait(&cow->shared.changed, &cow->shared.lock);
}

static enum sidestep_status plan_anew(struct cow *cow, const struct image *image,
                                      struct sidestep_error *err)
{
    struct cow_plan plan = {0};

    enum sidestep_status status = cow_plan_ranges(&plan, image, err);
    if (status == SIDESTEP_OK) {
        /* From here on events of the new ranges count, so the word goes out first. */
        lock_idle(cow);
        unregister_all(cow);
        cow->plan.range_count = 0;
        cow->shared.planned = true;
        pthread_mutex_unlock(&cow->shared.lock);
        register_ranges(cow, &plan);
        status = cow_plan_fill(&plan, err);
    }
    lock_idle(cow);
    if (status == SIDESTEP_OK)
        status = make_cells(cow, plan.granule_count, err);
    if (status == SIDESTEP_OK) {
        if (plan.granule_count != 0)
            memset(cow->shared.cells, 0, plan.granule_count * sizeof(*cow->shared.cells));
        cow_plan_release(&cow->plan);
        cow->plan = plan;
    } else {
        cow->shared.planned = false;
    }
    pthread_mutex_unlock(&cow->shared.lock);
    if (status != SIDESTEP_OK)
        cow_plan_release(&plan);
    return status;
}

enum sidestep_status cow_prepare(struct cow *cow, const struct image *image, uint64_t *held_bytes,
                                 struct sidestep_error *err)
{
    bool fits;

    TRY(check_alive(cow, err));
    TRY(plan_fits(cow, image, &fits, err));
    if (!fits)
        TRY(plan_anew(cow, image, err));
    *held_bytes = cow->plan.held_bytes;
    return SIDESTEP_OK;
}

const char *cow_reason(const struct cow *cow)
{
    return cow->plan.reason;
}

/* ---- arming */

struct arming {
    struct cow *cow;
    const struct image *image;
    atomic_size_t next_part; /* of ${ARM_BYTES}, in all ranges */
    atomic_size_t next_window;
};

/* Claim a granule that nobody has; false: somebody has, or had. */
static bool claim(struct cow *cow, size_t g)
{
    pthread_mutex_lock(&cow->shared.lock);
    bool mine = cow->shared.cells[g].state == COW_PROTECTED;
    if (mine)
        cow->shared.cells[g].state = COW_TAKEN;
    pthread_mutex_unlock(&cow->shared.lock);
    return mine;
}

static void arm_part(struct cow *cow, const struct cow_range *range, uint64_t begin, uint64_t end)
{
    if (cow_protect(cow, begin, end) == 0)
        return;
    /* Short of memory for page tables, say: the caller still stands still, so copy now. */
    size_t first =
        range->first_granule + (begin / COW_GRANULE_BYTES - range->begin / COW_GRANULE_BYTES);
    uint64_t copied = 0;
    for (size_t g = first; g < cow->plan.granule_count && cow->plan.granules[g].begin < end; g++) {
        if (cow->plan.granules[g].begin < begin || !claim(cow, g))
            continue;
        cow_take(cow, g);
        copied += cow->plan.granules[g].end - cow->plan.granules[g].begin;
    }
    pthread_mutex_lock(&cow->shared.lock);
    cow->shared.stats.held_bytes -= min_u64(copied, cow->shared.stats.held_bytes);
    cow->shared.stats.copied_bytes += copied;
    pthread_mutex_unlock(&cow->shared.lock);
}

/* Parts are counted through all ranges; each thread walks along with the counter. */
static void arm_parts(struct arming *a)
{
    const struct cow_plan *plan = &a->cow->plan;
    size_t part = atomic_fetch_add(&a->next_part, 1), before = 0;

    for (size_t i = 0; i < plan->range_count; i++) {
        const struct cow_range *range = &plan->ranges[i];
        uint64_t base = round_down(range->begin, ARM_BYTES);
        size_t parts = (range->end - base + ARM_BYTES - 1) / ARM_BYTES;
        while (part < before + parts) {
            uint64_t at = base + (part - before) * ARM_BYTES;
            arm_part(a->cow, range, max_u64(at, range->begin), min_u64(at + ARM_BYTES, range->end));
            part = atomic_fetch_add(&a->next_part, 1);
        }
        before += parts;
    }
}

static void arm_on_thread(void *context)
{
    struct arming *a = context;

    arm_parts(a);
    for (size_t i; (i = atomic_fetch_add(&a->next_window, 1)) < a->image->window_count;)
        image_stage_data(a->image, i, a->cow->plan.held,
                         a->cow->pool + a->image->windows[i].offset);
}

uint64_t cow_tensor_bytes(const struct image *image)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < image->tensor_count; i++)
        bytes += image->items[i].away ? 0 : image->items[i].footer.data_bytes;
    return bytes;
}

void cow_arm(struct cow *cow, const struct image *image, uint8_t *pool, struct workers *workers)
{
    struct arming arming = {.cow = cow, .image = image};

    lock_idle(cow);
    cow->pool = pool;
    for (size_t g = 0; g < cow->plan.granule_count; g++)
        cow->shared.cells[g] = (struct cow_cell){.state = COW_PROTECTED};
    cow->shared.left = cow->plan.granule_count;
    cow->shared.failed = false;
    cow->shared.stats = (struct cow_stats){
        .held_bytes = cow->plan.held_bytes,
        .copied_bytes = cow_tensor_bytes(image) - cow->plan.held_bytes,
    };
    pthread_mutex_unlock(&cow->shared.lock);
    workers_run(workers, arm_on_thread, &arming);
}

/* ---- staging */

/* Granule ${g} is in the pool, or the save has failed. */
static void stage_granule(struct cow *cow, size_t g)
{
    if (claim(cow, g)) {
        cow_take(cow, g);
        return;
    }
    pthread_mutex_lock(&cow->shared.lock);
    while (cow->shared.cells[g].state != COW_GIVEN_BACK)
        pthread_cond_wait(&cow->shared.changed, &cow->shared.lock);
    pthread_mutex_unlock(&cow->shared.lock);
}

static void stage_item(struct cow *cow, const struct image *image, size_t i, size_t k)
{
    const struct cow_plan *plan = &cow->plan;
    uint64_t begin, end;

    image_data_in_window(image, i, k, &begin, &end);
    begin = max_u64(begin, plan->held[k].begin) + plan->places[k].address;
    end = min_u64(end, plan->held[k].end) + plan->places[k].address;
    if (plan->held[k].begin == plan->held[k].end || begin >= end)
        return;
    for (size_t g = cow_plan_find(plan, begin);
         g < plan->granule_count && plan->granules[g].begin < end; g++)
        stage_granule(cow, g);
}

enum sidestep_status cow_stage(struct cow *cow, const struct image *image, size_t i,
                               struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    (void)fault_hit("cow.stage");
    image_stage_frame(image, i, cow->pool + image->windows[i].offset);
    for (size_t k = image->windows[i].first_item; image_reaches(image, i, k); k++)
        stage_item(cow, image, i, k);
    pthread_mutex_lock(&cow->shared.lock);
    if (cow->shared.failed) {
        status = (enum sidestep_status)cow->shared.err.status;
        if (err != NULL)
            *err = cow->shared.err;
    }
    pthread_mutex_unlock(&cow->shared.lock);
    return status;
}

void cow_release(struct cow *cow)
{
    pthread_mutex_lock(&cow->shared.lock);
    bool lift = cow->shared.left != 0;
    for (size_t g = 0; g < cow->plan.granule_count; g++)
        if (cow->shared.cells[g].state == COW_PROTECTED) {
            cow->shared.cells[g].state = COW_GIVEN_BACK;
            cow->shared.left--;
        }
    while (cow->shared.left != 0)
        pthread_cond_wait(&cow->shared.changed, &cow->shared.lock);
    pthread_mutex_unlock(&cow->shared.lock);
    for (size_t i = 0; lift && i < cow->plan.range_count; i++)
        cow_lift(cow, cow->plan.ranges[i].begin, cow->plan.ranges[i].end);
}

void cow_get_stats(struct cow *cow, struct cow_stats *stats)
{
    pthread_mutex_lock(&cow->shared.lock);
    *stats = cow->shared.stats;
    pthread_mutex_unlock(&cow->shared.lock);
}
