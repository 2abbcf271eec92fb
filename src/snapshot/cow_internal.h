/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_internal.h -- declarations shared by the files that implement cow.h: cow.c (begin, stage,
 * end), cow_prepare.c (plan), cow_fault.c (handlers), cow_granule.c (claim and copy a granule),
 * cow_check.c, cow_protect.c (protect, lift, events), cow_failure.c.  No other file includes it. */
#ifndef SNAPSHOT_COW_INTERNAL_H
#define SNAPSHOT_COW_INTERNAL_H

#include <pthread.h>

#include "snapshot/cow.h"
#include "snapshot/cow_plan.h"
#include "snapshot/memory_reader.h"
#include "snapshot/uffd.h"

#define COW_MAX_HANDLERS 8u
#define COW_MAX_THREADS 64u /* threads of an engine that write */
#define COW_READERS 96u     /* more than there are threads that claim granules */

enum cow_granule_state { COW_GRANULE_UNPROTECTED, COW_GRANULE_PROTECTED, COW_GRANULE_CLAIMED };
enum cow_piece_state { COW_PIECE_PENDING, COW_PIECE_COPYING, COW_PIECE_DONE };

/* The state of a granule. */
struct cow_granule_control {
    uint64_t waiting_since_ns; /* a writer has waited since this time; 0: none waits */
    uint64_t waiting_page;     /* the page that it waits for */
    uint32_t state;            /* enum cow_granule_state */
    uint32_t pieces_left;      /* pieces that are not COW_PIECE_DONE */
};

/* A thread that writers may wait for. */
struct cow_thread {
    pid_t thread;
    bool raised;
    struct priority_rights rights;
};

/* Lies in a mapping of its own, like everything that is written under the lock (rule 2 in cow.h).
 */
struct cow {
    /* Constant. */
    struct uffd uffd;
    int stop_fd;  /* readable: the handlers end */
    int retry_fd; /* readable: slots were freed, and one handler retries waiting granules */
    int pagemap_fd;
    unsigned handler_count;
    pthread_t handlers[COW_MAX_HANDLERS];
    struct memory_reader readers[COW_READERS]; /* each belongs to the thread that uses it */
    /* Written by the thread that prepares or begins a snapshot, while no handler is busy. */
    struct cow_plan plan;
    uint64_t planned_pool_bytes OWNED_BY_THREAD(CALLER);
    const struct image *image; /* of the current snapshot: for the names of its items */
    char refusal[120] OWNED_BY_THREAD(CALLER); /* see cow_failure_reason() */
    atomic_bool all_protected; /* set when all is protected, while the trainer is in the call */
    atomic_bool pool_full;     /* see cow_pool_full_flag(); written under the lock */
    struct pool_slots *slots;
    uint8_t *eager_copy; /* the eager copy; NULL: what is not protected is in the slots */
    struct {
        struct lock lock LOCK_KIND(COW);
        struct lock_condition changed;
        bool disabled GUARDED_BY(&lock);   /* protection was given up for good */
        bool unreliable GUARDED_BY(&lock); /* memory has changed although it was protected */
        /* The plan matches the memory, and its ranges are registered. */
        bool plan_valid GUARDED_BY(&lock);
        /* While a snapshot begins: no space for what must be copied in the call. */
        bool pool_exhausted GUARDED_BY(&lock);
        int protect_errno GUARDED_BY(&lock); /* why the kernel refused to protect; 0: it did not */
        size_t unprotected_item GUARDED_BY(&lock); /* the first tensor that this concerns */
        bool wait_cancelled GUARDED_BY(&lock);     /* cow_cancel_fault_wait() was called */
        unsigned busy_handlers GUARDED_BY(&lock);  /* handlers that act on what they have read */
        size_t granules_left GUARDED_BY(&lock);    /* granules that are not unprotected yet */
        size_t granules_awaited GUARDED_BY(&lock); /* granules that a writer waits for */
        struct cow_granule_control *controls GUARDED_BY(&lock);
        size_t controls_capacity GUARDED_BY(&lock);
        uint8_t *pieces GUARDED_BY(&lock); /* enum cow_piece_state */
        size_t pieces_capacity GUARDED_BY(&lock);
        bool reader_is_used[COW_READERS] GUARDED_BY(&lock);
        struct cow_thread threads[COW_MAX_THREADS] GUARDED_BY(&lock);
        unsigned thread_count GUARDED_BY(&lock);
        bool failed GUARDED_BY(&lock);
        struct sidestep_error err GUARDED_BY(&lock);
        struct cow_stats stats GUARDED_BY(&lock);
    } shared;
};

