/* SPDX-License-Identifier: BSD-3-Clause */
/* lease_state.h -- reads the files of a lease: the state of the series, and its holder. */
#ifndef ROOT_LEASE_STATE_H
#define ROOT_LEASE_STATE_H

#include "root/lease.h"

#define LEASE_STATE "state"
#define LEASE_LOCK "lock"
#define LEASE_MAX_BYTES 4096u

/* The state is a line "run <id> incarnation <n>". In a bucket, lines with token and holder
 * follow. The rest, "keeps ..." to the end, is for selection/kept.h. */
struct lease_state {
    char run_id[SAVE_ID_HEX];
    char token[SAVE_ID_HEX]; /* "": a lock protects this series, or it did */
    char holder[160];        /* "": not known */
    uint64_t incarnation;
    char keeps[LEASE_KEEPS_BYTES]; /* "": nothing is recorded */
};

/* Parse a state. ECORRUPT: it is damaged. */
enum sidestep_status lease_state_parse(const char *text, struct lease_state *state,
                                       struct sidestep_error *err);
/* Append the state of ${lease}. ${holder}: in a bucket, who has it. */
void lease_state_format(const struct lease *lease, const char *holder, struct buffer *text);
/* Read the state in ${dir}, ROOT/.sidestep. */
enum sidestep_status lease_state_read(struct store_dir *dir, struct lease_state *state,
                                      struct sidestep_error *err);
/* Was the state lost, or has there never been one? */
static inline bool lease_state_is_lost(enum sidestep_status status)
{
    return status == SIDESTEP_ENOTFOUND || status == SIDESTEP_ECORRUPT;
}

/* The text that the holder wrote into the lock file, such as "process 4711 on node-3". */
struct lease_holder {
    char text[LEASE_MAX_BYTES + 1];
};
const char *lease_state_read_holder(struct store_file *lock, struct lease_holder *holder);

#endif
