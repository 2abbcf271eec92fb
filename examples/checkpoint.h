/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * checkpoint.h -- all that the example has to do with sidestep: what the state of the training is,
 * saving it in the background while the training goes on, and finding it again.
 *
 * All functions are collective.  What went wrong is printed, with the rank, where it is noticed; a
 * rank that runs out of memory ends the program on all ranks.
 */
#ifndef EXAMPLE_CHECKPOINT_H
#define EXAMPLE_CHECKPOINT_H

#include <stdio.h>

#include <sidestep/sidestep.h>

#include "optimizer.h"

/* All that a later run must know to go on as if nothing had happened. */
struct training {
    struct model model;
    struct optimizer optimizer;
    uint64_t step;       /* done */
    double rate;         /* learning rate of the last step */
    uint64_t random;     /* see random_next() */
    uint64_t position;   /* of the next bytes to learn, in each lane's part of the text */
    uint64_t text_bytes; /* a position means nothing in another text */
};

struct checkpoints {
    MPI_Comm mpi;
    int rank;
    FILE *log; /* rank 0's; NULL elsewhere */
    struct sidestep_comm comm;
    struct sidestep_engine *engine;
    struct sidestep_series *series;
    struct sidestep_save *save; /* in flight, or NULL */
    uint64_t saved_step;        /* of the newest save */
    bool stopping;              /* some rank was told to end */
    unsigned failed;            /* saves that made no checkpoint */
};

/* Open the series of checkpoints under ${root}, one every ${interval} steps, of which the newest
 * ${keep} stay (0: all); the engine's events are appended to ${events}, if not NULL.  SIGTERM on
 * any rank asks for a last checkpoint.  On failure there is nothing to close. */
enum sidestep_status checkpoints_open(struct checkpoints *checkpoints, struct training *training,
                                      const char *root, uint64_t interval, uint32_t keep,
                                      const char *events, FILE *log);

/* Go back to the newest checkpoint that verifies.  SIDESTEP_OK also if there is none yet, and then
 * ${training} is as it was. */
enum sidestep_status checkpoints_resume(struct checkpoints *checkpoints, struct training *training);

/* After each step: is it time to save?  The same answer on all ranks.  Sets ${stopping} too. */
bool checkpoints_due(struct checkpoints *checkpoints, uint64_t step);

/* Begin to save; returns when the state is copied, and may change.  A save that fails is counted
 * and the training goes on: the checkpoints before it are untouched. */
void checkpoints_save(struct checkpoints *checkpoints, struct training *training);

/* Wait for the last save, and close.  The number of saves that failed; at least 1 if closing did.
 */
unsigned checkpoints_close(struct checkpoints *checkpoints);

#endif
