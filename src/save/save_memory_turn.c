/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_memory_turn.c -- lets several engines of one process stage one after the other, so that
 * together they use no more memory than one.
 *
 * A memory turn begins before anything is staged, on the thread that calls.  It ends when the body
 * is written, on the runner's thread.  No collective call happens in between.  While the
 * coordinator waits for votes it holds no turn, and sees the other ranks' files grow.
 */
#include <assert.h>

#include "save/save.h"

void save_memory_turn_begin(struct sidestep_save *save)
{
    if (save->engine->saver->memory_turn == NULL)
        return;
    assert(!save->has_memory_turn);
    while (sem_wait(save->engine->saver->memory_turn) != 0) {
        /* EINTR, by a signal of the program */
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
    (void)sem_post(engine->saver->memory_turn);
}
