/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_memory_turn.c -- saves of several engines of one process, one after the other: so that all
 * of them take no more memory than one does.
 *
 * A turn begins before anything is staged, on the thread that calls, and ends when the body is
 * written, on the runner's; it meets no other rank in between.  C, which waits for the others'
 * votes, waits without one, and sees their files grow.
 */
#include "save/save.h"

void save_memory_turn_begin(struct sidestep_save *save)
{
    if (save->engine->saver->turn == NULL)
        return;
    while (sem_wait(save->engine->saver->turn) != 0) {
        /* EINTR, by a signal of the program's */
    }
    save->has_memory_turn = true;
}

void save_memory_turn_end(struct sidestep_save *save)
{
    struct sidestep_engine *engine = save->engine;

    if (!save->has_memory_turn)
        return;
    save->has_memory_turn = false;
    compressor_buffers_release(&engine->saver->compressor_buffers);
    pool_trim(&save->slot->pool, save->slot->pool.bytes);
    (void)sem_post(engine->saver->turn);
}
