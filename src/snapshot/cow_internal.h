/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_internal.h -- what cow.c (arming, staging, letting go), cow_prepare.c (planning),
 * cow_granule.c (taking a granule), cow_fault.c (handlers, events) and cow_zero_copy.c share, and
 * nobody else includes.
 */
#ifndef SNAPSHOT_COW_INTERNAL_H
#define SNAPSHOT_COW_INTERNAL_H

#include <pthread.h>

#include "snapshot/cow.h"
#include "snapshot/cow_plan.h"
#include "snapshot/uffd.h"

#define COW_MAX_HANDLERS 8u
#define COW_MAX_HELPERS 64u /* threads of an engine that write */
#define COW_BOUNCES 96u     /* more than there are threads that take granules */
#define COW_BOUNCE_BYTES ((size_t)HASH_BLOCK_BYTES)
#define COW_COPY_BYTES ((size_t)256 << 10) /* of a bounce, for copies: what caches hold */

enum cow_state { COW_GIVEN_BACK, COW_PROTECTED, COW_TAKEN };
enum cow_piece_state { COW_UNTOUCHED, COW_COPYING, COW_LIVE, COW_DONE };

/* Of a granule. */
struct cow_cell {
    uint64_t waited_ns; /* since then somebody waits to write there; 0: nobody ... */
    uint64_t waited_at; /* ... to this page */
    uint32_t state;     /* enum cow_state */
    uint32_t missing;   /* pieces that are not COW_DONE */
};

/* A thread that others may wait for. */
struct cow_helper {
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
    atomic_bool full;  /* as cow_is_full() says; written under the lock */
    struct places *places;
    uint8_t *aside; /* what is not held; NULL: it is in its place */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool dead;       /* protection was given up for good */
        bool distrusted; /* memory has changed although it was protected */
        bool planned;    /* the plan is what the memory is: its ranges are registered */
        bool no_room;    /* while arming: for what must be copied at once */
        bool end_wait;   /* cow_end_wait() was called */
        unsigned busy;   /* handlers at work on what they have read */
        size_t left;     /* granules that were not given back yet */
        size_t waiting;  /* cells with somebody who waits */
        struct cow_cell *cells;
        size_t cells_room;
        uint8_t *pieces; /* enum cow_piece_state */
        size_t pieces_room;
        uint64_t free_bounces[(COW_BOUNCES + 63) / 64];
        struct cow_helper helpers[COW_MAX_HELPERS];
        unsigned helper_count;
        bool failed;
        struct sidestep_error err;
        struct cow_stats stats;
    } shared;
};

uint64_t cow_now(void);
void *cow_map(size_t bytes);
size_t cow_page_multiple(size_t bytes);
/* With the lock held, and no handler at work on the plan. */
void cow_lock_idle(struct cow *cow);
/* All ranges of the plan: nobody there is told, or held, any more. */
void cow_unregister(struct cow *cow);
/* Locked: take what of granule ${g}, which is protected, can be copied because its window has a
 * place, or, with ${open}, gets one.  The bytes of it; 0: it is not taken. */
uint64_t cow_claim(struct cow *cow, size_t g, bool open);
/* A bounce of nobody else's, of COW_BOUNCE_BYTES; by its number. */
unsigned cow_claim_bounce(struct cow *cow);
/* Locked. */
void cow_free_bounce(struct cow *cow, unsigned bounce);
/* Memory of this process, which may be gone; 0 or an errno. */
int cow_read(void *to, uint64_t from, size_t bytes);
/* Locked: all of granule ${g} is done, and who calls has taken it.  The lock is released meanwhile.
 */
void cow_give_back(struct cow *cow, size_t g);
/* Copy what was claimed, and give the granule back if that was the last of it. */
void cow_take(struct cow *cow, size_t g);
/* Locked: who waited to write to granule ${g} need not any more. */
void cow_end_waiting(struct cow *cow, size_t g);
/* Lift, whatever events are in the way. */
void cow_lift(struct cow *cow, uint64_t begin, uint64_t end);
/* The same for protecting; 0 or an errno. */
int cow_protect(struct cow *cow, uint64_t begin, uint64_t end);
/* The first piece of granule ${g} in [begin, end), or else of the granule, for a message. */
const struct cow_piece *cow_piece_in(const struct cow *cow, size_t g, uint64_t begin, uint64_t end);
/* The name of the tensor that has ${piece}. */
const char *cow_name(const struct cow *cow, const struct cow_piece *piece);
/* Memory of ${piece} was taken away too early.  ${how} completes "memory ... was". */
enum sidestep_status cow_fail_lost(const struct cow *cow, const struct cow_piece *piece,
                                   uint64_t address, int sys_errno, const char *how,
                                   struct sidestep_error *err);
/* Memory of ${piece} could not be read, or written from.  EFAULT means that it was taken away: its
 * event may come later than the read. */
enum sidestep_status cow_fail_read(const struct cow *cow, const struct cow_piece *piece,
                                   uint64_t address, int sys_errno, struct sidestep_error *err);
/* Every page of granule ${g} with a piece in ${state}, of ${window} (SIZE_MAX: of any), must still
 * be protected, as it was since the call: then what was read of it before is what was there in the
 * call.  Else the save fails.  Who calls keeps the granule from being given back.  Not locked. */
void cow_check_pages(struct cow *cow, size_t g, enum cow_piece_state state, size_t window);
/* Memory has changed in a way that protection does not hold: the save fails, and later ones copy.
 * The first reason counts.  Not locked. */
void cow_distrust(struct cow *cow, const struct sidestep_error *why);
/* Locked: the first reason counts. */
void cow_fail(struct cow *cow, const struct sidestep_error *why);
/* Locked: all protection is lifted, for good. */
void cow_give_up(struct cow *cow, const char *what, int sys_errno);
void *cow_handler_main(void *cow);

#endif