uint64_t cow_now_ns(void);
void *cow_map_anonymous(size_t bytes);
size_t cow_round_up_to_page(size_t bytes);
/* Wait until no handler uses the plan, and lock. */
void cow_lock_idle(struct cow *cow) ACQUIRE(&cow->shared.lock);
/* Unregister all ranges of the plan: their faults and events are no longer reported, and no writer
 * waits. */
void cow_unregister_ranges(struct cow *cow);
/* Locked: claim the pieces of protected granule ${g} whose windows have a slot.  ${acquires}:
 * acquire missing slots.  Returns the bytes claimed; 0: the granule was not claimed. */
uint64_t cow_claim_granule(struct cow *cow, size_t g, bool acquires) REQUIRES(&cow->shared.lock);
/* Locked: unprotect granule ${g}, which the caller has claimed and whose pieces are all done.
 * Releases the lock in between. */
void cow_unprotect_granule(struct cow *cow, size_t g) REQUIRES(&cow->shared.lock);
/* Copy the claimed pieces, and unprotect the granule if none are left. */
void cow_copy_claimed(struct cow *cow, size_t g);
/* Locked: writers no longer have to wait for granule ${g}. */
void cow_end_granule_wait(struct cow *cow, size_t g) REQUIRES(&cow->shared.lock);
/* Lift the protection; handles events that make the kernel return EAGAIN. */
void cow_unprotect(struct cow *cow, uint64_t begin, uint64_t end);
/* Protect, with the same handling of events.  Returns 0 or an errno. */
int cow_protect(struct cow *cow, uint64_t begin, uint64_t end);
/* For a message: the first piece of granule ${g} in [begin, end), or its first piece. */
const struct cow_piece *cow_find_piece(const struct cow *cow, size_t g, uint64_t begin,
                                       uint64_t end);
/* The name of the tensor that ${piece} is part of. */
const char *cow_tensor_name(const struct cow *cow, const struct cow_piece *piece);
/* Fail because memory of ${piece} was freed, discarded or moved too early.  ${how} completes
 * "memory ... was". */
enum sidestep_status cow_fail_lost(const struct cow *cow, const struct cow_piece *piece,
                                   uint64_t address, int sys_errno, const char *how,
                                   struct sidestep_error *err);
/* Fail because memory of ${piece} could not be read.  EFAULT means that it was unmapped: its event
 * may arrive after the read. */
enum sidestep_status cow_report_unreadable(const struct cow *cow, const struct cow_piece *piece,
                                           uint64_t address, int sys_errno,
                                           struct sidestep_error *err);
/* Check that every page of granule ${g} with a claimed piece is still protected.  If so, it was
 * protected since the call, and the bytes that were read are those of the call.  Otherwise the save
 * fails.  The caller has claimed the granule.  Not locked. */
void cow_check_pages(struct cow *cow, size_t g);
/* Fail the save because memory has changed in spite of its protection; later saves copy.  The first
 * reason counts.  Not locked. */
void cow_mark_unreliable(struct cow *cow, const struct sidestep_error *why);
/* Locked: fail the save.  The first reason counts. */
void cow_record_failure(struct cow *cow, const struct sidestep_error *why)
    REQUIRES(&cow->shared.lock);
/* Locked: the first failure of the save; OK: none yet. */
enum sidestep_status cow_first_failure(const struct cow *cow, struct sidestep_error *err)
    REQUIRES(&cow->shared.lock);
/* Locked: handle an event that uffd_read_event() returned, except faults. */
void cow_take_event(struct cow *cow, const struct uffd_message *m) REQUIRES(&cow->shared.lock);
void *cow_fault_handler_main(void *cow);

#endif
