/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_memory_turn.c -- saves of several engines of one process, one after the other: so that all
 * of them take no more memory than one does.
 *
 * A turn begins before anything is staged, on the thread that calls, and ends when the body is
 * written, on the runner's; it meets no other rank in between.  C, which waits for the others'
 * votes, waits without one, and sees their files grow.
 */
#include "engine/engine.h"

void save_take_turn(struct sidestep_save *save)
{
    if (save->engine->turn == NULL)
        return;
    while (sem_wait(save->engine->turn) != 0) {
        /* EINTR, by a signal of the program's */
    }
    save->has_turn = true;
}

void save_give_turn(struct sidestep_save *save)
{
    struct sidestep_engine *engine = save->engine;

    if (!save->has_turn)
        return;
    save->has_turn = false;
    press_room_release(&engine->press_room);
    pool_trim(&save->slot->pool, save->slot->pool.bytes);
    (void)sem_post(engine->turn);
}
