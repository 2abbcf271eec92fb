/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * checkpoint.h -- the example's use of sidestep: describes the state of the training, saves it in
 * the background, and loads it again.
 *
 * All functions are collective. A rank prints its errors, with its number; a rank that runs out of
 * memory ends the program on all ranks.
 */
#ifndef EXAMPLE_CHECKPOINT_H
#define EXAMPLE_CHECKPOINT_H

#include <stdio.h>

#include <sidestep/sidestep.h>

#include "optimizer.h"

/* All that a later run must know to continue the training exactly. */
struct training {
    struct model model;
    struct optimizer optimizer;
    uint64_t step;       /* steps done */
    double rate;         /* learning rate of the last step */
    uint64_t random;     /* see random_next() */
    uint64_t position;   /* in each lane's part of the text: the next bytes to learn */
    uint64_t text_bytes; /* a position is valid only for one text */
};

struct checkpoints {
    MPI_Comm mpi;
    int rank;
    FILE *log; /* of rank 0; NULL elsewhere */
    struct sidestep_comm comm;
    struct sidestep_engine *engine;
    struct sidestep_series *series;
    struct sidestep_save *save; /* in flight, or NULL */
    uint64_t saved_step;        /* of the newest save */
    bool stopping;              /* a rank was asked to end */
    unsigned failed;            /* saves that made no checkpoint */
};

/* Open the series of checkpoints under ${root}, one every ${interval} steps. The newest ${keep}
 * stay (0: all). The engine's events are appended to ${events}, unless NULL. SIGTERM on any rank
 * asks for a last checkpoint. After a failure there is nothing to close. */
enum sidestep_status checkpoints_open(struct checkpoints *checkpoints, struct training *training,
                                      const char *root, uint64_t interval, uint32_t keep,
                                      const char *events, FILE *log);

/* Load the newest checkpoint that verifies. SIDESTEP_OK also if there is none yet; ${training} is
 * unchanged then. */
enum sidestep_status checkpoints_resume(struct checkpoints *checkpoints, struct training *training);

/* After each step: is it time to save? The same answer on all ranks. Also sets ${stopping}. */
bool checkpoints_due(struct checkpoints *checkpoints, uint64_t step);

/* Begin to save; returns when the state may change. If a save fails, it is counted and the training
 * goes on: earlier checkpoints are untouched. */
void checkpoints_save(struct checkpoints *checkpoints, struct training *training);

/* Wait for the last save, and close. Returns the number of failed saves; at least 1 if closing
 * failed. */
unsigned checkpoints_close(struct checkpoints *checkpoints);

#endif
