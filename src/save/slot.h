/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slot.h -- the memory of an engine's saves: each one under way has a slot, with a pool and an
 * image.
 *
 * The cap (pool_bytes of the engine) holds for all slots together.  A save that finds no memory
 * waits for those before it.  Devices may have the pool of one slot pinned.
 *
 * Several engines of one process can stage one after the other, so that together they use no more
 * memory than one.  Such a memory turn begins before anything is staged, on the thread that calls.
 * It ends when the body is written, on the runner's thread.  No collective call happens in between.
 * While the coordinator waits for votes it holds no turn, and sees the other ranks' files grow.
 */
#ifndef SAVE_SLOT_H
#define SAVE_SLOT_H

#include "save/turn.h"
#include "snapshot/snapshot.h"

#define SLOT_REASON_BYTES 128u /* sidestep_save_info.pool_reason */

/* A slot's memory is freed after this many saves that did not use it. */
#define SLOT_IDLE_SAVES 8u

/* The memory that one save uses until it has ended. */
struct save_slot {
    struct pool pool;
    struct image image;
    uint64_t plan_number; /* of the plan that the image was built for */
    uint64_t used;        /* the engine's save counter at the last use */
};

/* A slot that no save uses.  Call after turn_wait().  Frees pools that were not used for a while.
 */
struct save_slot *slot_take(struct sidestep_engine *engine) ON_THREAD(CALLER);
/* Give the slot of ${save} a pool of ${bytes}: that of another slot whose save has ended, or a new
 * one if the engine's cap allows it.  Otherwise wait for other saves to end first.  ${at_once}:
 * touch its pages, see pool_reserve().  ${pin}: pin it, because tensors on devices are copied to
 * it. */
enum sidestep_status slot_reserve_pool(struct sidestep_save *save, uint64_t bytes, bool at_once,
                                       bool pin, struct sidestep_error *err) ON_THREAD(CALLER);
/* What a pool may have of ${wanted} bytes: the engine's cap, or without one what the machine and
 * the cgroups have left, because the kernel kills a process that takes more.  The
 * ranks of a host share it; an eighth of each share, and at least 64 MiB, stays free.  ${reason}:
 * if that is less than ${wanted}, why. */
uint64_t slot_fit_pool(const struct sidestep_engine *engine, const struct pool *pool,
                       uint64_t wanted, char reason[SLOT_REASON_BYTES]) ON_THREAD(CALLER);
/* Give the first slot a pool of ${bytes}, as far as it fits.  No save may be under way. */
enum sidestep_status slot_prepare_pool(struct sidestep_engine *engine, uint64_t bytes, bool pin,
                                       struct sidestep_error *err) ON_THREAD(CALLER);

/* Call begin before this save stages anything.  Call end when the save is written, or when it has
 * failed and staging has ended; it frees the engine's memory for saves.  No-ops if
 * saver->memory_turn is NULL. */
void slot_begin_memory_turn(struct sidestep_save *save);
void slot_end_memory_turn(struct sidestep_save *save);

#endif
