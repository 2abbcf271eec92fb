/* SPDX-License-Identifier: BSD-3-Clause */
/* mirror_nodes.c -- brings the mirror up to date where each node has a directory for itself, and
 * the run is over; see mirror.h. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mirror/mirror.h"
#include "root/root.h"

#define SILENCE_NS UINT64_C(600000000000) /* so long one node waits for the others */
#define MAX_PAUSE_MS 1000u

/* ---- what the calls on all nodes have in common with the run */

/* Nobody knows whether all other nodes have their parts. Who has none says so. */
static const char *find_objection(void *context UNUSED, const struct sidestep_listed *part)
{
    return part->ranks < 2 ? "its manifest is not that of a part" : NULL;
}

/* Has a process of the run the near level open? */
static bool goes_on(const struct mirror_look *m)
{
    char path[COMMIT_PATH_BYTES];
    OWNED_DIR *dir = NULL;

    snprintf(path, sizeof(path), "%s/%s", m->near.root, FILE_NAME_SERIES_DIR);
    return store_dir_open(m->near.store, NULL, path, &dir, NULL) == SIDESTEP_OK &&
           lease_is_held(dir);
}

static bool gives_up(void *context)
{
    const struct mirror_look *m = context;

    return (m->options.cancel != NULL && *m->options.cancel) || goes_on(m);
}

void mirror_take_parts(struct mirror_look *m)
{
    if (goes_on(m))
        return;
    m->own_parts = (struct mirror_parts){.objection = find_objection,
                                         .gives_up = gives_up,
                                         .context = m,
                                         .timeout_ns = fault_hit("mirror.silence") ? 1 : SILENCE_NS,
                                         .is_over = true};
    m->parts = &m->own_parts;
}

bool mirror_leads_parts(const struct mirror_look *m, const struct sidestep_listed *part)
{
    const char *ranks = part->part_ranks != NULL ? part->part_ranks : "";

    return m->parts != NULL &&
           (!m->parts->is_over || (ranks[0] == '0' && !isdigit((unsigned char)ranks[1])));
}

/* ---- the nodes that answer */

/* Answer once. ${*moves}: it did something. ${*is_sent}: who sent it says that it is there, which
 * NFS may show this host some seconds later. OK: go on. */
static enum sidestep_status answer(struct mirror_look *m, const struct sidestep_listed *part,
                                   bool *moves, bool *is_sent, struct sidestep_error *why,
                                   struct sidestep_error *err)
{
    struct mirror_answer *a = &m->answer;
    char seen[SAVE_ID_HEX];

    memcpy(seen, a->seen, sizeof(seen));
    if (gives_up(m))
        return FAIL(err, SIDESTEP_ECANCELLED, "%s",
                    goes_on(m) ? "the run goes on, and sends it itself" : "the call was cancelled");
    enum sidestep_status status = mirror_answer(m, a, a->is_wanted ? a->save_id : "", moves, why);
    *moves = *moves || strcmp(seen, a->seen) != 0;
    if (status != SIDESTEP_OK && *moves && strcmp(a->save_id, part->save_id) == 0 &&
        strcmp(a->attempt, a->seen) == 0)
        return error_copy(err, why); /* this node has ended it */
    *is_sent = a->is_sent && strcmp(a->save_id, part->save_id) == 0;
    if (a->has_ended && !*is_sent)
        return FAIL(err, SIDESTEP_EPEER,
                    "the node that has the part of rank 0 has ended without it");
    return SIDESTEP_OK;
}

static enum sidestep_status report_silence(const struct mirror_look *m, struct sidestep_error *err)
{
    if (m->answer.seen[0] != '\0' && strcmp(m->answer.attempt, m->answer.seen) == 0)
        return FAIL(err, SIDESTEP_ETIMEDOUT,
                    "this node has sent its part; it is not known whether all others have");
    return FAIL(err, SIDESTEP_ETIMEDOUT,
                "no node sends it: do this on all nodes at the same time, also on the one that has "
                "the part of rank 0");
}

enum sidestep_status mirror_await_parts(struct mirror_look *m, const struct sidestep_listed *part,
                                        const char *to, struct sidestep_error *err)
{
    uint64_t since_ns = clock_now(m->clock);
    unsigned long rank = strtoul(part->part_ranks != NULL ? part->part_ranks : "", NULL, 10);
    struct sidestep_error why = {.rank = -1};
    struct backoff backoff = {.max_ms = MAX_PAUSE_MS};

    m->own_parts.rank = rank != 0 ? (uint32_t)rank : 1; /* 0 is who sends */
    for (bool is_sent = false; !is_sent && !mirror_is_there(m, part, to);) {
        bool moves = false;
        TRY(answer(m, part, &moves, &is_sent, &why, err));
        if (moves) {
            since_ns = clock_now(m->clock);
            backoff = (struct backoff){.max_ms = MAX_PAUSE_MS};
        } else if (clock_now(m->clock) - since_ns >= m->parts->timeout_ns)
            return why.status != SIDESTEP_OK ? error_copy(err, &why) : report_silence(m, err);
        backoff_sleep(&backoff, m->clock);
    }
    return SIDESTEP_OK;
}
