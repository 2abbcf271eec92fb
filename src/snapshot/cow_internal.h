/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_internal.h -- what the files of cow.h share, and nobody else includes: cow.c (arming,
 * staging, letting go), cow_prepare.c (planning), cow_fault.c (handlers), cow_zero_copy.c,
 * cow_granule.c (taking a granule), cow_check.c, cow_protect.c (protecting, lifting, events),
 * cow_failure.c. */
#ifndef SNAPSHOT_COW_INTERNAL_H
#define SNAPSHOT_COW_INTERNAL_H

#include <pthread.h>

#include "snapshot/cow.h"
#include "snapshot/cow_plan.h"
#include "snapshot/uffd.h"

#define COW_MAX_HANDLERS 8u
#define COW_MAX_THREADS 64u    /* threads of an engine that write */
#define COW_BOUNCE_BUFFERS 96u /* more than there are threads that take granules */
#define COW_BOUNCE_BUFFER_BYTES ((size_t)HASH_BLOCK_BYTES)
#define COW_COPY_STEP_BYTES ((size_t)256 << 10) /* of a bounce, for copies: what caches hold */

enum cow_granule_state { COW_GRANULE_UNPROTECTED, COW_GRANULE_PROTECTED, COW_GRANULE_CLAIMED };
enum cow_piece_state { COW_PIECE_PENDING, COW_PIECE_COPYING, COW_PIECE_ZERO_COPY, COW_PIECE_DONE };

/* Of a granule. */
struct cow_granule_control {
    uint64_t waited_ns; /* since then somebody waits to write there; 0: nobody ... */
    uint64_t waited_at; /* ... to this page */
    uint32_t state;     /* enum cow_granule_state */
    uint32_t missing;   /* pieces that are not COW_PIECE_DONE */
};

/* A thread that others may wait for. */
struct cow_thread {
    pid_t thread;
    bool raised;
    struct priority_rights rights;
};

/* In a mapping of its own, as everything that is written under the lock: see rule 2 in cow.h. */
struct cow {
    /* Constant. */
    struct uffd uffd;
    int stop_fd; /* readable: the handlers end */
    int poke_fd; /* readable: one of them looks whom it can serve now */
    int pagemap_fd;
    unsigned handler_count;
    pthread_t handlers[COW_MAX_HANDLERS];
    uint8_t *bounces;
    /* Written by who arms, while no handler is busy. */
    struct cow_plan plan;
    uint64_t planned_pool_bytes;
    const struct image *image; /* that is armed: for the names of its items */
    char refusal[120];
    atomic_bool armed; /* all is protected: who still stood still until then need not any more */
    atomic_bool full;  /* as cow_pool_full_flag() says; written under the lock */
    struct pool_slots *places;
    uint8_t *aside; /* what is not held; NULL: it is in its place */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool dead;       /* protection was given up for good */
        bool distrusted; /* memory has changed although it was protected */
        bool planned;    /* the plan is what the memory is: its ranges are registered */
        bool no_room;    /* while arming: for what must be copied at once */
        bool end_wait;   /* cow_cancel_fault_wait() was called */
        unsigned busy;   /* handlers at work on what they have read */
        size_t left;     /* granules that were not given back yet */
        size_t waiting;  /* cells with somebody who waits */
        struct cow_granule_control *cells;
        size_t cells_room;
        uint8_t *pieces; /* enum cow_piece_state */
        size_t pieces_room;
        uint64_t free_bounces[(COW_BOUNCE_BUFFERS + 63) / 64];
        struct cow_thread helpers[COW_MAX_THREADS];
        unsigned helper_count;
        bool failed;
        struct sidestep_error err;
        struct cow_stats stats;
    } shared;
};

uint64_t cow_now_ns(void);
void *cow_map_anonymous(size_t bytes);
size_t cow_round_up_to_page(size_t bytes);
/* With the lock held, and no handler at work on the plan. */
void cow_lock_idle(struct cow *cow);
/* All ranges of the plan: nobody there is told, or held, any more. */
void cow_unregister_ranges(struct cow *cow);
/* Locked: take what of granule ${g}, which is protected, can be copied because its window has a
 * place, or, with ${open}, gets one.  The bytes of it; 0: it is not taken. */
uint64_t cow_claim_granule(struct cow *cow, size_t g, bool open);
/* A bounce of nobody else's, of COW_BOUNCE_BUFFER_BYTES; by its number. */
unsigned cow_acquire_bounce_buffer(struct cow *cow);
/* Locked. */
void cow_free_bounce_buffer(struct cow *cow, unsigned bounce);
/* Memory of this process, which may be gone; 0 or an errno. */
int cow_read_memory(void *to, uint64_t from, size_t bytes);
/* Locked: all of granule ${g} is done, and who calls has taken it.  The lock is released meanwhile.
 */
void cow_unprotect_granule(struct cow *cow, size_t g);
/* Copy what was claimed, and give the granule back if that was the last of it. */
void cow_copy_claimed(struct cow *cow, size_t g);
/* Locked: who waited to write to granule ${g} need not any more. */
void cow_end_granule_wait(struct cow *cow, size_t g);
/* Lift, whatever events are in the way. */
void cow_unprotect(struct cow *cow, uint64_t begin, uint64_t end);
/* The same for protecting; 0 or an errno. */
int cow_protect(struct cow *cow, uint64_t begin, uint64_t end);
/* The first piece of granule ${g} in [begin, end), or else of the granule, for a message. */
const struct cow_piece *cow_find_piece(const struct cow *cow, size_t g, uint64_t begin,
                                       uint64_t end);
/* The name of the tensor that has ${piece}. */
const char *cow_tensor_name(const struct cow *cow, const struct cow_piece *piece);
/* Memory of ${piece} was taken away too early.  ${how} completes "memory ... was". */
enum sidestep_status cow_fail_lost(const struct cow *cow, const struct cow_piece *piece,
                                   uint64_t address, int sys_errno, const char *how,
                                   struct sidestep_error *err);
/* Memory of ${piece} could not be read, or written from.  EFAULT means that it was taken away: its
 * event may come later than the read. */
enum sidestep_status cow_report_unreadable(const struct cow *cow, const struct cow_piece *piece,
                                           uint64_t address, int sys_errno,
                                           struct sidestep_error *err);
/* Every page of granule ${g} with a piece in ${state}, of ${window} (SIZE_MAX: of any), must still
 * be protected, as it was since the call: then what was read of it before is what was there in the
 * call.  Else the save fails.  Who calls keeps the granule from being given back.  Not locked. */
void cow_check_pages(struct cow *cow, size_t g, enum cow_piece_state state, size_t window);
/* Memory has changed in a way that protection does not hold: the save fails, and later ones copy.
 * The first reason counts.  Not locked. */
void cow_mark_unreliable(struct cow *cow, const struct sidestep_error *why);
/* Locked: the first reason counts. */
void cow_record_failure(struct cow *cow, const struct sidestep_error *why);
/* Locked: all protection is lifted, for good. */
void cow_disable(struct cow *cow, const char *what, int sys_errno);
/* Locked: an event that uffd_read_event() gave.  Not for faults. */
void cow_take_event(struct cow *cow, const struct uffd_message *m);
void *cow_fault_handler_main(void *cow);

#endif
