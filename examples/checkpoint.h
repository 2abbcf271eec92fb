/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * checkpoint.h -- saves the state of the example's training in the background, and loads it again.
 *
 * All functions are collective. Each rank prints its errors with its number. A rank that is out of
 * memory ends the program on all ranks.
 */
#ifndef EXAMPLE_CHECKPOINT_H
#define EXAMPLE_CHECKPOINT_H

#include <stdio.h>

#include <sidestep/sidestep.h>

#include "optimizer.h"

/* All that a later run needs to continue the training exactly. */
struct training {
    struct model model;
    struct optimizer optimizer;
    uint64_t step;       /* steps done */
    double rate;         /* learning rate of the last step */
    uint64_t random;     /* see random_next() */
    uint64_t position;   /* offset of the next bytes to learn, in each lane's part of the text */
    uint64_t text_bytes; /* size of the text for which ${position} is valid */
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
    bool stopping;              /* a rank received SIGTERM */
    unsigned failed;            /* number of failed saves */
};

/* Open the series of checkpoints under ${root}, one every ${interval} steps. The series keeps the
 * newest ${keep} (0: all). The engine appends its events to ${events}, unless NULL. SIGTERM on any
 * rank requests a last checkpoint. After a failure there is nothing to close. */
enum sidestep_status checkpoints_open(struct checkpoints *checkpoints, struct training *training,
                                      const char *root, uint64_t interval, uint32_t keep,
                                      const char *events, FILE *log);

/* Load the newest valid checkpoint. If there is none, ${training} is unchanged, and the status is
 * SIDESTEP_OK. */
enum sidestep_status checkpoints_resume(struct checkpoints *checkpoints, struct training *training);

/* Is it time to save? Call it after each step; all ranks get the same answer. Sets ${stopping}. */
bool checkpoints_due(struct checkpoints *checkpoints, uint64_t step);

/* Start a save, and return when the state may change. A save that fails is counted, and the
 * training continues; earlier checkpoints stay. */
void checkpoints_save(struct checkpoints *checkpoints, struct training *training);

/* Wait for the last save, and close. Returns the number of failed saves; at least 1 if closing
 * failed. */
unsigned checkpoints_close(struct checkpoints *checkpoints);

#endif
