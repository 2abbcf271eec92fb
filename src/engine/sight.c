/* SPDX-License-Identifier: BSD-3-Clause */
/* sight.c -- agrees on whether all ranks see what rank 0 made, and finds their hosts; see sight.h.
 */
#include "engine/sight.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MAX_NAMED_HOSTS 3u /* that see it, and that do not; others are counted */

/* What a rank reports. */
struct sight_report {
    char host[64];
    uint8_t sees;
};

/* The ranks of one host that report the same. */
struct group {
    const struct sight_report *all, *first;
};

static bool is_same(const struct sight_report *a, const struct sight_report *b)
{
    return a->sees == b->sees && strcmp(a->host, b->host) == 0;
}

static bool is_in_group(const void *context, uint32_t rank)
{
    const struct group *group = context;

    return is_same(&group->all[rank], group->first);
}

static bool is_first_of_group(const struct sight_report *all, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        if (is_same(&all[i], &all[rank]))
            return false;
    return true;
}

/* "rank 0 on a, ranks 1-3 on b": the ranks that report ${sees}. */
static void describe_hosts(const struct sight_report *all, uint32_t count, bool sees,
                           struct buffer *text)
{
    uint32_t named = 0, others = 0;

    for (uint32_t rank = 0; rank < count; rank++) {
        const struct group group = {.all = all, .first = &all[rank]};
        if ((all[rank].sees != 0) != sees || !is_first_of_group(all, rank))
            continue;
        if (named == MAX_NAMED_HOSTS) {
            others++;
            continue;
        }
        struct rank_list_text ranks = rank_list_format(is_in_group, &group, count);
        buffer_printf(text, "%srank%s %s on %s", named++ != 0 ? ", " : "",
                      strpbrk(ranks.text, "-, ") != NULL ? "s" : "", ranks.text, all[rank].host);
    }
    if (others != 0)
        buffer_printf(text, " and %u more hosts", others);
    buffer_put_u8(text, 0);
}

static enum sidestep_status fail_disagree(struct sight_report *all, uint32_t count,
                                          const char *path, struct sidestep_error *err)
{
    OWNED_BUFFER seeing = {0}, blind = {0};
    uint32_t first = 0;

    for (uint32_t rank = 0; rank < count; rank++)
        all[rank].host[sizeof(all[rank].host) - 1] = '\0';
    while (first < count && all[first].sees)
        first++;
    describe_hosts(all, count, true, &seeing);
    describe_hosts(all, count, false, &blind);
    TRY(buffer_check(&seeing, err));
    TRY(buffer_check(&blind, err));
    enum sidestep_status status =
        FAIL(err, SIDESTEP_EDISAGREE,
             "the ranks do not see the same storage under '%s': what rank 0 has just made there is "
             "seen by %s, but not by %s; nothing was saved, and nothing was lost: choose a path on "
             "a file system that all hosts mount (NFS, Lustre, GPFS, ...), or s3://BUCKET/PREFIX",
             path, (const char *)seeing.bytes, (const char *)blind.bytes);
    if (err != NULL)
        err->rank = (int32_t)first;
    return status;
}

enum sidestep_status sight_agree_all(struct comm *comm, bool sees, const char *path,
                                     struct sidestep_error *err)
{
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    struct sight_report mine = {.host = "?", .sees = sees};
    uint64_t is_blind = !sees;
    enum sidestep_status status = SIDESTEP_OK;

    TRY(comm_reduce_max_all(comm, &is_blind, 1, err));
    if (is_blind == 0)
        return SIDESTEP_OK;
    (void)gethostname(mine.host, sizeof(mine.host) - 1);
    TRY(comm_gather_all(comm, &mine, sizeof(mine), &parts, err));
    if (comm->rank == 0) {
        for (int32_t i = 0; i < comm->size; i++)
            if (parts.sizes[i] != sizeof(mine))
                status = FAIL(err, SIDESTEP_EPEER, "rank %d sent %zu bytes instead of %zu", i,
                              parts.sizes[i], sizeof(mine));
        if (status == SIDESTEP_OK)
            status = fail_disagree((struct sight_report *)(void *)parts.bytes, (uint32_t)comm->size,
                                   path, err);
        assert(status != SIDESTEP_OK);
    }
    return comm_agree_all(comm, status, err);
}

/* ---- hosts */

void sight_hosts_release(struct sight_hosts *hosts)
{
    free(hosts->of_rank);
    *hosts = (struct sight_hosts){0};
}

static int compare_names(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* Number the hosts in the order of the hashes of their names, ${names} (of each rank), and find the
 * number of each rank.  ${sorted}: for as many. */
static void number_hosts(const uint64_t *names, uint64_t *sorted, uint32_t ranks,
                         struct sight_hosts *hosts)
{
    memcpy(sorted, names, ranks * sizeof(*sorted));
    qsort(sorted, ranks, sizeof(*sorted), compare_names);
    hosts->count = 0;
    for (uint32_t i = 0; i < ranks; i++)
        if (i == 0 || sorted[i] != sorted[hosts->count - 1])
            sorted[hosts->count++] = sorted[i];
    for (uint32_t rank = 0; hosts->of_rank != NULL && rank < ranks; rank++) {
        const uint64_t *found =
            bsearch(&names[rank], sorted, hosts->count, sizeof(*sorted), compare_names);
        hosts->of_rank[rank] = (uint32_t)(found - sorted);
    }
}

enum sidestep_status sight_find_hosts_all(struct comm *comm, struct sight_hosts *hosts,
                                          struct sidestep_error *err)
{
    uint32_t ranks = (uint32_t)comm->size;
    OWNED uint64_t *names = memory_new((size_t)2 * ranks, sizeof(*names));
    char name[64] = "";

    *hosts = (struct sight_hosts){.ranks_here = 1, .count = 1};
    if (ranks == 1)
        return SIDESTEP_OK;
    if (comm->rank == 0)
        hosts->of_rank = memory_new(ranks, sizeof(*hosts->of_rank));
    bool has_memory = names != NULL && (comm->rank != 0 || hosts->of_rank != NULL);
    TRY(comm_agree_all(
        comm, has_memory ? SIDESTEP_OK : FAIL_NOMEM(err, (size_t)2 * ranks * sizeof(*names)), err));
    (void)gethostname(name, sizeof(name) - 1);
    uint64_t mine = XXH3_64bits(name, strlen(name)) | 1; /* 0: a rank that has not said its own */
    names[comm->rank] = mine;
    TRY(comm_reduce_max_all(comm, names, ranks, err));
    hosts->ranks_here = 0;
    for (uint32_t i = 0; i < ranks; i++)
        hosts->ranks_here += names[i] == mine;
    number_hosts(names, names + ranks, ranks, hosts);
    return SIDESTEP_OK;
}
