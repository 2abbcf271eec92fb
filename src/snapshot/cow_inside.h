/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_inside.h -- what cow.c (arming, staging, letting go) and cow_fault.c (taking a granule,
 * handlers, events) share, and nobody else includes. */
#ifndef SNAPSHOT_COW_INSIDE_H
#define SNAPSHOT_COW_INSIDE_H

#include <pthread.h>

#include "snapshot/cow.h"
#include "snapshot/cow_plan.h"
#include "snapshot/uffd.h"

#define COW_MAX_HANDLERS 8u
#define COW_BOUNCES 96u /* more than there are threads that take granules */
#define COW_BOUNCE_BYTES ((size_t)256 << 10)

enum cow_state { COW_GIVEN_BACK, COW_PROTECTED, COW_TAKEN };

struct cow_cell {
    uint64_t waited_ns; /* since then somebody waits for who has taken it; 0: nobody */
    uint64_t state;     /* enum cow_state */
};

/* In a mapping of its own, as everything that is written under the lock: see rule 2 in cow.h. */
struct cow {
    /* Constant. */
    struct uffd uffd;
    int stop_fd; /* readable: the handlers end */
    unsigned handler_count;
    pthread_t handlers[COW_MAX_HANDLERS];
    uint8_t *bounces;
    /* Written by who arms, while no handler is busy. */
    struct cow_plan plan;
    uint8_t *pool;
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool dead;     /* protection was given up for good */
        bool planned;  /* the plan is what the memory is: its ranges are registered */
        unsigned busy; /* handlers at work on what they have read */
        size_t left;   /* granules that were not given back yet */
        struct cow_cell *cells;
        size_t cells_room;
        uint64_t free_bounces[(COW_BOUNCES + 63) / 64];
        bool failed;
        struct sidestep_error err;
        struct cow_stats stats;
    } shared;
};

uint64_t cow_now(void);
void *cow_map(size_t bytes);
/* Copy granule ${g}, which the caller has set to COW_TAKEN, and give it back. */
void cow_take(struct cow *cow, size_t g);
/* Lift, whatever events are in the way. */
void cow_lift(struct cow *cow, uint64_t begin, uint64_t end);
/* The same for protecting; 0 or an errno. */
int cow_protect(struct cow *cow, uint64_t begin, uint64_t end);
/* Locked: the first reason counts. */
void cow_fail(struct cow *cow, const struct sidestep_error *why);
/* Locked: all protection is lifted, for good. */
void cow_give_up(struct cow *cow, const char *what, int sys_errno);
void *cow_handler_main(void *cow);

#endif
