/* SPDX-License-Identifier: BSD-3-Clause */
/* sight_groups.c -- groups the ranks by the directory that they see; see sight_groups.h. */
#include "engine/sight_groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "format/format.h"

void sight_groups_release(struct sight_groups *groups)
{
    free(groups->leads);
    free(groups->ranks);
    *groups = (struct sight_groups){0};
}

/* The name of the file that ${rank} makes. */
static void format_name(const uint8_t nonce[SAVE_ID_BYTES], uint32_t rank,
                        char name[FILE_NAME_BYTES])
{
    uint8_t id[SAVE_ID_BYTES];
    char hex[SAVE_ID_HEX];

    hash_id(nonce, SAVE_ID_BYTES, rank, id);
    hash_to_hex(id, SAVE_ID_BYTES, hex);
    file_name_format(FILE_NAME_OUTCOME, hex, 0, 0, name);
}

/* The lowest rank whose file is in ${dir}: that of rank 0, if all ranks see one directory; else a
 * listing is cheaper than a look for each lower rank. */
static enum sidestep_status find_lead(struct store_dir *dir, const uint8_t nonce[SAVE_ID_BYTES],
                                      uint32_t rank, uint32_t *lead, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    OWNED_NAMES struct name_list names = {0};
    struct store_stat stat;

    *lead = 0;
    refresh_names(dir);
    format_name(nonce, 0, name);
    enum sidestep_status status = store_stat(dir, name, &stat, err);
    if (status != SIDESTEP_ENOTFOUND)
        return status;
    TRY(name_list_read(dir, &names, err));
    do
        format_name(nonce, ++*lead, name);
    while (*lead < rank && !name_list_contains(&names, name));
    return SIDESTEP_OK;
}

/* Set ${leads}, per rank: the lead of its group, plus 1. */
static enum sidestep_status find_leads_all(struct comm *comm, struct store_dir *dir,
                                           uint64_t *leads, struct sidestep_error *err)
{
    uint8_t nonce[SAVE_ID_BYTES] = {0};
    enum sidestep_status status = SIDESTEP_OK;
    uint32_t rank = (uint32_t)comm->rank, lead = 0;
    char name[FILE_NAME_BYTES];
    OWNED_FILE *file = NULL;

    if (rank == 0)
        status = random_bytes(nonce, sizeof(nonce), err);
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_broadcast_all(comm, nonce, sizeof(nonce), 0, err));
    format_name(nonce, rank, name);
    status = comm_agree_all(comm, store_file_create(dir, name, 0, &file, err), err);
    if (status == SIDESTEP_OK)
        status = comm_agree_all(comm, find_lead(dir, nonce, rank, &lead, err), err);
    if (file != NULL) /* all have looked, or one has failed */
        (void)store_unlink(dir, name, NULL);
    TRY(status);
    leads[rank] = (uint64_t)lead + 1;
    return comm_reduce_max_all(comm, leads, (size_t)comm->size, err);
}

static enum sidestep_status take_groups(const struct comm *comm, const uint64_t *leads,
                                        struct sight_groups *groups, struct sidestep_error *err)
{
    uint32_t size = (uint32_t)comm->size, mine = 0;
    struct commit_group *group = &groups->mine;

    groups->leads = memory_new(size, sizeof(*groups->leads));
    groups->ranks = memory_new(size, sizeof(*groups->ranks));
    if (groups->leads == NULL || groups->ranks == NULL)
        return FAIL_NOMEM(err, 2 * size * sizeof(*groups->leads));
    for (uint32_t rank = 0; rank < size; rank++) {
        uint64_t lead = leads[rank] - 1;
        if (lead > rank || leads[lead] != lead + 1)
            return FAIL(err, SIDESTEP_EDISAGREE,
                        "rank %u sees what rank %llu has just made, which sees what another rank "
                        "made: is its storage shared by some hosts only?",
                        rank, (unsigned long long)lead);
        groups->leads[rank] = (uint32_t)lead;
        group->groups += lead == rank;
    }
    for (uint32_t rank = 0; rank < size; rank++)
        if (leads[rank] == leads[comm->rank])
            groups->ranks[mine++] = rank;
    if (group->groups > 1)
        *group = (struct commit_group){groups->ranks, mine, group->groups};
    return SIDESTEP_OK;
}

enum sidestep_status sight_group_all(struct comm *comm, struct store_dir *dir,
                                     struct sight_groups *groups, struct sidestep_error *err)
{
    OWNED uint64_t *leads = memory_new((size_t)comm->size, sizeof(*leads));

    *groups = (struct sight_groups){0};
    TRY(comm_agree_all(
        comm, leads != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, (size_t)comm->size * sizeof(*leads)),
        err));
    TRY(find_leads_all(comm, dir, leads, err));
    return comm_agree_all(comm, take_groups(comm, leads, groups, err), err);
}
